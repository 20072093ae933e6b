//! Who asks: whoever holds the key, as the agent that the header `X-Agent-ID` names; without the header, the operator.

use axum::extract::{FromRequest, FromRequestParts, Path as InPath, Request};
use http::request::Parts;
use http_body_util::{BodyExt, Limited};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use skein_shared::{Code, json, limits};
use uuid::Uuid;

use super::Compat;
use super::answer::Problem;
use crate::auth::{Principal, Role};
use crate::mcp::idempotency;
use crate::service::Service;

/// A request of somebody who holds the key.
pub(super) struct Asked {
    pub(super) who: Principal,
    /// Keeps its answers if the request has a key, by which they can be asked for again.
    pub(super) service: Service,
    /// Names this request, so that what it makes has an id: the same for each try of one with a key.
    pub(super) request: Uuid,
    /// The idempotency key, if it has one.
    pub(super) key: Option<String>,
    pub(super) fields: Map<String, Value>,
    query: Vec<(String, String)>,
}

/// The ids in the path of a request.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let named = InPath::<T>::from_request_parts(parts, state).await;
        let unknown = |_| {
            Problem::of(Code::NotFound, "nothing has the id in the path: ids are UUIDs, and lists give them")
        };
        let InPath(named) = named.map_err(unknown)?;
        Ok(Self(named))
    }
}

impl FromRequest<Compat> for Asked {
    type Rejection = Problem;

    async fn from_request(request: Request, compat: &Compat) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        if !compat.shared.admits(&parts.headers) {
            return Err(Problem::of(Code::Unauthenticated, "Unauthorized"));
        }
        let who = compat.shared.claimed(&parts.headers)?;
        if who.role != Role::Operator {
            compat.service.seen(&who);
        }
        let (key, request) = idempotency::of_route(&parts, &who)?;
        let service = compat.service.clone().keeping_answers(key.is_some());
        let query = url::form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let query = query.into_owned().collect();
        Ok(Self { who, service, request, key, fields: fields(body).await?, query })
    }
}

impl Asked {
    pub(super) fn query(&self, name: &str) -> Option<&str> {
        self.query.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn flag(&self, name: &str) -> Option<bool> {
        self.query(name).map(|value| value == "true" || value == "1")
    }

    pub(super) fn number(&self, name: &str, usual: usize) -> Result<usize, Problem> {
        let wrong = |_| Problem::bad_request(format!("{name} must be a whole number"));
        self.query(name).map_or(Ok(usual), |text| text.parse().map_err(wrong))
    }

    /// An id in the query.
    pub(super) fn id(&self, name: &str) -> Result<Option<Uuid>, Problem> {
        let parse = |text| skein_shared::id::parse_uuid(name, text);
        Ok(self.query(name).map(parse).transpose()?)
    }

    /// The fields of the body that say something: to many programs null is as good as nothing, and to tools it is a
    /// value of a wrong kind. Those `cleared` are cleared by it.
    pub(super) fn given(&self, cleared: &[&str]) -> Map<String, Value> {
        let mut given = self.fields.clone();
        given.retain(|name, value| !value.is_null() || cleared.contains(&name.as_str()));
        given
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.fields.get(name)?.as_str()
    }

    pub(super) fn need(&self, name: &str) -> Result<&str, Problem> {
        let missing = || Problem::bad_request(format!("{name} is missing: put it into the JSON body"));
        self.text(name).filter(|text| !text.is_empty()).ok_or_else(missing)
    }

    /// An id in the body.
    pub(super) fn field_id(&self, name: &str) -> Result<Option<Uuid>, Problem> {
        let parse = |text| skein_shared::id::parse_uuid(name, text);
        Ok(self.text(name).map(parse).transpose()?)
    }

    /// Who has to say which agent it is: the operator works on nothing.
    pub(super) fn agent(&self) -> Result<&Principal, Problem> {
        if self.who.role == Role::Operator {
            return Err(Problem::bad_request("say which agent you are: X-Agent-ID: <uuid>"));
        }
        Ok(&self.who)
    }
}

async fn fields(body: axum::body::Body) -> Result<Map<String, Value>, Problem> {
    let body = Limited::new(body, limits::REQUEST).collect().await.map_err(|_| {
        let text = format!("the body is cut off or longer than {} bytes; send less", limits::REQUEST);
        Problem::of(Code::TooLarge, text)
    })?;
    let body = body.to_bytes();
    if body.is_empty() {
        return Ok(Map::new());
    }
    json::bounded(&body).map_err(|excess| Problem::bad_request(excess.to_string()))?;
    serde_json::from_slice(&body)
        .map_err(|error| Problem::bad_request(format!("invalid JSON: the body must be an object: {error}")))
}
