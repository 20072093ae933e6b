//! Brings entities back after they died: each time after a longer pause, so that one which cannot live costs
//! little and takes nothing from the others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_shared::id::EntityKey;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;

/// The pause after the first death; it doubles with each further one.
const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(5);
/// After this long without a death an entity counts as sound.
const QUIET: Duration = Duration::from_secs(60);
/// Up to so many deaths in a row callers are held until the entity is back (1.55 s in all); after that they
/// are told when to come again.
const PATIENCE: u32 = 5;

/// What outlives an entity's stay in memory.
#[derive(Debug, Default)]
pub(super) struct Ward {
    /// Held while the entity is loaded: however many ask for it, one loads it.
    pub(super) door: tokio::sync::Mutex<()>,
    record: Mutex<Record>,
}

#[derive(Debug, Default)]
struct Record {
    deaths: u32,
    last: Option<Instant>,
    serving_since: Option<Timestamp>,
}

impl Record {
    /// How long the entity has to stay away still.
    fn left(&self) -> Duration {
        let Some(last) = self.last else { return Duration::ZERO };
        let pause = FIRST.saturating_mul(1 << self.deaths.saturating_sub(1).min(16)).min(LONGEST);
        pause.saturating_sub(last.elapsed())
    }

    fn is_quiet(&self) -> bool {
        self.last.is_none_or(|last| last.elapsed() >= QUIET)
    }
}

impl Ward {
    /// Notes that the entity died, or could not be loaded.
    pub(super) fn died(&self) {
        let mut record = self.lock();
        if record.is_quiet() {
            record.deaths = 0;
        }
        record.deaths += 1;
        record.last = Some(Instant::now());
        metrics::counter!("skein_entity_deaths_total").increment(1);
    }

    /// Returns once the entity may be loaded.
    ///
    /// # Errors
    /// `unavailable`, with the time that is left, when it keeps dying.
    pub(super) async fn ready(&self, key: &EntityKey) -> Result<(), Refusal> {
        let (deaths, left) = {
            let record = self.lock();
            (record.deaths, record.left())
        };
        if deaths > PATIENCE && !left.is_zero() {
            let problem =
                format!("{key} fails again and again and is left alone for a moment; try again later");
            let left = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
            return Err(Refusal::new(Code::Unavailable, problem).retry_after(left));
        }
        tokio::time::sleep(left).await;
        Ok(())
    }

    pub(super) fn has_died_lately(&self) -> bool {
        !self.lock().is_quiet()
    }

    /// The entity has lost nothing that a grace period stands in for, and comes back as if it had never been
    /// away. Otherwise each return would begin its grace periods anew.
    pub(super) fn resumes(&self, serving_since: Timestamp) {
        self.lock().serving_since = Some(serving_since);
    }

    /// Since when the entity counts as served, if it is loaded `now`.
    pub(super) fn back(&self, now: Timestamp) -> Timestamp {
        self.lock().serving_since.take().unwrap_or(now)
    }

    /// Remembers nothing any more.
    fn forget(&self) {
        *self.lock() = Record::default();
    }

    fn is_needed(&self) -> bool {
        let record = self.lock();
        record.serving_since.is_some() || !record.is_quiet()
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The wards of this node.
#[derive(Debug, Default)]
pub(super) struct Wards(Mutex<HashMap<EntityKey, Arc<Ward>>>);

impl Wards {
    pub(super) fn of(&self, key: &EntityKey) -> Arc<Ward> {
        let mut wards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(wards.entry(key.clone()).or_default())
    }

    /// Forgets all, of entities that other nodes may have served meanwhile. A ward that somebody holds stays, for its
    /// door is what keeps two who ask from loading one entity.
    pub(super) fn forget(&self, of: impl Fn(&EntityKey) -> bool) {
        let mut wards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wards.retain(|key, ward| {
            if !of(key) {
                return true;
            }
            ward.forget();
            Arc::strong_count(ward) > 1
        });
    }

    /// Forgets the wards that nobody holds and that remember nothing.
    pub(super) fn forget_idle(&self) {
        let mut wards = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        wards.retain(|_, ward| Arc::strong_count(ward) > 1 || ward.is_needed());
    }
}
