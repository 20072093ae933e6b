//! Taking tasks and reporting on them.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::costs::Cost;
use skein_shared::pool::{Finish, Rules, Target, TaskSpec};
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::tasks::MODELS;
use super::{done, refused, short};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Hints, Outcome, Tool, Toolset};
use crate::mcp::result::{Answer, counted};
use crate::mcp::schema::{Args, any_text, at_least, flag, integer, list, object, one_of, text, uuid};
use crate::service::tasks::{Action, OFFERS, Polled, Wanted};

const SWARM: Toolset = Toolset::Swarm;
const ACTIONS: [&str; 7] = ["create", "claim", "release", "accept", "reject", "to_backlog", "from_backlog"];

pub(super) fn tools() -> Vec<Tool> {
    let task_result = || json!({ "success": flag(), "message": any_text(4000), "task": object() });
    vec![
        Tool::new("poll-task", "Poll for a task", SWARM, poll)
            .core()
            .waiting()
            .writes(Right::Work)
            // The seed's hint, although a task is started: permissions go by the effect.
            .hinted(Hints { read_only: Some(true), ..Hints::default() })
            .about(
                "Get your next task, or open offers; waits up to a minute for one.",
                "The task given is in progress and yours. Offers come first: accept or reject them with task-action. shouldExit says that there was nothing twice.",
            )
            .found_by("next work wait take job queue fetch")
            .output(json!({
                "success": flag(), "message": any_text(4000), "task": object(), "offeredTasks": list(object(), OFFERS),
                "offeredCount": at_least(0), "availableCount": at_least(0), "waitedForSeconds": at_least(0),
                "shouldExit": flag(), "emptyPollCount": at_least(0), "redelivered": flag(),
            })),
        Tool::new("store-progress", "Store progress", SWARM, store)
            .core()
            .writes(Right::Work)
            .idempotent()
            .about(
                "Report progress on a task, or end it as completed or failed.",
                "The first end stands; the same report again succeeds and does nothing.",
            )
            .found_by("finish complete done fail result output update status report")
            .args(
                Args::none()
                    .need("taskId", uuid(), "The task")
                    .take("progress", any_text(limits::TEXT), "What you did since the last report")
                    .take("status", one_of(&["completed", "failed"]), "Ends the task")
                    .take("output", any_text(limits::TEXT), "The result of a completed task")
                    .take("failureReason", any_text(limits::TEXT), "Why it failed")
                    .rare("costData", object(), "With a status: what the work cost, as totalCostUsd and token counts"),
            )
            .output(task_result()),
        Tool::new("task-action", "Act on a task", SWARM, act)
            .core()
            .writes(Right::Work)
            .additive()
            .about(
                "Claim, release, accept or reject a task, or create one in the pool.",
                "claim takes a task of the pool and starts it; release gives your task back; accept and reject answer an offer; to_backlog and from_backlog hide and show a task of the pool.",
            )
            .found_by("take grab return decline backlog offer answer pool new")
            .args(
                Args::none()
                    .need("action", one_of(&ACTIONS), "What to do")
                    .take("taskId", uuid(), "The task; not for create")
                    .take("task", text(limits::TEXT), "For create: what is to be done")
                    .rare("priority", integer(0, 100), "For create: 0 to 100 (50)")
                    .rare("tags", list(text(limits::TAG), limits::TAGS), "For create: words to find it by")
                    .rare("taskType", any_text(50), "For create: kind of task")
                    .rare("dependsOn", list(uuid(), limits::DEPENDENCIES), "For create: tasks to complete first")
                    .rare("model", one_of(&MODELS), "For create: the model wished for, a note")
                    .take("reason", any_text(4000), "For reject: why"),
            )
            .output(task_result()),
        Tool::new("cancel-task", "Cancel a task", SWARM, cancel)
            .writes(Right::Work)
            .destructive()
            .about(
                "Cancel a task that has not ended.",
                "The lead and the creator of the task may. The worker learns of it at its next report.",
            )
            .found_by("abort stop kill withdraw delete remove drop job")
            .args(
                Args::none()
                    .need("taskId", uuid(), "The task")
                    .take("reason", any_text(4000), "Why, for the worker to read"),
            )
            .output(task_result()),
    ]
}

#[derive(Deserialize)]
struct Nothing {}

async fn poll(call: Call, _: Nothing) -> Outcome {
    call.progress.say("waiting for a task");
    let patience = call.progress.patience(limits::POLL);
    match call.service.poll_task(&call.who, call.request, patience).await {
        Ok(polled) => Ok(polled_answer(polled)),
        Err(refusal) if refusal.code == Code::NotJoined => Ok(refused(refusal.with(nothing_for_strangers()))),
        Err(refusal) => Err(refusal),
    }
}

/// What there is for an agent that the swarm does not know: it reads the same fields as a member (spec: Agent Swarm
/// 2.2, `poll-task`, step 1).
fn nothing_for_strangers() -> Value {
    json!({
        "offeredTasks": [], "offeredCount": 0, "availableCount": 0, "emptyPollCount": 0, "waitedForSeconds": 0,
    })
}

