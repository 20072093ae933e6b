//! Who asks: the bearer of a token in the header `Authorization`, or in the field `secret` of the body, where agents
//! written for Action Llama have it. Never in the address, for addresses end up in logs.
//!
//! Whoever shows a token in the header is known before anything of the body is read. Of a body that has to be read for
//! the token, nothing else is looked at before that.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use http::{HeaderMap, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use skein_shared::id::Name;
use skein_shared::{Code, json, limits};
use uuid::Uuid;

use super::Gateway;
use super::answer::Problem;
use crate::auth::{Principal, Right, Role, policy};
use crate::mcp::idempotency;
use crate::service::Service;

/// A request of somebody who is known.
pub(super) struct Asked {
    pub(super) who: Principal,
    /// The idempotency key, if it has one.
    pub(super) key: Option<String>,
    fields: Map<String, Value>,
}

impl FromRequest<Gateway> for Asked {
    type Rejection = Problem;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let (who, text) = match bearer(&parts.headers) {
            Some(token) => (known(gateway, token).await?, whole(body).await?),
            None => {
                let (text, _turn) = gateway.strangers.read(body).await?;
                (known(gateway, &secret(&text)?).await?, text)
            }
        };
        let key = idempotency::header(&parts.headers).map(str::to_owned);
        Ok(Self { who, key, fields: fields(&text)? })
    }
}

/// Whose token it is, if these routes are for them and their run is not over.
async fn known(gateway: &Gateway, token: &str) -> Result<Principal, Problem> {
    let who = gateway.access.identify(token).await?;
    if who.role == Role::Runner {
        let text = "a runner's token opens nothing here; use an agent's token";
        return Err(Problem::error(StatusCode::FORBIDDEN, text));
    }
    gateway.service.require_live(&who).await?;
    Ok(who)
}

/// The secret that a body shows. All else is passed over, and takes no memory.
fn secret(text: &[u8]) -> Result<String, Problem> {
    #[derive(Default, Deserialize)]
    struct Shown<'a> {
        #[serde(borrow)]
        secret: Option<&'a RawValue>,
    }
    let Shown { secret } = match text {
        [] => Shown::default(),
        text => serde_json::from_slice(text).map_err(unreadable)?,
    };
    secret.and_then(|secret| serde_json::from_str(secret.get()).ok()).ok_or_else(|| {
        Problem::bad_request(
            "missing secret: send the value of SKEIN_TOKEN as `Authorization: Bearer`, or as `secret` in the JSON body",
        )
    })
}

/// A request of an operator, who speaks for a swarm.
pub(super) struct Operator {
    pub(super) who: Principal,
    /// Names this request: each try of one with an idempotency key has the same name. To end the runs of an agent, or
    /// to remove it, is about what there is when it comes.
    pub(super) request: Uuid,
    /// Keeps its answers if the request has a key, by which they can be asked for again.
    pub(super) service: Service,
    pub(super) fields: Map<String, Value>,
}

impl FromRequest<Gateway> for Operator {
    type Rejection = Problem;

    async fn from_request(request: Request, gateway: &Gateway) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let unknown = |text: &str| Problem::error(StatusCode::UNAUTHORIZED, text);
        let token = bearer(&parts.headers)
            .ok_or_else(|| unknown("send an operator's token as `Authorization: Bearer`"))?;
        let who = gateway.access.identify(token).await.map_err(|refusal| match refusal.code {
            Code::Unauthenticated => unknown(&refusal.message),
            _ => Problem::from(refusal),
        })?;
        policy::require(&who, Right::Administer)?;
        if parts.method != Method::GET {
            policy::require_writable(&who)?;
        }
        let swarm = swarm(parts.uri.query().unwrap_or_default())?;
        if !gateway.service.entities().has_swarm(&swarm).await? {
            let text = format!("there is no swarm `{swarm}`; make it with `skein swarm create {swarm}`");
            return Err(Problem::error(StatusCode::NOT_FOUND, text));
        }
        let who = Principal { swarm, ..who };
        let (key, request) = idempotency::of_route(&parts, &who)?;
        let service = gateway.service.clone().keeping_answers(key.is_some());
        Ok(Self { who, request, service, fields: fields(&whole(body).await?)? })
    }
}

/// The swarm that is named by `swarm=`, or the usual one.
fn swarm(query: &str) -> Result<Name, Problem> {
    let named = query.split('&').find_map(|pair| pair.strip_prefix("swarm="));
    Ok(Name::parse(named.unwrap_or("default"))?)
}

impl Asked {
    /// A field that has to be there and may not be null.
    pub(super) fn value(&self, name: &str) -> Result<&Value, Problem> {
        let missing = || Problem::bad_request(format!("missing {name}: put it into the JSON body"));
        self.fields.get(name).filter(|value| !value.is_null()).ok_or_else(missing)
    }

    /// A text that has to be there and may be empty.
    pub(super) fn text(&self, name: &str) -> Result<&str, Problem> {
        let wrong = || Problem::bad_request(format!("{name} must be a text"));
        self.value(name)?.as_str().ok_or_else(wrong)
    }

    /// A text that says something.
    pub(super) fn some_text(&self, name: &str) -> Result<&str, Problem> {
        let empty = || Problem::bad_request(format!("missing {name}: it is empty"));
        Some(self.text(name)?).filter(|text| !text.is_empty()).ok_or_else(empty)
    }

    /// A field that may be left out.
    pub(super) fn optional(&self, name: &str) -> Option<&Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }
}

/// The token of `Authorization: Bearer`.
pub(super) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// The body of somebody who is known.
async fn whole(body: Body) -> Result<Bytes, Problem> {
    let body = Limited::new(body, limits::REQUEST).collect().await.map_err(|_| {
        let status = StatusCode::from_u16(Code::TooLarge.http()).unwrap_or(StatusCode::BAD_REQUEST);
        Problem::error(
            status,
            format!("the body is cut off or longer than {} bytes; send less", limits::REQUEST),
        )
    })?;
    Ok(body.to_bytes())
}

/// The body's fields; an empty body has none.
fn fields(text: &[u8]) -> Result<Map<String, Value>, Problem> {
    if text.is_empty() {
        return Ok(Map::new());
    }
    json::bounded(text).map_err(|excess| Problem::bad_request(excess.to_string()))?;
    serde_json::from_slice(text).map_err(unreadable)
}

fn unreadable(error: serde_json::Error) -> Problem {
    Problem::bad_request(format!("invalid JSON: the body must be an object: {error}"))
}
