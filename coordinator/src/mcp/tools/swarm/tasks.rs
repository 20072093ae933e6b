//! Handing out and looking at tasks.

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skein_shared::id::Kind;
use skein_shared::limits;
use skein_shared::pool::{Rules, Status, Target, TaskSpec};
use uuid::Uuid;

use super::{continued, done, log, short, warned, with_warning};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::{Answer, counted};
use crate::mcp::schema::{Args, agent, any_text, flag, integer, list, object, one_of, text, uuid};
use crate::service::tasks::Wanted;
use crate::service::{excerpts, lists};

const SWARM: Toolset = Toolset::Swarm;
pub(super) const MODELS: [&str; 3] = ["haiku", "sonnet", "opus"];
/// The fields of a task in a list.
const SUMMARY: [&str; 13] = [
    "id",
    "agentId",
    "task",
    "status",
    "taskType",
    "tags",
    "priority",
    "dependsOn",
    "offeredTo",
    "createdAt",
    "lastUpdatedAt",
    "finishedAt",
    "progress",
];
/// Those of a whole one. What comes with a task from outside may bring more.
pub(super) const TASK: [&str; 47] = [
    "id",
    "agentId",
    "creatorAgentId",
    "task",
    "status",
    "source",
    "taskType",
    "tags",
    "priority",
    "dependsOn",
    "blockedBy",
    "offeredTo",
    "offeredAt",
    "acceptedAt",
    "rejectionReason",
    "createdAt",
    "lastUpdatedAt",
    "finishedAt",
    "notifiedAt",
    "failureReason",
    "output",
    "progress",
    "slackChannelId",
    "slackThreadTs",
    "slackUserId",
    "githubRepo",
    "githubEventType",
    "githubNumber",
    "githubCommentId",
    "githubAuthor",
    "githubUrl",
    "agentmailInboxId",
    "agentmailMessageId",
    "agentmailThreadId",
    "mentionMessageId",
    "mentionChannelId",
    "epicId",
    "parentTaskId",
    "claudeSessionId",
    "model",
    "scheduleId",
    "costData",
    "generation",
    "returnReason",
    "needsAttention",
    "stalled",
    "steering",
];
const LOG_ENTRY: [&str; 7] = ["id", "eventType", "taskId", "createdAt", "metadata", "agentId", "newValue"];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("send-task", "Send a task", SWARM, send)
            .core()
            .writes(Right::Work)
            .additive()
            .about(
                "Give a task to an agent, offer it, or put it into the pool.",
                "With agentId it is the agent's; with offerMode the agent may refuse; with neither it goes to the pool, or to the agent of parentTaskId (of your own as the lead: to the pool). A task much like one you sent in the last ten minutes is refused unless allowDuplicate is set.",
            )
            .found_by("delegate assign create new job todo ticket subtask hand out work offer pool")
            .args(
                Args::none()
                    .need("task", text(limits::TEXT), "What is to be done, complete in itself")
                    .take("agentId", agent(), "Who shall do it").of_agents()
                    .take("offerMode", flag(), "Let the agent accept or reject it")
                    .take("priority", integer(0, 100), "0 to 100, more is sooner (50)")
                    .take("tags", list(text(limits::TAG), limits::TAGS), "Words to find it by")
                    .take("dependsOn", list(uuid(), limits::DEPENDENCIES), "Tasks that must be completed first")
                    .rare("taskType", any_text(50), "Kind of task, such as bug or review")
                    .rare("epicId", uuid(), "The epic that it belongs to")
                    .take("parentTaskId", uuid(), "The task that it continues")
                    .rare("model", one_of(&MODELS), "The model wished for: a note that runners do not go by")
                    .rare("githubRepo", any_text(200), "owner/name of the repository")
                    .rare("allowDuplicate", flag(), "Send it although a like one is open"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "task": object() })),
        Tool::new("get-tasks", "Get tasks", SWARM, get_tasks)
            .core()
            .reads()
            .about(
                "List tasks by status, owner, tag or text.",
                "All conditions must hold; tags mean any of them. The most urgent come first, then the latest changed.",
            )
            .found_by("list show search filter jobs pool queue backlog offers mine ready working on everybody")
            .args(
                Args::none()
                    .take("status", one_of(&Status::ALL.map(Status::as_str)), "Where the task stands")
                    .take("mineOnly", flag(), "Your own tasks")
                    .take("unassigned", flag(), "Tasks in the pool")
                    .take("offeredToMe", flag(), "Open offers to you")
                    .take("readyOnly", flag(), "Tasks whose dependencies are completed")
                    .rare("taskType", any_text(50), "Kind of task")
                    .take("tags", list(text(limits::TAG), limits::TAGS), "Any of these")
                    .take("search", any_text(1000), "Part of the text")
                    .rare("scheduleId", uuid(), "Made by this schedule")
                    .rare("includeHeartbeat", flag(), "The swarm's own routine tasks too")
                    .take("limit", integer(1, 100), "At most so many (25)"),
            )
            .output(json!({ "tasks": list(object(), 100) }))
            .lists("tasks", &SUMMARY)
            .paged(),
        Tool::new("get-task-details", "Get a task's details", SWARM, details)
            .core()
            .reads()
            .about("Read a task with its output and log.", "The newest 200 entries of the log are given, oldest first.")
            .found_by("show task result output history log status one single")
            .args(Args::none().need("taskId", uuid(), "The task"))
            .output(json!({ "success": flag(), "message": any_text(4000), "task": object(), "logs": list(object(), 200) }))
            .lists("logs", &LOG_ENTRY),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Send {
    task: String,
    agent_id: Option<Uuid>,
    #[serde(default)]
    offer_mode: bool,
    priority: Option<u8>,
    #[serde(default)]
    tags: Vec<String>,
    #[serde(default)]
    depends_on: Vec<Uuid>,
    task_type: Option<String>,
    epic_id: Option<Uuid>,
    parent_task_id: Option<Uuid>,
    model: Option<String>,
    github_repo: Option<String>,
    #[serde(default)]
    allow_duplicate: bool,
}

