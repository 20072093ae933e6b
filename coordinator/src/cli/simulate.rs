//! `skein webhooks simulate`: which subscriptions an event would match, and why not.

use std::path::PathBuf;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use clap::Args;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use skein_runner::definition;
use skein_shared::id::Name;
use skein_shared::triggers::{self, Envelope};

use super::table::{self, Column};
use super::{CliError, InSwarm};
use crate::config::Provider;
use crate::entity::Clock;
use crate::ingress;

const COLUMNS: &[Column] = &[
    ("AGENT", &["agent"]),
    ("SUBSCRIPTION", &["subscription"]),
    ("MATCHES", &["matches"]),
    ("BECAUSE", &["because"]),
];

#[derive(Debug, Args)]
pub(super) struct Simulate {
    /// A JSON file with what was sent: `{"headers": {…}, "body": …}`.
    fixture: PathBuf,
    /// The kind of its sender, such as github.
    #[arg(long)]
    provider: String,
    /// The source that it would come by; the provider's name if left out.
    #[arg(long)]
    source: Option<Name>,
    /// The folder with the agents; that of the node's own runner if left out.
    #[arg(long, value_name = "DIR")]
    agents: Option<PathBuf>,
    #[command(flatten)]
    at: InSwarm,
}

/// A request as somebody wrote it down. A body that is text is taken as it is.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fixture {
    #[serde(default)]
    headers: Map<String, Value>,
    body: Value,
}

impl Simulate {
    pub(super) fn run(self) -> Result<(), CliError> {
        let event = self.event()?;
        let folder = self.agents.clone().unwrap_or_else(|| self.at.common.agents());
        let found = definition::load(&folder, &[]).map_err(|problem| CliError::Usage(problem.to_string()))?;
        for (name, problem) in &found.wrong {
            table::note(format_args!("skein: {name} is left out: {problem}"));
        }
        let swarm = self.at.swarm.as_str();
        let of_swarm = found.definitions.iter().filter(|((of, _), _)| of == swarm);
        let subscriptions = of_swarm
            .flat_map(|((_, agent), known)| known.public.subscriptions.iter().map(move |text| (agent, text)));
        let rows =
            subscriptions.map(|(agent, text)| row(agent, text, &event)).collect::<Result<Vec<_>, _>>()?;
        Ok(table::print(&rows, COLUMNS, self.at.common.json)?)
    }

    fn event(&self) -> Result<Envelope, CliError> {
        let usage = |problem: String| CliError::Usage(format!("{}: {problem}", self.fixture.display()));
        let known = || Provider::ALL.map(Provider::as_str).join(", ");
        let provider = Provider::named(&self.provider).ok_or_else(|| {
            CliError::Usage(format!("--provider: there is no `{}`; it is one of {}", self.provider, known()))
        })?;
        let source = match &self.source {
            Some(source) => source.clone(),
            None => Name::parse(provider.as_str())?,
        };
        let text = std::fs::read_to_string(&self.fixture).map_err(|error| usage(error.to_string()))?;
        let fixture: Fixture = serde_json::from_str(&text).map_err(|error| usage(error.to_string()))?;
        let headers = headers(&fixture.headers).map_err(usage)?;
        let body = fixture.body.as_str().map_or_else(|| fixture.body.to_string(), str::to_owned);
        Ok(ingress::simulate(provider, &source, &headers, body.as_bytes(), Clock::start().wall())?)
    }
}

fn headers(written: &Map<String, Value>) -> Result<HeaderMap, String> {
    let read = |(name, value): (&String, &Value)| {
        let bad = || format!("`{name}` is no header, or its value no text");
        let header = HeaderName::try_from(name.as_str()).map_err(|_| bad())?;
        let value = HeaderValue::try_from(value.as_str().ok_or_else(bad)?).map_err(|_| bad())?;
        Ok((header, value))
    };
    written.iter().map(read).collect()
}

fn row(agent: &str, text: &str, event: &Envelope) -> Result<Value, CliError> {
    let fields: Map<String, Value> =
        serde_json::from_str(text).map_err(|error| CliError::Usage(error.to_string()))?;
    let filter = triggers::subscription(&fields).map_err(CliError::Usage)?;
    let miss = filter.miss(event).map(|miss| miss.to_string());
    Ok(json!({ "agent": agent, "subscription": text, "matches": miss.is_none(), "because": miss }))
}
