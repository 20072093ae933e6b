//! A swarm's members and tasks: who there is, what is to be done, who does it, and until when that is believed.
//!
//! Members and tasks are one entity, so that joining, capacity, "one lead at most", claiming and recovery
//! after a death are single decisions that nothing can get between.

mod apply;
mod command;
mod concerned;
mod creation;
mod decide;
mod dependency;
mod ends;
mod event;
mod guard;
mod heads;
mod idle;
mod index;
mod profile;
mod standing;
mod state;
mod steering;
mod tag;
#[cfg(test)]
mod tests;
mod view;

use serde_json::{Map, Value};
use uuid::Uuid;

use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument, Signal};
use crate::id::{EntityKey, Kind};
use crate::json::Json;
use crate::time::Timestamp;

pub use command::{About, Command, Finish, Join, Mailed, Profile, Progress, Reply, Survey};
pub use creation::{Asked, Create, Fact, Rules, Target, TaskSpec};
use guard::Sketch;

pub use concerned::claimable;
pub use decide::ended::{Attempted, answer_for_ended};
pub use dependency::Dependency;
pub use event::{Event, Return};
pub use state::{ForgeLink, Member, Outcome, Pool, Source, Status, Task};
pub use steering::{Untold, steering};
pub use tag::Tag;
pub use view::{MemberView, TaskView};

impl Entity for Pool {
    const KIND: Kind = Kind::Pool;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Pool::new(key.swarm.clone())
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        let id = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
        match kind {
            "task" => self.restore_task(id, &document.read()?),
            "member" => self.take_member(id, document.read()?),
            // Texts: no decision looks at them.
            "profile" => {}
            "steering" => self.steering.restore(id, &document.read()?),
            other => return Err(document.corrupt(format!("`{other}` is no kind of document of a pool"))),
        }
        Ok(())
    }

    fn restored(&mut self) {
        self.tasks.restored();
        self.indexes = std::mem::take(&mut self.gathering).finish();
        self.watch_all();
    }

    fn loaded(&mut self, at: Timestamp) {
        self.ends.begin(at);
    }

    /// Young tasks, whose texts the duplicate guard compares with.
    fn recalls(&self, now: Timestamp) -> Vec<String> {
        self.recent.unread(now).map(apply::key).collect()
    }

    fn recall(&mut self, document: &str, body: &Map<String, Value>) {
        let id = document.split_once('/').and_then(|(_, id)| Uuid::try_parse(id).ok());
        let Some((id, task)) = id.and_then(|id| Some((id, self.tasks.get(id)?))) else { return };
        let text = body.get("task").and_then(Value::as_str).unwrap_or_default();
        if let Some(creator) = task.creator {
            self.recent.read(creator, task.created, id, Sketch::of(text, body));
        }
    }

    /// Whoever ends a task is remembered with its words, and who takes the lead's place has texts by which it works.
    fn consults(command: &Command) -> Option<String> {
        match command {
            Command::Progress(report) if report.finish.is_some() && report.about.is_none() => {
                Some(apply::key(report.task))
            }
            Command::Join(join) if join.lead && join.texts.is_none() => Some(apply::profile_key(join.agent)),
            _ => None,
        }
    }

    fn consulted(command: &mut Command, body: &Json) {
        match command {
            Command::Progress(report) => report.about = About::of_body(body),
            Command::Join(join) => join.texts = Some(Box::new(profile::stored(body))),
            _ => {}
        }
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        let mut decision = self.answer(command, ctx)?;
        let progress = self.epic_progress(&decision.events);
        decision.effects.extend(progress);
        let notes = self.slack_notes(&decision.events);
        decision.effects.extend(notes);
        Ok(decision)
    }

    fn shows(reply: &Reply) -> Option<String> {
        let task = match reply {
            Reply::Created { task, .. } | Reply::Task { task, .. } | Reply::Steered { task, .. } => task,
            Reply::Polled { task, .. } | Reply::Claimed { task, .. } | Reply::Reviewing { task } => {
                task.as_ref()?
            }
            _ => return None,
        };
        Some(apply::key(task.id))
    }

    /// Facts, a task's words, a member's texts and what the epic gives are read anew at each try.
    fn asked(command: &Command) -> Option<Command> {
        if let Command::Join(join) = command {
            return join.texts.is_some().then(|| Command::Join(Join { texts: None, ..join.clone() }));
        }
        if let Command::Describe { agent, profile, edit, .. } = command {
            let (profile, before, edit) = (profile.clone(), Box::default(), edit.clone());
            return Some(Command::Describe { agent: *agent, profile, before, edit });
        }
        if let Command::Progress(report) = command {
            return report
                .about
                .is_some()
                .then(|| Command::Progress(Box::new(Progress { about: None, ..Progress::clone(report) })));
        }
        let Command::Create(create) = command else { return None };
        let mut asked = create.clone();
        asked.facts.clear();
        if asked.spec.epic.is_some() {
            asked.spec.epic_name = None;
            asked.spec.context.remove("githubRepo");
        }
        Some(Command::Create(asked))
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        self.follow(event, changes);
    }

    fn refused(target: &EntityKey, command: &Json, refusal: &Refusal) -> Option<Command> {
        decide::untaken::refused(target, command, refusal)
    }

    fn next_wake(&self) -> Option<Timestamp> {
        let due = [self.deadlines.next(), self.reports.next(), self.claim_due(), self.begin_due()];
        due.into_iter().flatten().min()
    }

    fn watches(&self) -> bool {
        self.deadlines.next().is_some() || self.idle.untold().next().is_some()
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        event.subject()
    }

    fn topics(&self, event: &Event) -> Vec<String> {
        let concerned = self.concerned(event).into_iter().map(|id| id.to_string());
        concerned.chain(self.opened(event)).chain(self.steered(event)).collect()
    }

    fn alarm(&self) -> Option<String> {
        self.unclaimed().or_else(|| self.unbegun())
    }

    fn check(&self) -> Result<(), String> {
        self.invariants()
    }

    fn observe(&mut self, signal: &Signal, now: Timestamp) {
        self.note_alive(signal, now);
    }
}
