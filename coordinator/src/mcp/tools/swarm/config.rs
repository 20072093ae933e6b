//! Configuration: values of the swarm, its agents and its repositories.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::id::parse_uuid;
use skein_shared::settings::{Place, Scope, VALUE, Wanted};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::done;
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Effect, Outcome, Tool, Toolset};
use crate::mcp::names;
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, flag, integer, list, object, one_of, text, uuid};
use crate::service::settings::{Look, Shown, Wish};

const SWARM: Toolset = Toolset::Swarm;
const SCOPES: [&str; 3] = ["global", "agent", "repo"];
const SETTING: [&str; 11] = [
    "id",
    "scope",
    "scopeId",
    "key",
    "value",
    "isSecret",
    "envPath",
    "description",
    "createdAt",
    "lastUpdatedAt",
    "problem",
];
const KEY: usize = 255;
/// Most settings that a swarm has.
const ALL: i64 = 1000;

pub(super) fn tools() -> Vec<Tool> {
    let listed = || json!({ "success": flag(), "message": any_text(4000), "configs": list(object(), 1000), "count": integer(0, ALL) });
    vec![
        Tool::new("set-config", "Set a configuration value", SWARM, set)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Set a value for the swarm, an agent or a repository; again changes it.",
                "The lead sets any; an agent those of scope agent with its own id. A secret is kept encrypted and shown masked.",
            )
            .found_by("setting environment variable env secret token api key credential option configure save")
            .args(
                Args::none()
                    .need("scope", one_of(&SCOPES), "For all, for an agent, or for a repository")
                    .need("key", text(KEY), "Its name, such as MODEL_OVERRIDE")
                    .need("value", any_text(VALUE), "Its value")
                    .take("scopeId", agent(), "The agent's id or name, or the repository's id; not for global")
                    .take("isSecret", flag(), "Keep it encrypted and mask it (false)")
                    .take("description", any_text(1000), "What it is for")
                    .rare("envPath", any_text(4096), "Refused: coordinators write no files"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "config": object() })),
        Tool::new("get-config", "Get configuration", SWARM, get)
            .reads()
            .about(
                "Get the values that apply: repo goes before agent, agent before global.",
                "Without agentId and repoId those for all. With includeSecrets the lead reads every secret, an agent its own.",
            )
            .found_by("setting environment variable env secret token api key credential option resolve read")
            .args(
                Args::none()
                    .take("key", text(KEY), "This one alone")
                    .take("agentId", agent(), "As they apply to this agent")
                    .of_agents()
                    .take("repoId", uuid(), "As they apply in this repository")
                    .take("includeSecrets", flag(), "Secrets in plain text, those that you may read (false)"),
            )
            .output(listed())
            .lists("configs", &SETTING),
        Tool::new("list-config", "List configuration", SWARM, list_all)
            .reads()
            .about("List the values as they are set, of every scope.", "get-config says which of them apply.")
            .found_by("settings environment variables env secrets options show all scopes")
            .args(
                Args::none()
                    .take("scope", one_of(&SCOPES), "Of this scope")
                    .take("scopeId", agent(), "Of this agent (id or name) or repository (id)")
                    .take("key", text(KEY), "Of this name")
                    .take("includeSecrets", flag(), "Secrets in plain text, those that you may read (false)"),
            )
            .output(listed())
            .lists("configs", &SETTING),
        Tool::new("delete-config", "Delete a configuration value", SWARM, delete)
            .writes(Right::Work)
            .destructive()
            .about("Delete a value; the lead any, an agent its own.", "list-config shows the ids.")
            .found_by("setting environment variable env secret remove unset")
            .args(Args::none().need("id", uuid(), "The value's id"))
            .output(json!({ "success": flag(), "message": any_text(4000) })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SetArgs {
    scope: String,
    key: String,
    value: String,
    scope_id: Option<String>,
    #[serde(default)]
    is_secret: bool,
    description: Option<String>,
    env_path: Option<String>,
}

async fn set(call: Call, args: SetArgs) -> Outcome {
    if args.env_path.is_some_and(|path| !path.is_empty()) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "envPath: coordinators write no files; leave it out, and let those who need the value ask get-config",
        ));
    }
    let of = scope_id(&call, Effect::Write, Some(&args.scope), args.scope_id).await?;
    let scope = scope(&args.scope, of)?;
    let wish = Wish {
        place: Place { key: args.key, scope },
        value: args.value,
        secret: args.is_secret,
        description: args.description,
    };
    let place = named(&wish.place);
    let (setting, new) = call.service.set_setting(&call.who, call.request, wish).await?;
    let what = if new { "set" } else { "changed" };
    Ok(done(format!("{place} is {what}."), facts!({ "config": setting })))
}

