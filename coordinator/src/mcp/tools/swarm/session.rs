//! Joining, and who there is.

use serde::Deserialize;
use serde_json::json;
use skein_shared::Refusal;

use super::{continued, done, inbox, warned};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::{Answer, counted};
use crate::mcp::schema::{Args, any_text, flag, integer, list, object, text};
use crate::service::lists::Page;
use crate::service::swarm::Introduction;

const SWARM: Toolset = Toolset::Swarm;
const AGENT: [&str; 17] = [
    "id",
    "name",
    "isLead",
    "status",
    "description",
    "role",
    "capabilities",
    "claudeMd",
    "soulMd",
    "identityMd",
    "setupScript",
    "toolsMd",
    "maxTasks",
    "emptyPollCount",
    "lastActivityAt",
    "createdAt",
    "lastUpdatedAt",
];

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("join-swarm", "Join the swarm", SWARM, join)
            .core()
            .writes(Right::Work)
            .idempotent()
            .about(
                "Become a member of the swarm; call it once before all else.",
                "Joining again under the same name succeeds and changes nothing, but with lead: true a worker becomes \
                 the lead if there is none. There is one lead at most.",
            )
            .found_by("register enroll sign in start session become member")
            .args(
                Args::none()
                    .need("name", text(200), "Your name in the swarm, unique in it")
                    .take("lead", flag(), "Join as the lead")
                    .take("description", any_text(4000), "What you are for")
                    .rare("role", any_text(100), "Your role in a word or two")
                    .rare("capabilities", list(text(100), 100), "What you are able to do")
                    .rare("maxTasks", integer(1, 20), "How many tasks you take at a time (1)")
                    .rare(
                        "requestedId",
                        any_text(64),
                        "Taken for compatibility; your token says who you are",
                    ),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "agent": object() })),
        Tool::new("my-agent-info", "My agent info", SWARM, info)
            .core()
            .reads()
            .about("See who you are in the swarm.", "Says so when you have not joined yet.")
            .found_by("whoami identity profile self status")
            .output(json!({ "success": flag(), "message": any_text(4000), "yourAgentInfo": object() })),
        Tool::new("get-swarm", "Get the swarm", SWARM, swarm)
            .core()
            .reads()
            .about(
                "List the agents of the swarm with their status.",
                "Texts of profiles are left out unless full is set.",
            )
            .found_by("list agents members team workers idle busy offline who")
            .args(
                Args::none()
                    .rare("a", any_text(1000), "Ignored")
                    .rare("full", flag(), "With the texts of the profiles")
                    .rare("limit", integer(1, 1000), "At most so many (1000)"),
            )
            .output(json!({ "agents": list(object(), 100_000) }))
            .lists("agents", &AGENT)
            .paged(),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Join {
    name: String,
    #[serde(default)]
    lead: bool,
    description: Option<String>,
    role: Option<String>,
    #[serde(default)]
    capabilities: Vec<String>,
    max_tasks: Option<u32>,
}

async fn join(call: Call, args: Join) -> Outcome {
    let introduction = Introduction {
        name: args.name,
        lead: args.lead,
        role: args.role,
        capabilities: args.capabilities,
        description: args.description,
        max_tasks: args.max_tasks,
    };
    let (agent, existing) = call.service.join(&call.who, call.request, introduction).await?;
    let name = agent["name"].as_str().unwrap_or_default();
    let (part, next) = match agent["isLead"] == true {
        true => ("its lead", "send-task hands out work"),
        false => ("worker", "poll-task gives you work"),
    };
    let (waiting, open) = inbox::waiting(&call.service, &call.who, &agent).await;
    let message = match existing {
        true => format!("You are a member of the swarm already, as {part} `{name}`; {next}.{waiting}"),
        false => format!("You joined the swarm as {part} `{name}`; {next}.{waiting}"),
    };
    Ok(done(message, facts!({ "agent": agent, "openInboxMessages": open })))
}

#[derive(Deserialize)]
struct Nothing {}

async fn info(call: Call, _: Nothing) -> Outcome {
    Ok(match call.service.me(&call.who).await? {
        Some(agent) => {
            let name = agent["name"].as_str().unwrap_or_default().to_owned();
            let role = if agent["isLead"] == true { "the lead" } else { "a worker" };
            let (waiting, open) = inbox::waiting(&call.service, &call.who, &agent).await;
            done(
                format!("You are {name}, {role} of swarm {}.{waiting}", call.who.swarm),
                facts!({
                    "agentId": call.who.agent.to_string(), "yourAgentInfo": agent, "openInboxMessages": open
                }),
            )
        }
        None => done(
            "You are not a member of this swarm yet; call join-swarm first.",
            json!({ "agentId": call.who.agent }),
        ),
    })
}

#[derive(Deserialize)]
struct Swarm {
    #[serde(default)]
    full: bool,
    limit: Option<usize>,
    #[serde(default)]
    cursor: String,
}

async fn swarm(call: Call, args: Swarm) -> Outcome {
    let page = Page { limit: args.limit, cursor: args.cursor };
    let mut list = match args.full {
        true => call.service.list_profiles(&call.who, page).await?,
        false => call.service.list_some_members(&call.who, page).await?,
    };
    let agents = std::mem::take(&mut list.rows);
    let busy = agents.iter().filter(|agent| agent["status"] == "busy").count();
    let members = counted(agents.len(), "agent", "agents");
    let text = format!("{members} in swarm {}, {busy} busy.", call.who.swarm);
    Ok::<_, Refusal>(continued(warned(Answer::new(text, facts!({ "agents": agents })), &list), &list))
}
