//! A program that a bench talks with: a line in, a line out.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// It is killed when this is dropped, and ends by itself when its input does.
pub(crate) struct Dialog {
    name: String,
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Dialog {
    /// Starts the program and waits for its first line.
    ///
    /// # Errors
    /// When there is no such program, or it ends at once.
    pub(crate) async fn start(name: &str, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0).kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let input = child.stdin.take().context("its input is piped")?;
        let output = BufReader::new(child.stdout.take().context("its output is piped")?).lines();
        let mut dialog = Self { name: name.to_owned(), child, input, output };
        dialog.answer().await?;
        Ok(dialog)
    }

    /// # Errors
    /// When the program has ended or does not answer.
    pub(crate) async fn ask(&mut self, line: &str) -> Result<String> {
        self.input.write_all(format!("{line}\n").as_bytes()).await?;
        self.answer().await
    }

    async fn answer(&mut self) -> Result<String> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line = line.with_context(|| format!("{} does not answer", self.name))??;
        line.with_context(|| format!("{} has ended", self.name))
    }

    pub(crate) fn id(&self) -> Result<u32> {
        self.child.id().with_context(|| format!("{} has ended", self.name))
    }

    /// Ends its input, and waits until it has ended.
    ///
    /// # Errors
    /// When it cannot be waited for.
    pub(crate) async fn stop(mut self) -> Result<()> {
        drop(self.input);
        if tokio::time::timeout(PATIENCE, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}
