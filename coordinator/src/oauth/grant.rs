//! The ways to a token.

use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

use super::form::Form;
use super::refusal::No;
use crate::auth::View;
use crate::service::access::{Access, Handed, Narrower};

pub(super) const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
const JWT: &str = "urn:ietf:params:oauth:token-type:jwt";

pub(super) async fn grant(access: &Access, form: &Form, base: &str) -> Result<Value, No> {
    resource(form, base)?;
    match form.needed("grant_type")? {
        "client_credentials" => {
            let (swarm, client, secret) = form.client()?;
            let handed = access.fetch(&swarm, &client, secret, form.scope()?).await;
            let handed = handed.map_err(|refusal| match refusal.code {
                Code::Unauthenticated => No::new("invalid_client", refusal),
                _ => refusal.into(),
            })?;
            Ok(answer(&handed))
        }
        EXCHANGE => exchange(access, form).await,
        _ => Err(No::unsupported(format!("grant_type is client_credentials or {EXCHANGE}"))),
    }
}

/// The service that the token is for (RFC 8707): tokens are for this one and no other.
fn resource(form: &Form, base: &str) -> Result<(), No> {
    let own = |resource: &str| {
        let path = resource.strip_prefix(base);
        path.is_some_and(|path| {
            path.is_empty()
                || path == "/"
                || path.strip_prefix("/mcp").is_some_and(|view| View::parse(view).is_ok())
        })
    };
    match form.get("resource") {
        Some(resource) if !own(resource) => {
            let problem = format!("tokens are for {base}/mcp");
            Err(No::new("invalid_target", Refusal::new(Code::InvalidArgument, problem)))
        }
        _ => Ok(()),
    }
}

async fn exchange(access: &Access, form: &Form) -> Result<Value, No> {
    for (kind, needed) in [("subject_token_type", true), ("requested_token_type", false)] {
        match form.get(kind) {
            Some(ACCESS_TOKEN | JWT) => {}
            None if !needed => {}
            _ => return Err(No::invalid_request(format!("{kind} is {ACCESS_TOKEN}"))),
        }
    }
    if form.get("actor_token").is_some() {
        return Err(No::invalid_request("leave actor_token out: who hands a token on stands in it"));
    }
    let lifetime = form.get("lifetime").map(|seconds| {
        let seconds: u64 = seconds.parse().ok().filter(|seconds| *seconds > 0)?;
        Some(Duration::from_secs(seconds))
    });
    if lifetime == Some(None) {
        return Err(No::invalid_request("lifetime is a number of seconds"));
    }
    let narrower = Narrower {
        rights: form.scope()?,
        lifetime: lifetime.flatten(),
        agent: form.parsed("agent")?,
        role: form.parsed("role")?,
        view: form.parsed("view")?,
        for_console: false,
    };
    let handed = access.exchange(form.needed("subject_token")?, narrower).await?;
    let mut answer = answer(&handed);
    answer["issued_token_type"] = json!(ACCESS_TOKEN);
    Ok(answer)
}

fn answer(handed: &Handed) -> Value {
    json!({
        "access_token": handed.issued.text(),
        "token_type": "Bearer",
        "expires_in": handed.lifetime.as_secs(),
        "scope": handed.rights.to_string(),
        "agent": handed.agent_name,
        "agent_id": handed.agent,
    })
}
