//! What a message with `/task` asks of the pool.

use uuid::Uuid;

use super::event::Posted;
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::pool::{self, Create, Fact, Pool, Rules, Target, TaskSpec};

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
        let context = [("mentionMessageId", self.message), ("mentionChannelId", self.channel)]
            .map(|(field, id)| (field.to_owned(), id.to_string().into()));
        let spec = TaskSpec {
            id: Some(self.id),
            task_type: Some(self.task_type.to_owned()),
            priority: self.priority,
            context: context.into_iter().collect(),
            ..TaskSpec::new(self.task.clone())
        };
        let target = Target::Assign { agent: Some(self.target) };
        // The id is made for this task alone, so no task that ended long ago can have it.
        let facts = vec![Fact::unknown(self.id)];
        let create = Create { by: self.creator, spec, target, rules: Rules::Plain, facts };
        let command = pool::Command::Create(Box::new(create));
        Effect::entity::<Pool>(EntityKey::of(Kind::Pool, swarm), &command)
    }
}
