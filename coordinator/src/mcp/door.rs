//! The door of the MCP face: who comes in, and what may be brought in.

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use skein_shared::id::{InstanceId, Name};
use skein_shared::{Code, Refusal, json, limits};
use subtle::ConstantTimeEq;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::dispatch::Gate;
use super::result::refusal_json;
use crate::auth::{Credential, Principal, Right, Rights, Role, View};
use crate::service::access::Access;

/// By which a caller with the shared key says who it is.
const AGENT: &str = "x-agent-id";
/// Where the metadata lies that a 401 points to.
pub(super) const METADATA: &str = "/.well-known/oauth-protected-resource";

/// Where the face may be reached, and by whom.
#[derive(Clone, Debug)]
pub struct Config {
    /// `host` or `host:port` values that the `Host` header may have, against DNS rebinding.
    pub allowed_hosts: Vec<String>,
    /// Origins of browsers that may call, such as `http://localhost:*`.
    pub allowed_origins: Vec<String>,
    /// The address that clients use, without a path; else the request's own host is named.
    pub public_url: Option<String>,
    /// Agent Swarm's way to tell callers apart: one key for all and a header with the agent's id. Whoever holds
    /// the key can act as any agent, so it is off unless an operator turns it on.
    pub shared_key: Option<SharedKey>,
    /// Shared with the other faces, so that nobody gets twice as much by asking two.
    pub gate: Gate,
    /// Where sessions of older clients are kept over a restart; without it they end with the process.
    pub sessions: Option<PathBuf>,
    /// Whether sessions may have begun on other nodes, which may be gone: then one that is unknown is taken up.
    pub adopts_sessions: bool,
    /// Offers what the official conformance suite asks for, in place of everything else.
    pub fixture: bool,
    /// Ends the sessions when the node stops.
    pub shutdown: CancellationToken,
}

#[derive(Clone, Debug)]
pub struct SharedKey {
    pub key: SecretString,
    pub swarm: Name,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allowed_hosts: ["localhost", "127.0.0.1", "::1"].map(str::to_owned).to_vec(),
            allowed_origins: ["http://localhost:*", "http://127.0.0.1:*"].map(str::to_owned).to_vec(),
            public_url: None,
            shared_key: None,
            gate: Gate::default(),
            sessions: None,
            adopts_sessions: false,
            fixture: false,
            shutdown: CancellationToken::new(),
        }
    }
}

/// Knows callers by their tokens.
#[derive(Clone)]
pub(super) struct Door {
    access: Access,
    config: Arc<Config>,
}

impl Door {
    pub(super) fn new(access: Access, config: Config) -> Self {
        Self { access, config: Arc::new(config) }
    }

    /// Who sent the request, and the token if there is one: it may end while the request waits.
    pub(super) async fn identify(
        &self,
        headers: &HeaderMap,
    ) -> Result<(Principal, Option<Arc<Credential>>), Refusal> {
        let token = text_header(headers, header::AUTHORIZATION.as_str())
            .and_then(|value| value.split_once(' '))
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, token)| token.trim())
            .ok_or_else(|| {
                Refusal::new(
                    Code::Unauthenticated,
                    "a token is needed: send it as `Authorization: Bearer <token>` (`skein token issue` makes one)",
                )
            })?;
        match &self.config.shared_key {
            Some(shared) if shared.is(token) => Ok((shared.named(headers)?, None)),
            _ => {
                let credential = self.access.credential(token).await?;
                Ok((credential.who.clone(), Some(credential)))
            }
        }
    }

    pub(super) fn allowed_hosts(&self) -> &[String] {
        &self.config.allowed_hosts
    }

    fn base(&self, headers: &HeaderMap) -> String {
        base(self.config.public_url.as_deref(), headers)
    }

    /// 401, with where to read how to get a token (RFC 9728); 403, with the scopes that it takes.
    pub(super) fn challenge(&self, headers: &HeaderMap, refusal: &Refusal) -> Response {
        let mut response = refused(refusal);
        let usual = || format!("{} {}", Right::Read.scope(), Right::Work.scope());
        let (scope, problem) = match (refusal.code, refusal.detail["scope"].as_str()) {
            (Code::Unauthenticated, _) if headers.contains_key(header::AUTHORIZATION) => {
                (usual(), ", error=\"invalid_token\"")
            }
            (Code::Unauthenticated, _) => (usual(), ""),
            (Code::Forbidden, Some(scope)) => (scope.to_owned(), ", error=\"insufficient_scope\""),
            _ => return response,
        };
        let base = self.base(headers);
        let challenge = format!("Bearer resource_metadata=\"{base}{METADATA}\", scope=\"{scope}\"{problem}");
        if let Ok(value) = HeaderValue::from_str(&challenge) {
            response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
        }
        response
    }

    /// How to get a token, as RFC 9728 has it: for the view whose address was asked with, or for all of them.
    pub(super) fn metadata(&self, headers: &HeaderMap, resource: &str) -> Value {
        let base = self.base(headers);
        let view = resource.strip_prefix("/mcp").filter(|view| View::parse(view).is_ok());
        let servers: Vec<&str> =
            std::iter::once(base.as_str()).chain(self.access.issuers().names()).collect();
        let scopes = Right::ALL.into_iter().filter(|right| *right != Right::Run).map(Right::scope);
        json!({
            "resource": format!("{base}/mcp{}", view.unwrap_or_default().trim_end_matches('/')),
            "resource_name": "Skein",
            "authorization_servers": servers,
            "scopes_supported": scopes.collect::<Vec<_>>(),
            "bearer_methods_supported": ["header"],
        })
    }
}

