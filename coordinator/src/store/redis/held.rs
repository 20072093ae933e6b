//! The shards that this process holds, each with the fence of its lease and the moment from which on it must no longer
//! rely on it.

use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use skein_shared::limits::RUNNER_LEASE;
use tokio::sync::watch;
use tokio::time::Instant;

use super::shard::{SHARDS, Shard};
use crate::sleep::Sleep;
use crate::store::Fence;

/// The longest sleep that an entity in memory may see as a leap of its time: a part of the time for which the sign of
/// life holds that comes most often.
const LEAP: Duration = Duration::from_secs(RUNNER_LEASE.as_secs() / 3);

/// What is held. The keeper of the leases changes it; whoever decides for an entity asks it.
pub struct Held {
    slots: RwLock<Slots>,
    /// Counts what was taken, closed and lost.
    changes: watch::Sender<u64>,
    /// Leases end meanwhile.
    sleep: Sleep,
    /// How much of the sleep was looked at when it was last asked what has lapsed.
    slept: Mutex<Duration>,
}

/// The same, by a clock that is told.
#[derive(Clone, Debug)]
pub struct Slots(Vec<Option<Slot>>);

#[derive(Clone, Copy, Debug)]
struct Slot {
    fence: Fence,
    /// By [`Held::now`]; none for a holder that ends with its leases.
    until: Option<Instant>,
    /// Work in flight may finish under the fence, and nothing new begins.
    closed: bool,
}

impl Slot {
    fn is_open(&self, now: Instant) -> bool {
        !self.closed && self.until.is_none_or(|until| now < until)
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self(vec![None; usize::from(SHARDS)])
    }
}

impl Slots {
    /// The fence under which this process may write now; [`Fence::NONE`] for a shard that it may not decide for.
    pub fn fence(&self, shard: Shard, now: Instant) -> Fence {
        let slot = self.0.get(usize::from(shard.number())).copied().flatten();
        slot.filter(|slot| slot.is_open(now)).map_or(Fence::NONE, |slot| slot.fence)
    }

    /// Whether a shard is held under this fence, also if nothing new may begin in it.
    pub fn has(&self, shard: Shard, fence: Fence) -> bool {
        let slot = self.0.get(usize::from(shard.number())).copied().flatten();
        slot.is_some_and(|slot| slot.fence == fence)
    }

    /// Takes note of a lease.
    pub fn take(&mut self, shard: Shard, fence: Fence, until: Option<Instant>) {
        self.put(shard, Some(Slot { fence, until, closed: false }));
    }

    /// Takes note that a lease was renewed, unless that comes too late: whoever asked meanwhile was told that the shard
    /// is not held, and has given up entities of which batches may still be under way. Were they loaded again under the
    /// same fence, these would be taken for their own.
    pub fn extend(&mut self, shard: Shard, fence: Fence, until: Instant, now: Instant) {
        if let Some(Some(slot)) = self.0.get_mut(usize::from(shard.number()))
            && slot.fence == fence
            && slot.until.is_none_or(|until| now < until)
        {
            slot.until = Some(until);
        }
    }

    /// Lets nothing new begin in these shards.
    pub fn close(&mut self, shards: &[Shard]) {
        for shard in shards {
            if let Some(Some(slot)) = self.0.get_mut(usize::from(shard.number())) {
                slot.closed = true;
            }
        }
    }

    /// Forgets these shards, which are somebody else's or nobody's.
    pub fn lose(&mut self, shards: &[Shard]) {
        for shard in shards {
            self.put(*shard, None);
        }
    }

    /// Forgets those whose time is over, and says which.
    pub fn lapse(&mut self, now: Instant) -> Vec<Shard> {
        let is_over =
            |slot: &Option<Slot>| slot.and_then(|slot| slot.until).is_some_and(|until| until <= now);
        let lapsed: Vec<Shard> =
            Shard::all().zip(&self.0).filter(|(_, slot)| is_over(slot)).map(|(shard, _)| shard).collect();
        self.lose(&lapsed);
        lapsed
    }

    /// Everything held, closed or not, with its fence.
    pub fn all(&self) -> Vec<(Shard, Fence)> {
        let slots = Shard::all().zip(&self.0);
        slots.filter_map(|(shard, slot)| Some((shard, slot.as_ref()?.fence))).collect()
    }

    fn put(&mut self, shard: Shard, slot: Option<Slot>) {
        if let Some(place) = self.0.get_mut(usize::from(shard.number())) {
            *place = slot;
        }
    }
}

impl Default for Held {
    fn default() -> Self {
        Self::on(Sleep::of_this_machine())
    }
}

impl Held {
    /// On a machine that sleeps so.
    fn on(sleep: Sleep) -> Self {
        Self { slots: RwLock::default(), changes: watch::Sender::new(0), sleep, slept: Mutex::default() }
    }

    /// The time by which leases are relied on: the monotonic one, with the sleep of the machine, which that leaves out.
    /// It may go back by less than a millisecond.
    pub fn now(&self) -> Instant {
        Instant::now() + self.sleep.total()
    }

    /// Like [`Slots::fence`]. This looks at the clock itself, so a process that was frozen past its lease, or whose
    /// machine has slept past it, knows before anybody told it.
    pub fn fence(&self, shard: Shard) -> Fence {
        self.read().fence(shard, self.now())
    }

    /// Like [`Slots::has`].
    pub fn has(&self, shard: Shard, fence: Fence) -> bool {
        self.read().has(shard, fence)
    }

    /// Like [`Slots::take`].
    pub fn take(&self, shard: Shard, fence: Fence, until: Option<Instant>) {
        self.write().take(shard, fence, until);
        self.tell();
    }

