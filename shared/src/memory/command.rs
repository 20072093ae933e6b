//! What the memory can be asked, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::vector::{Model, Vector};
use crate::denied::Denied;
use crate::time::Timestamp;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Remember(Box<Remember>),
    /// Learns a text in pieces, all of them or none. Those of a file replace whatever it left behind before.
    Index(Box<Remember>),
    /// Who may is checked by the service, which reads the learning.
    Forget {
        memory: Uuid,
        /// What it is called, which the service has looked up: the answer says it, and a repeat finds it nowhere else.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// The learning was read just now.
    Touch {
        memory: Uuid,
    },
    /// Asks which learnings have no vector of this model, and changes nothing.
    Lacking {
        model: Uuid,
        limit: usize,
    },
    /// What came of asking a model for vectors.
    Embed {
        model: Model,
        embeddings: Vec<Embedding>,
    },
    /// The service has found that an agent that is named is no member, or that the learning is not there.
    Denied(Denied<Command>),
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
    /// Which piece of the source it is, from 0. Nodes of an earlier release send the pieces of a file one by one: the
    /// first replaces all that the file left behind before.
    #[serde(default)]
    pub chunk_index: u32,
    #[serde(default = "Remember::one")]
    pub total_chunks: u32,
}

impl Remember {
    fn one() -> u32 {
        1
    }

    /// The file that it came from, if it is known which.
    pub(super) fn file_path(&self) -> Option<&str> {
        self.source_path.as_deref().filter(|path| self.source == Source::FileIndex && !path.is_empty())
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

/// What a learning means to a model. Whose it is and who finds it stand here once more, so that searches by meaning
/// need look at nothing else.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Embedding {
    pub memory: Uuid,
    pub agent: Option<Uuid>,
    pub scope: Scope,
    pub source: Source,
    pub meaning: Meaning,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    Vector(Vector),
    /// Why the model gave none, again and again. It is not asked any more.
    None(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// The learning as clients see it; of one that was forgotten its id and its name, where the command said that.
    Remembered(Value),
    /// The same is remembered already, as this learning.
    Known(Uuid),
    /// What the pieces of a text are remembered as, in its order.
    Indexed(Vec<Uuid>),
    Learnings(Vec<Uuid>),
    Done,
}
