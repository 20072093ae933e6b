//! One request of an instance on its way to a coordinator, and the answer back.
//!
//! A request is sent again to the next coordinator, with the same idempotency key, when a connection cannot be
//! made, breaks before the answer, or breaks within a streamed answer. The coordinators make it one request.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use serde_json::{Value, json};
use skein_shared::{Code, json, limits};
use subtle::ConstantTimeEq;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use uuid::Uuid;

use super::answer::{Events, Meaning, meaning};
use super::gate::{Gate, Owed};
use super::gateway;
use super::message::{self, Message};
use super::repeats::{self, Repeats};
use super::room::{Held, Room};
use super::tunnel::Tunnels;
use super::upstreams::Upstreams;
use crate::instance::ledger::Row;

pub(super) type Body = BoxBody<Bytes, std::io::Error>;
type Sent = Result<Frame<Bytes>, std::io::Error>;

/// How long a coordinator is looked for before the instance is told that there is none.
const SEARCH: Duration = Duration::from_secs(30);
const CONNECT: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
const WRONG_SECRET: &str = "invalid secret: it is not the value of SKEIN_TOKEN of this instance";
const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// Headers that belong to one connection and are not passed on (RFC 9110, 7.6.1), and those set anew.
const OWN: [HeaderName; 10] = [
    header::CONNECTION,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::HOST,
    header::CONTENT_LENGTH,
    header::AUTHORIZATION,
];

pub(super) struct Proxy {
    secret: String,
    authorization: HeaderValue,
    upstreams: Upstreams,
    gate: Arc<Gate>,
    room: Room,
    repeats: Repeats,
    tunnels: Tunnels,
    client: reqwest::Client,
}

/// A request as it is sent, as often as need be.
struct Exchange {
    method: Method,
    /// With the query.
    path: String,
    headers: HeaderMap,
    body: Held,
    /// It is a request that waits for its answer.
    owed: bool,
    /// It is for one of the routes beside MCP.
    gateway: bool,
    /// The call of a tool that it is.
    call: Option<Uuid>,
}

/// How a streamed answer ended.
enum Ending {
    Answered,
    BrokeOff,
    /// It goes on for longer than an answer may, and would again if it were asked for again.
    TooLong,
}

impl Proxy {
    pub(super) fn new(row: &Row, upstreams: Upstreams, gate: Arc<Gate>, tunnels: Tunnels) -> Self {
        let mut authorization = HeaderValue::from_str(&format!("Bearer {}", row.access_token))
            .unwrap_or(HeaderValue::from_static("Bearer"));
        authorization.set_sensitive(true);
        let client = reqwest::Client::builder()
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .build()
            .unwrap_or_default();
        let (secret, repeats) = (row.secret.clone(), Repeats::new(row.patience));
        Self { secret, authorization, upstreams, gate, room: Room::default(), repeats, tunnels, client }
    }

