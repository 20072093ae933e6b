//! How events change access and its documents.

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Access, Client, Revocation};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Access {
    const KIND: Kind = Kind::Access;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        match document.split().0 {
            "client" => self.insert(document.read()?),
            "revocation" => self.revoke(document.read()?),
            _ => return Err(document.corrupt("access has no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::ClientAdded { client } => {
                changes.put(Client::key(&client.name), client, Some(client.body().into()));
                self.insert((**client).clone());
            }
            Event::ClientRemoved { name } => {
                self.clients.remove(name);
                changes.delete(Client::key(name));
            }
            Event::TokensRevoked { revocation } => {
                changes.put(Revocation::key(revocation.of), revocation, Some(revocation.body().into()));
                self.revoke(revocation.clone());
            }
            Event::RevocationsForgotten { of } => {
                for of in of {
                    self.revoked.remove(of);
                    changes.delete(Revocation::key(*of));
                }
                self.newest = self.revoked.values().map(|one| one.at).max().unwrap_or_default();
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.revoked.values().map(|one| one.until).min()
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::ClientAdded { client } => Some(client.name.to_string()),
            Event::ClientRemoved { name } => Some(name.to_string()),
            Event::TokensRevoked { revocation } => Some(revocation.of.to_string()),
            Event::RevocationsForgotten { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let newest = self.revoked.values().map(|one| one.at).max().unwrap_or_default();
        if newest == self.newest { Ok(()) } else { Err("access: the newest revocation is known".to_owned()) }
    }
}

impl Access {
    fn insert(&mut self, client: Client) {
        self.clients.insert(client.name.clone(), client);
    }

    fn revoke(&mut self, revocation: Revocation) {
        self.newest = self.newest.max(revocation.at);
        self.revoked.insert(revocation.of, revocation);
    }
}
