//! How events change the epics and their documents.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Command, Reply, Texts};
use super::decide;
use super::event::Event;
use super::state::{Epic, Epics, extend};
use crate::channels;
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::json::Json;
use crate::time::Timestamp;

/// Most ended tasks that an epic remembers for the lead's next question. Of more it knows how many they are.
const NEWS: usize = 50;

impl Entity for Epics {
    const KIND: Kind = Kind::Epics;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self { swarm: key.swarm.clone(), epics: BTreeMap::new(), ids: BTreeMap::new() }
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        if document.split().0 != "epic" {
            return Err(document.corrupt("epics have no such document"));
        }
        self.insert(document.read()?);
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    /// An epic whose channel is refused names none.
    fn refused(target: &EntityKey, command: &Json, refusal: &Refusal) -> Option<Command> {
        let command = Some(command).filter(|_| target.kind == Kind::Channels)?;
        let channels::Command::Create(create) = command.read().ok()? else { return None };
        Some(Command::ChannelRefused { channel: create.id?, problem: refusal.message.clone() })
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Created { epic, texts } => {
                self.insert((**epic).clone());
                changes.create(Epic::key(epic.id), epic, body(epic, texts));
            }
            Event::Updated { epic, texts } => {
                self.remove(epic.id);
                self.insert((**epic).clone());
                changes.put(Epic::key(epic.id), epic, Some(body(epic, texts).into()));
            }
            Event::Deleted { epic } => {
                self.remove(*epic);
                changes.delete(Epic::key(*epic));
            }
            Event::ChannelRefused { epic, problem } => {
                let Some(epic) = self.epics.get_mut(epic) else { return };
                epic.channel = None;
                let body = json!({ "channelId": null, "channelProblem": problem });
                changes.put(Epic::key(epic.id), epic, Some(body.into()));
            }
            Event::TaskChanged { epic, task, from, to } => {
                let Some(epic) = self.epics.get_mut(epic) else { return };
                epic.count(*task, from.as_deref(), to.as_deref());
                changes.put(Epic::key(epic.id), epic, Some(epic.counts.body().into()));
            }
            Event::NewsTaken { epics, tasks, unnamed } => {
                for id in epics {
                    let Some(epic) = self.epics.get_mut(id) else { continue };
                    epic.news.retain(|task| !tasks.contains(task));
                    epic.unnamed = epic.unnamed.saturating_sub(unnamed.get(id).copied().unwrap_or_default());
                    changes.put(Epic::key(*id), epic, None);
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn asked(command: &Command) -> Option<Command> {
        if let Command::Denied(denied) = command {
            return Some(denied.asked::<Self>());
        }
        if let Command::TellNews { .. } = command {
            return Some(Command::TellNews { news: Vec::new() });
        }
        let mut asked = command.clone();
        asked.by()?.lead = false;
        Some(asked)
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Created { epic, .. } | Event::Updated { epic, .. } => Some(epic.id.to_string()),
            Event::Deleted { epic }
            | Event::ChannelRefused { epic, .. }
            | Event::TaskChanged { epic, .. } => Some(epic.to_string()),
            Event::NewsTaken { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.ids.len() != self.epics.len() {
            return Err("epics: every name names one epic".to_owned());
        }
        for (id, epic) in &self.epics {
            if self.ids.get(&epic.name) != Some(id) {
                return Err(format!("epics: the name of {id} leads to it"));
            }
            if epic.counts.progress() > 100 {
                return Err(format!("epics: the progress of {id} is a percentage"));
            }
            if epic.news.len() > NEWS {
                return Err(format!("epics: the news of {id} are bounded"));
            }
        }
        Ok(())
    }
}

impl Epics {
    fn insert(&mut self, epic: Epic) {
        self.ids.insert(epic.name.clone(), epic.id);
        self.epics.insert(epic.id, epic);
    }

    fn remove(&mut self, id: Uuid) {
        if let Some(before) = self.epics.remove(&id) {
            self.ids.remove(&before.name);
        }
    }
}

impl Epic {
    fn count(&mut self, task: Uuid, from: Option<&str>, to: Option<&str>) {
        if let Some(from) = from {
            let count = self.counts.of(from);
            *count = count.saturating_sub(1);
        }
        let Some(to) = to else {
            self.news.retain(|&other| other != task);
            return;
        };
        let count = self.counts.of(to);
        *count = count.saturating_add(1);
        let ended = matches!(to, "completed" | "failed" | "cancelled");
        if ended && from.is_some() && !self.news.contains(&task) {
            self.news.push(task);
            if self.news.len() > NEWS {
                self.news.remove(0);
                self.unnamed = self.unnamed.saturating_add(1);
            }
        }
    }
}

fn body(epic: &Epic, texts: &Texts) -> Value {
    let mut body = epic.body();
    extend(&mut body, texts.body());
    body
}
