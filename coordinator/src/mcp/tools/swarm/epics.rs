//! Epics.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::caller::Caller;
use skein_shared::epics::{Create, Status, Texts, Update};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal, limits, wire};
use uuid::Uuid;

use super::tasks::TASK;
use super::{continued, done, short, warned};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, flag, integer, list, object, one_of, or_null, text, uuid};
use crate::service::lists;

const SWARM: Toolset = Toolset::Swarm;
const STATUSES: [&str; 5] = ["draft", "active", "paused", "completed", "cancelled"];
const EPIC: [&str; 25] = [
    "id",
    "name",
    "description",
    "goal",
    "prd",
    "plan",
    "status",
    "priority",
    "tags",
    "createdByAgentId",
    "leadAgentId",
    "channelId",
    "channelProblem",
    "researchDocPath",
    "planDocPath",
    "slackChannelId",
    "slackThreadTs",
    "githubRepo",
    "githubMilestone",
    "createdAt",
    "lastUpdatedAt",
    "startedAt",
    "completedAt",
    "taskStats",
    "progress",
];

pub(super) fn tools() -> Vec<Tool> {
    let result = || json!({ "success": flag(), "message": any_text(4000), "epic": object() });
    let which =
        || Args::none().take("epicId", uuid(), "The epic's id").take("name", any_text(200), "Or its name");
    vec![
        Tool::new("create-epic", "Create an epic", SWARM, create)
            .writes(Right::Lead)
            .additive()
            .about(
                "Make an epic, a goal that gathers tasks; only the lead does.",
                "It begins as a draft and gets a channel of its own.",
            )
            .found_by("project initiative milestone plan goal new")
            .args(
                texts(Args::none().need("name", text(200), "Its name, unique in the swarm"), true)
                    .take("priority", integer(0, 100), "0 to 100 (50)")
                    .take("leadAgentId", agent(), "The agent that leads it").of_agents(),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "epic": object(), "channel": object() })),
        Tool::new("list-epics", "List epics", SWARM, list_epics)
            .reads()
            .about("List epics with their progress.", "The most urgent come first, then the newest.")
            .found_by("projects initiatives milestones goals show progress")
            .args(
                Args::none()
                    .take("status", one_of(&STATUSES), "Where the epic stands")
                    .take("search", any_text(1000), "Part of its name, description or goal")
                    .take("leadAgentId", agent(), "Led by this agent").of_agents()
                    .take("createdByAgentId", agent(), "Made by this agent").of_agents()
                    .take("limit", integer(1, 100), "At most so many (25)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "epics": list(object(), 100), "total": integer(0, 100) }))
            .lists("epics", &EPIC)
            .paged(),
        Tool::new("get-epic-details", "Get an epic's details", SWARM, details)
            .reads()
            .about("Read an epic with its tasks.", "")
            .found_by("project show progress tasks plan")
            .args(which().rare("limit", integer(1, 1000), "At most so many tasks (1000)"))
            .output(json!({ "success": flag(), "message": any_text(4000), "epic": object(), "tasks": list(object(), 1000) }))
            .lists("tasks", &TASK)
            .paged(),
        Tool::new("update-epic", "Update an epic", SWARM, update)
            .writes(Right::Work)
            .idempotent()
            .about("Change an epic's texts, status or lead.", "Its creator, its lead and the swarm's lead may.")
            .found_by("project edit status activate complete pause plan")
            .args(
                texts(which().take("newName", text(200), "A new name"), false)
                    .take("status", one_of(&STATUSES), "Where it stands")
                    .take("priority", integer(0, 100), "0 to 100")
                    .take("leadAgentId", or_null(agent()), "The agent that leads it; null for none").of_agents(),
            )
            .output(result()),
        Tool::new("delete-epic", "Delete an epic", SWARM, delete)
            .writes(Right::Work)
            .destructive()
            .about("Delete an epic; its tasks and its channel stay.", "Its creator and the lead may.")
            .found_by("remove project")
            .args(which())
            .output(json!({ "success": flag(), "message": any_text(4000), "channelId": uuid() })),
        Tool::new("assign-task-to-epic", "Assign a task to an epic", SWARM, assign)
            .writes(Right::Lead)
            .idempotent()
            .about("Put a task into an epic; only the lead does.", "")
            .found_by("add move task project")
            .args(
                Args::none()
                    .need("taskId", uuid(), "The task")
                    .take("epicId", uuid(), "The epic's id")
                    .take("epicName", any_text(200), "Or its name"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "task": object() })),
        Tool::new("unassign-task-from-epic", "Unassign a task from its epic", SWARM, unassign)
            .writes(Right::Lead)
            .idempotent()
            .about("Take a task out of its epic; only the lead does.", "")
            .found_by("remove task project")
            .args(Args::none().need("taskId", uuid(), "The task"))
            .output(json!({ "success": flag(), "message": any_text(4000), "task": object() })),
    ]
}

