//! What a coordinator says of itself to the others.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The version in which nodes write what they forward. A node forwards to those alone that read it.
pub const FORMAT: u32 = 1;

/// A coordinator that takes part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// The same over restarts: whose data folder it is, which one process has at a time.
    pub id: String,
    /// New with each process.
    pub incarnation: Uuid,
    /// Where the others reach it.
    pub address: String,
    /// The lowest and the highest format that it reads.
    pub formats: (u32, u32),
    /// It gives its shards away and takes no more.
    pub draining: bool,
    /// It owns nothing and passes everything on, as an ingress of its own does.
    #[serde(default)]
    pub passes_on: bool,
}

impl Member {
    /// Whether shards may come to it.
    pub fn takes_shards(&self) -> bool {
        !self.draining && !self.passes_on && self.reads(FORMAT)
    }

    /// Whether it reads a format.
    pub fn reads(&self, format: u32) -> bool {
        (self.formats.0..=self.formats.1).contains(&format)
    }
}