fn polled_answer(polled: Polled) -> Answer {
    let Polled { task, offers, offered, pool, empty_polls, full, waited } = polled;
    let shown = offers.len();
    let mut facts = json!({
        "offeredTasks": offers, "offeredCount": offered, "availableCount": pool, "emptyPollCount": empty_polls,
        "waitedForSeconds": waited.as_secs(),
    });
    if let Some((task, redelivered)) = task {
        let id = short(&task);
        let again =
            if redelivered { " It was handed to you before, and you have not reported on it." } else { "" };
        facts["task"] = task;
        facts["redelivered"] = json!(redelivered);
        return done(
            format!("Task {id} is yours and in progress; end it with store-progress.{again}"),
            facts,
        );
    }
    if offered > 0 {
        let part = if shown < offered { format!(", here the oldest {shown}") } else { String::new() };
        let offered = counted(offered, "task is", "tasks are");
        return done(format!("{offered} offered to you{part}; accept or reject with task-action."), facts);
    }
    let should_exit = empty_polls >= limits::EMPTY_POLLS;
    let message = match (full, should_exit) {
        (true, _) => "You have as many tasks as you may have; end one with store-progress first.".to_owned(),
        (false, true) => "There was no task for you again; you may stop now.".to_owned(),
        (false, false) if pool > 0 => {
            format!("No task for you; {pool} in the pool can be claimed with task-action.")
        }
        (false, false) => "No task for you yet; call poll-task again.".to_owned(),
    };
    facts["shouldExit"] = json!(should_exit);
    let mut answer = done(message, facts);
    answer.json.insert("success".to_owned(), json!(false));
    answer
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Store {
    task_id: Uuid,
    progress: Option<String>,
    status: Option<String>,
    output: Option<String>,
    failure_reason: Option<String>,
    cost_data: Option<Cost>,
}

async fn store(call: Call, args: Store) -> Outcome {
    let finish = match args.status.as_deref() {
        Some("completed") => {
            Some(Finish::Completed { output: args.output.filter(|output| !output.is_empty()) })
        }
        Some(_) => Some(Finish::Failed { reason: args.failure_reason }),
        None => None,
    };
    if finish.is_none() && args.progress.is_none() {
        return Err(Refusal::new(Code::InvalidArgument, "give progress, or a status to end the task with"));
    }
    let (ends, costs) = (finish.is_some(), args.cost_data.is_some());
    let finish = finish.map(|finish| (finish, args.cost_data));
    let changed = call.service.report(&call.who, call.request, args.task_id, args.progress, finish).await?;
    let (id, status) = (short(&changed.task), changed.task["status"].as_str().unwrap_or_default().to_owned());
    let message = match (changed.repeated, ends) {
        (true, _) => format!("Task {id} is {status}; this was known already."),
        (false, true) => format!("Task {id} is {status}; poll-task gives you the next."),
        (false, false) if costs => format!(
            "Progress on task {id} is noted. What it cost is not: give costData with the status that ends the task."
        ),
        (false, false) => format!("Progress on task {id} is noted."),
    };
    Ok(done(message, facts!({ "task": changed.task, "repeated": changed.repeated })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Act {
    action: String,
    task_id: Option<Uuid>,
    task: Option<String>,
    priority: Option<u8>,
    #[serde(default)]
    tags: Vec<String>,
    task_type: Option<String>,
    #[serde(default)]
    depends_on: Vec<Uuid>,
    model: Option<String>,
    reason: Option<String>,
}

async fn act(call: Call, args: Act) -> Outcome {
    let action = match args.action.as_str() {
        "create" => return create(call, args).await,
        "claim" => Action::Claim,
        "release" => Action::Release,
        "accept" => Action::Accept,
        "reject" => Action::Reject { reason: args.reason },
        "to_backlog" => Action::ToBacklog,
        _ => Action::FromBacklog,
    };
    let task = args
        .task_id
        .ok_or_else(|| Refusal::new(Code::InvalidArgument, "taskId is missing: which task is meant?"))?;
    let told = match action {
        Action::Claim => "is yours and in progress",
        Action::Release => "is back in the pool",
        Action::Accept => "is yours; poll-task starts it",
        Action::Reject { .. } => "is back in the pool",
        Action::ToBacklog => "is in the backlog, out of the pool",
        _ => "is in the pool",
    };
    let changed = call.service.act(&call.who, call.request, task, action).await?;
    Ok(done(format!("Task {} {told}.", short(&changed.task)), facts!({ "task": changed.task })))
}

async fn create(call: Call, args: Act) -> Outcome {
    let words = args
        .task
        .ok_or_else(|| Refusal::new(Code::InvalidArgument, "task is missing: say what is to be done"))?;
    let spec = TaskSpec {
        task_type: args.task_type,
        tags: args.tags,
        priority: args.priority.unwrap_or(TaskSpec::PRIORITY),
        depends_on: args.depends_on,
        model: args.model,
        ..TaskSpec::new(words)
    };
    let wanted = Wanted { spec, target: Target::Pool, rules: Rules::Plain };
    let made = call.service.send_task(&call.who, call.request, wanted).await?;
    Ok(done(format!("Task {} is in the pool.", short(&made.task)), facts!({ "task": made.task })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Cancel {
    task_id: Uuid,
    reason: Option<String>,
}

async fn cancel(call: Call, args: Cancel) -> Outcome {
    let action = Action::Cancel { reason: args.reason };
    let changed = call.service.act(&call.who, call.request, args.task_id, action).await?;
    let task: Value = changed.task;
    Ok(done(format!("Task {} is cancelled.", short(&task)), facts!({ "task": task })))
}
