//! The rules of the memory.

use uuid::Uuid;

use super::NULLABLE;
use super::command::{Command, Remember, Reply, Scope, Source};
use super::event::Event;
use super::state::Memory;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::wire;

const NAME: usize = 500;
const PATH: usize = 4096;
/// Most pieces of one file.
const CHUNKS: u32 = 10_000;

pub(super) fn decide(state: &Memory, command: &Command, ctx: &mut Ctx) -> Result<Decision<Memory>, Refusal> {
    let event = match command {
        Command::Remember(learning) => return state.remember(learning, ctx),
        Command::Forget { memory } => Event::Forgotten { memory: *memory },
        Command::Touch { memory } => Event::Touched { memory: *memory, at: ctx.now },
        Command::Tick => return Ok(Decision::reply(Reply::Done)),
    };
    Ok(Decision::new(Reply::Done, vec![event]))
}

impl Memory {
    fn remember(&self, learning: &Remember, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(learning)?;
        let memory = learning.id.unwrap_or_else(|| ctx.id());
        let path = learning.source_path.as_deref().filter(|_| learning.source == Source::FileIndex);
        let file = path.map(|path| Self::file(learning.agent, path));
        let replaces: Vec<Uuid> = match file.and_then(|file| self.files.get(&file)) {
            Some(file) if learning.chunk_index == 0 => {
                file.memories.iter().copied().filter(|&known| known != memory).collect()
            }
            _ => Vec::new(),
        };
        let body = wire::shown(learning.body(memory, ctx.now), &NULLABLE);
        let learning = Box::new(learning.clone());
        let event = Event::Remembered { memory, learning, file, replaces, at: ctx.now };
        Ok(Decision::new(Reply::Remembered(body), vec![event]))
    }
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