    pub(super) async fn serve(
        self: Arc<Self>,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Infallible> {
        Ok(Box::pin(self.answer(request)).await)
    }

    async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        if request.method() == Method::CONNECT {
            return match self.tunnels.open(request).await {
                Ok(()) => whole(StatusCode::OK, String::new()),
                Err((status, problem)) => told(status, &problem),
            };
        }
        let gateway = gateway::serves(request.uri().path());
        if let Some(response) = self.turned_away(gateway, request.headers()) {
            return response;
        }
        if self.gate.is_shut() {
            let text = "this process is being ended for the rest of a long wait; it is started again when the wait is over";
            return refused(gateway, Code::Unavailable, text);
        }
        let exchange = match self.exchange(request).await {
            Ok(exchange) => exchange,
            Err(response) => return response,
        };
        let owed = exchange.owed.then(|| self.gate.owe());
        let Some(answer) = self.send(&exchange).await else {
            self.gate.open().await;
            let text = "no coordinator could be reached; call again in a few seconds";
            return refused(exchange.gateway, Code::Unavailable, text);
        };
        self.gate.open_unless(streamed(&answer)).await;
        let mut response = Response::builder().status(answer.status());
        if let Some(headers) = response.headers_mut() {
            pass(answer.headers(), headers);
        }
        let (into, body) = mpsc::channel(1);
        tokio::spawn(async move {
            let (call, key) = (exchange.call, exchange.headers.get(KEY).cloned());
            let end = into.clone();
            let passed = self.relay(exchange, answer, into, owed).await;
            let (Some(call), Some(key)) = (call, key) else { return };
            // There is room again once the last piece was taken. One that hung up before that has not heard it.
            match passed {
                Ok(true) if end.reserve().await.is_ok() => self.repeats.answered(call, Instant::now()),
                Ok(true) | Err(_) => self.repeats.unread(call, key, Instant::now()),
                // The instance hung up before the answer, or no coordinator was left.
                Ok(false) => {}
            }
        });
        let body = BodyExt::boxed(StreamBody::new(ReceiverStream::new(body)));
        response.body(body).unwrap_or_else(|_| refusal(Code::Internal, "the answer could not be passed on"))
    }

    fn admits(&self, shown: &[u8]) -> bool {
        !self.secret.is_empty() && bool::from(shown.ct_eq(self.secret.as_bytes()))
    }

    /// What to say at once to those who show a wrong secret in the head, or none. The routes beside MCP take it in the
    /// body as well.
    fn turned_away(&self, gateway: bool, headers: &HeaderMap) -> Option<Response<Body>> {
        match gateway::bearer(headers) {
            Some(shown) if self.admits(shown) => None,
            None if gateway => None,
            Some(_) if gateway => Some(gateway::refusal(StatusCode::FORBIDDEN, WRONG_SECRET)),
            _ => {
                let text = "show the value of SKEIN_TOKEN as `Authorization: Bearer`";
                Some(refusal(Code::Unauthenticated, text))
            }
        }
    }

    async fn exchange(&self, request: Request<Incoming>) -> Result<Exchange, Response<Body>> {
        let (head, body) = request.into_parts();
        let Some(path) = path(&head.uri) else {
            return Err(refusal(Code::NotFound, "this endpoint serves /mcp and what is below it"));
        };
        let gateway = gateway::serves(head.uri.path());
        let known = gateway::bearer(&head.headers).is_some();
        let body = self.room.read(body, known).await;
        let mut body = body.map_err(|problem| refused(gateway, problem.code, &problem.message))?;
        if !known {
            self.entitled(&body.bytes).map_err(|(status, text)| gateway::refusal(status, text))?;
        }
        json::bounded(&body.bytes)
            .map_err(|excess| refused(gateway, Code::InvalidArgument, &excess.to_string()))?;
        if gateway && let Some(rest) = gateway::without_secret(&body.bytes) {
            body.bytes = rest;
        }
        let mut headers = HeaderMap::new();
        pass(&head.headers, &mut headers);
        headers.insert(header::AUTHORIZATION, self.authorization.clone());
        let message = Message::read(&body.bytes);
        let call = repeats::call(&message);
        if let Ok(fresh) = HeaderValue::from_str(&Uuid::now_v7().to_string()) {
            let key = call.map_or(fresh.clone(), |call| self.repeats.key(call, fresh, Instant::now()));
            headers.entry(KEY).or_insert(key);
        }
        let asks = message.is_request() || message::has_request(&body.bytes);
        let owed = gateway || head.method == Method::POST && asks;
        Ok(Exchange { method: head.method, path, headers, body, owed, gateway, call })
    }