    /// Like [`Slots::extend`].
    pub fn extend(&self, shard: Shard, fence: Fence, until: Instant) {
        self.write().extend(shard, fence, until, self.now());
    }

    /// Like [`Slots::close`].
    pub fn close(&self, shards: &[Shard]) {
        self.write().close(shards);
        self.tell();
    }

    /// Like [`Slots::lose`].
    pub fn lose(&self, shards: &[Shard]) {
        self.write().lose(shards);
        self.tell();
    }

    /// Like [`Slots::lapse`]; and all that are held, where the machine has slept for longer since the last time than an
    /// entity in memory may see its time leap, though its lease is longer still.
    pub fn lapse(&self) -> Vec<Shard> {
        let slept = self.sleep.total();
        let before =
            std::mem::replace(&mut *self.slept.lock().unwrap_or_else(PoisonError::into_inner), slept);
        let lapsed = if slept.saturating_sub(before) > LEAP {
            let all: Vec<Shard> = self.all().into_iter().map(|(shard, _)| shard).collect();
            self.write().lose(&all);
            all
        } else {
            self.write().lapse(self.now())
        };
        if !lapsed.is_empty() {
            self.tell();
        }
        lapsed
    }

    /// Like [`Slots::all`].
    pub fn all(&self) -> Vec<(Shard, Fence)> {
        self.read().all()
    }

    /// Changes whenever a shard was taken, closed or lost.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn tell(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    fn read(&self) -> RwLockReadGuard<'_, Slots> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Slots> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use skein_shared::fence::Epoch;

    use super::*;
    use crate::sleep::tests::told;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_relied_on_until_its_end_by_the_monotonic_clock() {
        let (held, shard) = (Held::default(), Shard::all().next().unwrap());
        let fence = Fence { epoch: Epoch(5), nonce: 7 };
        assert_eq!(held.fence(shard), Fence::NONE);
        held.take(shard, fence, Some(Instant::now() + Duration::from_secs(8)));
        assert_eq!(held.fence(shard), fence);
        tokio::time::advance(Duration::from_secs(7)).await;
        held.extend(shard, fence, Instant::now() + Duration::from_secs(8));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!((held.fence(shard), held.lapse().len()), (fence, 0));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(held.fence(shard), Fence::NONE);
        // A renewal that comes late brings back nothing that was given up, looked after or not.
        held.extend(shard, fence, Instant::now() + Duration::from_secs(8));
        assert_eq!((held.fence(shard), held.lapse()), (Fence::NONE, vec![shard]));
        held.extend(shard, fence, Instant::now() + Duration::from_secs(8));
        assert_eq!((held.fence(shard), held.all().len()), (Fence::NONE, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_while_its_machine_sleeps() {
        let (sleep, slept) = told();
        let (held, shard) = (Held::on(sleep), Shard::all().next().unwrap());
        let fence = Fence { epoch: Epoch(5), nonce: 7 };
        let asked = held.now();
        held.take(shard, fence, Some(asked + Duration::from_secs(8)));
        slept.store(7, Ordering::Relaxed);
        assert_eq!((held.fence(shard), held.lapse().len()), (fence, 0));
        // It counts from when it was asked for, and so does not end by what was slept before that.
        held.extend(shard, fence, held.now() + Duration::from_secs(8));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(held.fence(shard), fence);
        slept.store(3600, Ordering::Relaxed);
        assert_eq!(held.fence(shard), Fence::NONE);
        // What was asked for before the sleep, and is heard of after it, is worth nothing.
        held.extend(shard, fence, asked + Duration::from_secs(15));
        assert_eq!((held.fence(shard), held.lapse()), (Fence::NONE, vec![shard]));
        held.take(shard, fence, Some(asked + Duration::from_secs(15)));
        assert_eq!(held.fence(shard), Fence::NONE);
    }

    /// Its time would leap over the signs of life that were missed meanwhile.
    #[tokio::test(start_paused = true)]
    async fn no_entity_sees_a_long_sleep_though_its_lease_outlasts_it() {
        let (sleep, slept) = told();
        let (held, shard) = (Held::on(sleep), Shard::all().next().unwrap());
        let fence = Fence { epoch: Epoch(5), nonce: 7 };
        held.take(shard, fence, Some(held.now() + Duration::from_secs(3600)));
        slept.store(LEAP.as_secs(), Ordering::Relaxed);
        assert_eq!((held.lapse(), held.fence(shard)), (Vec::new(), fence));
        slept.store(LEAP.as_secs() * 2 + 1, Ordering::Relaxed);
        assert_eq!((held.lapse(), held.fence(shard)), (vec![shard], Fence::NONE));
        held.take(shard, fence, Some(held.now() + Duration::from_secs(3600)));
        assert_eq!((held.lapse(), held.fence(shard)), (Vec::new(), fence), "it has slept once");
    }

    #[test]
    fn in_a_closed_shard_nothing_begins_and_what_is_in_flight_has_its_fence() {
        let (held, shard) = (Held::default(), Shard::all().last().unwrap());
        let fence = Fence { epoch: Epoch(5), nonce: 7 };
        let changes = held.changes();
        held.take(shard, fence, None);
        held.close(&[shard]);
        assert_eq!((held.fence(shard), held.all()), (Fence::NONE, vec![(shard, fence)]));
        assert!(held.has(shard, fence) && !held.has(shard, Fence { nonce: 8, ..fence }));
        held.lose(&[shard]);
        assert!(held.all().is_empty() && !held.has(shard, fence) && changes.has_changed().unwrap());
    }
}
