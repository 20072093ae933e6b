//! One instance as the ledger has it, and what is reported of it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_shared::agent::Usage;
use skein_shared::fence::{Epoch, Token};

use crate::container::{Exit, Handle, User};
use crate::endpoint::tunnel::Place;
use crate::harness::{Ending, Harness};
use crate::instance::stage::Stage;

/// One instance. It holds secrets and so has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
pub struct Row {
    pub instance: String,
    pub swarm: String,
    pub agent: String,
    /// The highest token of a command taken for it.
    pub token: Token,
    /// That of the command that started it, this time.
    #[serde(default = "before_all")]
    pub began: Token,
    pub state: State,
    pub handle: Option<Handle>,
    pub user: Option<User>,
    /// The endpoint's address, kept so that the instance finds it again after the runner's restart.
    #[serde(default = "loopback")]
    pub address: IpAddr,
    pub port: u16,
    /// What the instance shows at its endpoint.
    pub secret: String,
    /// What the endpoint shows to the coordinators.
    pub access_token: String,
    /// How the agent ended.
    pub exit: Option<Exit>,
    pub reason: String,
    /// Who reads what it prints.
    #[serde(default)]
    pub harness: Harness,
    /// How long it waits for the answer to a call, if that is known.
    #[serde(default)]
    pub patience: Option<Duration>,
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Whose process `handle` is.
    #[serde(default)]
    pub stage: Stage,
    /// What the run was given, as long as the agent has not started; what woke it, until it was started again.
    #[serde(default)]
    pub input: String,
    /// What it may reach through its endpoint.
    #[serde(default)]
    pub egress: Vec<Place>,
    /// The conversation that a spilled instance goes on with.
    #[serde(default)]
    pub session: Option<String>,
}

impl Row {
    pub fn new(instance: String, swarm: String, agent: String, token: Token, access_token: &str) -> Self {
        Self {
            instance,
            swarm,
            agent,
            token,
            began: token,
            state: State::Accepted,
            handle: None,
            user: None,
            address: loopback(),
            port: 0,
            secret: String::new(),
            access_token: access_token.to_owned(),
            exit: None,
            reason: String::new(),
            harness: Harness::default(),
            patience: None,
            usage: None,
            stage: Stage::default(),
            input: String::new(),
            egress: Vec::new(),
            session: None,
        }
    }

    /// Where the instance finds its endpoint.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", SocketAddr::new(self.address, self.port))
    }

    /// Takes down how it ended. A reason that is given goes before what its program said.
    pub fn ended(&mut self, ending: Ending, reason: String) {
        self.state = State::Ended;
        self.exit = Some(ending.exit);
        self.reason = if reason.is_empty() { ending.reason } else { reason };
        self.usage = ending.usage;
    }

    /// How it ended, as it is reported.
    pub fn end(&self) -> What {
        let reason = self.reason.clone();
        match self.exit {
            Some(exit) => What::Exited { exit, reason, usage: self.usage },
            None => What::StartFailed { reason, usage: self.usage },
        }
    }
}

/// Rows of former programs do not say it.
fn before_all() -> Token {
    Token { epoch: Epoch(0), number: 0 }
}

fn loopback() -> IpAddr {
    IpAddr::V4(Ipv4Addr::LOCALHOST)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Nothing was started of it yet, not even in part.
    Accepted,
    Starting,
    Running,
    /// By command.
    Frozen,
    /// Its processes have ended after a long sleep, or are about to, and its files are kept.
    Spilled,
    /// By the runner itself, for want of a lease.
    Silenced,
    Ended,
    Forgotten,
}

impl State {
    pub fn is_live(self) -> bool {
        !matches!(self, Self::Ended | Self::Forgotten)
    }
}

/// Something that the coordinators have to be told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    pub instance: String,
    pub swarm: String,
    pub agent: String,
    pub token: Token,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    Started {
        pid: u32,
    },
    Frozen,
    Thawed,
    Spilled,
    Restored {
        pid: u32,
    },
    Exited {
        exit: Exit,
        reason: String,
        #[serde(default)]
        usage: Option<Usage>,
    },
    StartFailed {
        reason: String,
        #[serde(default)]
        usage: Option<Usage>,
    },
}
