//! What the runner says of itself and its agents, and what the coordinators know of that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::PoisonError;

use skein_proto::v1::{AgentDefinition, AgentName, HeldInstance, Register};
use skein_shared::fence::Token;
use tokio::time::Instant;

use super::Runner;
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
    /// The agents, as (swarm, name), that the coordinators have from this runner once it is welcomed.
    agents: BTreeSet<(String, String)>,
}

impl Runner {
    /// The occasion on which a stream says that the agents or engines have changed: one of the streams registers, for all.
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
        // Those that are known have been started, and may have ended since.
        let starts = |key: &(String, String)| occasion != Occasion::Changed || !announced.contains(key);
        let agents = definitions.iter().map(|(key, definition)| AgentDefinition {
            autostart: definition.public.autostart && starts(key),
            ..definition.public.clone()
        });
        let register = Register {
            name: self.config.name.to_string(),
            group: self.config.group.to_string(),
            slots: self.config.slots,
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
        Ok((register, Announcement { sent: Instant::now(), attaches, held: tokens, ended, agents }))
    }

    /// What it was given, and what keeps its agents apart, so that people see it and agents can ask for it.
    fn labels(&self) -> BTreeMap<String, String> {
        let mut labels = self.config.labels.clone();
        labels.entry(ISOLATION.to_owned()).or_insert_with(|| self.isolation.name().to_owned());
        labels
    }

    /// The coordinators have taken an announcement in.
    ///
    /// # Errors
    /// When the ledger cannot be written.
    pub(super) async fn note_taken(&self, announcement: Announcement) -> Result<(), Error> {
        self.instances.ledger().announce(announcement.agents).await
    }

    /// Whether an agent that the coordinators have from this runner is no agent of it any more. One whose definition has
    /// a mistake still is: a slip of the pen ends no runs.
    fn is_removed(&self, definitions: &Definitions, agent: &(String, String)) -> bool {
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
