//! How events change the services and their documents.

use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Service, Services};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Services {
    const KIND: Kind = Kind::Services;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        if document.split().0 != "service" {
            return Err(document.corrupt("services have no such document"));
        }
        self.insert(document.read()?);
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::ServiceRegistered { service } | Event::ServiceChanged { service } => {
                self.insert((**service).clone());
                self.put(service.id, changes);
            }
            Event::ServiceUnregistered { service } => {
                self.remove(*service);
                changes.delete(Service::key(*service));
            }
            Event::ServiceHealth { service, health, at } => {
                if let Some(service) = self.services.get_mut(service) {
                    (service.health, service.updated) = (*health, *at);
                }
                self.put(*service, changes);
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Command {
        Command::Tick
    }

    /// Who leads may have changed between two tries of one request.
    fn asked(command: &Command) -> Option<Command> {
        let Command::Unregister { by, which, .. } = command else { return None };
        Some(Command::Unregister { by: *by, which: which.clone(), lead: false })
    }

    fn subject(event: &Event) -> Option<String> {
        let (Event::ServiceRegistered { service } | Event::ServiceChanged { service }) = event else {
            let (Event::ServiceUnregistered { service } | Event::ServiceHealth { service, .. }) = event
            else {
                return None;
            };
            return Some(service.to_string());
        };
        Some(service.id.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let known = |(agent, id): (&Uuid, &Uuid)| {
            self.services.get(id).is_some_and(|service| service.agent == *agent)
        };
        if self.of_agent.len() != self.services.len() || !self.of_agent.iter().all(known) {
            return Err("services: an agent has one service".to_owned());
        }
        let bytes: usize = self.services.values().map(Service::bytes).sum();
        if bytes == self.bytes { Ok(()) } else { Err("services: their texts are counted".to_owned()) }
    }
}

impl Services {
    fn put(&self, id: Uuid, changes: &mut Changes) {
        let Some(service) = self.services.get(&id) else { return };
        changes.put(Service::key(id), service, Some(service.body().into()));
    }
}
