//! `skein events`

use std::io::{self, Write};

use clap::Args;
use serde_json::{Value, json};
use skein_proto::v1::{Event, EventsRequest};

use super::{CliError, InSwarm, table};
use crate::api::client;

#[derive(Debug, Args)]
pub(super) struct Events {
    #[command(flatten)]
    at: InSwarm,
    /// Go on with new events.
    #[arg(long, short)]
    follow: bool,
    /// Only events after this position.
    #[arg(long, default_value_t = 0)]
    after: u64,
}

impl Events {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let Events { at, follow, after } = self;
        let request = EventsRequest { swarm: at.swarm.to_string(), after, follow };
        let mut admin = at.common.admin().await?;
        let mut last = after;
        let events = admin.events(request).await;
        let mut events = events.map_err(|status| client::broken_off(status, &goes_on(last)))?.into_inner();
        while let Some(event) =
            events.message().await.map_err(|status| client::broken_off(status, &goes_on(last)))?
        {
            print(&event, at.common.json)?;
            last = event.position;
        }
        Ok(())
    }
}

/// How to have the events that come after this position.
fn goes_on(last: u64) -> String {
    format!("what comes after this you have with --after {last}")
}

fn print(event: &Event, json: bool) -> Result<(), CliError> {
    let document = client::read(&event.json)?;
    let mut out = io::stdout().lock();
    if json {
        let line = json!({
            "position": event.position,
            "at": event.at,
            "entity": event.entity,
            "version": event.version,
            "subject": event.subject,
            "event": document["event"],
            "body": document["body"],
        });
        writeln!(out, "{line}")?;
    } else {
        writeln!(out, "{}", told(event, &document))?;
    }
    Ok(out.flush()?)
}

/// An event in a line. What it is about has a name that an agent may have chosen.
fn told(event: &Event, document: &Value) -> String {
    let name = document["event"].as_str().unwrap_or_default();
    table::plain_line(&format!("{} {:<24} {:<24} {}", event.at, event.entity, name, event.subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_event_is_about_gives_a_terminal_no_orders_and_adds_no_line() {
        let event = Event {
            at: "now".to_owned(),
            entity: "lockspace/default".to_owned(),
            subject: "lock/\u{1b}]0;title\u{7}x\nlater".to_owned(),
            ..Event::default()
        };
        let line = told(&event, &json!({"event": "Acquired"}));
        assert!(line.starts_with("now lockspace/default ") && line.contains(" Acquired "), "{line}");
        assert!(line.ends_with(" lock/]0;titlex later"), "{line}");
    }
}