    /// Whether a body shows the right secret; else what to say.
    fn entitled(&self, body: &[u8]) -> Result<(), (StatusCode, &'static str)> {
        match gateway::secret(body) {
            Some(shown) if self.admits(shown.as_bytes()) => Ok(()),
            Some(_) => Err((StatusCode::FORBIDDEN, WRONG_SECRET)),
            None => Err((
                StatusCode::BAD_REQUEST,
                "missing secret: send the value of SKEIN_TOKEN as `Authorization: Bearer`, or as `secret` in the JSON body",
            )),
        }
    }

    /// Sends until a coordinator answers. `None` when none did in time; the time of a freeze does not count.
    async fn send(&self, exchange: &Exchange) -> Option<reqwest::Response> {
        let mut give_up = Instant::now() + SEARCH;
        let mut pause = PAUSE;
        for attempt in 0.. {
            if let Some(base) = self.upstreams.pick(attempt) {
                let url = format!("{base}{}", exchange.path);
                let request = self.client.request(exchange.method.clone(), url);
                let request = request.headers(exchange.headers.clone()).body(exchange.body.bytes.clone());
                match request.send().await {
                    Ok(answer) => return Some(answer),
                    Err(error) => {
                        tracing::debug!(error = %error.without_url(), "a coordinator did not answer")
                    }
                }
            }
            if self.gate.is_held() {
                give_up = Instant::now() + SEARCH;
            }
            if Instant::now() + pause > give_up {
                return None;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        None
    }

    /// Passes the body on. Holds one piece of it at most. True if the answer was passed on.
    async fn relay(
        &self,
        exchange: Exchange,
        mut answer: reqwest::Response,
        into: mpsc::Sender<Sent>,
        owed: Option<Owed>,
    ) -> Result<bool, mpsc::error::SendError<Sent>> {
        if !streamed(&answer) {
            return self.copy(answer, &into).await.map(|()| true);
        }
        loop {
            let ending = tokio::select! {
                ending = self.stream(answer, &into) => ending?,
                () = into.closed() => return Ok(false),
            };
            match ending {
                Ending::Answered => return Ok(true),
                _ if owed.is_none() => return Ok(false),
                Ending::TooLong => return self.refuse(&exchange, &into).await.map(|()| true),
                Ending::BrokeOff => {}
            }
            tracing::debug!("a streamed answer broke off; asking again with the same key");
            let again = tokio::select! {
                again = self.send(&exchange) => again,
                () = into.closed() => return Ok(false),
            };
            match again {
                Some(next) if streamed(&next) => answer = next,
                // A plain answer to the repeat becomes the one event that is still missing.
                Some(next) => return self.finish(&exchange, next, &into).await.map(|()| true),
                None => {
                    return into.send(Err(std::io::Error::other("no coordinator"))).await.map(|()| false);
                }
            }
        }
    }

    async fn copy(
        &self,
        answer: reqwest::Response,
        into: &mpsc::Sender<Sent>,
    ) -> Result<(), mpsc::error::SendError<Sent>> {
        let mut body = answer.bytes_stream();
        while let Some(piece) = body.next().await {
            self.gate.open().await;
            into.send(piece.map(Frame::data).map_err(std::io::Error::other)).await?;
        }
        Ok(())
    }

    /// Passes events on until the stream ends.
    async fn stream(
        &self,
        answer: reqwest::Response,
        into: &mpsc::Sender<Sent>,
    ) -> Result<Ending, mpsc::error::SendError<Sent>> {
        let mut events = Events::default();
        let mut body = answer.bytes_stream();
        let mut ending = Ending::BrokeOff;
        while let Some(Ok(piece)) = body.next().await {
            let Ok(events) = events.push(&piece) else { return Ok(Ending::TooLong) };
            for event in events {
                let meaning = meaning(&event);
                if meaning == Meaning::Answer {
                    ending = Ending::Answered;
                }
                if self.gate.is_held() && meaning == Meaning::Idle {
                    continue;
                }
                self.gate.open().await;
                into.send(Ok(Frame::data(event))).await?;
            }
        }
        Ok(ending)
    }

    /// Says in place of an answer that it is too long.
    async fn refuse(
        &self,
        exchange: &Exchange,
        into: &mpsc::Sender<Sent>,
    ) -> Result<(), mpsc::error::SendError<Sent>> {
        let problem = format!("the answer is longer than {} bytes; ask for less of it", limits::ANSWER);
        let error = json!({ "code": -32000, "message": problem, "data": { "code": Code::TooLarge } });
        let id = Message::read(&exchange.body.bytes).id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "error": error });
        self.gate.open().await;
        into.send(Ok(Frame::data(Bytes::from(format!("data: {message}\n\n"))))).await
    }

