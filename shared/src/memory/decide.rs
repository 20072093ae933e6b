//! The rules of the memory.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use uuid::Uuid;

use super::NULLABLE;
use super::command::{Command, Embedding, Remember, Reply, Scope};
use super::event::Event;
use super::pieces::pieces;
use super::state::{Head, Memory};
use super::vector::Model;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::limits::LEARNINGS;
use crate::wire;

const NAME: usize = 500;
const PATH: usize = 4096;
/// Most pieces of one file.
const CHUNKS: u32 = 10_000;

/// Most learnings that one answer names.
const NAMED: usize = 1000;

pub(super) fn decide(state: &Memory, command: &Command, ctx: &mut Ctx) -> Result<Decision<Memory>, Refusal> {
    let events = match command {
        Command::Remember(learning) => return state.remember(learning, ctx),
        Command::Index(text) => return state.index(text, ctx),
        Command::Lacking { model, limit } => {
            return Ok(Decision::reply(Reply::Learnings(state.lacking(*model, *limit))));
        }
        Command::Embed { model, embeddings } => state.embed(model, embeddings),
        Command::Forget { memory, name } => {
            let events = state.known(*memory, Event::Forgotten { memory: *memory });
            let forgotten =
                name.as_ref().map(|name| Reply::Remembered(json!({ "id": memory, "name": name })));
            return Ok(Decision::new(forgotten.unwrap_or(Reply::Done), events));
        }
        Command::Touch { memory } => state.known(*memory, Event::Touched { memory: *memory, at: ctx.now }),
        Command::Denied(denied) => return Err(denied.refusal.clone()),
        Command::Tick => Vec::new(),
    };
    Ok(Decision::new(Reply::Done, events))
}

impl Memory {
    fn remember(&self, learning: &Remember, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(learning)?;
        let head = Head::of(learning);
        if let Some(&memory) = head.content.and_then(|content| self.contents.get(&content)) {
            let event = Event::Touched { memory, at: ctx.now };
            return Ok(Decision::new(Reply::Known(memory), vec![event]));
        }
        let memory = learning.id.unwrap_or_else(|| ctx.id());
        let file = learning.file_path().map(|path| Self::file(learning.agent, path));
        let replaces: Vec<Uuid> = match file.and_then(|file| self.files.get(&file)) {
            Some(file) if learning.chunk_index == 0 => {
                file.memories.iter().copied().filter(|&known| known != memory).collect()
            }
            _ => Vec::new(),
        };
        let mut events = Vec::new();
        if replaces.is_empty() && !self.learnings.contains_key(&memory) && self.learnings.len() >= LEARNINGS {
            events = self.make_room(1, &BTreeSet::new())?;
        }
        let body = wire::shown(learning.body(memory, ctx.now), &NULLABLE);
        let learning = Box::new(learning.clone());
        events.push(Event::Remembered { memory, learning, file, replaces, at: ctx.now });
        Ok(Decision::new(Reply::Remembered(body), events))
    }

    /// All pieces of a text or none, so that nobody finds half of it: what a file said stays until it says something
    /// else.
    fn index(&self, text: &Remember, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(text)?;
        let (mut memories, mut events) = (Vec::new(), Vec::new());
        let mut said: BTreeMap<Uuid, Uuid> = BTreeMap::new();
        for learning in cut(text) {
            let content = Head::of(&learning).content;
            if let Some(&memory) = content.and_then(|content| said.get(&content)) {
                memories.push(memory);
                continue;
            }
            let known = content.and_then(|content| self.contents.get(&content)).copied();
            let memory = known.unwrap_or_else(|| ctx.id());
            said.extend(content.map(|content| (content, memory)));
            memories.push(memory);
            let (learning, at) = (Box::new(learning), ctx.now);
            events.push(match known {
                Some(memory) => Event::Touched { memory, at },
                None => Event::Remembered { memory, learning, file: None, replaces: Vec::new(), at },
            });
        }
        let file = text.file_path().map(|path| Self::file(text.agent, path));
        let before = file.and_then(|file| self.files.get(&file)).map_or(0, |file| file.memories.len());
        let more = events.iter().filter(|event| matches!(event, Event::Remembered { .. })).count();
        let excess = (self.learnings.len() + more).saturating_sub(LEARNINGS + before);
        let gone = self.make_room(excess, &memories.iter().copied().collect())?;
        events.splice(0..0, gone);
        if let Some(file) = file.filter(|_| before + more > 0) {
            events.push(Event::Filed { file, memories: memories.clone() });
        }
        Ok(Decision::new(Reply::Indexed(memories), events))
    }

    /// Forgets so many of those that may be forgotten for others, the oldest first, and none of those that are wanted.
    fn make_room(&self, count: usize, wanted: &BTreeSet<Uuid>) -> Result<Vec<Event>, Refusal> {
        let oldest = self.passing.iter().filter(|memory| !wanted.contains(*memory)).take(count);
        let gone: Vec<Event> = oldest.map(|&memory| Event::Forgotten { memory }).collect();
        if gone.len() < count {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "the swarm remembers {LEARNINGS} things, the most it may, and none that may be forgotten for another; index fewer files, or have something forgotten by `skein memory forget`"
                ),
            ));
        }
        Ok(gone)
    }

    fn known(&self, memory: Uuid, event: Event) -> Vec<Event> {
        self.learnings.contains_key(&memory).then_some(event).into_iter().collect()
    }

    fn lacking(&self, model: Uuid, limit: usize) -> Vec<Uuid> {
        let lacking = self.learnings.iter().filter(|(_, learning)| learning.embedded != Some(model));
        lacking.map(|(memory, _)| *memory).take(limit.min(NAMED)).collect()
    }

    /// Of learnings that were forgotten meanwhile nothing is kept.
    fn embed(&self, model: &Model, embeddings: &[Embedding]) -> Vec<Event> {
        let embedded = |embedding: &Embedding| {
            let event = Event::Embedded { model: model.clone(), embedding: Box::new(embedding.clone()) };
            self.known(embedding.memory, event)
        };
        embeddings.iter().flat_map(embedded).collect()
    }
}

/// What is to be remembered of a text, in its order.
fn cut(text: &Remember) -> impl Iterator<Item = Remember> {
    let pieces = pieces(&text.content);
    let total_chunks = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let whole = Remember { id: None, content: String::new(), total_chunks, ..text.clone() };
    (0..).zip(pieces).map(move |(chunk_index, content)| Remember { content, chunk_index, ..whole.clone() })
}

fn check(learning: &Remember) -> Result<(), Refusal> {
    wire::length("name", &learning.name, 1, NAME)?;
    wire::text("content", &learning.content, 1)?;
    wire::text("summary", learning.summary.as_deref().unwrap_or_default(), 0)?;
    wire::length("sourcePath", learning.source_path.as_deref().unwrap_or_default(), 0, PATH)?;
    wire::tags(&learning.tags)?;
    if learning.scope == Scope::Agent && learning.agent.is_none() {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "scope: agent needs the agent whose learning it is; name one or use swarm",
        ));
    }
    if learning.total_chunks > CHUNKS || learning.chunk_index >= learning.total_chunks {
        return Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "chunk_index: {} is not below total_chunks {} (at most {CHUNKS}); number the pieces from 0",
                learning.chunk_index, learning.total_chunks
            ),
        ));
    }
    Ok(())
}
