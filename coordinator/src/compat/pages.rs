//! Pages of other hosts, such as Agent Swarm's own, may use the routes (spec: Agent Swarm 1.4). No cookie opens any of
//! them: only the key does, which a page has to be given.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS,
};
use http::{HeaderValue, Method, StatusCode};

/// Answers a browser that asks before it sends something, and lets the page read every other answer.
pub(super) async fn open(request: Request, next: Next) -> Response {
    let mut response = match request.method() == Method::OPTIONS {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    for (name, value) in [
        (ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
        (ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, DELETE, OPTIONS"),
        // To browsers the asterisk stands for all headers but this one.
        (ACCESS_CONTROL_ALLOW_HEADERS, "*, Authorization"),
        (ACCESS_CONTROL_EXPOSE_HEADERS, "*"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
