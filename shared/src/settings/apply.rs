//! How events change the settings and their documents.

use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::repos::Repo;
use super::state::{Held, Setting, Settings};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Settings {
    const KIND: Kind = Kind::Settings;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        match document.split().0 {
            "setting" => self.insert(document.read()?),
            "repo" => {
                let repo: Repo = document.read()?;
                self.repos.insert(repo.id, repo);
            }
            _ => return Err(document.corrupt("settings have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::SettingSet { setting } => {
                self.insert((**setting).clone());
                self.put(setting.id, changes);
            }
            Event::SettingDeleted { setting } => {
                self.remove(*setting);
                changes.delete(Setting::key(*setting));
            }
            Event::SettingResealed { setting: id, value } => {
                let Some(setting) = self.settings.get(id) else { return };
                self.insert(Setting { value: Held::Sealed(value.clone()), ..setting.clone() });
                self.put(*id, changes);
            }
            Event::RepoSet { repo } => {
                changes.put(Repo::key(repo.id), repo, Some(repo.view().into()));
                self.repos.insert(repo.id, Repo::clone(repo));
            }
            Event::RepoRemoved { repo } => {
                self.repos.remove(repo);
                changes.delete(Repo::key(*repo));
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
        let mut asked = command.clone();
        asked.by()?.lead = false;
        Some(asked)
    }

    fn subject(event: &Event) -> Option<String> {
        let id = match event {
            Event::SettingSet { setting } => setting.id,
            Event::SettingDeleted { setting } | Event::SettingResealed { setting, .. } => *setting,
            Event::RepoSet { repo } => repo.id,
            Event::RepoRemoved { repo } => *repo,
        };
        Some(id.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let placed = self.places.iter().all(|(place, id)| {
            self.settings.get(id).is_some_and(|setting| setting.place == *place && setting.id == *id)
        });
        if !placed || self.places.len() != self.settings.len() {
            return Err("settings: each has a place of its own".to_owned());
        }
        if !self.repos_are_told_apart() {
            return Err("settings: no two repositories have the same name, address or place".to_owned());
        }
        let bytes: usize = self.settings.values().map(Setting::bytes).sum();
        if bytes == self.bytes { Ok(()) } else { Err("settings: what they take is counted".to_owned()) }
    }
}

impl Settings {
    fn put(&self, id: Uuid, changes: &mut Changes) {
        let Some(setting) = self.settings.get(&id) else { return };
        changes.put(Setting::key(id), setting, Some(setting.masked().into()));
    }
}
