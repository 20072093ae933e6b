//! `skein task show|create|cancel`

use clap::Subcommand;
use skein_proto::v1::{CancelTaskRequest, CreateTaskRequest, TaskRequest};
use uuid::Uuid;

use super::{CliError, InSwarm, ids};

#[derive(Debug, Subcommand)]
pub(super) enum Task {
    /// Show everything about a task.
    Show {
        /// As `skein tasks list` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Put a task into the pool.
    Create {
        /// What is to be done.
        text: String,
        /// 0 to 100, the greater the sooner.
        #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(0..=100))]
        priority: u32,
        /// A tag; repeat it for more.
        #[arg(long = "tag")]
        tags: Vec<String>,
        /// A task that must be completed first; repeat it for more.
        #[arg(long = "depends-on", value_parser = ids::id)]
        depends_on: Vec<Uuid>,
        /// A second command with the same key makes no second task.
        #[arg(long, default_value = "", hide_default_value = true)]
        idempotency_key: String,
        #[command(flatten)]
        at: InSwarm,
    },
    /// Cancel a task.
    Cancel {
        /// As `skein tasks list` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        /// Why, for whoever looks at the task.
        #[arg(long, default_value = "", hide_default_value = true)]
        reason: String,
        #[command(flatten)]
        at: InSwarm,
    },
}

impl Task {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (answer, at) = match self {
            Task::Show { id, at } => {
                let request = TaskRequest { swarm: at.swarm.to_string(), task: id.to_string() };
                return at.common.show(at.common.admin().await?.show_task(request).await);
            }
            Task::Create { text, priority, tags, depends_on, idempotency_key, at } => {
                let request = CreateTaskRequest {
                    swarm: at.swarm.to_string(),
                    text,
                    priority,
                    tags,
                    depends_on: depends_on.iter().map(Uuid::to_string).collect(),
                    idempotency_key,
                };
                (at.common.admin().await?.create_task(request).await, at)
            }
            Task::Cancel { id, reason, at } => {
                let request = CancelTaskRequest { swarm: at.swarm.to_string(), task: id.to_string(), reason };
                (at.common.admin().await?.cancel_task(request).await, at)
            }
        };
        at.common.print(answer)
    }
}
