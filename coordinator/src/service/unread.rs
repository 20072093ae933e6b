//! Events on their way to those who waited for them. An answer may be lost in the instant in which its client gives the
//! call up; then the agent takes the event back, and who asks again has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_shared::agent::{Agent, Command};
use skein_shared::triggers::Envelope;
use uuid::Uuid;

use super::Service;
use crate::auth::Principal;

/// Between two tries to tell an agent that an answer of its was lost.
const PAUSES: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// An event that goes with an answer. Dropped before the answer was read, it is given back.
#[derive(Debug)]
pub struct Unread(Option<Box<Lost>>);

/// How the answer to a call reaches its client. Who serves the client says whether the answer was read; what it carries
/// is given back if not, and also if nobody says anything.
#[derive(Clone, Debug, Default)]
pub struct Delivery(Arc<Mutex<Carried>>);

#[derive(Debug, Default)]
struct Carried {
    unread: Vec<Unread>,
    lost: bool,
}

/// An answer that reached nobody.
#[derive(Clone)]
pub(super) struct Lost {
    pub(super) service: Service,
    pub(super) who: Principal,
    /// The question that it was for.
    pub(super) asked: Uuid,
    pub(super) event: Option<Arc<Envelope>>,
}

impl Unread {
    pub(super) fn new(answer: Lost) -> Self {
        Self(Some(Box::new(answer)))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        let (Some(lost), Ok(runtime)) = (self.0.take(), tokio::runtime::Handle::try_current()) else {
            return;
        };
        runtime.spawn(lost.give_back());
    }
}

impl Delivery {
    /// Something that goes with the answer. It goes back if the client is known to be gone.
    pub fn carries(&self, unread: Unread) {
        let mut carried = self.carried();
        if !carried.lost {
            carried.unread.push(unread);
        }
    }

    pub fn carries_something(&self) -> bool {
        !self.carried().unread.is_empty()
    }

    /// The answer was read.
    pub fn read(&self) {
        self.carried().unread.drain(..).for_each(|mut read| read.0 = None);
    }

    /// The answer reaches nobody.
    pub fn lost(&self) {
        let mut carried = self.carried();
        carried.lost = true;
        carried.unread.clear();
    }

    fn carried(&self) -> MutexGuard<'_, Carried> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lost {
    /// Tells the agent, which takes that once, however often it is told.
    pub(super) async fn give_back(self) {
        let Self { service, who, asked, event } = self;
        let (instance, event) = (who.instance.clone(), event.map(|event| Envelope::clone(&event)));
        let command = Command::AnswerLost { instance, asked, event };
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            match service.ask::<Agent>(&who.own_agent(), command.clone()).await {
                Err(refusal) if refusal.code.is_passing() => {}
                _ => return,
            }
        }
        tracing::warn!(instance = %who.instance, "an event that reached nobody could not be given back");
    }
}

impl std::fmt::Debug for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lost").field("instance", &self.who.instance).field("asked", &self.asked).finish()
    }
}
