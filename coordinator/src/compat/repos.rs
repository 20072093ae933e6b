//! Repositories, which agents clone.

use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::Code;
use skein_shared::settings::RepoSpec;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, made, ok};
use super::door::{Asked, Path};

/// How often somebody may look or change something, and its line in the log: those of the tools for settings.
const LOOK: &str = "list-config";
const CHANGE: &str = "set-config";

/// Those of a name, and those alone that agents clone when they start, or that they do not.
pub(super) async fn list(State(compat): State<Compat>, asked: Asked) -> Answer {
    let (cloned, name) = (asked.flag("autoClone"), asked.query("name"));
    let mut repos = compat.like(&asked, LOOK, asked.service.repos(&asked.who)).await?;
    repos.retain(|repo| {
        cloned.is_none_or(|cloned| repo["autoClone"] == cloned)
            && name.is_none_or(|name| repo["name"] == name)
    });
    ok(json!({ "repos": repos }))
}

pub(super) async fn one(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let repos = compat.like(&asked, LOOK, asked.service.repos(&asked.who)).await?;
    let repo = repos.into_iter().find(|repo| repo["id"] == json!(id));
    ok(repo.ok_or_else(|| Problem::of(Code::NotFound, "Repo not found; GET /api/repos lists them"))?)
}

pub(super) async fn create(State(compat): State<Compat>, asked: Asked) -> Answer {
    let adding = asked.service.add_repo(&asked.who, asked.request, said(&asked)?);
    made(compat.like(&asked, CHANGE, adding).await?)
}

pub(super) async fn update(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let changing = asked.service.change_repo(&asked.who, asked.request, id, said(&asked)?);
    ok(compat.like(&asked, CHANGE, changing).await?)
}

pub(super) async fn delete(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    let removing = asked.service.remove_repo(&asked.who, asked.request, id);
    compat.like(&asked, CHANGE, removing).await?;
    ok(json!({ "success": true }))
}

fn said(asked: &Asked) -> Result<RepoSpec, Problem> {
    RepoSpec::deserialize(&Value::Object(asked.fields.clone()))
        .map_err(|error| Problem::bad_request(format!("the repository cannot be read: {error}")))
}
