//! The shell of `cluster/keeper.rs` and of `entity/ownership.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_coordinator::cluster::steward::{Input, Output, Question};
use skein_coordinator::store::Fence;
use skein_coordinator::store::redis::lease::{Acquired, Kept};
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::redis::vigil::Vigil;
use tokio::time::Instant;

use super::{Answer, Ask, In, Node, Out, Then};
use crate::sim::config::Broken;
use crate::sim::store::Wanted;

impl Node {
    pub(super) fn begin_round(&mut self) {
        self.turn += 1;
        (self.in_round, self.nudged) = (true, false);
        self.steward_on(Input::Round);
    }

    pub(super) fn resign(&mut self) {
        self.resigning = true;
        if !self.in_round {
            self.end();
        }
    }

    fn end(&mut self) {
        self.in_round = true;
        self.steward_on(Input::Resign);
    }

    fn steward_on(&mut self, input: Input) {
        let held = self.slots.all();
        let mut question = None;
        for output in self.steward.on(input, &self.me, &held, self.now) {
            match output {
                Output::Ask(next) => question = Some(next),
                done => self.note_lease(done),
            }
        }
        match question {
            Some(question) => self.ask_for(question),
            None => self.round_over(),
        }
    }

    fn note_lease(&mut self, output: Output) {
        match output {
            Output::Ask(_) => {}
            Output::Take(shard, fence, until) => {
                self.slots.take(shard, fence, Some(until));
                self.news |= self.known.hint(shard, &self.me.id, fence.epoch.0);
                self.moved = true;
            }
            Output::Extend(shard, fence, until) => self.slots.extend(shard, fence, until, self.now),
            Output::Close(shards) => {
                self.note(format!("closes {} shards", shards.len()));
                self.slots.close(&shards);
                self.moved = true;
            }
            Output::Taken(shards) | Output::Lose(shards) => self.lose(&shards),
            Output::Members(members) => self.news |= self.known.members_are(members),
            Output::Leases(leases) => self.news |= self.known.leases_are(leases),
            // That may get lost, and nobody relies on it.
            Output::Tell => {}
            Output::Nudge => self.nudged = true,
        }
    }

    fn lose(&mut self, shards: &[Shard]) {
        self.note(format!("loses {} shards", shards.len()));
        self.slots.lose(shards);
        self.moved = true;
    }

    fn ask_for(&mut self, question: Question) {
        let ask = match &question {
            Question::IsTheSame => Ask::IsTheSame(self.run),
            Question::BeginAnew => {
                let held: Vec<Shard> = self.slots.all().into_iter().map(|(shard, _)| shard).collect();
                self.lose(&held);
                self.outs.push(Out::Anew);
                Ask::BeginAnew
            }
            Question::Renew(held) => Ask::Renew(held.clone()),
            Question::Beat(me) => Ask::Beat(me.clone(), self.living.silent(self.now)),
            Question::Leases => Ask::Leases,
            Question::Acquire(shards) => {
                let wanted = shards.iter().map(|shard| Wanted {
                    shard: *shard,
                    nonce: self.rng.u64(..),
                    over: self.vigil.over(shard, self.now),
                });
                Ask::Acquire(wanted.collect(), self.highest)
            }
            Question::Release(held) => Ask::Release(held.clone()),
            Question::Leave(shards, until) => return self.leave(&shards.clone(), *until),
        };
        self.ask(ask, Then::Steward(question));
    }

    pub(super) fn steward_answered(&mut self, question: Question, answer: Option<Answer>) {
        self.see(answer.as_ref());
        let input = match (question, answer) {
            (Question::IsTheSame, Some(Answer::Same(same))) => {
                Input::Same(same || self.broken == Some(Broken::MemoryOutlivesTheStore))
            }
            (Question::BeginAnew, Some(Answer::Anew(run))) => {
                self.run = run;
                Input::Anew
            }
            (Question::Renew(_), Some(Answer::Kept(kept))) => {
                Input::Renewed(kept.into_iter().map(Ok).collect())
            }
            (Question::Beat(_), Some(Answer::Members(said, clock))) => {
                Input::Members(self.living.hear(said, clock, self.now))
            }
            (Question::Leases, Some(Answer::Leases(written, clock))) => {
                if self.broken == Some(Broken::LeasesEndByTheClockOfTheStore) {
                    self.vigil = Vigil::over_hints();
                }
                Input::Leases(self.vigil.standing(written, clock, self.now))
            }
            (Question::Acquire(_), Some(Answer::Acquired(answers))) => {
                Input::Acquired(answers.into_iter().map(Ok).collect())
            }
            (Question::Release(_), Some(Answer::Kept(_))) => Input::Released,
            _ => return self.round_over(),
        };
        self.steward_on(input);
    }