fn texts(args: Args, new: bool) -> Args {
    let long = || any_text(limits::TEXT);
    let args = if new {
        args.need("goal", text(limits::TEXT), "What shall be reached")
    } else {
        args.take("goal", long(), "What shall be reached")
    };
    args.take("description", long(), "What it is about")
        .take("prd", long(), "The requirements")
        .take("plan", long(), "The plan")
        .take("tags", list(text(limits::TAG), limits::TAGS), "Words to find it by")
        .take("researchDocPath", any_text(1000), "Where the research is")
        .take("planDocPath", any_text(1000), "Where the plan is")
        .take("slackChannelId", any_text(100), "Its Slack channel")
        .take("slackThreadTs", any_text(100), "Its Slack thread")
        .take("githubRepo", any_text(200), "owner/name of its repository")
        .take("githubMilestone", any_text(200), "Its milestone")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CreateArgs {
    name: String,
    #[serde(default = "usual_priority")]
    priority: u8,
    lead_agent_id: Option<Uuid>,
    #[serde(flatten)]
    texts: Texts,
}

fn usual_priority() -> u8 {
    50
}

async fn create(call: Call, args: CreateArgs) -> Outcome {
    let CreateArgs { name, priority, lead_agent_id: lead, texts } = args;
    let create = Create { name, creator: None, lead, priority, texts };
    let (epic, channel) = call.service.create_epic(&call.who, call.request, create).await?;
    let problem = epic["channelProblem"].as_str();
    let problem = problem.map_or_else(String::new, |problem| format!(" It has no channel: {problem}."));
    let message = format!("Epic {} is a draft; send-task with its epicId adds tasks.{problem}", short(&epic));
    Ok(done(message, facts!({ "epic": epic, "channel": channel })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListArgs {
    status: Option<String>,
    search: Option<String>,
    lead_agent_id: Option<Uuid>,
    created_by_agent_id: Option<Uuid>,
    limit: Option<usize>,
    #[serde(default)]
    cursor: String,
}

async fn list_epics(call: Call, args: ListArgs) -> Outcome {
    let wanted = lists::Epics {
        status: args.status,
        search: args.search,
        lead: args.lead_agent_id,
        creator: args.created_by_agent_id,
        limit: args.limit.unwrap_or(25),
        cursor: args.cursor,
    };
    let mut found = call.service.list_epics(&call.who, wanted).await?;
    let epics = std::mem::take(&mut found.rows);
    let total = epics.len();
    let answer =
        done(format!("{}.", counted(total, "epic", "epics")), facts!({ "epics": epics, "total": total }));
    Ok(continued(warned(answer, &found), &found))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    epic_id: Option<Uuid>,
    #[serde(alias = "epicName")]
    name: Option<String>,
}

impl One {
    fn which(self) -> Result<Which, Refusal> {
        match (self.epic_id, self.name) {
            (Some(id), _) => Ok(Which::Id(id)),
            (None, Some(name)) => Ok(Which::Name(name)),
            (None, None) => {
                Err(Refusal::new(Code::InvalidArgument, "say which epic: give its id or its name"))
            }
        }
    }
}

#[derive(Deserialize)]
struct Details {
    #[serde(flatten)]
    epic: One,
    limit: Option<usize>,
    #[serde(default)]
    cursor: String,
}

async fn details(call: Call, args: Details) -> Outcome {
    let (id, epic) = call.service.find_epic(&call.who, args.epic.which()?).await?;
    let page = lists::Page { limit: args.limit, cursor: args.cursor };
    let mut found = call.service.epic_tasks(&call.who, id, page).await?;
    let tasks = std::mem::take(&mut found.rows);
    let (counts, freshness) = call.service.count_tasks(&call.who, Some(id)).await?;
    found.freshness = found.freshness.and(freshness);
    let all: u64 = counts.values().sum();
    let name = epic["name"].as_str().unwrap_or_default().to_owned();
    let message = format!("Epic {name} has {all} tasks and is {}% done.", epic["progress"]);
    Ok(continued(warned(done(message, facts!({ "epic": epic, "tasks": tasks })), &found), &found))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct UpdateArgs {
    epic_id: Option<Uuid>,
    name: Option<String>,
    new_name: Option<String>,
    status: Option<Status>,
    priority: Option<u8>,
    #[serde(default, deserialize_with = "wire::cleared")]
    lead_agent_id: Option<Option<Uuid>>,
    #[serde(flatten)]
    texts: Texts,
}

async fn update(call: Call, args: UpdateArgs) -> Outcome {
    let which = One { epic_id: args.epic_id, name: args.name }.which()?;
    let update = Update {
        new_name: args.new_name,
        status: args.status,
        priority: args.priority,
        lead: args.lead_agent_id,
        texts: args.texts,
        ..Update::new(which, Caller::agent(call.who.agent))
    };
    let epic: Value = call.service.update_epic(&call.who, call.request, update).await?;
    Ok(done(format!("Epic {} is changed.", short(&epic)), facts!({ "epic": epic })))
}

async fn delete(call: Call, args: One) -> Outcome {
    let (name, channel) = call.service.delete_epic(&call.who, call.request, args.which()?).await?;
    let message = match channel {
        None => format!("Epic {name} is deleted; its tasks stay."),
        Some(channel) => format!(
            "Epic {name} is deleted; its tasks stay, and so does its channel {channel}. A swarm has {} channels at \
             most: delete-channel removes this one if nobody needs it.",
            limits::CHANNELS
        ),
    };
    Ok(done(message, facts!({ "channelId": channel.map(|id| id.to_string()) })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Assign {
    task_id: Uuid,
    #[serde(flatten)]
    epic: One,
}

async fn assign(call: Call, args: Assign) -> Outcome {
    let (epic, body) = call.service.find_epic(&call.who, args.epic.which()?).await?;
    let changed = call.service.move_to_epic(&call.who, call.request, args.task_id, Some(epic)).await?;
    let name = body["name"].as_str().unwrap_or_default();
    Ok(done(
        format!("Task {} belongs to epic {name}.", short(&changed.task)),
        facts!({ "task": changed.task }),
    ))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Unassign {
    task_id: Uuid,
}

async fn unassign(call: Call, args: Unassign) -> Outcome {
    let changed = call.service.move_to_epic(&call.who, call.request, args.task_id, None).await?;
    Ok(done(format!("Task {} belongs to no epic.", short(&changed.task)), facts!({ "task": changed.task })))
}
