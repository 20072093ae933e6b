//! `skein agent logs`

use std::borrow::Cow;
use std::io::{IsTerminal, Write as _};
use std::time::Duration;

use clap::Args;
use regex::Regex;
use skein_proto::v1::{AgentLogsRequest, LogLines};

use super::{CliError, InSwarm, table};
use crate::api::client;
use crate::service::follow::PAGE;

#[derive(Debug, Args)]
pub(super) struct Logs {
    /// An instance, as `skein instances list` shows it, or an agent.
    of: String,
    /// Go on until the run has ended.
    #[arg(long, short)]
    follow: bool,
    /// How many of the last lines of a run, 2000 at most.
    #[arg(long, short = 'n', default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=i64::from(PAGE)))]
    lines: u32,
    /// Of an agent: all runs that were there in this time, such as 1h, and not the latest alone.
    #[arg(long, value_parser = humantime::parse_duration)]
    since: Option<Duration>,
    /// Only lines that match this regular expression.
    #[arg(long, default_value = "", hide_default_value = true, value_parser = pattern)]
    grep: String,
    #[command(flatten)]
    at: InSwarm,
}

impl Logs {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let since = self.since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX).max(1));
        let request = AgentLogsRequest {
            swarm: self.at.swarm.to_string(),
            of: self.of,
            since_ms: since,
            lines: self.lines,
            follow: self.follow,
            grep: self.grep,
        };
        let mut admin = self.at.common.admin().await?;
        let mut parts = admin.agent_logs(request).await.map_err(client::untold)?.into_inner();
        while let Some(part) = parts.message().await.map_err(client::untold)? {
            print(&part, self.at.common.json)?;
        }
        Ok(())
    }
}

/// Looks whether a runner could read it, whose own words for that would stand among those of the run.
fn pattern(text: &str) -> Result<String, String> {
    match Regex::new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => {
            Err(format!("{error}\nput \\ before each character that is to stand for itself, such as \\["))
        }
    }
}

/// A line of a run as the agent wrote it, so that it can be worked on; to a terminal without what that would obey.
fn shown(line: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { table::plain(line).into() } else { line.into() }
}

/// The lines alone on standard output, so that they can be worked on; what is said of the run beside it.
fn print(part: &LogLines, json: bool) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    let is_terminal = output.is_terminal();
    for line in &part.lines {
        match json {
            true => {
                writeln!(output, "{}", serde_json::json!({"instance": part.instance, "line": line}))?;
            }
            false => writeln!(output, "{}", shown(line, is_terminal))?,
        }
    }
    output.flush()?;
    match (part.note.as_str(), json) {
        ("", _) => Ok(()),
        (note, true) => {
            writeln!(output, "{}", serde_json::json!({"instance": part.instance, "note": note}))
        }
        (note, false) => writeln!(std::io::stderr().lock(), "{}", table::plain(note)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_no_runner_can_read_is_refused() {
        for good in ["", "error|panic", r"\[[0-9]+\]"] {
            assert_eq!(pattern(good).unwrap(), good);
        }
        let said = pattern("[").unwrap_err();
        assert!(said.contains("unclosed character class") && said.contains(r"such as \["), "{said}");
    }

    #[test]
    fn what_a_run_has_written_gives_a_terminal_no_orders_and_goes_into_a_pipe_as_it_is() {
        let line = "\u{1b}]52;c;cm0gLXJmIC8=\u{7}built\tin 3 s";
        assert_eq!(shown(line, true), "]52;c;cm0gLXJmIC8=built\tin 3 s");
        assert_eq!(shown(line, false), line);
    }
}
