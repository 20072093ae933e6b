//! `skein task show|create|cancel`

use clap::Subcommand;
use skein_proto::v1::{CancelTaskRequest, CreateTaskRequest, TaskRequest};
use uuid::Uuid;

use super::{CliError, Common, ids};

#[derive(Debug, Subcommand)]
pub(super) enum Task {
    /// Show everything about a task.
    Show {
        /// As `skein tasks list` shows it.
        #[arg(value_parser = ids::id)]
        id: Uuid,
        #[command(flatten)]
        common: Common,
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
        common: Common,
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
        common: Common,
    },
}

impl Task {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (answer, common) = match self {
            Task::Show { id, common } => {
                let request = TaskRequest { swarm: common.swarm.to_string(), task: id.to_string() };
                return common.show(common.admin().await?.show_task(request).await);
            }
            Task::Create { text, priority, tags, depends_on, idempotency_key, common } => {
                let request = CreateTaskRequest {
                    swarm: common.swarm.to_string(),
                    text,
                    priority,
                    tags,
                    depends_on: depends_on.iter().map(Uuid::to_string).collect(),
                    idempotency_key,
                };
                (common.admin().await?.create_task(request).await, common)
            }
            Task::Cancel { id, reason, common } => {
                let request =
                    CancelTaskRequest { swarm: common.swarm.to_string(), task: id.to_string(), reason };
                (common.admin().await?.cancel_task(request).await, common)
            }
        };
        common.print(answer)
    }
}
