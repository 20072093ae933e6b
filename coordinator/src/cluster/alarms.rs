//! Which of the others this node does not reach, since when and why: for those who look after the cluster.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use super::member::Member;
use super::peers::Silence;

/// How long a node may be silent before the log says so: one that begins or ends is, for a moment.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something is wrong with the connection to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    /// Whose it is: the node's id and address.
    pub node: String,
    pub address: String,
    /// What is wrong and what to do.
    pub problem: String,
    /// For how long.
    pub since: Duration,
}

/// By incarnation, as the connections are.
#[derive(Default)]
pub(super) struct Alarms(Mutex<HashMap<Uuid, Trouble>>);

struct Trouble {
    member: Member,
    silence: Silence,
    since: Instant,
    /// What the log has of it.
    told: Option<String>,
}

impl Alarms {
    /// A node was not reached. One that is not trusted stays so until somebody does something: the log says it at once.
    pub(super) fn raise(&self, member: &Member, silence: Silence) {
        let mut troubles = self.lock();
        let now = Instant::now();
        let trouble = troubles.entry(member.incarnation).or_insert_with(|| Trouble {
            member: member.clone(),
            silence: silence.clone(),
            since: now,
            told: None,
        });
        trouble.silence = silence;
        let due = trouble.silence.distrusts() || now >= trouble.since + PATIENCE;
        let problem = trouble.silence.to_string();
        if due && trouble.told.as_ref() != Some(&problem) {
            warn!(node = member.id, problem, "another coordinator cannot be reached");
            trouble.told = Some(problem);
        }
    }

    /// A node was reached.
    pub(super) fn clear(&self, member: &Member) {
        if let Some(trouble) = self.lock().remove(&member.incarnation)
            && trouble.told.is_some()
        {
            info!(node = member.id, address = member.address, "the other coordinator is reached again");
        }
    }

    /// Forgets those who are gone.
    pub(super) fn keep_only(&self, members: &[Member]) {
        self.lock().retain(|incarnation, _| members.iter().any(|member| member.incarnation == *incarnation));
    }

    pub(super) fn all(&self) -> Vec<Alarm> {
        let now = Instant::now();
        let alarm = |trouble: &Trouble| Alarm {
            node: trouble.member.id.clone(),
            address: trouble.member.address.clone(),
            problem: trouble.silence.to_string(),
            since: now - trouble.since,
        };
        let mut all: Vec<Alarm> = self.lock().values().map(alarm).collect();
        all.sort_by(|a, b| a.node.cmp(&b.node));
        all
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Trouble>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
