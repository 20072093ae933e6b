//! What a pool can be asked, and what it answers.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::creation::{Asked, Create};
use super::steering::Untold;
use super::view::{MemberView, TaskView};
use crate::code::Refusal;
use crate::costs::Cost;
use crate::forge::Activity;
use crate::id::{EntityKey, InstanceId};
use crate::inboxes;
use crate::mail::Letter;
use crate::profiles::{Edit, Field};
use crate::slack::Said;
use crate::time::Timestamp;

/// A request to the pool. Who may ask for what beyond ownership (scopes, "lead only" where it says so in a
/// tool's description) is checked here as well, so that every way in keeps the same rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    Join(Join),
    /// Takes the member out for good; what it held goes back to the pool, and a lead's news wait for the next one.
    Leave {
        agent: Uuid,
    },
    /// The member says that it stops working. It stays a member; offers made to it return to the pool.
    Offline {
        agent: Uuid,
    },
    /// The member says that it works (again).
    Ping {
        agent: Uuid,
        managed: bool,
    },
    SetCapacity {
        agent: Uuid,
        max_tasks: u32,
    },
    Describe {
        agent: Uuid,
        profile: Profile,
        /// What the texts among it were until now, as the service has read them. For their versions.
        #[serde(default)]
        before: Box<Profile>,
        /// Who changes it, and why; without it the member itself does. That another one may the service has checked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        edit: Option<Box<Edit>>,
    },
    Create(Box<Create>),
    /// Says something to whoever works on the task: it comes with the next answer that this agent gets.
    Steer {
        task: Uuid,
        /// `None` is the administration.
        by: Option<Uuid>,
        text: String,
    },
    /// Takes what was said to the instance about the tasks that it works on.
    TakeSteering {
        agent: Uuid,
        instance: InstanceId,
    },
    /// What was taken of it went with an answer that has reached nobody.
    SteeringLost {
        messages: Vec<Untold>,
    },
    /// How the swarm stands, for a person who asks.
    Survey,
    /// The member of this name.
    Find {
        name: String,
    },
    /// A task that has not ended, as the pool knows it.
    Inspect {
        task: Uuid,
    },
    /// Asks for work. The pool answers what there is now; waiting is the caller's business.
    Poll {
        agent: Uuid,
        instance: InstanceId,
        /// A runner watches this instance, so its tasks live by the runner's lease.
        managed: bool,
        /// The caller's wait is over: if there is nothing, this counts as an empty poll.
        last: bool,
    },
    /// Says whether a `Poll` would find something, and changes nothing.
    Peek {
        agent: Uuid,
        instance: InstanceId,
    },
    /// The runner of the agent begins to decide about its oldest open offer.
    Review {
        agent: Uuid,
    },
    Claim {
        agent: Uuid,
        instance: InstanceId,
        managed: bool,
        task: Uuid,
    },
    /// Takes the most urgent task of the pool that can start and has any of the tags; any task without tags.
    ClaimNext {
        agent: Uuid,
        instance: InstanceId,
        managed: bool,
        tags: Vec<String>,
    },
    Release {
        agent: Uuid,
        task: Uuid,
    },
    Accept {
        agent: Uuid,
        task: Uuid,
    },
    Reject {
        agent: Uuid,
        task: Uuid,
        reason: Option<String>,
    },
    /// Any member may move tasks between the pool and the backlog, and the administration (`by: None`).
    ToBacklog {
        task: Uuid,
        by: Option<Uuid>,
    },
    FromBacklog {
        task: Uuid,
        by: Option<Uuid>,
    },
    Progress(Box<Progress>),
    /// `by: None` is the administration, whose rights the service has checked.
    Cancel {
        task: Uuid,
        by: Option<Uuid>,
        reason: Option<String>,
    },
    Pause {
        task: Uuid,
        by: Option<Uuid>,
    },
    Resume {
        task: Uuid,
        by: Option<Uuid>,
        instance: InstanceId,
        managed: bool,
    },
    /// Notes the model session that works on a task, so that a child can continue it.
    NoteSession {
        task: Uuid,
        by: Option<Uuid>,
        session: String,
    },
    AssignEpic {
        task: Uuid,
        epic: Uuid,
        by: Option<Uuid>,
    },
    UnassignEpic {
        task: Uuid,
        by: Option<Uuid>,
    },
    /// An instance is put to sleep: its tasks are kept for it until then. `reply_to` is told when that is
    /// committed, and only then freezes it.
    ExtendLease {
        instance: InstanceId,
        until: Timestamp,
        wait: Uuid,
        reply_to: EntityKey,
        /// The other way round: the wait is over, and its tasks have a usual lease again, from now. Nobody waits for an
        /// answer. (`until` is then; who does not know of this extends nothing to it.)
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        over: bool,
    },
    /// An instance has ended: what it had started goes back at once.
    EndInstance {
        instance: InstanceId,
        reason: String,
    },
    /// A person said something in Slack that no agent had asked for.
    Hear(Box<Said>),
    /// The inboxes did not take what a person said or wrote.
    Untaken {
        message: Box<inboxes::Command>,
        refusal: Refusal,
    },
    /// From the swarm's mail: somebody wrote an e-mail that no agent had asked for.
    Mail(Box<Mailed>),
    /// Somebody did something at a forge that concerns the swarm, and that no agent had asked for.
    Forge(Box<Activity>),
    /// Decides everything that is due.
    Tick,
}

