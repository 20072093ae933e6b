//! What a runner logs.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::*;

/// Runs it as a process of its own with a filter, as that of many other programs is named as well.
fn runner(coordinator: &Coordinator, bed: &Bed, filter: Option<&str>) -> Child {
    let token_file = bed.folder.path().join("token");
    fs::write(&token_file, TOKEN).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_skein-runner"));
    command.args(["--name", "r1", "--coordinator", &format!("http://{}", coordinator.address)]);
    command.arg("--token-file").arg(&token_file).arg("--data").arg(bed.data());
    command.arg("--agents").arg(bed.folder.path().join("agents"));
    command.env("RUST_LOG", "off").env_remove("SKEIN_LOG");
    command.envs(filter.map(|filter| ("SKEIN_LOG", filter)));
    command.stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_logs_what_skein_log_says() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let bed = Bed::new("true");
    let mut first = runner(&coordinator, &bed, None);
    let mut lines = BufReader::new(first.stderr.take().unwrap()).lines();
    let welcome = async { while !lines.next_line().await.unwrap().expect("a line").contains("welcome") {} };
    tokio::time::timeout(LIMIT, welcome).await.expect("it says nothing of its own accord");
    first.kill().await.unwrap();

    let mut second = runner(&coordinator, &bed, Some("off"));
    coordinator.until("another registration", |state| state.registrations.len() == 2).await;
    second.start_kill().unwrap();
    let said = second.wait_with_output().await.unwrap().stderr;
    assert!(said.is_empty(), "{}", String::from_utf8_lossy(&said));
}
