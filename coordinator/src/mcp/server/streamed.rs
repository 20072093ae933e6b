//! A call that may take long. A short one is answered at once; one that takes longer becomes a stream of events, which
//! holds the call and a timer and nothing else: ten thousand agents may wait so. A client that listens to progress
//! hears it there; for any other there are comments, or its first byte would be the answer's.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::{Stream, StreamExt, stream};
use http::{HeaderValue, header};
use rmcp::model::ProgressToken;
use serde::Serialize;
use serde_json::json;
use tokio::time::Instant;

use super::direct::{self, Call};
use super::running::{self, Heard, Running, Sound};
use super::{Caller, Facade};
use crate::mcp::result::Reply;

/// What a call finds right after it has said that it waits is answered alone: most polls find a task.
const SOON: Duration = Duration::from_millis(20);

/// An event without a message.
const COMMENT: &[u8] = b":\n\n";

/// Runs a call, and tells its client from time to time that it is alive.
pub(super) async fn answer(facade: &Facade, caller: Caller, call: Call) -> Response {
    let Call { id, name, arguments, client, progress: token } = call;
    let (said, ear) = running::channel(&name);
    let (seal, who, of, asked) = (facade.seal.clone(), caller.who.clone(), name.clone(), client.clone());
    let facade = facade.clone();
    let progress = running::said(said, token.is_some());
    let run: Running =
        Box::pin(async move { facade.finish(caller, client, &name, arguments, progress).await });
    let respond = move |reply| running::response(&seal, &who, &of, &asked, reply);
    let mut heard = Heard::new(run, ear);
    let mut first = Vec::new();
    let mut end = None;
    loop {
        let next = heard.next();
        let sound = match end {
            None => next.await,
            Some(end) => match tokio::time::timeout_at(end, next).await {
                Ok(sound) => sound,
                Err(_) => break,
            },
        };
        match sound {
            Sound::Over(reply) => return direct::answer(id, respond(reply)),
            sound => first.extend(event_of(token.as_ref(), sound).map(Ok)),
        }
        end.get_or_insert_with(|| Instant::now() + SOON);
    }
    let rest = events(heard, token, move |reply| event(&direct::message(id, respond(reply))));
    let mut response = Response::new(Body::from_stream(stream::iter(first).chain(rest)));
    for (name, value) in [(header::CONTENT_TYPE, direct::EVENTS), (header::CACHE_CONTROL, "no-cache")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Sign of life after sign of life, and then the result.
fn events(
    heard: Heard,
    token: Option<ProgressToken>,
    last: impl FnOnce(Reply) -> Bytes,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((heard, last)), move |state| {
        let token = token.clone();
        async move {
            let (mut heard, last) = state?;
            loop {
                match heard.next().await {
                    Sound::Over(reply) => return Some((Ok(last(reply)), None)),
                    sound => {
                        if let Some(told) = event_of(token.as_ref(), sound) {
                            return Some((Ok(told), Some((heard, last))));
                        }
                    }
                }
            }
        }
    })
}

fn event_of(token: Option<&ProgressToken>, sound: Sound) -> Option<Bytes> {
    let Some(token) = token else {
        return Some(Bytes::from_static(COMMENT));
    };
    let params = running::progress(token, sound)?;
    Some(event(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params })))
}

/// One server-sent event. JSON has no line breaks.
pub(super) fn event(message: &impl Serialize) -> Bytes {
    let mut text = b"data: ".to_vec();
    // A message is plain data; were it not, the client would see an empty event and ask again.
    let _ = serde_json::to_writer(&mut text, message);
    text.extend_from_slice(b"\n\n");
    text.into()
}
