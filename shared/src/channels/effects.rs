//! What a message with `/task` asks of the pool.

use serde_json::json;
use uuid::Uuid;

use super::event::Posted;
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};

/// How much of the message its task quotes, characters.
const QUOTE: usize = 80;
const PRIORITY: u8 = 50;

/// The task that a message makes for one of the agents it mentions.
#[derive(Clone, Debug, PartialEq)]
pub struct MentionTask {
    /// Derived from the message and the agent: a repeat makes the same task.
    pub id: Uuid,
    pub task: String,
    pub task_type: &'static str,
    pub priority: u8,
    pub target: Uuid,
    /// `None` when a person wrote the message.
    pub creator: Option<Uuid>,
    pub message: Uuid,
    pub channel: Uuid,
}

impl MentionTask {
    pub fn new(posted: &Posted, channel: &str, target: Uuid) -> Self {
        let author = posted.author.as_ref().map_or("Human", |author| &author.name);
        let quote: String = posted.content.chars().take(QUOTE).collect();
        Self {
            id: Self::id(posted.id, target),
            task: format!("Asked by {author} in #{channel}: {quote}"),
            task_type: "task",
            priority: PRIORITY,
            target,
            creator: posted.author.as_ref().map(|author| author.id),
            message: posted.id,
            channel: posted.channel,
        }
    }

    pub fn id(message: Uuid, target: Uuid) -> Uuid {
        Uuid::new_v5(&message, target.as_bytes())
    }

    /// The command for the swarm's pool.
    pub fn effect(&self, swarm: &Name) -> Effect {
        let command = json!({ "create": {
            "by": self.creator,
            "spec": {
                "id": self.id,
                "task": self.task,
                "task_type": self.task_type,
                "priority": self.priority,
                "source": "mcp",
                "context": { "mentionMessageId": self.message, "mentionChannelId": self.channel },
            },
            "target": { "assign": { "agent": self.target } },
            "rules": "plain",
        }});
        Effect::Entity { key: EntityKey::of(Kind::Pool, swarm), command }
    }
}
