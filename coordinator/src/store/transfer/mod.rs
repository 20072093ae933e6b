//! Carries all state from one store to another of any kind, through a file of JSON lines.
//!
//! The file begins with a line that names its format and the highest epoch of the store that it is from, and ends with
//! one that has the number of lines and their checksum. What lies between has neither positions nor versions nor
//! epochs, which every store gives out anew: two stores with the same state give the same lines, so an import proves
//! itself by exporting again ([`import`]).

mod export;
mod import;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use skein_shared::entity::Effect;
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;
use uuid::Uuid;

use super::{CommitError, EventRecord, Mark, StoreError, StoredReply};
pub use export::export;
pub use import::import;

/// What the first line says it is.
const FORMAT: &str = "skein export 1";

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Head {
    format: String,
    /// No token of the store that the lines are from has a higher epoch.
    epoch: u64,
}

/// A line between the first and the last. They come in the order of these variants, a blob behind its own chunks.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// The events of one commit.
    Record { key: EntityKey, at: Timestamp, events: Vec<EventRecord> },
    Document {
        key: EntityKey,
        document: String,
        at: Timestamp,
        live: bool,
        head: Value,
        body: Map<String, Value>,
    },
    /// A piece of a blob, in base64. The blob itself comes after the last of them.
    Chunk { key: EntityKey, blob: Uuid, place: u32, at: Timestamp, bytes: String },
    /// A blob that is kept.
    Blob { key: EntityKey, blob: Uuid, bytes: u64, at: Timestamp },
    /// What could not be delivered.
    DeadLetter {
        source: EntityKey,
        sequence: u64,
        at: Timestamp,
        effect: Effect,
        reason: String,
        buried_at: Timestamp,
    },
    /// What is yet to be delivered.
    Effect { source: EntityKey, sequence: u64, at: Timestamp, effect: Effect },
    /// What an entity has beside its documents.
    Entity {
        key: EntityKey,
        at: Timestamp,
        timer: Option<Timestamp>,
        marks: Vec<Mark>,
        replies: Vec<StoredReply>,
    },
}

/// The last line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Lines between the first and the last.
    pub lines: u64,
    /// SHA-256 of the lines between the first and the last.
    pub state: String,
    /// SHA-256 of all lines before the last.
    pub file: String,
}

/// Why state could not be carried over.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the store refused what the file holds: {0}")]
    Commit(#[from] CommitError),
    #[error("the file cannot be read or written: {0}")]
    File(#[from] std::io::Error),
    #[error("line {line} of the file is not what an export writes: {problem}")]
    Format { line: u64, problem: String },
    #[error("the file was cut short or changed since it was written; export again")]
    Checksum,
    #[error("the store is not empty; import into a new data directory or an empty Redis database")]
    NotEmpty,
    #[error(
        "the new store's clock is {0} ms behind the old one's, so its tokens would not rise; set it right and try again"
    )]
    Clock(u64),
    #[error("what was imported is not what the file holds; throw the new store away and report this")]
    Differs,
}

/// Adds lines up.
#[derive(Default)]
struct Sum {
    lines: u64,
    state: Sha256,
    file: Sha256,
}

impl Sum {
    fn head(&mut self, line: &[u8]) {
        self.file.update(line);
    }

    fn line(&mut self, line: &[u8]) {
        self.lines += 1;
        self.state.update(line);
        self.file.update(line);
    }

    fn finish(self) -> Summary {
        Summary { lines: self.lines, state: hex(&self.state.finalize()), file: hex(&self.file.finalize()) }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The same text for equal values, in whatever order a store gives their fields.
fn sorted(mut value: Value) -> Value {
    value.sort_all_objects();
    value
}

fn sorted_json(json: &Json) -> Json {
    sorted(json.value()).into()
}
