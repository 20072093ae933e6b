//! What nodes say to one another about entities, as bytes. A change of these types is a new
//! [`FORMAT`](crate::cluster::member::FORMAT).

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use skein_shared::ask::Ask;
use skein_shared::entity::{Reign, RunnerCommand, Signal};
use skein_shared::json::Json;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::reads::Read;
use crate::projection::Query;
use crate::store::Mark;

/// What is asked of an entity, where `C` are its commands. The answer is a `Result` with a refusal.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Call<C> {
    /// A command, answered with the reply and the version.
    Ask { id: Uuid, keep: bool, command: C },
    /// The same, answered with the reply and the document that it shows.
    Show { id: Uuid, keep: bool, command: C },
    /// What another entity's outbox has for it, answered one by one.
    Deliver(Vec<(Mark, Json)>),
    /// Signs of life.
    Observe(Vec<Signal>),
    /// Something of the read side.
    Read(Box<Read>),
    /// A chunk of a blob for the entity's shard, its bytes in base64.
    Chunk { blob: Uuid, place: u32, bytes: String },
}

/// What is asked of a node as such.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum NodeCall {
    /// The documents of its own entities.
    List(Box<Query>),
    /// To put a command on the stream of a runner that is connected to it; answered with how that went.
    Runner { runner: String, command: Box<RunnerCommand>, reign: Reign },
    /// To ask something of a runner that is connected to it; answered with the runner's answer, or null when none is.
    Ask { runner: String, ask: Box<Ask> },
    /// To give up such a question.
    Withdraw { id: Uuid },
    /// To say how far it is behind.
    Lag,
    /// To give all its shards away.
    Drain,
}

pub(super) fn write<T: Serialize>(what: &T) -> Result<Vec<u8>, Refusal> {
    serde_json::to_vec(what).map_err(|error| {
        Refusal::new(Code::Internal, format!("this cannot be sent to another node: {error}"))
    })
}

/// Reads an answer.
pub(super) fn read<T: DeserializeOwned>(answer: &[u8]) -> Result<T, Refusal> {
    let unreadable = |error| {
        Refusal::new(Code::Internal, format!("another node's answer cannot be read: {error}; report this"))
    };
    serde_json::from_slice::<Result<T, Refusal>>(answer).map_err(unreadable)?
}
