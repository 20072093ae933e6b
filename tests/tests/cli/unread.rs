//! What a node and a command do where nobody takes what they say.

use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use skein_tests::process::{self, Signal};
use skein_tests::up::{Folder, Up, binary};
use tokio::net::UnixDatagram;
use tokio::process::Command;

use super::said;

/// For what has to come about in the end.
const LIMIT: Duration = Duration::from_secs(60);

/// Takes nothing, as a disk does that is full.
fn full() -> Result<Stdio> {
    Ok(File::options().write(true).open("/dev/full")?.into())
}

/// A pipe at whose other end nobody is any more.
fn abandoned() -> Result<Stdio> {
    Ok(std::io::pipe()?.1.into())
}

#[tokio::test]
async fn a_command_whose_output_nobody_takes_ends_with_a_code_of_its_own() -> Result<()> {
    let up = Up::start().await?;
    let printing: [&[&str]; 7] = [
        &["status"],
        &["tasks", "list"],
        &["token", "issue", "--role", "worker", "--name", "w"],
        &["token", "issue", "--role", "worker", "--name", "w", "--json"],
        &["mcp-config", "--client", "codex", "--role", "lead"],
        &["console"],
        &["console", "--json"],
    ];
    for arguments in printing {
        for (out, code) in [(abandoned()?, 0), (full()?, 1)] {
            let mut command = Command::new(binary("skein"));
            command.args(arguments).arg("--data").arg(up.data()).stdout(out).stderr(Stdio::piped());
            let output = command.spawn()?.wait_with_output().await?;
            let said = said(&output);
            ensure!(output.status.code() == Some(code), "{arguments:?} ended with {}: {said}", output.status);
        }
    }
    // What goes beside the output is lost, and not the output.
    let mut told = Command::new(binary("skein"));
    told.args(["token", "issue", "--role", "worker", "--name", "w", "--data"]).arg(up.data());
    let output = told.stdout(Stdio::piped()).stderr(full()?).spawn()?.wait_with_output().await?;
    ensure!(output.status.success() && !output.stdout.is_empty(), "it ended with {}", output.status);
    let mut refused = Command::new(binary("skein"));
    refused.args(["swarm", "create", "default", "--data"]).arg(up.data()).stderr(full()?);
    let status = refused.status().await?;
    ensure!(status.code() == Some(5), "it ended with {status}");
    Ok(())
}

#[tokio::test]
async fn a_node_serves_though_the_disk_of_its_log_is_full() -> Result<()> {
    let folder = Folder::new()?;
    let notify = folder.path().join("notify");
    let supervisor = UnixDatagram::bind(&notify)?;
    let mut node = Command::new(binary("skein"));
    node.args(["up", "--listen", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--ingress", "127.0.0.1:0"]);
    node.args(["--no-runner", "--data"]).arg(folder.data()).env("NOTIFY_SOCKET", notify).stderr(full()?);
    let mut node = node.kill_on_drop(true).spawn()?;
    let mut word = [0; 64];
    tokio::select! {
        heard = tokio::time::timeout(LIMIT, supervisor.recv(&mut word)) => heard.context("it does not get ready")??,
        ended = node.wait() => bail!("it ended with {}", ended?),
    };
    let asked = Command::new(binary("skein")).args(["status", "--data"]).arg(folder.data()).output().await?;
    ensure!(asked.status.success(), "{}", said(&asked));
    process::signal(node.id().context("it has ended")?, Signal::TERM)?;
    let ended = tokio::time::timeout(LIMIT, node.wait()).await.context("it goes on")??;
    ensure!(ended.success(), "it ended with {ended}");
    Ok(())
}
