//! What the memory can be asked, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Remember(Box<Remember>),
    /// Who may is checked by the service, which reads the learning.
    Forget {
        memory: Uuid,
    },
    /// The learning was read just now. The service has read it, so it exists; a learning forgotten meanwhile
    /// leaves a body without `id`, which readers pass over.
    Touch {
        memory: Uuid,
    },
    /// Nothing is ever due.
    Tick,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remember {
    /// A chosen id, so that a repeat writes the same learning; else one derived from the request.
    #[serde(default)]
    pub id: Option<Uuid>,
    /// Whose it is; `None` is the swarm's.
    #[serde(default)]
    pub agent: Option<Uuid>,
    pub scope: Scope,
    pub name: String,
    pub content: String,
    #[serde(default)]
    pub summary: Option<String>,
    pub source: Source,
    #[serde(default)]
    pub source_task: Option<Uuid>,
    #[serde(default)]
    pub source_path: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Which piece of the source it is, from 0. The first piece of an indexed file replaces all that the file
    /// left behind before.
    #[serde(default)]
    pub chunk_index: u32,
    #[serde(default = "Remember::one")]
    pub total_chunks: u32,
}

impl Remember {
    fn one() -> u32 {
        1
    }

    /// The shape `Memory` of Agent Swarm.
    pub(super) fn body(&self, id: Uuid, at: Timestamp) -> Value {
        json!({
            "id": id,
            "agentId": self.agent,
            "scope": self.scope,
            "name": self.name,
            "content": self.content,
            "summary": self.summary,
            "source": self.source,
            "sourceTaskId": self.source_task,
            "sourcePath": self.source_path,
            "chunkIndex": self.chunk_index,
            "totalChunks": self.total_chunks,
            "tags": self.tags,
            "createdAt": at.iso(),
            "accessedAt": at.iso(),
        })
    }
}

/// Who finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Agent,
    Swarm,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Manual,
    FileIndex,
    SessionSummary,
    TaskCompletion,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The learning as clients see it.
    Remembered(Value),
    Done,
}
