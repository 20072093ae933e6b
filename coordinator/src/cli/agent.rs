//! `skein agent add|validate|list|show|history|logs|run|kill|scale|pause|resume|enable|disable|remove`

use clap::{Args, Subcommand};
use serde_json::Value;
use skein_proto::v1::{AgentRequest, KillInstanceRequest, RunAgentRequest, SteerAgentRequest};
use skein_shared::id::Name;

use super::definitions::{Add, Validate};
use super::table::{self, Column};
use super::{CliError, InSwarm, list, logs};
use crate::api::client;
use crate::service::agents::Steer;

/// An agent in a list.
const COLUMNS: &[Column] = &[
    ("NAME", &["agent"]),
    ("STATE", &["state"]),
    ("RUNNING", &["running"]),
    ("WAITING", &["waiting"]),
    ("QUEUED", &["queued"]),
    ("SCALE", &["scale"]),
    ("DEAD LETTERS", &["deadLetters"]),
    ("GROUP", &["group"]),
];

/// A run in a history.
const RUNS: &[Column] = &[
    ("ID", &["instance"]),
    ("STATE", &["state"]),
    ("CLASS", &["class"]),
    ("SOURCE", &["source"]),
    ("STARTED", &["startedAt", "createdAt"]),
    ("TOOK MS", &["durationMs"]),
    ("WAITED MS", &["waitedMs"]),
    ("EXIT", &["exit.code"]),
    ("REASON", &["exit.reason"]),
    ("TOKENS IN", &["exit.usage.input_tokens"]),
    ("TOKENS OUT", &["exit.usage.output_tokens"]),
    ("MICRO-USD", &["exit.usage.cost_micros"]),
    ("STATUS", &["statusText"]),
];

#[derive(Debug, Subcommand)]
pub(super) enum Agent {
    /// Define an agent: by a program, by a coding agent and a prompt, or as somebody else has defined it.
    Add(Add),
    /// Check definitions, and say what is wrong with them.
    Validate(Validate),
    /// List the agents that runners have defined.
    List(All),
    /// Show everything live of an agent: its definition, runs, queue and waits.
    Show(One),
    /// List the runs of an agent, the newest first.
    History(History),
    /// Print what a run has written, or the latest run of an agent, and how it ended.
    Logs(logs::Logs),
    /// Run an agent by hand.
    Run(Run),
    /// End a run, also one that waits.
    Kill(Kill),
    /// Say how many runs of an agent may be under way at a time, until its definition says another number than now.
    Scale(Scale),
    /// Take work and start none; what runs goes on, what waits goes on waiting.
    Pause(Held),
    /// Start what has gathered in a pause.
    Resume(Held),
    /// Take work again.
    Enable(One),
    /// Take no more work. Of the queue calls fail and the rest become dead letters; what waits is ended, what runs goes
    /// on.
    Disable(One),
    /// Remove an agent that no runner has any more: what runs is ended too, and nothing starts it. What a runner still
    /// has goes by itself once it is taken out of that runner's folder of agents.
    Remove(One),
}

