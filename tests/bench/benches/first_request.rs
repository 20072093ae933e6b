//! What the split into core and deferred tools is worth: the first requests of real clients to their models.

use anyhow::{Context, Result};
use futures::FutureExt;
use serde_json::Value;
use skein_tests::coder::Coder;
use skein_tests::first_request::{Setting, turn};
use skein_tests::language_model;
use skein_tests::up::{Folder, Up};

use super::Bench;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;

pub(super) const BENCH: Bench = Bench {
    name: "first_request",
    about: "bytes and tokens of the first request of Claude Code, Codex and opencode, with and without the split into core and deferred tools",
    run: |options| run(options).boxed(),
};

/// Each client, as people call it, and how it comes by tools that it has not loaded.
const CLIENTS: [(Coder, &str, &str); 3] = [
    (Coder::ClaudeCode, "Claude Code", "its search"),
    (Coder::Codex, "Codex", "its search"),
    (Coder::Opencode, "opencode", "its code mode"),
];

/// What a first request costs.
struct Cost {
    tools: usize,
    /// Of the swarm's tools.
    tool_tokens: usize,
    tokens: usize,
    bytes: usize,
}

async fn run(_: Options) -> Result<Report> {
    let up = Up::start().await?;
    let token = up.token("lead", "lead").await?;
    let full = format!("{}/full", up.mcp);
    let mut report = Report::default();
    for (coder, client, search) in CLIENTS {
        let [core, all] = [&up.mcp, &full].map(|url| Some((url.as_str(), token.as_str())));
        let deferred = Added::by(coder, all, true).await?;
        let short = Added::by(coder, core, false).await?;
        let whole = Added::by(coder, all, false).await?;
        deferred.tell(&format!("{client}, {search} and /mcp/full"), &mut report);
        short.tell(&format!("{client}, no search and /mcp"), &mut report);
        whole.tell(&format!("{client}, no split"), &mut report);
        for (added, what, most) in [(deferred, search, 0.4), (short, "/mcp", 0.3)] {
            let share = added.tokens as f64 / whole.tokens as f64;
            let name = format!("{client}: tokens that Skein adds with {what}, of those without the split");
            report.goals.push(Goal::at_most(&name, most, Some(Interval::exactly(share))));
        }
    }
    report.remarks.push(
        "Tokens are counted with o200k, as the JSON of the tools and of the whole request has them. What Skein adds is the \
         request less that of the same client without Skein."
            .to_owned(),
    );
    Ok(report)
}

/// A first request with Skein beside one without.
struct Added {
    with: Cost,
    tokens: usize,
    bytes: usize,
}

impl Added {
    async fn by(coder: Coder, view: Option<(&str, &str)>, search: bool) -> Result<Self> {
        let with = Cost::of(coder, view, search).await?;
        let without = Cost::of(coder, None, search).await?;
        let less = |all: usize, own: usize| all.checked_sub(own).context("Skein makes a request smaller");
        Ok(Self { tokens: less(with.tokens, without.tokens)?, bytes: less(with.bytes, without.bytes)?, with })
    }

    fn tell(&self, setting: &str, report: &mut Report) {
        let figures = [
            ("tools of Skein", "", self.with.tools),
            ("these tools", "tokens", self.with.tool_tokens),
            ("all that Skein adds", "tokens", self.tokens),
            ("all that Skein adds", "bytes", self.bytes),
            ("whole request", "tokens", self.with.tokens),
            ("whole request", "bytes", self.with.bytes),
        ];
        for (what, unit, value) in figures {
            let (name, value) = (format!("{setting}: {what}"), Interval::exactly(value as f64));
            report.figures.push(Figure { name, unit: unit.to_owned(), value });
        }
    }
}

impl Cost {
    async fn of(coder: Coder, view: Option<(&str, &str)>, search: bool) -> Result<Self> {
        let folder = Folder::new()?;
        let setting = Setting { coder, view, search, wanted: Vec::new() };
        Ok(Self::in_request(turn(folder.path(), &setting).await?.first()?))
    }

    fn in_request(request: &Value) -> Self {
        let tools = language_model::tools(request);
        let text = request.to_string();
        Self {
            tools: tools.len(),
            tool_tokens: tools.iter().map(|(_, tool)| tokens(&tool.to_string())).sum(),
            tokens: tokens(&text),
            bytes: text.len(),
        }
    }
}

fn tokens(text: &str) -> usize {
    tiktoken_rs::o200k_base_singleton().encode_ordinary(text).len()
}
