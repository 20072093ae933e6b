//! Lets requests in, answers ordinary calls at once, and leaves all else to rmcp.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::BodyExt;
use rmcp::transport::StreamableHttpService;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use serde_json::{Value, json};
use skein_shared::{Code, Refusal};
use tokio_util::sync::CancellationToken;

use super::broken::{Asked, Place};
use super::direct::EVENTS;
use super::followed::Followed;
use super::message::Message;
use super::openings::{Admitted, Openings};
use super::{Caller, Facade, Gone, SESSION, TRACEPARENT, direct, priming, unfit};
use crate::auth::{Right, Role, View};
use crate::mcp::door::{Door, METADATA, received, refused, text_header, unreadable};
use crate::mcp::{idempotency, view};
use crate::service::unread::Delivery;

pub(super) struct Entrance {
    pub(super) mcp: StreamableHttpService<Facade, LocalSessionManager>,
    pub(super) openings: Openings,
    pub(super) door: Door,
    pub(super) facade: Facade,
}

/// Lets a request in: known, of bounded size, depth and number of values, with its view decided.
pub(super) async fn enter(State(entrance): State<Arc<Entrance>>, request: Request) -> Response {
    let Entrance { door, facade, .. } = entrance.as_ref();
    let view = View::parse(request.uri().path().trim_start_matches("/mcp"));
    let view = match view.and_then(|view| view::check(&view).map(|()| view)) {
        Ok(view) => view,
        Err(refusal) => return refused(&refusal),
    };
    let (who, credential) = match door.identify(request.headers()).await {
        Ok(known) => known,
        Err(refusal) => return door.challenge(request.headers(), &refusal),
    };
    if who.role == Role::Runner {
        let problem = "a runner's token opens no tools; use an agent's token";
        let refusal = Refusal::new(Code::Forbidden, problem).with(json!({ "scope": Right::Read.scope() }));
        return door.challenge(request.headers(), &refusal);
    }
    if let Err(refusal) = facade.service.require_live(&who).await {
        return door.challenge(request.headers(), &refusal);
    }
    let (parts, body) = request.into_parts();
    let body = match received(body).await {
        Ok(body) => body,
        Err(response) => return response,
    };
    if let Err(refusal) = facade.in_scope(&who, &body) {
        return door.challenge(&parts.headers, &refusal);
    }
    let caller = Caller {
        credential,
        view: view.narrowed_by(who.view.as_ref()),
        who,
        key: idempotency::header(&parts.headers).map(str::to_owned),
        traceparent: text_header(&parts.headers, TRACEPARENT).map(str::to_owned),
        delivery: Delivery::default(),
    };
    let call = direct::read(&parts.method, &parts.headers, &body, door.allowed_hosts());
    let Some(call) = call.filter(|call| !facade.is_mirrored(&call.name)) else {
        return Box::pin(entrance.pass_on(parts, body, caller)).await;
    };
    // What came in is read. A call may wait for long, and these hold the connection's buffers.
    drop((parts, body));
    facade.answer(caller, call).await
}

impl Entrance {
    /// Leaves a request to rmcp.
    async fn pass_on(&self, mut parts: http::request::Parts, body: Bytes, caller: Caller) -> Response {
        let message = Message::read(&body);
        let wrong = match &message {
            Some(message) => unfit::outright(message, text_header(&parts.headers, "mcp-protocol-version")),
            None => unreadable(&body),
        };
        if let Some(response) = wrong {
            return response;
        }
        let id = message.as_ref().and_then(|message| message.id.clone());
        let beginning = message.as_ref().filter(|message| message.begins()).map(|_| body.len());
        // Whatever else it names, it begins another one: it must not describe its client anew in somebody's session.
        if beginning.is_some() {
            parts.headers.remove(SESSION);
        }
        let session = text_header(&parts.headers, SESSION);
        let asked = session.and(message).and_then(|message| self.asked(message));
        let admitted = self.openings.admit(&caller.who, caller.credential.is_some(), session, beginning);
        let Admitted { attended, streams, present, session: called } = match admitted.await {
            Ok(admitted) => admitted,
            Err(refusal) => return refused(&refusal),
        };
        let primed = priming::is_known(&parts.headers);
        let session = session.is_some();
        let name = called.as_deref().filter(|_| session).and_then(|name| HeaderValue::from_str(name).ok());
        if let Some(name) = name {
            parts.headers.insert(SESSION, name);
        }
        let after = text_header(&parts.headers, "last-event-id").and_then(Place::parse);
        let delivery = caller.delivery.clone();
        let here = CancellationToken::new();
        let listening = (here.clone().drop_guard(), present);
        parts.extensions.insert(caller);
        parts.extensions.insert(Gone(here));
        parts.extensions.insert(attended);
        let ends = parts.method == Method::DELETE;
        let is_json = text_header(&parts.headers, "content-type").is_some_and(unfit::is_json);
        let mut answer = self.mcp.handle(http::Request::from_parts(parts, Body::from(body))).await;
        if is_json && answer.status() == StatusCode::UNSUPPORTED_MEDIA_TYPE {
            return unfit::no_message(id);
        }
        // The official client for Python takes any other status for a failure.
        if ends && answer.status() == StatusCode::ACCEPTED {
            *answer.status_mut() = StatusCode::NO_CONTENT;
        }
        if !session && let Some(begun) = text_header(answer.headers(), SESSION) {
            self.openings.begun(called.as_ref(), begun);
        }
        let is_stream = session && text_header(answer.headers(), "content-type") == Some(EVENTS);
        // The guards go with the last of the answer, or with the connection.
        answer
            .map(|body| {
                let body = Body::new(body);
                let body = if is_stream { streams.follow(asked, after, body) } else { body };
                let body = Body::new(body.map_frame(move |frame| {
                    let _ = &listening;
                    if primed { frame } else { frame.map_data(priming::left_out) }
                }));
                // A stream can be taken up again until its answer is out, and not after that.
                match session {
                    true => Followed::in_session(body, delivery),
                    false => Followed::alone(body, delivery),
                }
            })
            .into_response()
    }

    /// What a stream of a session answers, if it is to be remembered.
    fn asked(&self, message: Message<'_>) -> Option<Asked> {
        let tool = message.tool().and_then(|name| self.facade.offer.tools().get(&name).map(|tool| tool.name));
        Asked::new(message.id?, tool)
    }
}

pub(super) async fn metadata(
    State(entrance): State<Arc<Entrance>>,
    uri: Uri,
    headers: HeaderMap,
) -> axum::Json<Value> {
    axum::Json(entrance.door.metadata(&headers, uri.path().trim_start_matches(METADATA)))
}
