//! Whose turn it is. While several swarms are at work each has few calls under way, and its others wait behind these: a
//! swarm that floods the node fills its own queue, and the others find a processor free soon.
//!
//! It is processors that are shared so. A call that has not ended soon waits for something else, such as a disk, and
//! lets the next one begin.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use skein_shared::id::Name;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Calls of one swarm that have their turn at a time, beside other swarms. With more of them the neighbours of a flood
/// wait longer (measured: `docs/performance.md`).
const SHARE: usize = 2;
/// A swarm is at work for so long after each of its calls, save those that wait for something.
const AT_WORK: Duration = Duration::from_secs(1);
/// How long a call keeps its turn: some times what it takes from the processors.
const KEEP: Duration = Duration::from_millis(1);
/// How long a call waits for its turn.
const PATIENCE: Duration = Duration::from_millis(100);
/// Swarms from which on those are forgotten that have no call under way.
const SWARMS: usize = 1000;

/// Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Turns(Arc<Mutex<Swarms>>);

#[derive(Debug, Default)]
struct Swarms {
    /// The swarm that had a call last, and when.
    last: Option<(Name, Instant)>,
    /// When one that was not its had come last.
    others: Option<Instant>,
    shares: HashMap<Name, Arc<Semaphore>>,
}

impl Turns {
    /// Runs a call of a swarm when it is its turn.
    pub async fn run<T>(&self, swarm: &Name, call: impl Future<Output = T>) -> T {
        let Some(turn) = self.wait(swarm).await else { return call.await };
        let mut call = pin!(call);
        if let Ok(done) = timeout(KEEP, &mut call).await {
            return done;
        }
        drop(turn);
        call.await
    }

    /// Nothing for a swarm that is alone, or whose turn does not come.
    async fn wait(&self, swarm: &Name) -> Option<OwnedSemaphorePermit> {
        let share = self.0.lock().unwrap_or_else(PoisonError::into_inner).share(swarm, Instant::now())?;
        // It is never closed.
        timeout(PATIENCE, share.acquire_owned()).await.ok()?.ok()
    }
}

impl Swarms {
    /// What a swarm has beside others that are at work.
    fn share(&mut self, swarm: &Name, now: Instant) -> Option<Arc<Semaphore>> {
        let is_other = self.last.as_ref().is_none_or(|(last, _)| last != swarm);
        if is_other {
            self.others = self.last.replace((swarm.clone(), now)).map(|(_, at)| at);
        } else if let Some((_, at)) = &mut self.last {
            *at = now;
        }
        let is_alone = self.others.is_none_or(|at| now.duration_since(at) > AT_WORK);
        if is_alone {
            return None;
        }
        if let Some(share) = self.shares.get(swarm) {
            return Some(Arc::clone(share));
        }
        if self.shares.len() >= SWARMS {
            self.shares.retain(|_, share| Arc::strong_count(share) > 1);
        }
        let share = Arc::new(Semaphore::new(SHARE));
        self.shares.insert(swarm.clone(), Arc::clone(&share));
        Some(share)
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    /// A call that has begun, and goes on until its sender is dropped.
    fn begin(turns: &Turns, swarm: &Name) -> Call {
        let (end, ended) = oneshot::channel::<()>();
        let (began, begun) = oneshot::channel();
        let (turns, swarm) = (turns.clone(), swarm.clone());
        let call = async move {
            let _ = began.send(());
            let _ = ended.await;
        };
        tokio::spawn(async move { turns.run(&swarm, call).await });
        Call { begun, _end: end }
    }

    struct Call {
        begun: oneshot::Receiver<()>,
        _end: oneshot::Sender<()>,
    }

    impl Call {
        /// Whether it has begun once all have done what they can.
        async fn has_begun(&mut self) -> bool {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            self.begun.try_recv().is_ok()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_swarm_that_is_alone_waits_for_nothing() {
        let (turns, mut calls) = (Turns::default(), Vec::new());
        for pause in [Duration::ZERO, AT_WORK * 2] {
            tokio::time::advance(pause).await;
            for _ in 0..100 {
                let mut call = begin(&turns, &name("one"));
                assert!(call.has_begun().await);
                calls.push(call);
            }
            turns.run(&name("other"), async {}).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn beside_another_one_its_calls_wait_for_their_turn_in_their_order() {
        let (turns, one, other) = (Turns::default(), name("one"), name("other"));
        turns.run(&other, async {}).await;
        let mut calls: Vec<Call> = (0..SHARE + 2).map(|_| begin(&turns, &one)).collect();
        for call in &mut calls[..SHARE] {
            assert!(call.has_begun().await);
        }
        assert!(!calls[SHARE].has_begun().await && !calls[SHARE + 1].has_begun().await);
        assert!(begin(&turns, &other).has_begun().await, "the other one has turns of its own");
        drop(calls.remove(0));
        let [.., first, second] = calls.as_mut_slice() else { unreachable!() };
        assert!(first.has_begun().await && !second.has_begun().await);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_takes_long_holds_up_nobody_for_long() {
        let (turns, one) = (Turns::default(), name("one"));
        turns.run(&name("other"), async {}).await;
        let mut long: Vec<Call> = (0..SHARE).map(|_| begin(&turns, &one)).collect();
        let before = Instant::now();
        for call in &mut long {
            assert!(call.has_begun().await);
        }
        turns.run(&one, async {}).await;
        assert_eq!(before.elapsed(), KEEP);
        // They have no turn any more.
        assert!(begin(&turns, &one).has_begun().await);
        drop(long);
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_whose_turn_does_not_come_begins_all_the_same() {
        let (turns, one) = (Turns::default(), name("one"));
        turns.run(&name("other"), async {}).await;
        let share = turns.0.lock().unwrap().share(&one, Instant::now()).unwrap();
        let _all = share.try_acquire_many(u32::try_from(SHARE).unwrap()).unwrap();
        let before = Instant::now();
        turns.run(&one, async {}).await;
        assert_eq!(before.elapsed(), PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn swarms_that_do_nothing_are_forgotten() {
        let (turns, busy) = (Turns::default(), name("busy"));
        turns.run(&name("first"), async {}).await;
        let mut call = begin(&turns, &busy);
        assert!(call.has_begun().await);
        for number in 0..SWARMS * 2 {
            turns.run(&name(&format!("swarm-{number}")), async {}).await;
        }
        let swarms = turns.0.lock().unwrap();
        assert!(swarms.shares.len() <= SWARMS && swarms.shares.contains_key(&busy));
    }
}
