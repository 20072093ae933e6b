//! Clients that work on one swarm through many nodes, and take down what they ask and are told.

pub mod client;
pub mod evidence;
mod patient;
mod resource;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use tokio::time::Instant;

use crate::history::{Operation, Recorder, claims, inbox, locks};
use resource::Resource;

/// Tasks that one client may have at a time.
pub const CAPACITY: usize = 3;
/// Rooms for messages: a list of one shows a thousand.
pub const ROOMS: usize = 8;
/// Recent tasks that clients know of each other, to want the same.
const KNOWN: usize = 40;

/// What all clients share.
pub struct Field {
    /// Where the nodes are now.
    pub nodes: watch::Receiver<Vec<String>>,
    pub claims: Recorder<claims::Call, claims::Answer>,
    pub locks: Recorder<locks::Call, locks::Answer>,
    pub inbox: Recorder<inbox::Call, inbox::Answer>,
    resource: Mutex<Resource>,
    known: Mutex<VecDeque<String>>,
}

impl Field {
    pub fn new(nodes: watch::Receiver<Vec<String>>) -> Arc<Self> {
        let began = Instant::now();
        Arc::new(Self {
            nodes,
            claims: Recorder::new(began),
            locks: Recorder::new(began),
            inbox: Recorder::new(began),
            resource: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// What the guarded resource has taken in.
    pub fn writes(&self) -> Vec<locks::Write> {
        self.resource.lock().unwrap_or_else(PoisonError::into_inner).log().to_vec()
    }

    /// How many operations were certainly carried out.
    pub fn answered(&self) -> usize {
        count(&self.claims.history()) + count(&self.locks.history()) + count(&self.inbox.history())
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

fn count<C, A>(history: &[Operation<C, A>]) -> usize {
    history.iter().filter(|operation| operation.answer().is_some()).count()
}
