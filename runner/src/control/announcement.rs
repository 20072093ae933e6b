//! What the runner says of itself and its agents, and what the coordinators know of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use skein_proto::v1::{AgentDefinition, AgentName, AgentProblem, HeldInstance, Register};
use skein_shared::fence::Token;
use tokio::time::Instant;

use super::starts::Agent;
use super::{Departure, Runner};
use crate::definition::{Definitions, is_agent};
use crate::error::Error;
use crate::instance::ledger::{Row, State};

/// The label that says what stands between an agent and the runner's files.
const ISOLATION: &str = "isolation";

/// Why a runner says what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Occasion {
    /// It registers.
    Registers,
    /// It is registered through another stream, and has one more.
    Attaches,
    /// Its agents have changed, or its engines.
    Changed,
}

/// A registration that was sent.
pub(super) struct Announcement {
    pub(super) sent: Instant,
    pub(super) attaches: bool,
    /// The instances that it names, with the highest token of each.
    pub(super) held: BTreeMap<String, Token>,
    /// Those of which it says that they have ended.
    pub(super) ended: BTreeSet<String>,
    /// The agents that the coordinators have from this runner once it is welcomed.
    agents: BTreeSet<Agent>,
    /// Those that they are to forget.
    removed: BTreeSet<Agent>,
    /// Those that are to be started.
    starts: BTreeSet<Agent>,
}

impl Runner {
    /// The occasion on which a stream says that the agents or engines have changed: one of the streams registers, for
    /// all.
    pub(super) fn takes_turn(&self) -> Occasion {
        let now = (self.definitions.borrow().clone(), self.engines.borrow().clone());
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref() == Some(&now) {
            return Occasion::Attaches;
        }
        *told = Some(now);
        Occasion::Changed
    }

    /// What to say of the runner, and what to remember of it.
    ///
    /// # Errors
    /// When the ledger cannot be read.
    pub(super) async fn announcement(&self, occasion: Occasion) -> Result<(Register, Announcement), Error> {
        let (definitions, engines) = (self.definitions.borrow().clone(), self.engines.borrow().clone());
        let attaches = occasion == Occasion::Attaches;
        if occasion == Occasion::Registers {
            *self.told.lock().unwrap_or_else(PoisonError::into_inner) =
                Some((definitions.clone(), engines.clone()));
        }
        let ledger = self.instances.ledger();
        let announced = ledger.announced().await?;
        let removed: BTreeSet<_> = announced
            .iter()
            .filter(|agent| !attaches && self.is_removed(&definitions, agent))
            .cloned()
            .collect();
        let held = ledger.held().await?;
        let ended = held.iter().filter(|row| row.state == State::Ended);
        let ended = ended.map(|row| row.instance.clone()).collect();
        let tokens = held.iter().map(|row| (row.instance.clone(), self.instances.latest(row))).collect();
        let leaves = *self.departure.borrow() != Departure::None;
        let starts: BTreeSet<_> = match leaves || attaches {
            true => BTreeSet::new(),
            false => self.starts(&definitions, occasion, &announced),
        };
        let agents = definitions.iter().map(|(key, definition)| AgentDefinition {
            autostart: starts.contains(key),
            ..definition.public.clone()
        });
        let register = Register {
            name: self.config.name.to_string(),
            group: self.config.group.to_string(),
            // Whoever ends takes no run, though the fleet does not know yet that it does.
            slots: if leaves { 0 } else { self.config.slots },
            labels: self.labels(),
            engines: engines.into_iter().map(str::to_owned).collect(),
            swarms: self.config.swarms.iter().map(ToString::to_string).collect(),
            agents: agents.collect(),
            held: held.into_iter().map(held_instance).collect(),
            incarnation: self.incarnation,
            identity: self.identity.clone(),
            attaches,
            removed: removed
                .iter()
                .map(|(swarm, name)| AgentName { swarm: swarm.clone(), name: name.clone() })
                .collect(),
        };
        let kept = announced.difference(&removed).cloned();
        let agents = kept.chain(definitions.into_keys()).collect();
        let sent = Instant::now();
        Ok((register, Announcement { sent, attaches, held: tokens, ended, agents, removed, starts }))
    }

    /// What it was given, and what keeps its agents apart, so that people see it and agents can ask for it.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.config.labels.clone();
        labels.entry(ISOLATION.to_owned()).or_insert_with(|| self.isolation.name().to_owned());
        labels
    }

    /// The agents to be started. Those that are known have been, and may have ended since, but for those that could not
    /// be taken in when that was asked for.
    fn starts(
        &self,
        definitions: &Definitions,
        occasion: Occasion,
        announced: &BTreeSet<Agent>,
    ) -> BTreeSet<Agent> {
        let (starts, now) = (self.starts.lock().unwrap_or_else(PoisonError::into_inner), Instant::now());
        let is_new = |agent: &Agent| {
            occasion != Occasion::Changed || !announced.contains(agent) || starts.is_late(agent)
        };
        let all = definitions.iter().filter(|(_, definition)| definition.public.autostart);
        let due = |agent: &&Agent| is_new(agent) && starts.may_be_asked_for(agent, now);
        all.map(|(agent, _)| agent).filter(due).cloned().collect()
    }

    /// The coordinators have taken an announcement in, but for what they have problems with.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub(super) async fn note_taken(
        &self,
        announcement: Announcement,
        problems: &[AgentProblem],
    ) -> Result<(), Error> {
        let Announcement { mut agents, removed, starts, .. } = announcement;
        let passing = problems.iter().filter(|problem| problem.again);
        let late = passing.filter_map(|problem| problem.agent.clone());
        let late: BTreeSet<Agent> = late.map(|agent| (agent.swarm, agent.name)).collect();
        // They have it still: that it is gone is said again, if need be by the runner's next process.
        agents.extend(removed.intersection(&late).cloned());
        let now = Instant::now();
        self.starts.lock().unwrap_or_else(PoisonError::into_inner).note(starts, &late, &agents, now);
        self.instances.ledger().announce(agents).await
    }

    /// Whether an agent that the coordinators have from this runner is no agent of it any more. One whose definition
    /// has a mistake still is: a slip of the pen ends no runs.
    fn is_removed(&self, definitions: &Definitions, agent: &Agent) -> bool {
        let (_, name) = agent;
        if definitions.contains_key(agent) {
            return false;
        }
        let elsewhere = definitions.keys().any(|(_, other)| other == name);
        elsewhere || !is_agent(&self.config.agents.join(name))
    }
}

fn held_instance(row: Row) -> HeldInstance {
    let state = match row.state {
        State::Accepted | State::Starting | State::Running => "running",
        // Silence is the runner's own affair: to the coordinators the instance is as it was.
        State::Silenced => "running",
        // How it sleeps as well.
        State::Frozen | State::Spilled => "frozen",
        State::Ended | State::Forgotten => "ended",
    };
    HeldInstance {
        instance: row.instance,
        swarm: row.swarm,
        agent: row.agent,
        state: state.to_owned(),
        token: row.token.to_string(),
        exit_code: row.exit.and_then(|exit| exit.code),
        reason: row.reason,
    }
}
