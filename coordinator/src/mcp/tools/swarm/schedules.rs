//! Schedules.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::caller::Caller;
use skein_shared::schedules::{Create, Update};
use skein_shared::time::Timestamp;
use skein_shared::which::Which;
use skein_shared::{Code, Refusal, limits, wire};
use uuid::Uuid;

use super::tasks::MODELS;
use super::{done, listed};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{
    Args, agent, any_text, at_least, flag, instant, integer, list, object, one_of, or_null, text, uuid,
};
use crate::service::schedules::{Made, Wanted, next};

const SWARM: Toolset = Toolset::Swarm;
const TYPES: [&str; 2] = ["recurring", "one_time"];
const SCHEDULE: [&str; 24] = [
    "id",
    "name",
    "description",
    "cronExpression",
    "intervalMs",
    "taskTemplate",
    "taskType",
    "tags",
    "priority",
    "targetAgentId",
    "enabled",
    "lastRunAt",
    "nextRunAt",
    "createdByAgentId",
    "timezone",
    "consecutiveErrors",
    "lastErrorAt",
    "lastErrorMessage",
    "model",
    "scheduleType",
    "createdAt",
    "lastUpdatedAt",
    "skipIfActive",
    "lastSkippedAt",
];

pub(super) fn tools() -> Vec<Tool> {
    let result = || json!({ "success": flag(), "message": any_text(4000), "schedule": object() });
    let which = || {
        Args::none().take("scheduleId", uuid(), "The schedule's id").take(
            "name",
            any_text(100),
            "Or its name",
        )
    };
    vec![
        Tool::new("create-schedule", "Create a schedule", SWARM, create)
            .writes(Right::Work)
            .additive()
            .about(
                "Make tasks at certain times: by cron, at intervals, or once.",
                "recurring takes cronExpression or intervalMs; one_time takes delayMs or runAt. Each occurrence makes exactly one task.",
            )
            .found_by("cron recurring periodic timer later remind reminder daily hourly minutes")
            .args(
                timing(
                    Args::none()
                        .need("name", text(100), "Its name, unique in the swarm")
                        .need("taskTemplate", text(limits::TEXT), "The text of each task")
                        .take("scheduleType", one_of(&TYPES), "recurring (default) or one_time"),
                )
                .take("delayMs", at_least(1), "one_time: so long from now")
                .take("runAt", instant(), "one_time: at this moment")
                .take("targetAgentId", agent(), "Who gets the tasks; the pool without one").of_agents()
                .take("model", one_of(&MODELS), "Noted in the tasks"),
            )
            .output(result()),
        Tool::new("list-schedules", "List schedules", SWARM, list_schedules)
            .reads()
            .about("List schedules by name.", "")
            .found_by("cron recurring timers show next fire")
            .args(
                Args::none()
                    .take("enabled", flag(), "Enabled ones, or disabled ones")
                    .take("name", any_text(100), "Part of the name")
                    .take("scheduleType", one_of(&TYPES), "Of this type")
                    .take("hideCompleted", flag(), "Leave out one-time ones that ran (true)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "schedules": list(object(), 1000), "count": integer(0, 1000) }))
            .lists("schedules", &SCHEDULE)
            .paged(),
        Tool::new("update-schedule", "Update a schedule", SWARM, update)
            .writes(Right::Work)
            .idempotent()
            .about("Change a schedule; its creator and the lead may.", "A one-time schedule that ran does not change any more.")
            .found_by("cron edit enable disable pause resume timer")
            .args(
                timing(which().take("newName", text(100), "A new name").take(
                    "taskTemplate",
                    text(limits::TEXT),
                    "The text of each task",
                ))
                .take("targetAgentId", or_null(agent()), "Who gets the tasks; null for the pool").of_agents()
                .take("model", or_null(any_text(20)), "Noted in the tasks; null for none"),
            )
            .output(result()),
        Tool::new("delete-schedule", "Delete a schedule", SWARM, delete)
            .writes(Right::Work)
            .destructive()
            .about("Delete a schedule; tasks that it made stay.", "Its creator and the lead may.")
            .found_by("cron remove timer stop")
            .args(which())
            .output(json!({ "success": flag(), "message": any_text(4000), "deletedSchedule": object() })),
        Tool::new("run-schedule-now", "Run a schedule now", SWARM, run)
            .writes(Right::Work)
            .additive()
            .about("Make a schedule's task, or its agent's run, at once; its creator and the lead may.", "Its usual times stay; a one-time schedule is used up.")
            .found_by("trigger fire cron manual timer")
            .args(which())
            .output(json!({ "success": flag(), "message": any_text(4000), "schedule": object(), "taskId": uuid(), "agent": any_text(100) })),
    ]
}

fn timing(args: Args) -> Args {
    args.take("cronExpression", any_text(200), "Five fields, or six with seconds first")
        .take("intervalMs", at_least(1000), "Between runs")
        .take("timezone", any_text(100), "IANA name (UTC)")
        .take("description", any_text(4000), "What it is for")
        .take("taskType", any_text(50), "Of the tasks")
        .take("tags", list(text(limits::TAG), limits::TAGS), "Of the tasks")
        .take("priority", integer(0, 100), "Of the tasks (50)")
        .take("enabled", flag(), "It runs (true)")
        .take("skipIfActive", flag(), "No task while one is open (false)")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateArgs {
    name: String,
    task_template: String,
    schedule_type: Option<String>,
    cron_expression: Option<String>,
    interval_ms: Option<u64>,
    delay_ms: Option<u64>,
    run_at: Option<String>,
    description: Option<String>,
    task_type: Option<String>,
    #[serde(default)]
    tags: Vec<String>,
    priority: Option<u8>,
    target_agent_id: Option<Uuid>,
    timezone: Option<String>,
    enabled: Option<bool>,
    #[serde(default)]
    skip_if_active: bool,
    model: Option<String>,
}

async fn create(call: Call, args: CreateArgs) -> Outcome {
    let usual = Create::new(args.name, args.task_template);
    let create = Create {
        one_time: args.schedule_type.as_deref() == Some("one_time"),
        cron: args.cron_expression,
        interval_ms: args.interval_ms,
        delay_ms: args.delay_ms,
        run_at: args.run_at.as_deref().and_then(Timestamp::parse_iso),
        description: args.description,
        task_type: args.task_type,
        tags: args.tags,
        priority: args.priority.unwrap_or(usual.priority),
        target: args.target_agent_id,
        zone: args.timezone.unwrap_or_else(|| usual.zone.clone()),
        enabled: args.enabled.unwrap_or(true),
        skip_if_active: args.skip_if_active,
        model: args.model,
        ..usual
    };
    let schedule = call.service.create_schedule(&call.who, call.request, create).await?;
    Ok(done(next_run("is set", &schedule), facts!({ "schedule": schedule })))
}

fn next_run(what: &str, schedule: &Value) -> String {
    let name = schedule["name"].as_str().unwrap_or_default();
    match schedule["nextRunAt"].as_str() {
        Some(next) => format!("Schedule {name} {what}; it runs next at {next}."),
        None => format!("Schedule {name} {what}; it is disabled and does not run."),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListArgs {
    enabled: Option<bool>,
    name: Option<String>,
    schedule_type: Option<String>,
    hide_completed: Option<bool>,
    #[serde(default)]
    cursor: String,
}

async fn list_schedules(call: Call, args: ListArgs) -> Outcome {
    let wanted = Wanted {
        enabled: args.enabled,
        name: args.name,
        one_time: args.schedule_type.map(|kind| kind == "one_time"),
        hide_completed: args.hide_completed.unwrap_or(true),
        soonest: false,
        after: args.cursor,
    };
    let (schedules, left_out) = call.service.list_schedules(&call.who, wanted).await?;
    let count = schedules.len();
    let message = listed(&counted(count, "schedule", "schedules"), left_out);
    let cursor = next(&schedules, left_out).map(str::to_owned);
    Ok(done(message, facts!({ "schedules": schedules, "count": count, "cursor": cursor })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    schedule_id: Option<Uuid>,
    name: Option<String>,
}

impl One {
    fn which(self) -> Result<Which, Refusal> {
        match (self.schedule_id, self.name) {
            (Some(id), _) => Ok(Which::Id(id)),
            (None, Some(name)) => Ok(Which::Name(name)),
            (None, None) => Err(Refusal::new(
                Code::NotFound,
                "say which schedule: give scheduleId or name; list-schedules has both",
            )),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateArgs {
    schedule_id: Option<Uuid>,
    name: Option<String>,
    new_name: Option<String>,
    task_template: Option<String>,
    cron_expression: Option<String>,
    interval_ms: Option<u64>,
    description: Option<String>,
    task_type: Option<String>,
    tags: Option<Vec<String>>,
    priority: Option<u8>,
    #[serde(default, deserialize_with = "wire::cleared")]
    target_agent_id: Option<Option<Uuid>>,
    timezone: Option<String>,
    enabled: Option<bool>,
    skip_if_active: Option<bool>,
    #[serde(default, deserialize_with = "wire::cleared")]
    model: Option<Option<String>>,
}

async fn update(call: Call, args: UpdateArgs) -> Outcome {
    let which = One { schedule_id: args.schedule_id, name: args.name }.which()?;
    let update = Update {
        new_name: args.new_name,
        task: args.task_template,
        cron: args.cron_expression,
        interval_ms: args.interval_ms,
        description: args.description,
        task_type: args.task_type,
        tags: args.tags,
        priority: args.priority,
        target: args.target_agent_id,
        model: args.model,
        zone: args.timezone,
        enabled: args.enabled,
        skip_if_active: args.skip_if_active,
        ..Update::new(which, Caller::agent(call.who.agent))
    };
    let schedule = call.service.update_schedule(&call.who, call.request, update).await?;
    Ok(done(next_run("is changed", &schedule), facts!({ "schedule": schedule })))
}

async fn delete(call: Call, args: One) -> Outcome {
    let (id, name) = call.service.delete_schedule(&call.who, call.request, args.which()?).await?;
    let message = format!("Schedule {name} is deleted; tasks that it made stay.");
    Ok(done(message, json!({ "deletedSchedule": { "id": id, "name": name } })))
}

async fn run(call: Call, args: One) -> Outcome {
    let (schedule, made) = call.service.run_schedule(&call.who, call.request, args.which()?).await?;
    let shown: Value = ["id", "name", "nextRunAt"]
        .into_iter()
        .filter_map(|field| Some((field, schedule.get(field)?.clone())))
        .collect();
    let name = schedule["name"].as_str().unwrap_or_default();
    Ok(match made {
        Made::Task(task) => done(
            format!("Schedule {name} ran; its task is {task}."),
            facts!({ "schedule": shown, "taskId": task.to_string() }),
        ),
        Made::Run(agent) => done(
            format!(
                "Schedule {name} ran: agent {agent} is asked for a run. If it refuses, list-schedules shows why."
            ),
            facts!({ "schedule": shown, "agent": agent.as_str() }),
        ),
    })
}
