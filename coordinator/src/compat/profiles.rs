//! What is said of agents: they say it themselves, or their lead or a person does.

use axum::extract::State;
use serde::Deserialize;
use serde_json::Value;
use skein_shared::pool::Profile;
use skein_shared::profiles::{Edit, Source};
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, ok};
use super::door::{Asked, Path};

/// The body of a request, by the names that Agent Swarm's programs know.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Said {
    name: Option<String>,
    description: Option<String>,
    role: Option<String>,
    capabilities: Option<Vec<String>>,
    claude_md: Option<String>,
    soul_md: Option<String>,
    identity_md: Option<String>,
    setup_script: Option<String>,
    tools_md: Option<String>,
    change_source: Option<Source>,
    /// Believed of whoever names no agent as itself.
    changed_by_agent_id: Option<Uuid>,
    change_reason: Option<String>,
}

pub(super) async fn rename(State(compat): State<Compat>, Path(agent): Path<Uuid>, asked: Asked) -> Answer {
    let name = Some(asked.need("name")?.to_owned());
    change(&compat, &asked, agent, Said { name, ..Said::default() }).await
}

pub(super) async fn describe(State(compat): State<Compat>, Path(agent): Path<Uuid>, asked: Asked) -> Answer {
    let said = Said::deserialize(&Value::Object(asked.fields.clone()))
        .map_err(|error| Problem::bad_request(format!("the profile cannot be read: {error}")))?;
    change(&compat, &asked, agent, said).await
}

async fn change(compat: &Compat, asked: &Asked, agent: Uuid, said: Said) -> Answer {
    let by = asked.who.as_agent();
    let usual = match by {
        Some(by) if by != agent => Source::LeadCoaching,
        _ => Source::Api,
    };
    let edit = Edit {
        source: said.change_source.unwrap_or(usual),
        by: by.or(said.changed_by_agent_id),
        reason: said.change_reason,
    };
    let profile = Profile {
        name: said.name,
        description: said.description,
        role: said.role,
        capabilities: said.capabilities,
        claude_md: said.claude_md,
        soul_md: said.soul_md,
        identity_md: said.identity_md,
        setup_script: said.setup_script,
        tools_md: said.tools_md,
    };
    let describing = asked.service.describe_member(&asked.who, asked.request, (agent, edit), profile);
    ok(compat.like(asked, "update-profile", describing).await?)
}
