//! Agents without a container that take what they can get: each ends or stands at its limit, and nothing else is
//! harmed.

use std::fs;

use anyhow::{Context, Result, ensure};
use skein_runner::container::Isolation;
use skein_tests::stage::Stage;

/// Starts processes as long as it is let.
const BOMB: &str = r#"exec python3 -c '
import os, time
while True:
    try:
        os.fork()
    except OSError as error:
        print("no more:", error, flush=True)
        time.sleep(0.05)
'"#;

#[tokio::test]
async fn an_agent_that_forks_without_end_stands_at_its_limit_and_can_be_killed() -> Result<()> {
    ensure!(
        skein_runner::isolation() == Isolation::Users,
        "run the suite as root: processes are counted by user"
    );
    let stage = Stage::new(2)?.script("bomb", "pids = 40\n", BOMB)?.agent("neighbour", "", &["tree"])?;
    let stage = stage.start().await?;
    let bomb = stage.ask("bomb", "").await?;
    let logs = async || stage.up().skein(&["agent", "logs", &bomb, "-n", "3"]).await;
    stage
        .until("it is at its limit", async || {
            Ok(stage.processes(Some(&bomb)).len() > 20 && logs().await?.contains("no more"))
        })
        .await?;
    let count = stage.processes(Some(&bomb)).len();
    ensure!(count <= 40, "it has {count} processes");
    let neighbour = stage.ask("neighbour", "").await?;
    ensure!(stage.ends(&neighbour).await? == "completed", "{}", stage.output(&neighbour));
    stage.up().skein(&["agent", "kill", &bomb]).await?;
    ensure!(stage.ends(&bomb).await? == "killed");
    ensure!(stage.processes(Some(&bomb)).is_empty(), "some are left");
    Ok(())
}

#[tokio::test]
async fn what_an_agent_may_not_have_ends_it_with_a_reason() -> Result<()> {
    let stage = Stage::new(2)?
        .script("hungry", "memory = \"256m\"\n", "exec python3 -c 'bytearray(1 << 30)'")?
        .script("writer", "file_size = \"32m\"\n", "exec dd if=/dev/zero of=big bs=1M count=100")?
        .script(
            "modest",
            "memory = \"256m\"\nfile_size = \"32m\"\n",
            "ulimit -c; ulimit -n; exec python3 -c 'bytearray(1 << 26)'",
        )?
        .start()
        .await?;
    let hungry = stage.ask("hungry", "").await?;
    ensure!(stage.ends(&hungry).await? == "error", "it had a gigabyte");
    let logs = stage.up().skein(&["agent", "logs", &hungry]).await?;
    ensure!(logs.contains("MemoryError"), "{logs}");

    let writer = stage.ask("writer", "").await?;
    ensure!(stage.ends(&writer).await? == "error", "it wrote all of it");
    let history = stage.up().skein(&["agent", "history", "writer", "--json"]).await?;
    ensure!(history.contains("raise `file_size`"), "{history}");
    let written = fs::metadata(stage.work("writer").join("big")).context("it wrote nothing")?.len();
    ensure!(written == 32 << 20, "it wrote {written} bytes");

    let modest = stage.ask("modest", "").await?;
    ensure!(stage.ends(&modest).await? == "completed", "{}", stage.output(&modest));
    let logs = stage.up().skein(&["agent", "logs", &modest]).await?;
    let mut shown = logs.lines();
    ensure!(shown.next() == Some("0"), "it may leave its memory on the disk: {logs}");
    let files: u64 = shown.next().context("it said nothing more")?.parse()?;
    ensure!(files <= 65_536, "{logs}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_takes_longer_than_its_timeout_ends_with_status_124_and_says_so() -> Result<()> {
    // It does not end when it is asked to: the signal that it is ended with is none of its status.
    let keys = "timeout = \"2s\"\ngrace = \"1s\"\n";
    let stage = Stage::new(1)?.script("slow", keys, "trap '' TERM; sleep 1000")?.start().await?;
    let slow = stage.ask("slow", "").await?;
    ensure!(stage.ends(&slow).await? == "error", "{}", stage.instance(&slow).await?);
    let exit = stage.instance(&slow).await?["exit"].clone();
    ensure!(exit["code"] == 124 && exit["signal"].is_null() && exit["reason"] == "timeout", "{exit}");
    let told = String::from_utf8(stage.up().run(&["agent", "logs", &slow]).await?.stderr)?;
    ensure!(told.contains(&format!("{slow}: error, exit code 124: timeout")), "{told}");
    ensure!(stage.processes(Some(&slow)).is_empty(), "it runs on");
    Ok(())
}

#[tokio::test]
async fn the_log_of_an_agent_that_prints_without_end_is_bounded() -> Result<()> {
    const LOG: u64 = 16 * 1024 * 1024;
    let line =
        "while :; do echo goose goose goose goose goose goose goose goose goose goose goose goose; done";
    let stage = Stage::new(1)?.script("printer", "", line)?.start().await?;
    let printer = stage.ask("printer", "").await?;
    let log = stage.data().join("runner/logs").join(format!("{printer}.log"));
    let before = log.with_extension("log.1");
    stage.until("its log was cut", async || Ok(before.exists())).await?;
    let shown = stage.up().skein(&["agent", "logs", &printer, "-n", "2"]).await?;
    ensure!(shown.lines().count() == 2 && shown.contains("goose goose"), "{shown}");
    stage.up().skein(&["agent", "kill", &printer]).await?;
    ensure!(stage.ends(&printer).await? == "killed");
    let small = |path: &std::path::Path| fs::metadata(path).is_ok_and(|about| about.len() <= LOG);
    stage.until("both parts are bounded", async || Ok(small(&log) && small(&before))).await
}

#[tokio::test]
async fn what_keeps_agents_apart_is_a_label_of_the_runner() -> Result<()> {
    let stage = Stage::new(1)?.start().await?;
    let expected = format!("isolation={}", skein_runner::isolation().name());
    let runners = stage.list("runners").await?;
    ensure!(runners.len() == 1 && runners[0]["labels"].to_string().contains(&expected), "{runners:?}");
    Ok(())
}