/// The address that clients use, without a path.
pub(crate) fn base(public_url: Option<&str>, headers: &HeaderMap) -> String {
    let host = || text_header(headers, header::HOST.as_str()).unwrap_or("localhost");
    public_url.map_or_else(|| format!("http://{}", host()), str::to_owned)
}

fn same(one: &str, other: &str) -> bool {
    one.as_bytes().ct_eq(other.as_bytes()).into()
}

impl SharedKey {
    fn is(&self, token: &str) -> bool {
        same(self.key.expose_secret(), token)
    }

    /// Whether a request shows the key.
    pub fn admits(&self, headers: &HeaderMap) -> bool {
        let token =
            text_header(headers, header::AUTHORIZATION.as_str()).and_then(|value| value.split_once(' '));
        token.is_some_and(|(scheme, token)| scheme.eq_ignore_ascii_case("bearer") && self.is(token.trim()))
    }

    /// The caller by Agent Swarm's header; without one the key speaks for the operator.
    ///
    /// # Errors
    /// `invalid_argument` for a header that is no id.
    pub fn claimed(&self, headers: &HeaderMap) -> Result<Principal, Refusal> {
        if headers.contains_key(AGENT) {
            return self.named(headers);
        }
        let name = Name::parse("operator")?;
        let role = Role::Operator;
        Ok(Principal { agent_name: name, role, ..self.agent(Uuid::nil())? })
    }

    /// The caller by Agent Swarm's header.
    fn named(&self, headers: &HeaderMap) -> Result<Principal, Refusal> {
        let id = text_header(headers, AGENT).ok_or_else(|| {
            Refusal::new(Code::Unauthenticated, "with the shared key, say who you are: X-Agent-ID: <uuid>")
        })?;
        self.agent(skein_shared::id::parse_uuid("X-Agent-ID", id)?)
    }

    /// An agent that nothing but its id is known of. Ownership and leadership are the pool's to check. It is shown the
    /// tools that its programs know.
    ///
    /// # Errors
    /// Never: an id makes a name.
    pub fn agent(&self, agent: Uuid) -> Result<Principal, Refusal> {
        Ok(Principal {
            swarm: self.swarm.clone(),
            agent,
            agent_name: Name::parse(&format!("agent-{}", agent.as_simple()))?,
            instance: InstanceId(agent.to_string()),
            managed: false,
            role: Role::Lead,
            rights: Rights::ALL,
            view: Some(View::parse("x/swarm")?),
        })
    }
}

pub(super) fn text_header<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

pub(super) fn refused(refusal: &Refusal) -> Response {
    let status = StatusCode::from_u16(refusal.code.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, axum::Json(refusal_json(refusal))).into_response()
}

/// Reads a body of at most 20 MiB, and refuses one of too many levels or values before any parser has it.
pub(super) async fn received(body: Body) -> Result<Bytes, Response> {
    let body = Limited::new(body, limits::REQUEST).collect().await.map_err(|error| {
        if error.is::<LengthLimitError>() {
            let problem = "a request may have 20 MiB as JSON, in which quotes, line ends and what else is escaped count for \
                           more than one byte; put what is longer into a file and say where it is";
            refused(&Refusal::new(Code::TooLarge, problem))
        } else {
            refused(&Refusal::new(Code::InvalidArgument, "the request's body could not be read"))
        }
    })?;
    let body = body.to_bytes();
    json::bounded(&body).map_err(|excess| unparsable(-32600, &excess.to_string()))?;
    Ok(body)
}

/// What to answer a body that is no JSON. Requests without one are judged by their method.
pub(super) fn unreadable(body: &[u8]) -> Option<Response> {
    if body.is_empty() {
        return None;
    }
    let error = serde_json::from_slice::<serde::de::IgnoredAny>(body).err()?;
    Some(unparsable(-32700, &format!("the body is not JSON: {error}")))
}

fn unparsable(code: i32, message: &str) -> Response {
    let error = json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    (StatusCode::BAD_REQUEST, axum::Json(error)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_whole() {
        assert!(same("key", "key"));
        assert!(!same("key", "keys") && !same("key", "kez"));
    }
}
