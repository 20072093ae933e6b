//! B13: an instance in a container is frozen and thawed, by the daemon and past it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bollard::Docker;
use futures::FutureExt;
use futures::future::try_join_all;
use serde_json::Value;
use skein_runner::container::Handle;
use skein_tests::docker::{Image, docker};
use skein_tests::engine::{Bed, Kind};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;

pub(super) const BENCH: Bench = Bench {
    name: "pause_resume",
    about: "freezing and thawing containers, beside bare pause and unpause of the Docker daemon",
    run: |options| run(options).boxed(),
};

/// Freezes and thaws in a round: enough of them to know a 99th percentile.
const TIMES: usize = 200;
const MANY: usize = 20;
/// Answers each byte with the same.
const ECHO: &str = r#"
import socket
server = socket.create_server(("0.0.0.0", 7000))
print("up", flush=True)
client, _ = server.accept()
client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
while byte := client.recv(1):
    client.send(byte)
"#;

/// Milliseconds of each round.
#[derive(Default)]
struct Times {
    bare: Vec<f64>,
    by_daemon: Vec<f64>,
    past_daemon: Vec<f64>,
    freeze: Vec<f64>,
    reply: Vec<f64>,
    freeze_many: Vec<f64>,
    thaw_many: Vec<f64>,
}

async fn run(options: Options) -> Result<Report> {
    let mut times = Times::default();
    beside_the_daemon(&options, &mut times).await?;
    to_the_reply(&options, &mut times).await?;
    many_at_once(&options, &mut times).await?;
    let mut report = Report::default();
    for (name, values) in [
        ("bare pause and unpause", &times.bare),
        ("freeze and thaw by the daemon", &times.by_daemon),
        ("freeze and thaw past the daemon", &times.past_daemon),
        ("freeze, p99", &times.freeze),
        ("thaw to the agent's reply, p99", &times.reply),
        ("freeze of 20 at once, p99", &times.freeze_many),
        ("thaw of 20 at once, p99", &times.thaw_many),
    ] {
        let value = Interval::of(values).context("at least one round")?;
        report.figures.push(Figure { name: name.to_owned(), unit: "ms".to_owned(), value });
    }
    report.goals = vec![
        Goal::at_most("B13 by the daemon, to bare", 1.15, Interval::of_ratio(&times.by_daemon, &times.bare)),
        Goal::at_most(
            "B13 past the daemon, to bare",
            0.5,
            Interval::of_ratio(&times.past_daemon, &times.bare),
        ),
        Goal::at_most("B13 freeze p99, ms", 2.0, Interval::of(&times.freeze)),
        Goal::at_most("B13 thaw to reply p99, ms", 10.0, Interval::of(&times.reply)),
        Goal::at_most("B13 freeze 20 at once p99, ms", 30.0, Interval::of(&times.freeze_many)),
        Goal::at_most("B13 thaw 20 at once p99, ms", 30.0, Interval::of(&times.thaw_many)),
    ];
    Ok(report)
}

/// The same container in turns: by hand, through the engine's fallback, and by its control group.
async fn beside_the_daemon(options: &Options, times: &mut Times) -> Result<()> {
    let (mut daemon, mut freezer) = (Bed::new(Kind::Pause).await?, Bed::new(Kind::Docker).await?);
    let by_daemon = daemon.start("bench-1", "echo up; sleep 100000; true").await?;
    let past_daemon = freezer.start("bench-2", "echo up; sleep 100000; true").await?;
    let image = freezer.spec("bench-3", "").container.context("no container")?.image;
    // Made of the same processes, which is what the time depends on.
    let flags = ["run", "--detach", "--rm", "--init", "--network", "none", &image];
    let bare = docker(&[&flags[..], &["sh", "-c", "echo up; sleep 100000; true"]].concat()).await?;
    let client = Docker::connect_with_defaults()?.negotiate_version().await?;
    for _ in 0..options.rounds {
        let (mut first, mut second, mut third) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            client.pause_container(&bare).await?;
            client.unpause_container(&bare).await?;
            first.push(millis(began.elapsed()));
            second.push(freeze_and_thaw(&daemon, &by_daemon).await?);
            third.push(freeze_and_thaw(&freezer, &past_daemon).await?);
        }
        times.bare.extend(middle(first));
        times.by_daemon.extend(middle(second));
        times.past_daemon.extend(middle(third));
    }
    docker(&["rm", "--force", &bare]).await?;
    for (bed, handle) in [(daemon, by_daemon), (freezer, past_daemon)] {
        bed.engine().kill(&handle).await?;
        bed.close().await?;
    }
    Ok(())
}

async fn freeze_and_thaw(bed: &Bed, handle: &Handle) -> Result<f64> {
    let began = Instant::now();
    bed.engine().freeze(handle).await?;
    bed.engine().thaw(handle).await?;
    Ok(millis(began.elapsed()))
}

/// The agent is asked something while it stands still, and answers once it goes on.
async fn to_the_reply(options: &Options, times: &mut Times) -> Result<()> {
    let image = Image::agents().await?;
    let mut bed = Bed::new(Kind::Docker).await?;
    let mut spec = bed.spec("bench-1", "");
    spec.command = ["python3", "-c", ECHO].map(str::to_owned).to_vec();
    image.name().clone_into(&mut spec.container.as_mut().context("no container")?.image);
    let handle = bed.start_as(spec).await?;
    let mut agent = TcpStream::connect((address(&handle).await?, 7000)).await?;
    agent.set_nodelay(true)?;
    for _ in 0..options.rounds {
        let (mut freezes, mut replies) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            bed.engine().freeze(&handle).await?;
            freezes.push(millis(began.elapsed()));
            agent.write_all(b"?").await?;
            let began = Instant::now();
            bed.engine().thaw(&handle).await?;
            agent.read_u8().await?;
            replies.push(millis(began.elapsed()));
        }
        times.freeze.extend(worst(freezes));
        times.reply.extend(worst(replies));
    }
    bed.engine().kill(&handle).await?;
    bed.close().await
}

async fn address(handle: &Handle) -> Result<String> {
    let id = handle.container.as_ref().context("no container")?;
    let found: Value = serde_json::from_str(&docker(&["inspect", &id.id]).await?)?;
    let networks = found[0]["NetworkSettings"]["Networks"].as_object().context("no networks")?;
    let address = networks.values().find_map(|network| network["IPAddress"].as_str());
    address.map(str::to_owned).context("it has no address")
}

async fn many_at_once(options: &Options, times: &mut Times) -> Result<()> {
    let mut bed = Bed::new(Kind::Docker).await?;
    let mut handles = Vec::new();
    for number in 0..MANY {
        handles.push(bed.start(&format!("bench-{number}"), "echo up; sleep 100000; true").await?);
    }
    for _ in 0..options.rounds {
        let (mut freezes, mut thaws) = (Vec::new(), Vec::new());
        for _ in 0..TIMES {
            let began = Instant::now();
            try_join_all(handles.iter().map(|handle| bed.engine().freeze(handle))).await?;
            freezes.push(millis(began.elapsed()));
            let began = Instant::now();
            try_join_all(handles.iter().map(|handle| bed.engine().thaw(handle))).await?;
            thaws.push(millis(began.elapsed()));
        }
        times.freeze_many.extend(worst(freezes));
        times.thaw_many.extend(worst(thaws));
    }
    try_join_all(handles.iter().map(|handle| bed.engine().kill(handle))).await?;
    bed.close().await
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1000.0
}

fn middle(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The value that 99 of 100 do not exceed.
fn worst(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get((values.len() * 99).div_ceil(100).saturating_sub(1)).copied()
}
