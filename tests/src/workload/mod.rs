//! Clients that work on one swarm through many nodes, and take down what they ask and are told.

pub mod agents;
pub mod client;
pub mod evidence;
mod patient;
mod resource;
pub mod swarm;
pub mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_shared::time::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::history::events::Sent;
use crate::history::{Moment, Operation, Recorder, claims, inbox, locks};
use crate::stored::wall;
use resource::Resource;

/// Tasks that one client may have at a time.
pub const CAPACITY: usize = 3;
/// Rooms for messages: a list of one shows a thousand.
pub const ROOMS: usize = 8;
/// How often to look for what no event tells.
const LOOK: Duration = Duration::from_millis(20);
/// Recent tasks that clients know of each other, to want the same.
const KNOWN: usize = 40;

/// Where those who are asked are at the moment.
#[derive(Clone, Debug, Default)]
pub struct Map {
    /// The coordinators, for MCP.
    pub nodes: Vec<String>,
    /// Where events from outside come in.
    pub ingress: String,
}

/// What all clients share.
pub struct Field {
    pub map: watch::Receiver<Map>,
    /// How long one node may take to answer before the next is asked.
    patience: Duration,
    pub claims: Recorder<claims::Call, claims::Answer>,
    pub locks: Recorder<locks::Call, locks::Answer>,
    pub inbox: Recorder<inbox::Call, inbox::Answer>,
    /// The clock on the wall when the recording began.
    began: Timestamp,
    sent: Mutex<Vec<Sent>>,
    resource: Mutex<Resource>,
    known: Mutex<VecDeque<String>>,
    /// Each try of each client, in words: a history says what came of all tries of an operation together.
    tries: Mutex<Vec<String>>,
}

impl Field {
    pub fn new(map: watch::Receiver<Map>, patience: Duration) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self {
            map,
            patience,
            claims: Recorder::new(began),
            locks: Recorder::new(began),
            inbox: Recorder::new(began),
            began: wall(),
            sent: Mutex::default(),
            resource: Mutex::default(),
            known: Mutex::default(),
            tries: Mutex::default(),
        })
    }

    /// What the guarded resource has taken in.
    pub fn writes(&self) -> Vec<locks::Write> {
        self.resource.lock().unwrap_or_else(PoisonError::into_inner).log().to_vec()
    }

    /// Waits until clients were told of so many operations on tasks.
    pub async fn told(&self, least: usize) {
        while self.count_told() < least {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The operations on tasks of which clients were told.
    pub fn count_told(&self) -> usize {
        self.claims.history().iter().filter(|operation| operation.answer().is_some()).count()
    }

    /// When it was so late by the clock on the wall, in seconds since 1970.
    pub fn moment(&self, time: f64) -> Moment {
        Duration::from_secs_f64(time).saturating_sub(Duration::from_millis(self.began.0))
    }

    /// The events that were sent to the ingress.
    pub fn sent(&self) -> Vec<Sent> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until so many more events are taken in.
    pub async fn takes_in(&self, more: usize) {
        let taken_in = || self.sent().iter().filter(|sent| sent.accepted).count();
        let least = taken_in() + more;
        while taken_in() < least {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The tries of all clients, as they ended.
    pub fn tries(&self) -> String {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    fn note_try(&self, words: String) {
        self.tries.lock().unwrap_or_else(PoisonError::into_inner).push(words);
    }

    fn note(&self, sent: Sent) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).push(sent);
    }

    /// How often the kind of operation was answered that was answered least.
    fn least_done(&self) -> usize {
        fn answered<C, A>(history: &[Operation<C, A>], of: impl Fn(&C) -> bool) -> usize {
            history.iter().filter(|operation| operation.answer().is_some() && of(&operation.call)).count()
        }
        let (claims, locks) = (self.claims.history(), self.locks.history());
        let counts = [
            answered(&claims, |call| matches!(call, claims::Call::Create { .. })),
            answered(&claims, |call| matches!(call, claims::Call::Claim { .. })),
            answered(&claims, |call| matches!(call, claims::Call::Complete { .. })),
            answered(&claims, |call| matches!(call, claims::Call::Order { .. })),
            answered(&claims, |call| matches!(call, claims::Call::Read { .. })),
            answered(&locks, |call| matches!(call, locks::Call::Acquire { .. })),
            answered(&self.inbox.history(), |call| matches!(call, inbox::Call::Post { .. })),
        ];
        counts.into_iter().min().unwrap_or_default()
    }

    fn publish(&self, task: &str) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.push_back(task.to_owned());
        if known.len() > KNOWN {
            known.pop_front();
        }
    }

    fn any_known(&self, random: &mut fastrand::Rng) -> Option<String> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (!known.is_empty()).then(|| known[random.usize(..known.len())].clone())
    }
}

/// The name of a room.
pub fn room(number: usize) -> String {
    format!("room-{number}")
}
