//! Tokens over HTTP, as OAuth has it: what there is (RFC 8414), for a client's secret or for another token (RFC 8693),
//! and back (RFC 7009). It lies beside the MCP face, whose challenges lead here.
//!
//! `form` reads what is sent, `refusal` says no in OAuth's words, `grant` has the ways to a token.

mod form;
mod grant;
mod refusal;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::routing::{get, post};
use axum::{Json, Router};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};
use skein_shared::{Code, Refusal};

use crate::auth::Right;
use crate::mcp::base;
use crate::service::access::Access;
use form::Form;
use refusal::No;

const METADATA: &str = "/.well-known/oauth-authorization-server";
const AUTHORIZE: &str = "/oauth/authorize";
const TOKEN: &str = "/oauth/token";
const REVOKE: &str = "/oauth/revoke";

/// What the routes have in common.
struct Issuing {
    access: Access,
    /// The address that clients use, without a path; else the request's own host is named.
    public_url: Option<String>,
}

type Answer = Result<(HeaderMap, Json<Value>), No>;

/// The routes.
pub fn router(access: Access, public_url: Option<String>) -> Router {
    Router::new()
        .route(METADATA, get(metadata))
        .route("/.well-known/oauth-authorization-server/{*path}", get(metadata))
        .route(AUTHORIZE, get(authorize))
        .route(TOKEN, post(token))
        .route(REVOKE, post(revoke))
        .with_state(Arc::new(Issuing { access, public_url }))
}

async fn metadata(State(issuing): State<Arc<Issuing>>, headers: HeaderMap) -> Json<Value> {
    let base = base(issuing.public_url.as_deref(), &headers);
    let scopes = Right::ALL.into_iter().filter(|right| *right != Right::Run).map(Right::scope);
    Json(json!({
        "issuer": base,
        // Clients in use read no metadata without it.
        "authorization_endpoint": format!("{base}{AUTHORIZE}"),
        "token_endpoint": format!("{base}{TOKEN}"),
        "revocation_endpoint": format!("{base}{REVOKE}"),
        "scopes_supported": scopes.collect::<Vec<_>>(),
        "response_types_supported": [],
        "grant_types_supported": ["client_credentials", grant::EXCHANGE],
        "token_endpoint_auth_methods_supported": ["client_secret_basic", "client_secret_post"],
        "revocation_endpoint_auth_methods_supported": ["none"],
    }))
}

/// There is no page to log in at: people come with the tokens of an issuer that has one.
async fn authorize() -> No {
    let problem = "nobody logs in here; fetch a token with a client's secret, or from the issuer that the operator has set";
    No::new("unsupported_response_type", Refusal::new(Code::InvalidArgument, problem))
}

async fn token(State(issuing): State<Arc<Issuing>>, request: Request) -> Answer {
    let base = base(issuing.public_url.as_deref(), request.headers());
    let form = Form::read(request).await?;
    let granted = grant::grant(&issuing.access, &form, &base).await?;
    Ok((fleeting(), Json(granted)))
}

/// Ends a token. Whoever holds it may: it is its own proof.
async fn revoke(State(issuing): State<Arc<Issuing>>, request: Request) -> Answer {
    let form = Form::read(request).await?;
    issuing.access.give_back(form.needed("token")?).await?;
    Ok((fleeting(), Json(json!({}))))
}

/// Tokens stay out of caches.
fn fleeting() -> HeaderMap {
    HeaderMap::from_iter([(header::CACHE_CONTROL, HeaderValue::from_static("no-store"))])
}
