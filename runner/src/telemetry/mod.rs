//! Logs to stderr, and traces to an OpenTelemetry collector where the program is built with the feature `otlp`.
//!
//! Spans for traces have the target [`TRACES`](skein_proto::trace::TRACES).

mod lines;
#[cfg(feature = "otlp")]
mod otlp;

use std::io::{IsTerminal, Write};

use tracing_appender::non_blocking::WorkerGuard;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// What is logged: what `SKEIN_LOG` says, or what is usual. A slip in it is told, and keeps no program from starting.
pub fn filter(usual: &str) -> EnvFilter {
    let wanted = std::env::var_os("SKEIN_LOG").unwrap_or_default();
    wanted_or(&wanted.to_string_lossy(), usual).unwrap_or_else(|problem| {
        let _ = writeln!(std::io::stderr(), "{problem}");
        EnvFilter::new(usual)
    })
}

fn wanted_or(wanted: &str, usual: &str) -> Result<EnvFilter, String> {
    let chosen = if wanted.is_empty() { usual } else { wanted };
    EnvFilter::try_new(chosen).map_err(|error| {
        format!(
            "SKEIN_LOG cannot be read and counts as not set: {error}; write `debug` or `info,skein=debug`"
        )
    })
}

/// Writes and sends what is still to be written and sent when it is dropped.
#[must_use = "logs and traces end with it"]
pub struct Telemetry {
    #[cfg(feature = "otlp")]
    _exporter: Option<otlp::Exporter>,
    // The last to go: the exporter logs what it could not send.
    _lines: WorkerGuard,
}

impl Telemetry {
    /// Begins to log, and to trace if `OTEL_EXPORTER_OTLP_ENDPOINT` names a collector. Within a tokio runtime.
    ///
    /// # Errors
    /// When the collector's address cannot be read.
    pub fn start(service: &'static str, filter: EnvFilter) -> anyhow::Result<Self> {
        let (writer, lines) = lines::to_stderr();
        let log = tracing_subscriber::fmt::layer()
            .with_writer(writer)
            // A line that cannot be written is lost. By default that is said on stderr, which ends the thread when the
            // disk behind it is full.
            .log_internal_errors(false)
            // Colours in a file or a journal hide the words from every search.
            .with_ansi(std::io::stderr().is_terminal())
            .with_filter(filter);
        #[cfg(feature = "otlp")]
        {
            let (traces, exporter) = otlp::start(service)?.unzip();
            tracing_subscriber::registry().with(log).with(traces).init();
            Ok(Self { _exporter: exporter, _lines: lines })
        }
        #[cfg(not(feature = "otlp"))]
        {
            if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_some() {
                let told = "OTEL_EXPORTER_OTLP_ENDPOINT is set, and this program was built without `otlp`";
                let _ = writeln!(std::io::stderr(), "{service}: {told}");
            }
            tracing_subscriber::registry().with(log).init();
            Ok(Self { _lines: lines })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_logged_is_what_is_wanted_and_a_slip_in_it_is_told() {
        let read = |wanted: &str| wanted_or(wanted, "info").map(|filter| filter.to_string());
        assert_eq!(read(""), Ok("info".to_owned()));
        assert_eq!(read("warn"), Ok("warn".to_owned()));
        let problem = read("info,skein=loud").unwrap_err();
        assert!(problem.contains("SKEIN_LOG") && problem.contains("`info,skein=debug`"), "{problem}");
    }
}