impl Agent {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Agent::Add(add) => add.run().await,
            Agent::Validate(validate) => validate.run(),
            Agent::List(all) => all.run().await,
            Agent::Show(one) => one.show().await,
            Agent::History(history) => history.run().await,
            Agent::Logs(logs) => logs.run().await,
            Agent::Run(run) => run.run().await,
            Agent::Kill(kill) => kill.run().await,
            Agent::Scale(scale) => scale.run().await,
            Agent::Pause(held) => held.run("pause").await,
            Agent::Resume(held) => held.run("resume").await,
            Agent::Enable(one) => steer(&one.at, one.name.as_str(), "enable").await,
            Agent::Disable(one) => steer(&one.at, one.name.as_str(), "disable").await,
            Agent::Remove(one) => steer(&one.at, one.name.as_str(), "remove").await,
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct All {
    #[command(flatten)]
    at: InSwarm,
}

impl All {
    async fn run(self) -> Result<(), CliError> {
        let mut document = shown(&self.at, "").await?;
        let rows = document["agents"].as_array_mut().map(std::mem::take).unwrap_or_default();
        Ok(table::print(&rows, COLUMNS, self.at.common.json)?)
    }
}

#[derive(Debug, Args)]
pub(super) struct One {
    /// The agent, as `skein agent list` shows it.
    name: Name,
    #[command(flatten)]
    at: InSwarm,
}

impl One {
    async fn show(self) -> Result<(), CliError> {
        let document = shown(&self.at, self.name.as_str()).await?;
        Ok(table::print_document(&document, self.at.common.json)?)
    }
}

/// What it is about: one agent, or all of the swarm.
#[derive(Debug, Args)]
pub(super) struct Held {
    /// The agent, as `skein agent list` shows it, unless it is --all.
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    name: Option<Name>,
    /// All agents of the swarm, also those that are defined later.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    at: InSwarm,
}

impl Held {
    async fn run(self, order: &str) -> Result<(), CliError> {
        steer(&self.at, self.name.as_ref().map(Name::as_str).unwrap_or_default(), order).await
    }
}

#[derive(Debug, Args)]
pub(super) struct Scale {
    /// The agent, as `skein agent list` shows it.
    name: Name,
    /// The most runs at a time; `defined` for what its definition says.
    #[arg(value_parser = most)]
    most: Most,
    #[command(flatten)]
    at: InSwarm,
}

/// The most runs of an agent at a time; none for what its definition says.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Most(Option<u32>);

impl Scale {
    async fn run(self) -> Result<(), CliError> {
        let Scale { name, most: Most(scale), at } = self;
        let (agent, order) = (name.to_string(), "scale".to_owned());
        let request = SteerAgentRequest { swarm: at.swarm.to_string(), agent, order, scale };
        at.common.print(at.common.admin().await?.steer_agent(request).await)
    }
}

fn most(text: &str) -> Result<Most, String> {
    let number = || text.parse().ok().filter(|scale| *scale > 0);
    match text {
        "defined" => Ok(Most(None)),
        _ => number().map(|scale| Most(Some(scale))).ok_or_else(|| {
            "write a number from 1 on, or `defined`; `skein agent disable` lets none run".to_owned()
        }),
    }
}

#[derive(Debug, Args)]
pub(super) struct History {
    /// The agent, as `skein agent list` shows it.
    name: Name,
    /// Most rows.
    #[arg(long, default_value_t = 100)]
    limit: u32,
    #[command(flatten)]
    at: InSwarm,
}

impl History {
    async fn run(self) -> Result<(), CliError> {
        let runs = list::ask(&self.at, "instances", self.name.as_str(), self.limit).await?;
        if runs.rows.is_empty() {
            // One that has not run yet has an empty history, and one that nobody knows has none.
            shown(&self.at, self.name.as_str()).await?;
        }
        list::print(runs, RUNS, self.limit, self.at.common.json)
    }
}

async fn shown(at: &InSwarm, agent: &str) -> Result<Value, CliError> {
    let request = AgentRequest { swarm: at.swarm.to_string(), agent: agent.to_owned() };
    let mut admin = at.common.admin().await?;
    Ok(client::shown(admin.show_agents(request).await)?)
}

async fn steer(at: &InSwarm, agent: &str, order: &str) -> Result<(), CliError> {
    let request = SteerAgentRequest {
        swarm: at.swarm.to_string(),
        agent: agent.to_owned(),
        order: order.to_owned(),
        scale: None,
    };
    at.common.print(at.common.admin().await?.steer_agent(request).await)?;
    // It is done; if nobody can say just now what stands against it all the same, nothing is said of that.
    if !agent.is_empty()
        && matches!(order, "resume" | "enable")
        && let Ok(document) = shown(at, agent).await
        && let Ok(steer) = order.parse::<Steer>()
        && let Some(sentence) = steer.still_held(&document, "`skein agent resume --all`")
    {
        table::note(format_args!("skein: {sentence}"));
    }
    Ok(())
}

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The agent, as `skein agent list` shows it.
    name: Name,
    /// What the run is given to do.
    #[arg(long, default_value = "", hide_default_value = true)]
    prompt: String,
    #[command(flatten)]
    at: InSwarm,
}

impl Run {
    async fn run(self) -> Result<(), CliError> {
        let Run { name, prompt, at } = self;
        let request = RunAgentRequest { swarm: at.swarm.to_string(), agent: name.to_string(), prompt };
        at.common.print(at.common.admin().await?.run_agent(request).await)
    }
}

#[derive(Debug, Args)]
pub(super) struct Kill {
    /// As `skein instances list` shows it.
    instance: String,
    /// What its callers are told.
    #[arg(long, default_value = "", hide_default_value = true)]
    reason: String,
    #[command(flatten)]
    at: InSwarm,
}

impl Kill {
    async fn run(self) -> Result<(), CliError> {
        let Kill { instance, reason, at } = self;
        let request = KillInstanceRequest { swarm: at.swarm.to_string(), instance, reason };
        at.common.print(at.common.admin().await?.kill_instance(request).await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_runs_of_an_agent_are_a_number_or_what_its_definition_says() {
        assert_eq!((most("8"), most("defined")), (Ok(Most(Some(8))), Ok(Most(None))));
        for wrong in ["0", "-1", "1.5", "", "unlimited", "4294967296"] {
            assert!(most(wrong).unwrap_err().contains("`defined`"), "{wrong}");
        }
    }
}
