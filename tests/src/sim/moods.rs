//! Whoever runs an agent changes its mind: defines it anew, pauses it and goes on.

use fastrand::Rng;
use skein_shared::agent::{self, Definition};
use skein_shared::id::EntityKey;

use super::clients::{Next, Phase, ask, swarm};
use super::history::Call;

/// What the agent is when all is calm.
pub fn usual() -> Definition {
    Definition { scale: 2, ..Definition::default() }
}

/// What may be other than usual, as far as is known.
#[derive(Debug, Default)]
pub struct Moods {
    defined: bool,
    paused: bool,
}

impl Moods {
    /// A change: now and then while things go wrong, and back to what is usual after that. An answer to what has
    /// changed nothing is not kept, so that a late copy of the question would be a change: each pause is one.
    pub fn change(&mut self, agent: &EntityKey, phase: Phase, rng: &mut Rng) -> Option<Next> {
        match phase {
            Phase::Calm if self.paused => Some(self.pause(agent)),
            Phase::Calm => self.defined.then(|| self.define(agent, usual())),
            Phase::Storm if rng.u8(0..3) > 0 => None,
            Phase::Storm if rng.bool() => Some(self.pause(agent)),
            Phase::Storm => Some(self.define(agent, some(rng))),
        }
    }

    /// A failover may have dropped what is usual.
    pub fn calm(&mut self) {
        (self.defined, self.paused) = (true, true);
    }

    /// Pauses it, or goes on.
    fn pause(&self, agent: &EntityKey) -> Next {
        let paused = !self.paused;
        ask(agent.clone(), &agent::Command::SetPaused { paused }, Call::Pause { paused })
    }

    fn define(&mut self, agent: &EntityKey, definition: Definition) -> Next {
        self.defined = true;
        let call = Call::Redefine { usual: definition == usual() };
        ask(agent.clone(), &agent::Command::Define { definition, group: swarm("default") }, call)
    }

    pub fn heard(&mut self, call: &Call, is_ok: bool) {
        match call {
            Call::Pause { paused } if is_ok => self.paused = *paused,
            Call::Redefine { usual: true } if is_ok => self.defined = false,
            _ => {}
        }
    }
}

fn some(rng: &mut Rng) -> Definition {
    Definition {
        scale: rng.u32(1..4),
        spill_after_ms: if rng.u8(0..4) > 0 { 1_000 } else { 0 },
        max_waiting: rng.usize(1..4),
        cancel_children: rng.bool(),
        ..usual()
    }
}