/// A letter, and what the swarm's mail knows of where it belongs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mailed {
    pub letter: Letter,
    /// Whose the inbox is.
    #[serde(default)]
    pub agent: Option<Uuid>,
    /// The newest task of the thread.
    #[serde(default)]
    pub task: Option<Uuid>,
    /// Who had that task when it was made; the pool may know it no longer.
    #[serde(default)]
    pub worker: Option<Uuid>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    pub agent: Uuid,
    pub name: String,
    #[serde(default)]
    pub lead: bool,
    #[serde(default)]
    pub role: Option<String>,
    #[serde(default)]
    pub capabilities: Vec<String>,
    #[serde(default)]
    pub description: Option<String>,
    /// 1 when nothing is said.
    #[serde(default)]
    pub max_tasks: Option<u32>,
    /// A runner starts and watches this agent.
    #[serde(default)]
    pub managed: bool,
    /// The texts that it may have already, for who takes the lead's place: read by the pool's host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub texts: Option<Box<Profile>>,
}

/// Changes to what a member says about itself. `None` keeps what there is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Profile {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claude_md: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub soul_md: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_md: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setup_script: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools_md: Option<String>,
}

impl Profile {
    /// The texts that have versions.
    pub fn texts(&self) -> [(Field, Option<&String>); 5] {
        [
            (Field::ClaudeMd, self.claude_md.as_ref()),
            (Field::SoulMd, self.soul_md.as_ref()),
            (Field::IdentityMd, self.identity_md.as_ref()),
            (Field::SetupScript, self.setup_script.as_ref()),
            (Field::ToolsMd, self.tools_md.as_ref()),
        ]
    }
}

/// A report about a task: a progress text, a result, or both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    pub task: Uuid,
    /// The reporting agent; `None` is the administration, whose rights the service has checked.
    pub by: Option<Uuid>,
    #[serde(default)]
    pub instance: Option<InstanceId>,
    #[serde(default)]
    pub managed: bool,
    #[serde(default)]
    pub progress: Option<String>,
    #[serde(default)]
    pub finish: Option<Finish>,
    /// What the finished work cost; without a result it is not kept.
    #[serde(default)]
    pub cost: Option<Cost>,
    /// The task's fixed words, which the pool does not keep in memory: read by its host, never changed.
    /// Without them the follow-up names the task by its id, and no memory is written.
    #[serde(default)]
    pub about: Option<About>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Finish {
    Completed { output: Option<String> },
    Failed { reason: Option<String> },
}

/// What was written down when the task was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct About {
    pub text: String,
    #[serde(default)]
    pub task_type: Option<String>,
    #[serde(default)]
    pub tags: Vec<String>,
    /// Slack fields, so that the follow-up can be answered in the same thread.
    #[serde(default)]
    pub context: Map<String, Value>,
}

/// How a swarm stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Survey {
    /// By name.
    pub members: Vec<MemberView>,
    /// Tasks that can be claimed, and all that have not ended.
    pub claimable: usize,
    pub open: usize,
}

/// An answer. Texts of tasks are on the read side; the pool gives what it decides from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// `existing`: the same agent had joined before, under the same name.
    Joined {
        member: MemberView,
        existing: bool,
    },
    Member(MemberView),
    Surveyed(Survey),
    /// Ids of the tasks that went back to the pool.
    Left {
        returned: Vec<Uuid>,
    },
    Created {
        task: TaskView,
        /// Dependencies that nobody knows, or that can never complete.
        warnings: Vec<String>,
    },
    /// Ask again with facts about these tasks.
    NeedFacts {
        tasks: Vec<Uuid>,
        /// Goes with each of them.
        #[serde(default)]
        asked: Option<Asked>,
    },
    Polled {
        /// The task that the agent now works on.
        task: Option<TaskView>,
        /// It had been handed out before, and nothing was heard of it.
        redelivered: bool,
        /// Open offers that can be accepted, oldest first.
        offers: Vec<TaskView>,
        /// Number of tasks in the pool.
        pool: usize,
        empty_polls: u32,
        /// The agent has as many tasks as it may have.
        full: bool,
    },
    Claimed {
        /// `None`: no task fits now.
        task: Option<TaskView>,
        /// It had been handed out before, and nothing was heard of it.
        redelivered: bool,
    },
    Peeked {
        task: bool,
        offers: usize,
        pool: usize,
        full: bool,
    },
    Reviewing {
        task: Option<TaskView>,
    },
    Steered {
        message: Uuid,
        task: TaskView,
    },
    /// Ids of what was taken, oldest first, or of what waits again; `steering/<id>` are the documents.
    Steering(Vec<Uuid>),
    /// `repeated`: it was so already, and nothing changed.
    Task {
        task: TaskView,
        repeated: bool,
    },
    Extended {
        tasks: Vec<Uuid>,
    },
    Ended {
        tasks: Vec<Uuid>,
    },
    /// Tasks that came of what was said or written.
    Heard {
        tasks: Vec<Uuid>,
    },
    /// How many leases, offers and reservations ended.
    Ticked {
        ended: usize,
    },
}
