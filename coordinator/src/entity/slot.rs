//! An entity in memory, as the directory knows it.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use ractor::{ActorId, ActorRef};
use skein_shared::Refusal;
use skein_shared::entity::Entity;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::admission::{Admission, Permit};
use super::host::{Message, Started};
use super::passivation::Vitals;
use crate::store::Fence;

/// A host that has no room looks this often whether callers have gone: as often as those who are turned away come back.
const SIFTED: Duration = Duration::from_millis(250);

/// Its host takes the slot out before it dies, so that nobody is sent to the dying.
pub(super) struct Slot {
    pub(super) id: ActorId,
    /// An `ActorRef<Message<E>>` of the kind's entity.
    actor: Box<dyn Any + Send>,
    pub(super) admission: Admission,
    /// When it was last told that there is no room.
    sifted: Instant,
    pub(super) vitals: Arc<Vitals>,
    /// Under which it writes. When the store has another one, it is out of date.
    pub(super) fence: Fence,
    /// Cancelled once it is gone.
    pub(super) gone: CancellationToken,
    /// When the last command came.
    pub(super) used: Instant,
    dismiss: Box<dyn Fn(Farewell) + Send>,
}

/// Why a host is sent away.
pub(super) enum Farewell {
    /// It is idle and has nothing in work.
    Idle,
    /// Its entity is another node's now.
    Moved,
}

impl Slot {
    pub(super) fn of<E: Entity>(Started { actor, vitals, fence, gone }: Started<E>) -> Self {
        let (dismissed, now) = (actor.clone(), Instant::now());
        Self {
            id: actor.get_id(),
            actor: Box::new(actor),
            admission: Admission::default(),
            sifted: now,
            vitals,
            fence,
            gone,
            used: now,
            dismiss: Box::new(move |why| {
                let _ = dismissed.cast(match why {
                    Farewell::Idle => Message::Passivate,
                    Farewell::Moved => Message::Leave,
                });
            }),
        }
    }

    /// Takes a permit for what comes now. The host is told when there is none: while the store stands still it hears of
    /// nothing else, and those who have gone would keep others out.
    pub(super) fn enter<E: Entity>(&mut self) -> Result<Permit, Refusal> {
        let (entered, now) = (self.admission.enter(), Instant::now());
        if entered.is_ok() {
            self.used = now;
        } else if now - self.sifted >= SIFTED
            && let Some(actor) = self.actor::<E>()
        {
            let _ = actor.cast(Message::Sift);
            self.sifted = now;
        }
        entered
    }

    pub(super) fn actor<E: Entity>(&self) -> Option<&ActorRef<Message<E>>> {
        self.actor.downcast_ref()
    }

    /// Sends the host away.
    pub(super) fn dismiss(&self, why: Farewell) {
        (self.dismiss)(why);
    }
}
