//! A load whose every step is noted outside of the store, before it is asked for and after it is acknowledged;
//! and what those notes say of a store.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use skein_coordinator::entity::{Clock, Request};
use skein_coordinator::store::sqlite::{self, Sqlite};
use skein_coordinator::store::{Store, StoredDocument};
use skein_shared::id::{EntityKey, Kind};
use skein_shared::inboxes::{self, Inboxes};
use skein_shared::pool::TaskSpec;
use tokio::process::Command;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::embedded::{Agent, Kernel, refused};
use crate::probes::sqlite::PAYLOAD;

/// Agents that work on tasks, and agents that answer messages.
const WORKERS: usize = 16;
const CORRESPONDENTS: usize = 8;
/// Between the first numbers of two agents.
const APART: u64 = 1_000_000_000;
/// After a question that was not answered.
const PAUSE: Duration = Duration::from_millis(100);
/// Documents that are read at once.
const PAGE: usize = 1000;

/// The load, in a process of its own, until it is killed. Standard output takes the notes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Witnessed {
    /// Where the store is.
    #[arg(long)]
    folder: PathBuf,
    /// Leave out the flushes, for a run that has to lose something.
    #[arg(long)]
    without_flushes: bool,
    /// Do one of each and end.
    #[arg(long)]
    once: bool,
}

/// Runs the load.
///
/// # Errors
/// The first one: nothing is to be refused.
pub(crate) async fn work(load: Witnessed) -> Result<()> {
    let durability =
        if load.without_flushes { sqlite::Durability::Disposable } else { sqlite::Durability::Full };
    let kernel = Kernel::open_with(&load.folder, durability)?;
    if load.once {
        let number = WORKERS + CORRESPONDENTS;
        let agent = kernel.join(number).await?;
        task(&agent, number as u64 * APART).await?;
        return message(&agent, number as u64 * APART).await;
    }
    let mut agents = JoinSet::new();
    for number in 0..WORKERS + CORRESPONDENTS {
        let agent = kernel.join(number).await?;
        let first = number as u64 * APART;
        agents.spawn(async move {
            for number in first.. {
                let done = if number < WORKERS as u64 * APART {
                    task(&agent, number).await
                } else {
                    message(&agent, number).await
                };
                // Whoever stood still for long finds that its question took too long: it was asked, and not
                // acknowledged. There are others to do.
                if let Err(error) = done {
                    eprintln!("    {error:#}");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
    }
    agents.join_next().await;
    anyhow::bail!("agents work until they are killed")
}

async fn task(agent: &Agent, number: u64) -> Result<()> {
    let thing = Thing { sort: Sort::Task, number };
    let spec = TaskSpec::new(thing.text());
    let id = thing.noted(1, agent.create(spec)).await?;
    thing.noted(2, agent.claim(id)).await?;
    thing.noted(3, agent.complete(id)).await
}

async fn message(agent: &Agent, number: u64) -> Result<()> {
    let thing = Thing { sort: Sort::Message, number };
    let key = EntityKey::of(Kind::Inboxes, &agent.kernel.swarm);
    let ask = |command| agent.kernel.entities.ask::<Inboxes>(&key, Request::once(Uuid::now_v7()), command);
    let deliver = inboxes::Command::Deliver(Box::new(inboxes::Deliver {
        agent: agent.id,
        content: thing.text(),
        source: inboxes::Source::System,
        slack: inboxes::Slack::default(),
        dedupe: None,
        mail: None,
    }));
    let delivered = async { ask(deliver).await.map_err(refused) };
    let inboxes::Reply::Delivered { message, .. } = thing.noted(1, delivered).await? else {
        anyhow::bail!("the inboxes made no message");
    };
    let respond = inboxes::Command::Respond { agent: agent.id, message, text: thing.text() };
    thing.noted(2, async { ask(respond).await.map_err(refused) }).await.map(|_| ())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Sort {
    Task,
    Message,
}

/// A task or a message, by the number in its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing {
    sort: Sort,
    number: u64,
}

impl Thing {
    fn text(self) -> String {
        format!("{} {PAYLOAD}", self.number)
    }

    fn named(self) -> String {
        let sort = match self.sort {
            Sort::Task => "task",
            Sort::Message => "message",
        };
        format!("{sort} {}", self.number)
    }

    /// Does a step and notes it twice. Each line is one write to a file, so a process that is stopped has
    /// written whole lines and all that it acknowledged.
    async fn noted<T>(self, step: u8, doing: impl Future<Output = Result<T>>) -> Result<T> {
        println!("{}", Note { thing: self, step, acknowledged: false });
        let done = doing.await?;
        println!("{}", Note { thing: self, step, acknowledged: true });
        Ok(done)
    }
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Note {
    thing: Thing,
    step: u8,
    acknowledged: bool,
}

impl std::fmt::Display for Note {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mark = if self.acknowledged { "acknowledged" } else { "asked" };
        write!(f, "{} {} {mark}", self.thing.named(), self.step)
    }
}

impl FromStr for Note {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let mut fields = line.split(' ');
        let mut next = || fields.next().with_context(|| format!("`{line}` is no note"));
        let sort = if next()? == "task" { Sort::Task } else { Sort::Message };
        let thing = Thing { sort, number: next()?.parse()? };
        Ok(Self { thing, step: next()?.parse()?, acknowledged: next()? == "acknowledged" })
    }
}

/// The furthest step of a thing that was asked for, and that was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Steps {
    asked: u8,
    acknowledged: u8,
}

/// All that was noted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    things: BTreeMap<Thing, Steps>,
    pub acknowledged: u64,
}

impl Notes {
    /// Takes up further lines.
    ///
    /// # Errors
    /// When they are no notes.
    pub(crate) fn read(&mut self, text: &str) -> Result<()> {
        for line in text.lines() {
            let note: Note = line.parse()?;
            let steps = self.things.entry(note.thing).or_default();
            let furthest = if note.acknowledged { &mut steps.acknowledged } else { &mut steps.asked };
            *furthest = note.step.max(*furthest);
            self.acknowledged += u64::from(note.acknowledged);
        }
        Ok(())
    }

    /// Compares with what a store has.
    fn compare(&self, found: &[Found]) -> Difference {
        let mut difference = Difference::default();
        let mut steps: BTreeMap<Thing, u8> = BTreeMap::new();
        for one in found {
            let Some(thing) = one.thing.filter(|thing| one.whole && one.text == thing.text()) else {
                difference.invented.push(format!("{one:?}"));
                continue;
            };
            let asked = self.things.get(&thing).map_or(0, |steps| steps.asked);
            if one.step > asked || steps.insert(thing, one.step).is_some() {
                difference.invented.push(format!("{} at step {} of {asked}", thing.named(), one.step));
            }
        }
        for (thing, noted) in &self.things {
            let step = steps.get(thing).copied().unwrap_or(0);
            if step < noted.acknowledged {
                difference.lost.push(format!("{} at step {step} of {}", thing.named(), noted.acknowledged));
            }
        }
        difference
    }
}

/// Where a store and the notes differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Difference {
    /// Acknowledged, and not there.
    pub lost: Vec<String>,
    /// There, and never asked for, or with another text.
    pub invented: Vec<String>,
}

