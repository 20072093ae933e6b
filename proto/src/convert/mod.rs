//! From the wire into the kernel's words and back. Whatever comes from outside is checked here, once.

pub mod ask;
pub mod command;
pub mod definition;

use skein_shared::agent;

use crate::v1;

pub fn usage(wire: v1::Usage) -> agent::Usage {
    let v1::Usage { input_tokens, output_tokens, turns, cost_micros } = wire;
    agent::Usage { input_tokens, output_tokens, turns, cost_micros }
}

pub fn usage_to_wire(usage: agent::Usage) -> v1::Usage {
    let agent::Usage { input_tokens, output_tokens, turns, cost_micros } = usage;
    v1::Usage { input_tokens, output_tokens, turns, cost_micros }
}