async fn send(call: Call, args: Send) -> Outcome {
    let agent = args.agent_id;
    let target = match (args.offer_mode, agent, args.parent_task_id) {
        (_, None, None) => Target::Pool,
        (true, ..) => Target::Offer { agent },
        (false, ..) => Target::Assign { agent },
    };
    let depends = !args.depends_on.is_empty();
    let mut context = Map::new();
    if let Some(repo) = args.github_repo {
        context.insert("githubRepo".to_owned(), json!(repo));
    }
    let spec = TaskSpec {
        task_type: args.task_type,
        tags: args.tags,
        priority: args.priority.unwrap_or(TaskSpec::PRIORITY),
        depends_on: args.depends_on,
        parent: args.parent_task_id,
        epic: args.epic_id,
        model: args.model,
        context,
        ..TaskSpec::new(args.task)
    };
    let rules = Rules::Delegation { allow_duplicate: args.allow_duplicate };
    let sent = call.service.send_task(&call.who, call.request, Wanted { spec, target, rules }).await?;
    let id = short(&sent.task);
    let mut message = match sent.task["status"].as_str() {
        Some("offered") => format!("Task {id} is offered; the agent accepts or rejects it."),
        Some("in_progress") => format!("Task {id} is with the agent, which waited for it."),
        Some("pending") => format!("Task {id} is assigned; the agent gets it at its next poll-task."),
        _ => format!("Task {id} is in the pool; any free worker may claim it."),
    };
    if depends {
        message.push_str(" It cannot start before its dependencies are completed.");
    }
    for warning in &sent.warnings {
        message = format!("{message} Note: {warning}.");
    }
    Ok(done(message, facts!({ "task": sent.task })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct GetTasks {
    status: Option<String>,
    mine_only: bool,
    unassigned: bool,
    offered_to_me: bool,
    ready_only: bool,
    task_type: Option<String>,
    tags: Vec<String>,
    search: Option<String>,
    schedule_id: Option<Uuid>,
    include_heartbeat: bool,
    limit: usize,
    cursor: String,
}

impl Default for GetTasks {
    fn default() -> Self {
        Self {
            status: None,
            mine_only: false,
            unassigned: false,
            offered_to_me: false,
            ready_only: false,
            task_type: None,
            tags: Vec::new(),
            search: None,
            schedule_id: None,
            include_heartbeat: false,
            limit: 25,
            cursor: String::new(),
        }
    }
}

async fn get_tasks(call: Call, args: GetTasks) -> Outcome {
    let wanted = lists::Tasks {
        status: args.status,
        mine: args.mine_only,
        unassigned: args.unassigned,
        offered_to_me: args.offered_to_me,
        ready: args.ready_only,
        task_type: args.task_type,
        tags: args.tags,
        search: args.search,
        schedule: args.schedule_id,
        epic: None,
        heartbeat: args.include_heartbeat,
        limit: args.limit,
        cursor: args.cursor,
    };
    let mut list = call.service.list_tasks(&call.who, wanted).await?;
    let rows = std::mem::take(&mut list.rows).into_iter();
    // Only what is shown can be too long.
    let mut tasks: Vec<Value> = rows.map(|task| summary(task, &call.fields)).collect();
    let cut = excerpts::shorten(&mut tasks);
    let text = match tasks.len() {
        0 => "No task matches.".to_owned(),
        count => format!("{}; get-task-details shows one whole.", counted(count, "task", "tasks")),
    };
    let answer = warned(Answer::new(text, facts!({ "tasks": tasks })), &list);
    Ok(continued(with_warning(answer, cut), &list))
}

/// A task in a list, with the fields that are wanted alone; without any, with all.
fn summary(mut task: Value, wanted: &[String]) -> Value {
    let is_wanted = |field: &str| wanted.is_empty() || wanted.iter().any(|one| one == field);
    let fields = SUMMARY.into_iter().filter(|field| is_wanted(field));
    fields.filter_map(|field| Some((field, task.get_mut(field)?.take()))).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OneTask {
    task_id: Uuid,
}

async fn details(call: Call, args: OneTask) -> Outcome {
    const LOGS: usize = 200;
    let (task, freshness) = call.service.task_with_questions(&call.who, args.task_id).await?;
    let mut events = call.service.history(&call.who, Kind::Pool, &args.task_id.to_string(), LOGS).await?;
    events.freshness = events.freshness.and(freshness);
    let logs: Vec<Value> = events.rows.iter().map(log::of_task).collect();
    let status = task["status"].as_str().unwrap_or_default().to_owned();
    let message = format!("Task {} is {status}.", short(&task));
    Ok(warned(done(message, facts!({ "task": task, "logs": logs })), &events))
}
