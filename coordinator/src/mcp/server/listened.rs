//! A call of a client that listens to progress. A short one is answered at once; one that takes longer becomes
//! a stream of events, which holds the call and a timer and nothing else: ten thousand agents may wait so.

use std::convert::Infallible;
use std::pin::Pin;

use axum::body::{Body, Bytes};
use axum::response::Response;
use futures::{Stream, stream};
use http::{HeaderValue, header};
use rmcp::model::{CallToolResult, ProgressNotificationParam, ProgressToken};
use serde::Serialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::direct::{self, Call};
use super::{Caller, FIRST_PROGRESS, Facade, PROGRESS};
use crate::mcp::dispatch::Progress;

/// The call under way. It ends when it is dropped, and hyper drops it when the client goes away.
type Running = Pin<Box<dyn Future<Output = CallToolResult> + Send>>;

/// Runs a call, and tells its client from time to time that it is alive.
pub(super) async fn answer(facade: &Facade, caller: Caller, call: Call, token: ProgressToken) -> Response {
    let Call { id, name, arguments, .. } = call;
    let (said, message) = watch::channel(format!("{name} is running"));
    let facade = facade.clone();
    let mut run: Running =
        Box::pin(async move { facade.finish(caller, &name, arguments, Progress::heard(said)).await });
    if let Ok(result) = tokio::time::timeout(FIRST_PROGRESS, &mut run).await {
        return direct::answer(id, result);
    }
    let mut beat = interval_at(Instant::now(), PROGRESS);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let waiting = Waiting { run, message, beat, told: 0.0, token };
    let events = events(waiting, move |result| event(&direct::message(id, result)));
    let mut response = Response::new(Body::from_stream(events));
    for (name, value) in [(header::CONTENT_TYPE, direct::EVENTS), (header::CACHE_CONTROL, "no-cache")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

struct Waiting {
    run: Running,
    message: watch::Receiver<String>,
    beat: Interval,
    /// Signs of life so far; the protocol wants a number that rises.
    told: f64,
    token: ProgressToken,
}

/// Progress after progress, and then the result.
fn events(
    waiting: Waiting,
    last: impl FnOnce(CallToolResult) -> Bytes,
) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold(Some((waiting, last)), |state| async move {
        let (mut waiting, last) = state?;
        tokio::select! {
            result = &mut waiting.run => Some((Ok(last(result)), None)),
            _ = waiting.beat.tick() => {
                waiting.told += 1.0;
                let said = waiting.message.borrow().clone();
                let params = ProgressNotificationParam::new(waiting.token.clone(), waiting.told).with_message(said);
                let told = event(&json!({
                    "jsonrpc": "2.0", "method": "notifications/progress", "params": params,
                }));
                Some((Ok(told), Some((waiting, last))))
            }
        }
    })
}

/// One server-sent event. JSON has no line breaks.
fn event(message: &impl Serialize) -> Bytes {
    let mut text = b"data: ".to_vec();
    // A message is plain data; were it not, the client would see an empty event and ask again.
    let _ = serde_json::to_writer(&mut text, message);
    text.extend_from_slice(b"\n\n");
    text.into()
}
