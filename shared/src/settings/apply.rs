//! How events change the settings and their documents.

use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
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
        if document.split().0 != "setting" {
            return Err(document.corrupt("settings have no such document"));
        }
        self.insert(document.read()?);
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
