//! What the texts of profiles were before.

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::profiles::Field;
use uuid::Uuid;

use super::{done, warned};
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::result::counted;
use crate::mcp::schema::{Args, agent, any_text, at_least, flag, integer, list, object, one_of, uuid};

const SWARM: Toolset = Toolset::Swarm;
const FIELDS: [&str; 5] = ["claudeMd", "soulMd", "identityMd", "setupScript", "toolsMd"];
const VERSION: [&str; 8] = [
    "id",
    "field",
    "version",
    "changeSource",
    "changedByAgentId",
    "changeReason",
    "contentLength",
    "createdAt",
];
/// Versions that a history shows when nothing is said.
const LIMIT: usize = 10;
/// Stands for a difference between texts that are the same.
const NO_DIFFERENCE: &str = "(no differences)";

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("context-history", "List versions of a profile", SWARM, history)
            .reads()
            .about(
                "List the versions of your profile's texts, without the texts.",
                "The lead may look at others'. context-diff shows what a version changed.",
            )
            .found_by("claude md soul identity profile versions changes log who changed")
            .args(
                Args::none()
                    .take("agentId", agent(), "Whose (yours)")
                    .of_agents()
                    .take("field", one_of(&FIELDS), "Of this text alone")
                    .take("limit", integer(1, 100), "At most so many (10)"),
            )
            .output(json!({ "success": flag(), "message": any_text(4000), "versions": list(object(), 100) }))
            .lists("versions", &VERSION),
        Tool::new("context-diff", "Compare versions of a profile", SWARM, diff)
            .reads()
            .about("Show what a version of a profile's text changed, line by line.", "")
            .found_by("claude md soul identity profile compare change unified")
            .args(Args::none().need("versionId", uuid(), "The version").take(
                "compareToVersionId",
                uuid(),
                "Held against this one (the one before it)",
            ))
            .output(json!({
                "success": flag(), "message": any_text(4000), "field": one_of(&FIELDS),
                "fromVersion": at_least(0), "toVersion": at_least(1), "diff": any_text(300_000),
                "changeSource": any_text(50), "createdAt": any_text(50),
            })),
    ]
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct HistoryArgs {
    agent_id: Option<Uuid>,
    field: Option<Field>,
    limit: Option<usize>,
}

async fn history(call: Call, args: HistoryArgs) -> Outcome {
    let limit = args.limit.unwrap_or(LIMIT);
    let found = call.service.profile_history(&call.who, args.agent_id, args.field, limit).await?;
    let versions: Vec<Value> = found.rows.iter().map(shown).collect();
    let message = format!("{}.", counted(versions.len(), "version", "versions"));
    Ok(warned(done(message, facts!({ "versions": versions })), &found))
}

/// A version as clients know it: who has changed it and why are null where nobody has said so.
fn shown(version: &Value) -> Value {
    VERSION.iter().map(|field| (*field, version[*field].clone())).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DiffArgs {
    version_id: Uuid,
    compare_to_version_id: Option<Uuid>,
}

async fn diff(call: Call, args: DiffArgs) -> Outcome {
    let found = call.service.profile_diff(&call.who, args.version_id, args.compare_to_version_id).await?;
    let message = format!("{} from version {} to {}.", found.field, found.from, found.to);
    let diff = found.diff.unwrap_or_else(|| NO_DIFFERENCE.to_owned());
    let facts = json!({
        "field": found.field, "fromVersion": found.from, "toVersion": found.to, "diff": diff,
        "changeSource": found.source, "createdAt": found.created_at,
    });
    let mut answer = done(message, facts);
    answer.text = format!("{}\n\n{diff}", answer.text);
    Ok(answer)
}
