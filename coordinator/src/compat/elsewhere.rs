//! What Skein has no part in, or has in another place: each route says so.

use axum::extract::{Path, State};
use http::Uri;
use serde_json::json;
use skein_shared::Code;
use uuid::Uuid;

use super::Compat;
use super::answer::{Answer, Problem, ok};
use super::door::Asked;

/// There are no repositories: runners that ask for those to clone clone none.
pub(super) async fn repos(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    ok(json!({ "repos": [] }))
}

pub(super) async fn repo(State(compat): State<Compat>, Path(id): Path<Uuid>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    Err(Problem::of(Code::NotFound, format!("Repo {id} not found: no repositories are kept here")))
}

pub(super) async fn new_repo(State(compat): State<Compat>, asked: Asked) -> Answer {
    compat.look(&asked)?;
    let told = "no repositories are kept here; clone them by the agents' start-up scripts, and set what is theirs \
                by PUT /api/config with the scope repo";
    Err(Problem::of(Code::Disabled, told))
}

/// Whoever sends webhooks has no key, and so needs none to be told.
pub(super) async fn webhook(uri: Uri) -> Problem {
    let provider = uri.path().split('/').nth(2).unwrap_or_default().to_owned();
    let told = format!(
        "webhooks come to the ingress, which listens apart: send them to {} or /webhooks/{provider} there, with an \
         [[ingress.source]] of the provider {provider} in its configuration",
        uri.path()
    );
    Problem::of(Code::NotFound, told)
}
