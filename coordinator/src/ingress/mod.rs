//! The door for webhooks, on a listener of its own: the one that strangers may reach.
//!
//! An event is verified, written down by the swarm's triggers, and only then answered with 202; what it wakes
//! or starts comes after. A sender that repeats a delivery is told so, and nothing happens twice.
//!
//! A new provider is a file like `github.rs` and an arm in `Provider::normalise`.

mod generic;
mod github;
mod intake;
mod provider;
mod receive;
mod signature;

pub use receive::{Gate, Intake, Taken, router};

/// Cuts a free text for the context; the whole of it stays in the event's body (spec: Action Llama 8.3).
fn excerpt(text: &str) -> String {
    const LONGEST: usize = 4000;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