    /// Takes note of the highest epoch, as `store/redis/lease` does.
    fn see(&mut self, answer: Option<&Answer>) {
        let epochs: Vec<u64> = match answer {
            Some(Answer::Leases(written, _)) => written.iter().map(|it| it.lease.epoch.0).collect(),
            Some(Answer::Acquired(answers)) => {
                let taken = answers.iter().filter_map(|answer| match answer {
                    Acquired::Taken(fence) => Some(fence.epoch.0),
                    _ => None,
                });
                taken.collect()
            }
            Some(Answer::Kept(kept)) => {
                let fenced = kept.iter().filter_map(|kept| match kept {
                    Kept::Fenced(epoch) => Some(epoch.0),
                    Kept::Done => None,
                });
                fenced.collect()
            }
            _ => Vec::new(),
        };
        self.highest = epochs.into_iter().fold(self.highest, u64::max);
    }

    /// A round is over, or was broken off.
    fn round_over(&mut self) {
        self.in_round = false;
        if self.broken != Some(Broken::NodeIgnoresItsLease) && !self.slots.lapse(self.now).is_empty() {
            self.note("leases have lapsed");
            self.moved = true;
        }
        if self.leaving.is_some() || !self.resigning {
            self.look_again();
        } else if self.slots.all().is_empty() {
            self.outs.push(Out::Exit);
        } else {
            self.end();
        }
    }

    fn look_again(&mut self) {
        let delay = if self.nudged { Duration::ZERO } else { self.look };
        let turn = self.turn;
        self.after(delay, In::Look { turn });
    }

    /// Looks at the leases at once, if it does not just do so.
    pub(super) fn nudge(&mut self) {
        self.nudged = true;
        if !self.in_round {
            let turn = self.turn;
            self.after(Duration::ZERO, In::Look { turn });
        }
    }

    /// Lets nothing new begin, and waits until what is in flight is done.
    fn leave(&mut self, shards: &[Shard], until: Instant) {
        let leaving: Vec<u64> = self
            .desks
            .iter()
            .filter(|(_, desk)| shards.contains(&Shard::of(&desk.key)))
            .map(|(id, _)| *id)
            .collect();
        for desk in &leaving {
            self.dismiss(*desk);
        }
        self.leaving = Some(leaving.into_iter().collect());
        let turn = self.turn;
        self.after(until.saturating_duration_since(self.now), In::LeaveOver { turn });
        self.has_left();
    }

    /// Takes note that desks may be gone.
    pub(super) fn has_left(&mut self) {
        let desks = &self.desks;
        if self.leaving.as_ref().is_some_and(|all| all.iter().all(|desk| !desks.contains_key(desk))) {
            self.left();
        }
    }

    pub(super) fn left(&mut self) {
        self.leaving = None;
        self.steward_on(Input::Left);
    }

    /// Follows which shards this node has: what lived on those that went leaves memory at once.
    pub(super) fn follow(&mut self) {
        if std::mem::take(&mut self.moved) {
            let has: BTreeMap<Shard, Fence> = self.slots.all().into_iter().collect();
            let went: Vec<Shard> = self
                .had
                .iter()
                .filter(|(shard, fence)| has.get(shard) != Some(fence))
                .map(|(shard, _)| *shard)
                .collect();
            let came = has.iter().any(|(shard, fence)| self.had.get(shard) != Some(fence));
            let gone: Vec<u64> = self
                .desks
                .iter()
                .filter(|(_, desk)| went.contains(&Shard::of(&desk.key)))
                .map(|(id, _)| *id)
                .collect();
            for desk in gone {
                self.dismiss(desk);
            }
            self.had = has;
            if came || !went.is_empty() {
                self.restart_pumps();
            }
            self.news = true;
        }
        if std::mem::take(&mut self.news) {
            self.owners_changed();
        }
    }
}
