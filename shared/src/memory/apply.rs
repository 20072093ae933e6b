//! How events change the memory and its documents.

use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Command, Embedding, Meaning, Remember, Reply};
use super::event::Event;
use super::state::{Embedded, Head, Memory};
use super::vector::Model;
use super::{LEARNT, decide, key};
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
        Self::new()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        let id = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
        match kind {
            "file" => drop(self.files.insert(id, document.read()?)),
            "memory" => self.know(id, document.read()?),
            "vector" => {
                let Embedded { model } = document.read()?;
                let of = self.learnings.get_mut(&id);
                of.ok_or_else(|| document.corrupt("it belongs to no learning"))?.embedded = Some(model);
            }
            _ => return Err(document.corrupt("the memory has no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Remembered { memory, learning, file, replaces, at } => {
                replaces.iter().for_each(|replaced| self.forget(*replaced, changes));
                self.take_in(*memory, learning, *at, changes);
                if let Some(file) = file {
                    self.note(*file, *memory, replaces, changes);
                }
            }
            Event::Filed { file, memories } => self.fill(*file, memories, changes),
            Event::Forgotten { memory } => {
                self.forget(*memory, changes);
                self.drop_from_files(*memory, changes);
            }
            Event::Touched { memory, at } => {
                if let Some(learning) = self.learnings.get(memory) {
                    changes.put(key(*memory), &learning.head, Some(json!({ "accessedAt": at.iso() }).into()));
                }
            }
            Event::Embedded { model, embedding } => self.embedded(model, embedding, changes),
        }
    }

    fn asked(command: &Command) -> Option<Command> {
        match command {
            Command::Denied(denied) => Some(denied.asked::<Self>()),
            Command::Forget { memory, name: Some(_) } => {
                Some(Command::Forget { memory: *memory, name: None })
            }
            _ => None,
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
            Event::Filed { file, .. } => Some(file.to_string()),
            Event::Embedded { embedding, .. } => Some(embedding.memory.to_string()),
        }
    }

    fn topics(&self, event: &Event) -> Vec<String> {
        let learnt = matches!(event, Event::Remembered { .. }).then(|| LEARNT.to_owned());
        Self::subject(event).into_iter().chain(learnt).collect()
    }

    fn check(&self) -> Result<(), String> {
        if let Some((file, _)) = self.files.iter().find(|(_, file)| file.memories.is_empty()) {
            return Err(format!("memory: the file {file} left something behind"));
        }
        let said = self.contents.len();
        if said > self.learnings.len() || self.passing.len() > self.learnings.len() {
            return Err(format!("memory: {said} contents of {} learnings", self.learnings.len()));
        }
        Ok(())
    }
}

impl Memory {
    fn take_in(&mut self, memory: Uuid, learning: &Remember, at: Timestamp, changes: &mut Changes) {
        if self.learnings.contains_key(&memory) {
            // It says something else now.
            self.forget(memory, changes);
        }
        let head = Head::of(learning);
        changes.create(key(memory), &head, learning.body(memory, at));
        self.know(memory, head);
    }

    fn forget(&mut self, memory: Uuid, changes: &mut Changes) {
        let Some(learning) = self.learnings.get(&memory) else { return };
        if learning.embedded.is_some() {
            changes.delete(Self::vector_key(memory));
        }
        changes.delete(key(memory));
        self.unknow(memory);
    }

    fn embedded(&mut self, model: &Model, embedding: &Embedding, changes: &mut Changes) {
        let Some(learning) = self.learnings.get_mut(&embedding.memory) else { return };
        let head = Embedded { model: model.id() };
        let is_first = learning.embedded.replace(head.model).is_none();
        let (vector, problem) = match &embedding.meaning {
            Meaning::Vector(vector) => (json!(vector), Value::Null),
            Meaning::None(problem) => (Value::Null, json!(problem)),
        };
        let body = json!({
            "memoryId": embedding.memory,
            "agentId": embedding.agent,
            "scope": embedding.scope,
            "source": embedding.source,
            "modelId": head.model,
            "model": model.name,
            "dimensions": model.dimensions,
            "vector": vector,
            "problem": problem,
        });
        let document = Self::vector_key(embedding.memory);
        if is_first {
            changes.create(document, &head, body);
        } else {
            changes.put(document, &head, Some(body.into()));
        }
    }

    fn note(&mut self, file: Uuid, memory: Uuid, replaces: &[Uuid], changes: &mut Changes) {
        let memories = &mut self.files.entry(file).or_default().memories;
        memories.retain(|known| !replaces.contains(known));
        if !memories.contains(&memory) {
            memories.push(memory);
        }
        self.put(file, changes);
    }

    fn fill(&mut self, file: Uuid, memories: &[Uuid], changes: &mut Changes) {
        let known = self.files.entry(file).or_default();
        let before = std::mem::replace(&mut known.memories, memories.to_vec());
        before.into_iter().for_each(|memory| self.forget(memory, changes));
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
