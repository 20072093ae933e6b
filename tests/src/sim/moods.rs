//! Whoever runs an agent changes its mind: defines it anew.

use fastrand::Rng;
use skein_shared::agent::{self, Definition};
use skein_shared::id::EntityKey;

use super::clients::{Next, Phase, ask, swarm};
use super::history::Call;

/// What the agent is when all is calm.
pub fn usual() -> Definition {
    Definition { scale: 2, ..Definition::default() }
}

/// Whether it may be other than usual, as far as is known.
#[derive(Debug, Default)]
pub struct Moods {
    defined: bool,
}

impl Moods {
    /// A change: now and then while things go wrong, and back to what is usual after that.
    pub fn change(&mut self, agent: &EntityKey, phase: Phase, rng: &mut Rng) -> Option<Next> {
        let calm = phase == Phase::Calm;
        let changes = if calm { self.defined } else { rng.u8(0..3) == 0 };
        changes.then(|| {
            self.defined = true;
            let definition = if calm { usual() } else { some(rng) };
            let call = Call::Redefine { usual: calm };
            ask(agent.clone(), &agent::Command::Define { definition, group: swarm("default") }, call)
        })
    }

    pub fn heard(&mut self, call: &Call, is_ok: bool) {
        if *call == (Call::Redefine { usual: true }) && is_ok {
            self.defined = false;
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
