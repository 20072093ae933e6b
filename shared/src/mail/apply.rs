//! How events change the mail and its documents.

use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Address, Mail};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Mail {
    const KIND: Kind = Kind::Mail;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self::of(&key.swarm)
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        match kind {
            "address" => self.insert(document.read()?),
            "thread" => {
                let digest = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
                self.insert_thread(digest, document.read()?);
            }
            _ => return Err(document.corrupt("mail has no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::InboxRegistered { address } => {
                changes.put(Address::key(address.id), address, Some(address.view().into()));
                self.insert(address.clone());
            }
            Event::InboxUnregistered { address } => {
                self.remove(*address);
                changes.delete(Address::key(*address));
            }
            Event::ThreadFollowed { digest, thread } => {
                changes.put(Self::thread_key(*digest), thread, None);
                self.insert_thread(*digest, *thread);
            }
            Event::ThreadsForgotten { digests } => {
                for digest in digests {
                    self.remove_thread(*digest);
                    changes.delete(Self::thread_key(*digest));
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(at, _)| *at)
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn asked(command: &Command) -> Option<Command> {
        let Command::Register { .. } = command else { return None };
        let mut asked = command.clone();
        if let Command::Register { by, .. } = &mut asked {
            by.lead = false;
        }
        Some(asked)
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::InboxRegistered { address } => Some(address.id.to_string()),
            Event::InboxUnregistered { address } => Some(address.to_string()),
            Event::ThreadFollowed { thread, .. } => Some(thread.task.to_string()),
            Event::ThreadsForgotten { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let known = |(inbox, id): (&String, &Uuid)| {
            self.addresses.get(id).is_some_and(|address| Self::folded(&address.inbox) == *inbox)
        };
        if self.of_inbox.len() != self.addresses.len() || !self.of_inbox.iter().all(known) {
            return Err("mail: an inbox is one agent's".to_owned());
        }
        if self.ends.len() != self.threads.len() {
            return Err("mail: every thread is forgotten one day".to_owned());
        }
        Ok(())
    }
}
