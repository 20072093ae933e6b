//! How events change the memory and its documents.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use super::command::{Command, Reply};
use super::event::Event;
use super::state::Memory;
use super::{decide, key};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Memory {
    const KIND: Kind = Kind::Memory;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self { files: BTreeMap::new() }
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let ("file", id) = document.split() else {
            return Err(document.corrupt("the memory has no such document"));
        };
        let file = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
        self.files.insert(file, document.read()?);
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Remembered { memory, learning, file, replaces, at } => {
                for replaced in replaces {
                    changes.delete(key(*replaced));
                }
                changes.archive(key(*memory), &json!({}), Some(learning.body(*memory, *at)));
                if let Some(file) = file {
                    self.note(*file, *memory, replaces, changes);
                }
            }
            Event::Forgotten { memory } => {
                changes.delete(key(*memory));
                self.drop_from_files(*memory, changes);
            }
            Event::Touched { memory, at } => {
                changes.archive(key(*memory), &json!({}), Some(json!({ "accessedAt": at.iso() })));
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Remembered { memory, .. }
            | Event::Forgotten { memory }
            | Event::Touched { memory, .. } => Some(memory.to_string()),
        }
    }

    fn check(&self) -> Result<(), String> {
        match self.files.iter().find(|(_, file)| file.memories.is_empty()) {
            Some((file, _)) => Err(format!("memory: the file {file} left something behind")),
            None => Ok(()),
        }
    }
}

impl Memory {
    fn note(&mut self, file: Uuid, memory: Uuid, replaces: &[Uuid], changes: &mut Changes) {
        let memories = &mut self.files.entry(file).or_default().memories;
        memories.retain(|known| !replaces.contains(known));
        if !memories.contains(&memory) {
            memories.push(memory);
        }
        self.put(file, changes);
    }

    fn drop_from_files(&mut self, memory: Uuid, changes: &mut Changes) {
        let holders = self.files.iter().filter(|(_, file)| file.memories.contains(&memory));
        let holders: Vec<Uuid> = holders.map(|(file, _)| *file).collect();
        for file in holders {
            if let Some(file) = self.files.get_mut(&file) {
                file.memories.retain(|&known| known != memory);
            }
            self.put(file, changes);
        }
    }

    /// Writes a file's document, or removes it with the file's last learning.
    fn put(&mut self, file: Uuid, changes: &mut Changes) {
        let Some(known) = self.files.get(&file) else { return };
        if known.memories.is_empty() {
            self.files.remove(&file);
            changes.delete(Self::file_key(file));
        } else {
            changes.put(Self::file_key(file), known, None);
        }
    }
}
