//! B22: how long the pages of the web console take with 10,000 tasks.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures::FutureExt;

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::fill::Contents;
use crate::skein::place::Place;

pub(super) const BENCH: Bench = Bench {
    name: "console_10k",
    about: "pages of the web console with 10,000 tasks and 500 members",
    run: |options| run(options).boxed(),
};

const PAGES: [(&str, &str); 5] = [
    ("overview", ""),
    ("board", "/board"),
    ("list of tasks", "/tasks"),
    ("graph", "/graph"),
    ("agents", "/agents"),
];
/// Times that each page is asked for in a round.
const TIMES: u32 = 20;
/// Goal of B22: from the request to its last byte, on loopback.
const GOAL_MS: f64 = 200.0;

async fn run(options: Options) -> Result<Report> {
    let mut report = Report::default();
    let contents = Contents { members: 500, pending: 9000, leases: 1000 };
    let place = Place::new(&options, "console", contents).await?;
    let (node, _) = place.first_claim().await?;
    place.caught_up(&node).await?;
    let visit = Visit::begin(&node.url(), place.token()).await?;
    let mut worst = 0.0_f64;
    for (name, page) in PAGES {
        // Statements are prepared and bodies read once before anything counts.
        visit.open(page).await?;
        let mut rounds = Vec::new();
        for _ in 0..options.rounds {
            let mut all = Duration::ZERO;
            for _ in 0..TIMES {
                all += visit.open(page).await?;
            }
            rounds.push(all.as_secs_f64() * 1000.0 / f64::from(TIMES));
        }
        let value = Interval::of(&rounds).context("at least one round")?;
        worst = worst.max(value.high);
        report.figures.push(Figure { name: format!("the {name}, drawn"), unit: "ms".to_owned(), value });
    }
    let slowest = Some(Interval::exactly(worst));
    report.goals.push(Goal::at_most("B22 the slowest page with 10,000 tasks, ms", GOAL_MS, slowest));
    node.kill().await?;
    Ok(report)
}

/// A session of the console.
struct Visit {
    http: reqwest::Client,
    base: String,
    cookie: String,
}

impl Visit {
    async fn begin(base: &str, token: &str) -> Result<Self> {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
        let entered = http.post(format!("{base}/login")).body(format!("token={token}")).send().await?;
        let cookie = entered.headers().get("set-cookie").context("the console lets nobody in")?.to_str()?;
        let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(Self { http, base: base.to_owned(), cookie })
    }

    /// Asks for a page, and says how long it took to its last byte.
    async fn open(&self, page: &str) -> Result<Duration> {
        let url = format!("{}/console/default{page}", self.base);
        let begun = Instant::now();
        let response = self.http.get(&url).header("cookie", &self.cookie).send().await?;
        let status = response.status();
        let text = response.text().await?;
        ensure!(status == 200 && text.contains("</html>"), "{page} was answered with {status}");
        Ok(begun.elapsed())
    }
}
