//! The log of a test.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tracing::subscriber::DefaultGuard;

/// Lines as they are written.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

/// While it is there, what this thread logs is written down.
pub(crate) struct Logging {
    _logger: DefaultGuard,
    // With one logger alone, what a test on another thread logs first would be taken for what nobody wants.
    _another: tracing::Dispatch,
}

impl Lines {
    /// Begins to write down what this thread logs.
    pub(crate) fn written() -> (Self, Logging) {
        let lines = Self::default();
        let another = tracing::Dispatch::new(tracing::subscriber::NoSubscriber::new());
        let written = lines.clone();
        let logger =
            tracing_subscriber::fmt().json().flatten_event(true).with_writer(move || written.clone());
        let logger = logger.with_max_level(tracing::Level::DEBUG).finish();
        let logger = tracing::subscriber::set_default(logger);
        (lines, Logging { _logger: logger, _another: another })
    }

    /// The lines of the audit, each with all that stands in it.
    pub(crate) fn of_calls(&self) -> Vec<Value> {
        let text = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let lines = text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
        let lines = lines.map(|line| serde_json::from_slice::<Value>(line).unwrap());
        lines.filter(|line| line["target"] == "skein::audit").collect()
    }
}

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