    async fn finish(
        &self,
        exchange: &Exchange,
        answer: reqwest::Response,
        into: &mpsc::Sender<Sent>,
    ) -> Result<(), mpsc::error::SendError<Sent>> {
        let text = match answer.bytes().await {
            Ok(text) if text.len() <= limits::ANSWER => text,
            Ok(_) => return self.refuse(exchange, into).await,
            Err(_) => return into.send(Err(std::io::Error::other("the answer broke off"))).await,
        };
        let Ok(message) = serde_json::from_slice::<Value>(&text) else {
            return into.send(Err(std::io::Error::other("the answer is no JSON"))).await;
        };
        self.gate.open().await;
        into.send(Ok(Frame::data(Bytes::from(format!("data: {message}\n\n"))))).await
    }
}

impl Gate {
    /// The head of a streamed answer may pass at once: the client waits for it with a timer.
    async fn open_unless(&self, streamed: bool) {
        if !streamed {
            self.open().await;
        }
    }
}

fn streamed(answer: &reqwest::Response) -> bool {
    let kind = answer.headers().get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    kind.is_some_and(|kind| kind.starts_with(b"text/event-stream"))
}

/// What is asked for, if an instance may: MCP, and the routes beside it. A path that could climb out of them after
/// normalising is none.
fn path(uri: &http::Uri) -> Option<String> {
    let path = uri.path();
    let plain = path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-_".contains(&byte));
    let is_mcp = path == "/mcp" || path.starts_with("/mcp/");
    if !plain || !(is_mcp || gateway::serves(path)) {
        return None;
    }
    Some(uri.query().map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")))
}

fn pass(from: &HeaderMap, into: &mut HeaderMap) {
    for (name, value) in from {
        if !OWN.contains(name) && name.as_str() != "keep-alive" {
            into.append(name.clone(), value.clone());
        }
    }
}

/// What a proxy says to a program that does not know Skein.
fn told(status: StatusCode, problem: &str) -> Response<Body> {
    whole(status, format!("{problem}\n"))
}

/// A refusal in the words of those routes that it is for.
fn refused(gateway: bool, code: Code, message: &str) -> Response<Body> {
    match gateway {
        true => gateway::refusal(status(code), message),
        false => refusal(code, message),
    }
}

fn status(code: Code) -> StatusCode {
    StatusCode::from_u16(code.http()).unwrap_or(StatusCode::BAD_GATEWAY)
}

fn refusal(code: Code, message: &str) -> Response<Body> {
    in_json(status(code), &json!({ "error": { "code": code.as_str(), "message": message } }))
}

pub(super) fn in_json(status: StatusCode, value: &Value) -> Response<Body> {
    let mut response = whole(status, value.to_string());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// An answer that is there at once.
fn whole(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed());
    *response.status_mut() = status;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_of_agents_are_passed_on() {
        let path = |text: &str| path(&text.parse().unwrap());
        for good in ["/mcp", "/mcp/x/swarm/readonly?a=b", "/locks/acquire", "/calls/1-a?wait=5"] {
            assert_eq!(path(good).as_deref(), Some(good));
        }
        for bad in [
            "/",
            "/mcpx",
            "/mcp/../admin",
            "/mcp/%2e%2e/admin",
            "/admin",
            "/locks/../control",
            "/control/status",
        ] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }
}