/// A thing in a store.
#[derive(Clone, Debug)]
struct Found {
    thing: Option<Thing>,
    text: String,
    step: u8,
    /// What it ended with is there, or it has not ended.
    whole: bool,
}

impl Found {
    fn read(document: &StoredDocument) -> Option<Self> {
        let (sort, field) = match (document.key.kind, document.document.split_once('/')?.0) {
            (Kind::Pool, "task") => (Sort::Task, "task"),
            (Kind::Inboxes, "message") => (Sort::Message, "content"),
            _ => return None,
        };
        let step = match document.body["status"].as_str() {
            Some("unassigned" | "unread") => 1,
            Some("in_progress" | "responded") => 2,
            Some("completed") => 3,
            _ => u8::MAX,
        };
        let text = document.body[field].as_str().unwrap_or_default().to_owned();
        let whole = match (sort, step) {
            (Sort::Task, 3) => document.body["output"] == "done",
            (Sort::Message, 2) => document.body["responseText"] == text.as_str(),
            _ => true,
        };
        let number = text.split(' ').next().and_then(|number| number.parse().ok());
        Some(Self { thing: number.map(|number| Thing { sort, number }), text, step, whole })
    }
}

/// Opens a store that a power cut left, compares it with the notes, and works with it.
///
/// # Errors
/// When it does not open or does not work.
pub(crate) async fn examine(folder: &Path, notes: &Notes) -> Result<Difference> {
    let difference = notes.compare(&found_in(folder).await?);
    // In a process of its own, so that nothing of it stays behind.
    let mut works = Command::new(std::env::current_exe()?);
    works.args(["witness", "--once", "--folder"]).arg(folder).stdout(Stdio::null());
    anyhow::ensure!(works.status().await?.success(), "the store does not work");
    Ok(difference)
}

async fn found_in(folder: &Path) -> Result<Vec<Found>> {
    let store = Sqlite::open(&folder.join("store.db"), Clock::start().wall())?;
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.documents(after, PAGE).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some((last.key.clone(), last.document.clone()));
        found.extend(page.iter().filter_map(Found::read));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(text: &str) -> Notes {
        let mut notes = Notes::default();
        notes.read(text).expect("notes");
        notes
    }

    fn found(number: u64, step: u8) -> Found {
        let thing = Thing { sort: Sort::Task, number };
        Found { thing: Some(thing), text: thing.text(), step, whole: true }
    }

    const TASK: &str = "task 7 1 asked\ntask 7 1 acknowledged\ntask 7 2 asked\n";

    #[test]
    fn what_was_asked_may_have_happened_and_what_was_acknowledged_must_have() {
        let notes = notes(TASK);
        assert_eq!(notes.acknowledged, 1);
        for step in [1, 2] {
            assert_eq!(notes.compare(&[found(7, step)]), Difference::default());
        }
    }

    #[test]
    fn a_check_that_finds_nothing_would_prove_nothing() {
        let notes = notes(TASK);
        assert_eq!(notes.compare(&[]).lost.len(), 1);
        assert_eq!(notes.compare(&[found(7, 3)]).invented.len(), 1, "a step too far");
        assert_eq!(notes.compare(&[found(7, 1), found(8, 1)]).invented.len(), 1, "another task");
        assert_eq!(notes.compare(&[found(7, 1), found(7, 1)]).invented.len(), 1, "the same task twice");
        let other = Found { text: "7 something else".to_owned(), ..found(7, 1) };
        for damaged in [other, Found { whole: false, ..found(7, 1) }] {
            let difference = notes.compare(&[damaged]);
            assert_eq!((difference.lost.len(), difference.invented.len()), (1, 1), "another text");
        }
    }

    #[test]
    fn notes_survive_their_text() {
        let thing = Thing { sort: Sort::Message, number: 12 };
        let note = Note { thing, step: 2, acknowledged: true };
        assert_eq!(note.to_string().parse::<Note>().expect("a note"), note);
        assert!("nonsense".parse::<Note>().is_err());
    }
}
