//! B16: signed webhooks without a pause, some of them twice, and a store that stands still in the middle.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::FutureExt;
use reqwest::Client;
use serde_json::Value;
use skein_tests::cluster::Cluster;
use skein_tests::process;
use skein_tests::redis::Server;
use skein_tests::up::Up;
use skein_tests::webhook;
use tokio::time::{Instant, sleep_until};

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;

pub(super) const BENCH: Bench = Bench {
    name: "ingress",
    about: "1,000 signed webhooks a second, a tenth sent twice, Redis frozen for 2 s in the middle",
    run: |options| run(options).boxed(),
};

/// One webhook each.
const EVERY: Duration = Duration::from_millis(1);
const COUNT: u64 = 8000;
/// Every so many is the one before it once more.
const TWICE: u64 = 10;
const STALL: std::ops::Range<Duration> = Duration::from_secs(3)..Duration::from_secs(5);
/// What has gathered in the stall is worked off within this.
const CATCH_UP: Duration = Duration::from_secs(1);
/// The lease outlives the stall, so that no shard changes hands.
const SETTINGS: &str = "lease = \"10s\"\nsettle = \"1s\"";

async fn run(options: Options) -> Result<Report> {
    let (mut outside, mut within) = (Vec::new(), Vec::new());
    for _ in 0..options.rounds {
        let server = Server::start().await?;
        let settings = format!("{SETTINGS}\n{}", webhook::configuration());
        let (cluster, node) = Cluster::over(server, &settings).await?;
        let answers = storm(&cluster, &node).await?;
        all_are_there_once(&node, &answers).await?;
        let (during, others): (Vec<&Answer>, Vec<&Answer>) =
            answers.iter().partition(|answer| (STALL.start..STALL.end + CATCH_UP).contains(&answer.due));
        outside.push(at(&others, 0.99));
        within.push(at(&during, 1.0));
    }
    let mut report = Report::default();
    for (name, values) in [
        ("acknowledged, p99 outside the stall and the second after it", &outside),
        ("acknowledged, longest of those that came in the stall", &within),
    ] {
        let value = Interval::of(values).context("at least one round")?;
        report.figures.push(Figure { name: name.to_owned(), unit: "ms".to_owned(), value });
    }
    report.goals.push(Goal::at_most("B16 p99 outside the stall, ms", 50.0, Interval::of(&outside)));
    report.goals.push(Goal::at_most("B16 longest in the stall, ms", 3000.0, Interval::of(&within)));
    report.remarks.push("none lost and none doubled, which every round checks".to_owned());
    Ok(report)
}

struct Answer {
    delivery: String,
    /// When it was to be sent, after the beginning.
    due: Duration,
    took: Duration,
    receipt: String,
}

/// Sends by the clock, whether the earlier ones are answered or not, as senders do that know nothing of one another.
async fn storm(cluster: &Cluster, node: &Up) -> Result<Vec<Answer>> {
    let redis = cluster.server.id().context("Redis runs")?;
    let (client, start) = (Client::new(), Instant::now());
    let stall = tokio::spawn(async move {
        sleep_until(start + STALL.start).await;
        process::freeze(redis).await?;
        sleep_until(start + STALL.end).await;
        process::thaw(redis)
    });
    let mut sent = Vec::new();
    for number in 0..COUNT {
        let due = EVERY * u32::try_from(number)?;
        sleep_until(start + due).await;
        let original = if number % TWICE == TWICE - 1 { number - 1 } else { number };
        let (client, url) = (client.clone(), format!("{}/webhooks/github", node.ingress));
        sent.push(tokio::spawn(async move { send(&client, &url, original, start, due).await }));
    }
    let mut answers = Vec::new();
    for answer in sent {
        answers.push(answer.await??);
    }
    stall.await??;
    Ok(answers)
}

async fn send(client: &Client, url: &str, number: u64, start: Instant, due: Duration) -> Result<Answer> {
    let delivery = format!("d-{number}");
    let body = format!(
        "{{\"ref\":\"refs/heads/main\",\"after\":\"{number}\",\"repository\":{{\"full_name\":\"acme/app\"}}}}"
    );
    let request = client
        .post(url)
        .header("x-github-event", "push")
        .header("x-github-delivery", &delivery)
        .header("x-hub-signature-256", webhook::signature(&body))
        .header("content-type", "application/json");
    let response = request.body(body).send().await?;
    let status = response.status();
    let answer: Value = response.json().await?;
    ensure!(status.is_success(), "{delivery}: {status} {answer}");
    let receipt = answer["receipt"].as_str().context("an answer has its receipt")?.to_owned();
    Ok(Answer { delivery, due, took: (start + due).elapsed(), receipt })
}

/// Every delivery has one receipt, which is the one that each of its answers named, and there are no others.
async fn all_are_there_once(node: &Up, answers: &[Answer]) -> Result<()> {
    let limit = (COUNT * 2).to_string();
    let rows = node.skein(&["webhooks", "list", "--json", "--limit", &limit]).await?;
    let mut kept = BTreeMap::new();
    for row in rows.lines() {
        let row: Value = serde_json::from_str(row)?;
        let delivery = row["delivery"].as_str().unwrap_or_default().to_owned();
        let before = kept.insert(delivery, row["receiptId"].as_str().unwrap_or_default().to_owned());
        ensure!(before.is_none(), "doubled: {row}");
    }
    for answer in answers {
        let receipt = kept.get(&answer.delivery).with_context(|| format!("{} is lost", answer.delivery))?;
        ensure!(*receipt == answer.receipt, "{} has another receipt than it was told", answer.delivery);
    }
    let sent = COUNT - COUNT / TWICE;
    ensure!(kept.len() as u64 == sent, "{} receipts of {sent} deliveries", kept.len());
    Ok(())
}

/// Milliseconds within which this share was answered.
fn at(answers: &[&Answer], share: f64) -> f64 {
    let mut took: Vec<Duration> = answers.iter().map(|answer| answer.took).collect();
    took.sort_unstable();
    let place = (took.len() as f64 * share).ceil() as usize;
    took.get(place.saturating_sub(1)).map_or(f64::NAN, |took| took.as_secs_f64() * 1000.0)
}
