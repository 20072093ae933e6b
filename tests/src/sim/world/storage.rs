//! What is asked of the store, on its way there and back.

use std::sync::Arc;

use skein_coordinator::cluster::steward::lives;
use skein_coordinator::entity::timers;
use skein_coordinator::outbox::lanes;
use skein_coordinator::store::redis::lease::{Acquired, Kept};
use skein_coordinator::store::{Batch, CommitError, Fence, Version};
use skein_shared::time::Timestamp;

use super::{BEGIN, Event, STORE_LIMIT, World};
use crate::sim::hosted;
use crate::sim::network::Place;
use crate::sim::node::{Answer, Ask, In};

impl World {
    pub(super) fn ask_store(&mut self, (index, life, id): (usize, u64, u64), ask: Ask) {
        let run = self.store.run;
        if let Some(delay) = self.network.to_store(Place::Node(index), self.now) {
            self.after(delay, Event::Store { index, life, id, run, ask });
        }
        self.after(STORE_LIMIT, Event::Node { index, life, input: In::Store { id, answer: None } });
    }

    pub(super) fn store_in(&mut self, (index, life, id): (usize, u64, u64), run: u64, ask: Ask) {
        let owner = format!("node-{index}");
        // A connection ends with the server that it was made to.
        let connected = run == self.store.run && self.now >= self.store_back;
        let answer = if connected { self.execute(&owner, ask) } else { None };
        if let Some(delay) = self.network.to_store(Place::Store(index), self.now) {
            self.after(delay, Event::Node { index, life, input: In::Store { id, answer } });
        }
    }

    pub(super) fn execute(&mut self, owner: &str, ask: Ask) -> Option<Answer> {
        let now = (BEGIN + self.now / 1_000).saturating_add_signed(self.store.offset);
        let clock = now.saturating_add_signed(self.store.set);
        let lease = self.config.lease;
        Some(match ask {
            Ask::IsTheSame(run) => Answer::Same(run == self.store.run),
            Ask::BeginAnew => Answer::Anew(self.store.run),
            Ask::Renew(held) => {
                let kept =
                    held.iter().map(|(shard, fence)| self.store.primary.renew(*shard, *fence, lease, clock));
                Answer::Kept(kept.collect())
            }
            Ask::Release(held) => {
                let server = &mut self.store.primary;
                let kept: Vec<_> = held.iter().map(|(shard, fence)| server.release(*shard, *fence)).collect();
                for ((shard, _), kept) in held.iter().zip(&kept) {
                    if *kept == Kept::Done {
                        self.witness.released(*shard);
                    }
                }
                Answer::Kept(kept)
            }
            Ask::Beat(me, silent) => {
                Answer::Members(self.store.primary.beat(&me, lives(lease), &silent, clock), clock)
            }
            Ask::Leases => Answer::Leases(self.store.primary.leases(), clock),
            Ask::Acquire(shards, seen) => {
                let mut answers = Vec::new();
                for wanted in shards {
                    let broken = self.config.broken;
                    let answer = self.store.primary.acquire(wanted, (owner, seen), lease, clock, broken);
                    if let Acquired::Taken(fence) = &answer {
                        self.witness.granted(wanted.shard, *fence, seen, self.config.clocks_apart);
                    }
                    answers.push(answer);
                }
                self.trace.note(self.now, format_args!("{owner} asks for {} shards", answers.len()));
                Answer::Acquired(answers)
            }
            Ask::Connect { kill } => {
                let (run, link) = self.store.connect(kill);
                Answer::Link { run, link }
            }
            Ask::Commit { link, batches } => {
                if !self.store.is_connected(link) {
                    return None;
                }
                Answer::Commits(
                    batches.iter().map(|(fence, batch)| self.commit(owner, *fence, batch)).collect(),
                )
            }
            Ask::Load(key, fence) => {
                self.store.primary.check(&key, fence).ok()?;
                let state = &self.store.primary.state;
                let found = hosted::find(&key, state, Timestamp(now));
                Answer::Loaded(found, self.witness.base(&key))
            }
            Ask::Timers(shards) => Answer::Timers(self.store.primary.timers(timers::PAGE, &shards)),
            Ask::Outbox { after, shards } => {
                let page = lanes::PAGE;
                Answer::Page(self.store.primary.outbox(after, page, &shards))
            }
            Ask::TakeOut { run, .. } if run != self.store.run => return None,
            Ask::TakeOut { effects, .. } => {
                let server = &mut self.store.primary;
                let refused =
                    effects.iter().filter(|(fence, effect)| server.delivered(*fence, effect).is_err());
                Answer::TakenOut { all: refused.count() == 0 }
            }
        })
    }

    pub(super) fn set_clock(&mut self) {
        self.store.set = self.dice("step").i64(-30_000..30_000);
        self.trace.note(self.now, format_args!("the clock of the store is set {} ms off", self.store.set));
        self.soon("step", self.config.faults.step, Event::Step);
    }

    pub(super) fn commit(
        &mut self,
        owner: &str,
        fence: Fence,
        batch: &Arc<Batch>,
    ) -> Result<Version, CommitError> {
        if self.network.refuses() {
            return Err(CommitError::Failed("the store refuses this write".to_owned()));
        }
        let outcome = self.store.commit(fence, batch);
        self.trace.note(
            self.now,
            format_args!("{owner} commits {} v{} {:?}", batch.key, batch.expected.0 + 1, outcome),
        );
        if outcome.is_ok() {
            self.witness.committed(fence, batch);
        }
        outcome
    }
}
