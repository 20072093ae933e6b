//! Services.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};
use skein_shared::services::{Health, Register, Wanted};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{done, listed};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, flag, integer, list, object, one_of, text, uuid};

const SWARM: Toolset = Toolset::Swarm;
const SERVICE: [&str; 17] = [
    "id",
    "agentId",
    "agentName",
    "name",
    "port",
    "description",
    "url",
    "healthCheckPath",
    "status",
    "script",
    "cwd",
    "interpreter",
    "args",
    "env",
    "metadata",
    "createdAt",
    "lastUpdatedAt",
];
const STATUSES: [&str; 4] = ["starting", "healthy", "unhealthy", "stopped"];

pub(super) fn tools() -> Vec<Tool> {
    let result = || json!({ "success": flag(), "message": any_text(4000), "service": object() });
    let which = || {
        Args::none().take("serviceId", uuid(), "The service's id").take(
            "name",
            any_text(100),
            "Or its name, or its label",
        )
    };
    vec![
        Tool::new("register-service", "Register a service", SWARM, register)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Tell the swarm of the program that you keep running for others.",
                "You have one; again changes it. What starts it is to be given each time, the rest stays.",
            )
            .found_by("web server http port pm2 process announce publish expose")
            .args(
                Args::none()
                    .need("script", text(4000), "What starts it")
                    .take("description", any_text(4000), "What it is for")
                    .take("healthCheckPath", text(1000), "Path that answers while it is healthy (/health)")
                    .take("cwd", text(1000), "Where it starts")
                    .take("interpreter", text(1000), "What runs the script")
                    .take("args", list(any_text(1000), 100), "Its arguments")
                    .take("env", object(), "Its environment: names and texts")
                    .take("metadata", object(), "Anything else; `label` is a name to find it by")
                    .take("url", text(1000), "Where others reach it"),
            )
            .output(result()),
        Tool::new("unregister-service", "Unregister a service", SWARM, unregister)
            .writes(Right::Work)
            .destructive()
            .about("Take your service out of the list.", "The lead may take any out, by its id.")
            .found_by("remove stop web server")
            .args(which())
            .output(result()),
        Tool::new("list-services", "List services", SWARM, list_services)
            .reads()
            .about("List the services that agents keep running.", "The healthiest come first.")
            .found_by("web servers urls ports show who runs")
            .args(
                Args::none()
                    .take("agentId", agent(), "Of this agent").of_agents()
                    .take("name", any_text(100), "Part of the name or the label")
                    .take("status", one_of(&STATUSES), "Those that fare so")
                    .take("includeOwn", flag(), "Your own, too (true)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "services": list(object(), 1000), "count": integer(0, 1000) }))
            .lists("services", &SERVICE),
        Tool::new("update-service-status", "Update a service's status", SWARM, update_status)
            .writes(Right::Work)
            .idempotent()
            .about("Say how your service fares.", "")
            .found_by("health healthy up down web server")
            .args(which().need("status", one_of(&STATUSES), "How it fares"))
            .output(result()),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RegisterArgs {
    script: String,
    description: Option<String>,
    health_check_path: Option<String>,
    cwd: Option<String>,
    interpreter: Option<String>,
    args: Option<Vec<String>>,
    env: Option<Map<String, Value>>,
    metadata: Option<Map<String, Value>>,
    url: Option<String>,
}

async fn register(call: Call, args: RegisterArgs) -> Outcome {
    let agent = call.who.agent;
    let register = Register {
        agent,
        script: args.script,
        says_url: args.url.is_some(),
        url: args.url.unwrap_or_else(|| call.service.service_url(agent)),
        description: args.description,
        health_path: args.health_check_path,
        cwd: args.cwd,
        interpreter: args.interpreter,
        args: args.args,
        env: args.env.map(texts).transpose()?,
        metadata: args.metadata,
    };
    let (service, new) = call.service.register_service(&call.who, call.request, register).await?;
    let what = if new { "registered" } else { "changed" };
    let url = service["url"].as_str().unwrap_or_default().to_owned();
    Ok(done(format!("Your service is {what}; others reach it at {url}."), facts!({ "service": service })))
}

/// An environment has texts alone; numbers and truth values are taken as theirs.
fn texts(env: Map<String, Value>) -> Result<BTreeMap<String, String>, Refusal> {
    let text = |(name, value)| match value {
        Value::String(text) => Ok((name, text)),
        Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
        _ => Err(Refusal::new(Code::InvalidArgument, format!("env: the value of `{name}` must be a text"))),
    };
    env.into_iter().map(text).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct One {
    service_id: Option<Uuid>,
    name: Option<String>,
}

impl One {
    fn which(self) -> Result<Which, Refusal> {
        match (self.service_id, self.name) {
            (Some(id), _) => Ok(Which::Id(id)),
            (None, Some(name)) => Ok(Which::Name(name)),
            (None, None) => Err(Refusal::new(
                Code::NotFound,
                "say which service: give serviceId or name; list-services has both",
            )),
        }
    }
}

async fn unregister(call: Call, args: One) -> Outcome {
    let service = call.service.unregister_service(&call.who, call.request, args.which()?).await?;
    Ok(done("The service is not listed any more.", facts!({ "service": service })))
}

#[derive(Deserialize)]
struct StatusArgs {
    #[serde(flatten)]
    one: One,
    status: Health,
}

async fn update_status(call: Call, args: StatusArgs) -> Outcome {
    let which = args.one.which()?;
    let service = call.service.set_service_health(&call.who, call.request, which, args.status).await?;
    let status = service["status"].as_str().unwrap_or_default().to_owned();
    Ok(done(format!("Your service is {status}."), facts!({ "service": service })))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListArgs {
    agent_id: Option<Uuid>,
    name: Option<String>,
    status: Option<Health>,
    include_own: Option<bool>,
}

async fn list_services(call: Call, args: ListArgs) -> Outcome {
    let except = (args.include_own == Some(false)).then_some(call.who.agent);
    let wanted = Wanted { agent: args.agent_id, name: args.name, health: args.status, except };
    let (services, left_out) = call.service.list_services(&call.who, wanted).await?;
    let count = services.len();
    let message = listed(&counted(count, "service", "services"), left_out);
    Ok(done(message, facts!({ "services": services, "count": count })))
}
