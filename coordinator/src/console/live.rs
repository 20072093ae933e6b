//! Keeps a page up to date: its changing part is sent anew when the swarm has changed, at most once a second.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use http::StatusCode;
use serde_json::json;
use skein_shared::Refusal;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use xxhash_rust::xxh3::xxh3_64;

use super::Console;
use super::door::Visitor;
use super::seats::Seat;
use super::sections::{Look, Section};
use crate::service::follow::Logs;

/// At most so often, however much happens.
const PAUSE: Duration = Duration::from_secs(1);
/// Times are shown as seen from now, and not everything that is shown announces itself.
const AT_LEAST: Duration = Duration::from_secs(10);
/// Lines of a run that is looked at.
pub(super) const LINES: u32 = 400;

/// The stream of a page.
pub(super) fn stream(console: Console, visitor: Visitor, section: &'static Section, look: Look) -> Response {
    let Some(seat) = console.seats.take(&visitor.who) else {
        return (StatusCode::SERVICE_UNAVAILABLE, "too many pages are followed; this one stays as it is\n")
            .into_response();
    };
    let (listener, events) = mpsc::channel(2);
    let following = Following { console, visitor, section, look, _seat: seat };
    let wants_log = following.look.query.get("log").is_some();
    tokio::spawn(async move {
        let (stop, gone) = (following.console.stop.clone(), listener.clone());
        tokio::select! {
            // Before the page is told that its log ends with this node: its browser asks again, and another may answer.
            biased;
            () = stop.cancelled() => {}
            () = gone.closed() => {}
            () = following.run(wants_log, listener) => {}
        }
    });
    let events = ReceiverStream::new(events).map(Ok::<_, Infallible>);
    Sse::new(events).keep_alive(KeepAlive::new().interval(Duration::from_secs(15))).into_response()
}

struct Following {
    console: Console,
    visitor: Visitor,
    section: &'static Section,
    look: Look,
    _seat: Seat,
}

impl Following {
    async fn run(self, wants_log: bool, listener: mpsc::Sender<Event>) {
        let end = match wants_log {
            true => self.log(&listener).await,
            false => self.page(&listener).await,
        };
        // The browser would otherwise ask again and again.
        let told = end.err().map_or_else(String::new, |refusal| refusal.message);
        let _ = listener.send(Event::default().event("over").data(json!(told).to_string())).await;
    }

    async fn page(&self, listener: &mpsc::Sender<Event>) -> Result<(), Refusal> {
        let mut watch = self.console.service.watch(&self.visitor.who, self.section.kinds)?;
        let mut last = 0;
        while self.visitor.still(&self.console).await {
            let mut shown = match self.console.gather(&self.visitor, self.section, &self.look).await {
                // It passes: an owner has died, for example, and another takes its shards.
                Err(refusal) if refusal.code.is_passing() => {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
                gathered => gathered?,
            };
            shown["layout"] = json!("fragment.html");
            let Ok(part) = self.console.pages.render(self.section.template, &shown) else { return Ok(()) };
            let now = xxh3_64(part.as_bytes());
            if now != last
                && listener.send(Event::default().event("part").data(json!(part).to_string())).await.is_err()
            {
                return Ok(());
            }
            last = now;
            tokio::time::sleep(PAUSE).await;
            let _ = tokio::time::timeout(AT_LEAST, watch.changed()).await;
        }
        Ok(())
    }

    /// What a run writes, as it does: first its last lines, then what comes.
    async fn log(&self, listener: &mpsc::Sender<Event>) -> Result<(), Refusal> {
        let (service, who) = (self.console.service.clone(), self.visitor.who.clone());
        let of = self.look.subject.as_deref().unwrap_or_default();
        let runs = service.runs(&who, of, None).await?;
        let stop = self.console.stop.clone();
        let logs = Logs { service, who, runs, lines: LINES, grep: None, follow: true, stop };
        let (parts, mut read) = mpsc::channel(1);
        let reading = tokio::spawn(logs.run(parts));
        while let Some(part) = read.recv().await {
            if !self.visitor.still(&self.console).await {
                reading.abort();
                return Ok(());
            }
            let data = json!({ "lines": part.lines, "note": part.note }).to_string();
            if listener.send(Event::default().event("lines").data(data)).await.is_err() {
                reading.abort();
                return Ok(());
            }
        }
        // One that has failed has said so in the log.
        reading.await.unwrap_or(Ok(()))
    }
}
