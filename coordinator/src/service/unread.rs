//! What goes with an answer and is given once: an event to whoever waited for it, and what is said to whoever works on
//! a task. An answer may be lost in the instant in which its client gives the call up; then whoever it came from takes
//! it back, and who asks again has it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_shared::Refusal;
use skein_shared::agent::{self, Agent};
use skein_shared::id::Kind;
use skein_shared::pool::{self, Pool, Untold};
use skein_shared::triggers::Envelope;
use uuid::Uuid;

use super::Service;
use crate::auth::Principal;

/// Between two tries to say that an answer was lost.
const PAUSES: [Duration; 7] = [
    Duration::ZERO,
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// Something that goes with an answer. Dropped before the answer was read, it is given back.
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
    pub(super) what: Carries,
}

/// What an answer carries.
#[derive(Clone, Debug)]
pub(super) enum Carries {
    /// The outcome of a wait, for the question of this id; with the event if that is known.
    Outcome { asked: Uuid, event: Option<Arc<Envelope>> },
    /// What was said about a task.
    Steering(Untold),
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
    /// Says so to whoever it came from, who takes it back once, however often it is said.
    pub(super) async fn give_back(self) {
        let request = Uuid::now_v7();
        for pause in PAUSES {
            tokio::time::sleep(pause).await;
            match self.say(request).await {
                Err(refusal) if refusal.code.is_passing() => {}
                _ => return,
            }
        }
        tracing::warn!(instance = %self.who.instance, what = %self.what, "what reached nobody could not be given back");
    }

    async fn say(&self, request: Uuid) -> Result<(), Refusal> {
        let (service, who) = (&self.service, &self.who);
        match &self.what {
            Carries::Outcome { asked, event } => {
                let event = event.as_deref().cloned();
                let lost =
                    agent::Command::AnswerLost { instance: who.instance.clone(), asked: *asked, event };
                service.ask::<Agent>(&who.own_agent(), lost).await.map(drop)
            }
            Carries::Steering(message) => {
                let lost = pool::Command::SteeringLost { messages: vec![*message] };
                let service = service.clone().keeping_answers(true);
                service.change::<Pool>(&who.entity(Kind::Pool), request, lost).await.map(drop)
            }
        }
    }
}

impl std::fmt::Display for Carries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Outcome { .. } => "an event",
            Self::Steering(_) => "a message about a task",
        })
    }
}

impl std::fmt::Debug for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lost").field("instance", &self.who.instance).field("what", &self.what).finish()
    }
}