/// The id of what a scope is of. An agent has a name as well, a repository only an id.
async fn scope_id(
    call: &Call,
    effect: Effect,
    scope: Option<&str>,
    of: Option<String>,
) -> Result<Option<Uuid>, Refusal> {
    let Some(of) = of else { return Ok(None) };
    let may_be_name = scope.is_none_or(|scope| scope == "agent");
    if may_be_name && Uuid::try_parse(&of).is_err() {
        return names::named(call, effect, &of).await.map(Some);
    }
    parse_uuid("scopeId", &of).map(Some)
}

/// The scope with the id that it needs; for all there is none.
fn scope(scope: &str, id: Option<Uuid>) -> Result<Scope, Refusal> {
    match (scope, id) {
        ("agent", Some(id)) => Ok(Scope::Agent(id)),
        ("repo", Some(id)) => Ok(Scope::Repo(id)),
        ("global", _) => Ok(Scope::Global),
        (scope, _) => Err(Refusal::new(
            Code::InvalidArgument,
            format!("scopeId: the scope {scope} needs the id of the {scope} that the value is for"),
        )),
    }
}

fn named(place: &Place) -> String {
    match place.scope.id() {
        Some(id) => format!("{} of the {} {id}", place.key, place.scope.as_str()),
        None => format!("{} for all", place.key),
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GetArgs {
    key: Option<String>,
    agent_id: Option<Uuid>,
    repo_id: Option<Uuid>,
    #[serde(default)]
    include_secrets: bool,
}

async fn get(call: Call, args: GetArgs) -> Outcome {
    let look = Look::Resolved { agent: args.agent_id, repo: args.repo_id, key: args.key };
    Ok(shown(call.service.settings(&call.who, look, args.include_secrets).await?))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListArgs {
    scope: Option<String>,
    scope_id: Option<String>,
    key: Option<String>,
    #[serde(default)]
    include_secrets: bool,
}

async fn list_all(call: Call, args: ListArgs) -> Outcome {
    let of = scope_id(&call, Effect::Read, args.scope.as_deref(), args.scope_id).await?;
    let look = Look::Raw(Wanted { scope: args.scope, of, key: args.key });
    Ok(shown(call.service.settings(&call.who, look, args.include_secrets).await?))
}

fn shown(shown: Shown) -> crate::mcp::result::Answer {
    let count = shown.settings.len();
    let mut message = format!("{}.", counted(count, "value", "values"));
    if shown.withheld > 0 {
        let secrets = counted(shown.withheld, "secret", "secrets");
        message =
            format!("{message} {secrets} masked: the lead reads them, an agent those of its own scope.");
    }
    if shown.unreadable > 0 {
        let secrets = counted(shown.unreadable, "secret", "secrets");
        message = format!("{message} {secrets} cannot be read; `problem` says why.");
    }
    done(message, facts!({ "configs": shown.settings, "count": count }))
}

#[derive(Deserialize)]
struct DeleteArgs {
    id: Uuid,
}

async fn delete(call: Call, args: DeleteArgs) -> Outcome {
    let place = call.service.delete_setting(&call.who, call.request, args.id).await?;
    Ok(done(format!("{} is deleted.", named(&place)), Value::Null))
}
