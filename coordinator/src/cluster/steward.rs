//! What a node does about its leases, round after round, without I/O: what it asks of the store, what it takes the
//! answers for, and until when it relies on them. [`keeper`](super::keeper) carries it out.

use std::time::Duration;

use skein_shared::mutation::{self, Mutation};
use tokio::time::Instant;

use super::member::Member;
use super::plan::{self, Situation};
use crate::store::redis::lease::{Acquired, Kept, Lease};
use crate::store::redis::shard::{SHARDS, Shard};
use crate::store::{Fence, StoreError};

/// For how long it holds that a node says that it lives. It has to be off everybody's list before its leases have
/// ended: or else those who take its shards would give them back to it.
pub fn lives(lease: Duration) -> Duration {
    lease / 2
}

/// How often it says so.
fn beat(lease: Duration) -> Duration {
    lease / 6
}

/// How long entities may take to leave a shard that is handed over. After that their writes are refused.
const LEAVE: Duration = Duration::from_secs(5);

/// What is asked, one thing at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// Whether the store is in the life in which the leases were taken.
    IsTheSame,
    /// It is not, and may have lost what it acknowledged: forget everything that is held, and rely on it as it is now.
    BeginAnew,
    Renew(Vec<(Shard, Fence)>),
    /// To note that this node lives, and to say who does.
    Beat(Member),
    Leases,
    Acquire(Vec<Shard>),
    /// Of the entities in these shards, to leave memory once what is in flight is done, until then at the latest.
    Leave(Vec<Shard>, Instant),
    Release(Vec<(Shard, Fence)>),
}

/// What happens.
#[derive(Clone, Debug)]
pub enum Input {
    /// A round begins. Whatever the last one had not got an answer to is given up.
    Round,
    /// The node ends: everything is given up.
    Resign,
    Same(bool),
    Anew,
    Renewed(Vec<Result<Kept, StoreError>>),
    Members(Vec<Member>),
    Leases(Vec<Lease>),
    Acquired(Vec<Result<Acquired, StoreError>>),
    /// They are gone, or took too long.
    Left,
    Released,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    Ask(Question),
    /// A lease was taken, and may be relied on until then.
    Take(Shard, Fence, Instant),
    Extend(Shard, Fence, Instant),
    /// Nothing new begins in these shards.
    Close(Vec<Shard>),
    /// Another node has taken these, or nobody can tell.
    Taken(Vec<Shard>),
    /// These are given up.
    Lose(Vec<Shard>),
    /// Who lives, in the order of their ids.
    Members(Vec<Member>),
    Leases(Vec<Lease>),
    /// Leases have changed: the others should look.
    Tell,
    /// So should this node once more.
    Nudge,
}

/// One node's part.
#[derive(Debug)]
pub struct Steward {
    lease: Duration,
    settle: Duration,
    /// When the next sign of life is due, and the next renewal.
    beat: Instant,
    renew: Instant,
    /// Since when the members are the same.
    stable: Instant,
    members: Vec<Member>,
    /// Since when each shard has been seen without an owner.
    free: Vec<Option<Instant>>,
    /// What was last said of itself.
    said: Option<Member>,
    /// When the question under way was asked: a lease counts from before, and ends here before it ends there.
    asked: Instant,
    /// What was asked about.
    shards: Vec<(Shard, Fence)>,
    /// What this round still has to do.
    acquire: Vec<Shard>,
    hand_over: Vec<Shard>,
}

impl Steward {
    /// With leases that last so long, and for members who have to be the same for `settle` before shards are handed
    /// over.
    pub fn new(lease: Duration, settle: Duration, now: Instant) -> Self {
        Self {
            lease,
            settle,
            beat: now,
            renew: now,
            stable: now,
            members: Vec::new(),
            free: vec![None; usize::from(SHARDS)],
            said: None,
            asked: now,
            shards: Vec::new(),
            acquire: Vec::new(),
            hand_over: Vec::new(),
        }
    }

    /// Takes a step as `me`, who has these shards. A round is over when nothing is asked.
    pub fn on(&mut self, input: Input, me: &Member, held: &[(Shard, Fence)], now: Instant) -> Vec<Output> {
        let mut outputs = Vec::new();
        match input {
            // The leases come first: what they are worth runs out.
            Input::Round if now >= self.renew => {
                self.asked = now;
                outputs.push(Output::Ask(Question::IsTheSame));
            }
            Input::Round => self.live(me, now, &mut outputs),
            Input::Resign => {
                let all: Vec<Shard> = held.iter().map(|(shard, _)| *shard).collect();
                self.give_up(all, held, self.resign(now), &mut outputs);
            }
            Input::Same(false) => outputs.push(Output::Ask(Question::BeginAnew)),
            Input::Same(true) | Input::Anew => {
                self.shards = held.to_vec();
                outputs.push(Output::Ask(Question::Renew(held.to_vec())));
            }
            Input::Renewed(kept) => {
                self.renewed(&kept, &mut outputs);
                self.live(me, now, &mut outputs);
            }
            Input::Members(members) => {
                self.said(me, members, now, &mut outputs);
                outputs.push(Output::Ask(Question::Leases));
            }
            Input::Leases(leases) => self.decide(leases, me, held, now, &mut outputs),
            Input::Acquired(answers) => {
                self.acquired(answers, now, &mut outputs);
                let hand_over = std::mem::take(&mut self.hand_over);
                self.give_up(hand_over, held, self.leave(now), &mut outputs);
            }
            Input::Left => {
                let shards = std::mem::take(&mut self.shards);
                outputs.push(Output::Lose(shards.iter().map(|(shard, _)| *shard).collect()));
                outputs.push(Output::Ask(Question::Release(shards)));
            }
            Input::Released => outputs.extend([Output::Tell, Output::Nudge]),
        }
        outputs
    }

    /// The store seems to be another one: the next round looks.
    pub fn doubt(&mut self, now: Instant) {
        self.renew = now;
    }

    /// Another node tells that leases have changed, and itself perhaps: one that drains gives its shards up before
    /// anybody has asked who lives, and they would wait for it to take them. So the next round asks that too.
    pub fn told(&mut self, now: Instant) {
        self.beat = now;
    }

    /// Until when entities may take to leave. Nothing is renewed meanwhile, nor does this node say that it lives, and
    /// neither the shards that stay nor its place among the others must be lost over those that go: there has to be
    /// time for the release, and for a renewal and a sign of life that are slow.
    fn leave(&self, now: Instant) -> Instant {
        (now + LEAVE).min(self.renew.min(self.beat) + self.lease / 6)
    }

    /// The same of a node that ends, where nothing stays that could be lost. A renewal that is late, for the store was
    /// slow, is no reason to refuse what is in flight: leases hold 7/15 of their time longer than the next one is due,
    /// and what is left of that is for the release.
    fn resign(&self, now: Instant) -> Instant {
        (now + LEAVE).min(self.renew + self.lease / 3)
    }

    fn until(&self) -> Instant {
        if mutation::is_on(Mutation::EternalLease) {
            return self.asked + self.lease * 1000;
        }
        self.asked + self.lease * 4 / 5
    }

    fn renewed(&mut self, kept: &[Result<Kept, StoreError>], outputs: &mut Vec<Output>) {
        let until = self.until();
        self.renew = self.asked + self.lease / 3;
        let mut taken = Vec::new();
        for ((shard, fence), kept) in std::mem::take(&mut self.shards).into_iter().zip(kept) {
            match kept {
                Ok(Kept::Done) => outputs.push(Output::Extend(shard, fence, until)),
                Ok(Kept::Fenced(_)) | Err(_) if mutation::is_on(Mutation::EternalLease) => {}
                Ok(Kept::Fenced(_)) | Err(_) => taken.push(shard),
            }
        }
        if !taken.is_empty() {
            outputs.push(Output::Taken(taken));
        }
    }

    fn live(&mut self, me: &Member, now: Instant, outputs: &mut Vec<Output>) {
        let due = now >= self.beat || self.said.as_ref() != Some(me);
        outputs.push(Output::Ask(if due { Question::Beat(me.clone()) } else { Question::Leases }));
    }

    fn said(&mut self, me: &Member, mut members: Vec<Member>, now: Instant, outputs: &mut Vec<Output>) {
        self.beat = now + beat(self.lease);
        self.said = Some(me.clone());
        members.sort_by(|a, b| a.id.cmp(&b.id));
        if self.members != members {
            self.stable = now;
            self.members.clone_from(&members);
        }
        outputs.push(Output::Members(members));
    }

    fn decide(
        &mut self,
        leases: Vec<Lease>,
        me: &Member,
        held: &[(Shard, Fence)],
        now: Instant,
        outputs: &mut Vec<Output>,
    ) {
        let mut has = vec![false; usize::from(SHARDS)];
        for (shard, _) in held {
            has[usize::from(shard.number())] = true;
        }
        for (free, lease) in self.free.iter_mut().zip(&leases) {
            *free = if lease.held { None } else { free.or(Some(now)) };
        }
        let free_for: Vec<Duration> =
            self.free.iter().map(|since| since.map_or(Duration::ZERO, |since| now - since)).collect();
        let steps = plan::plan(&Situation {
            // Whoever gives everything away does not wait.
            settle: if me.draining { Duration::ZERO } else { self.settle },
            me,
            members: &self.members,
            leases: &leases,
            held: &has,
            free_for: &free_for,
            stable_for: now - self.stable,
        });
        outputs.push(Output::Leases(leases));
        if steps.acquire.is_empty() {
            return self.give_up(steps.hand_over, held, self.leave(now), outputs);
        }
        (self.acquire, self.hand_over) = (steps.acquire, steps.hand_over);
        self.asked = now;
        outputs.push(Output::Ask(Question::Acquire(self.acquire.clone())));
    }

    fn acquired(
        &mut self,
        answers: Vec<Result<Acquired, StoreError>>,
        now: Instant,
        outputs: &mut Vec<Output>,
    ) {
        let (until, mut has_taken) = (self.until(), false);
        for (shard, answer) in std::mem::take(&mut self.acquire).into_iter().zip(answers) {
            match answer {
                Ok(Acquired::Taken(fence)) => {
                    outputs.push(Output::Take(shard, fence, until));
                    has_taken = true;
                }
                // It was emptied, or an import fills it, since it was last looked at: that look is due.
                Ok(Acquired::Foreign | Acquired::Importing) => self.doubt(now),
                // Somebody was quicker, or nobody can have it: the store tells of that.
                Ok(Acquired::Held { .. }) | Err(_) => {}
            }
        }
        if has_taken {
            // Those who ask for something there look for its owner.
            outputs.push(Output::Tell);
        }
    }

    /// Lets nothing new begin in shards; once what is in flight is done they are released.
    fn give_up(
        &mut self,
        shards: Vec<Shard>,
        held: &[(Shard, Fence)],
        until: Instant,
        outputs: &mut Vec<Output>,
    ) {
        if shards.is_empty() {
            return;
        }
        self.shards = held.iter().filter(|(shard, _)| shards.contains(shard)).copied().collect();
        outputs.push(Output::Close(shards.clone()));
        outputs.push(Output::Ask(Question::Leave(shards, until)));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use skein_shared::fence::Epoch;
    use uuid::Uuid;

    use super::*;

    const LEASE: Duration = Duration::from_secs(10);
    const SETTLE: Duration = Duration::from_secs(20);

    fn me() -> Member {
        Member::new("a", Uuid::nil(), "")
    }

    fn asked(outputs: &[Output]) -> Option<&Question> {
        outputs.iter().find_map(|output| match output {
            Output::Ask(question) => Some(question),
            _ => None,
        })
    }

    #[test]
    fn a_lease_counts_from_before_it_was_asked_for() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        let shard = Shard::all().next().unwrap();
        let free = vec![Lease::default(); usize::from(SHARDS)];
        assert_eq!(asked(&steward.on(Input::Round, &me(), &[], begun)), Some(&Question::IsTheSame));
        steward.on(Input::Same(true), &me(), &[], begun);
        let renewed = steward.on(Input::Renewed(Vec::new()), &me(), &[], begun);
        assert_eq!(asked(&renewed), Some(&Question::Beat(me())));
        let all = steward.on(Input::Members(vec![me()]), &me(), &[], begun);
        assert_eq!(asked(&all), Some(&Question::Leases));
        steward.on(Input::Leases(free), &me(), &[], begun);
        let late = begun + Duration::from_secs(5);
        let fence = Fence { epoch: Epoch(7), nonce: 1 };
        let taken = steward.on(Input::Acquired(vec![Ok(Acquired::Taken(fence))]), &me(), &[], late);
        assert_eq!(taken, [Output::Take(shard, fence, begun + Duration::from_secs(8)), Output::Tell]);

        let held = [(shard, fence)];
        assert_eq!(asked(&steward.on(Input::Round, &me(), &held, late)), Some(&Question::IsTheSame));
        steward.on(Input::Same(true), &me(), &held, late);
        let renewed = steward.on(Input::Renewed(vec![Ok(Kept::Done)]), &me(), &held, late + LEASE);
        assert_eq!(renewed[0], Output::Extend(shard, fence, late + Duration::from_secs(8)));
    }

    #[test]
    fn what_another_node_has_taken_is_lost_and_the_rest_is_kept() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        let fence = Fence { epoch: Epoch(7), nonce: 1 };
        let held: Vec<_> = Shard::all().take(2).map(|shard| (shard, fence)).collect();
        steward.on(Input::Round, &me(), &held, begun);
        steward.on(Input::Same(true), &me(), &held, begun);
        let renewed =
            steward.on(Input::Renewed(vec![Ok(Kept::Fenced(Epoch(8))), Ok(Kept::Done)]), &me(), &held, begun);
        assert!(renewed.contains(&Output::Taken(vec![held[0].0])));
        assert!(
            renewed.iter().any(|output| matches!(output, Output::Extend(shard, ..) if *shard == held[1].0))
        );
    }

    /// A newcomer gets shard after shard, and nothing ever leaves them by itself.
    fn hand_over_what_does_not_leave(lease: Duration, settle: Duration) {
        let mut now = Instant::now();
        let mut steward = Steward::new(lease, settle, now);
        let fence = Fence { epoch: Epoch(7), nonce: 1 };
        let mine = Lease { epoch: fence.epoch, owner: "a".to_owned(), held: true, ..Lease::default() };
        let mut leases = vec![mine; usize::from(SHARDS)];
        let mut held: BTreeMap<Shard, Instant> = Shard::all().map(|shard| (shard, now + lease)).collect();
        let mut listed = now + lives(lease);
        let (mut input, mut handed_over) = (Input::Round, 0);
        while handed_over < 10 {
            assert!(held.values().all(|until| now < *until), "leases have ended over a hand-over");
            assert!(now < listed, "it is taken for dead over a hand-over");
            let has: Vec<(Shard, Fence)> = held.keys().map(|shard| (*shard, fence)).collect();
            let outputs = steward.on(input, &me(), &has, now);
            for output in &outputs {
                match output {
                    Output::Extend(shard, _, until) => drop(held.insert(*shard, *until)),
                    Output::Close(shards) => held.retain(|shard, _| !shards.contains(shard)),
                    _ => {}
                }
            }
            input = match asked(&outputs) {
                Some(Question::IsTheSame) => Input::Same(true),
                Some(Question::Renew(all)) => Input::Renewed(all.iter().map(|_| Ok(Kept::Done)).collect()),
                Some(Question::Beat(_)) => {
                    listed = now + lives(lease);
                    Input::Members(vec![me(), Member::new("b", Uuid::nil(), "")])
                }
                Some(Question::Leases) => Input::Leases(leases.clone()),
                Some(Question::Leave(_, until)) => {
                    now = now.max(*until);
                    Input::Left
                }
                Some(Question::Release(shards)) => {
                    for (shard, _) in shards {
                        leases[usize::from(shard.number())].owner = "b".to_owned();
                    }
                    handed_over += 1;
                    Input::Released
                }
                Some(Question::BeginAnew | Question::Acquire(_)) => panic!("nothing is free or lost"),
                None => {
                    now += Duration::from_millis(250);
                    Input::Round
                }
            };
        }
    }

    #[test]
    fn what_does_not_leave_costs_the_shards_that_stay_no_lease() {
        hand_over_what_does_not_leave(Duration::from_secs(2), Duration::from_secs(1));
        // It begins just before a renewal is due.
        hand_over_what_does_not_leave(LEASE, Duration::from_millis(3200));
    }

    #[test]
    fn a_store_in_another_life_is_begun_with_anew_before_anything_else() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        steward.on(Input::Round, &me(), &[], begun);
        let anew = steward.on(Input::Same(false), &me(), &[], begun);
        assert_eq!(anew, [Output::Ask(Question::BeginAnew)]);
        assert_eq!(asked(&steward.on(Input::Anew, &me(), &[], begun)), Some(&Question::Renew(Vec::new())));
    }

    #[test]
    fn what_a_draining_node_gives_up_is_taken_as_soon_as_that_is_told() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        let [me, other] = ["a", "b"].map(|id| Member::new(id, Uuid::nil(), ""));
        let free = vec![Lease::default(); usize::from(SHARDS)];
        let round = |steward: &mut Steward, members: &[Member], now| {
            let mut outputs = steward.on(Input::Round, &me, &[], now);
            loop {
                let input = match asked(&outputs) {
                    Some(Question::IsTheSame) => Input::Same(true),
                    Some(Question::Renew(_)) => Input::Renewed(Vec::new()),
                    Some(Question::Beat(_)) => Input::Members(members.to_vec()),
                    Some(Question::Leases) => Input::Leases(free.clone()),
                    Some(Question::Acquire(shards)) => return shards.len(),
                    other => panic!("{other:?}"),
                };
                outputs = steward.on(input, &me, &[], now);
            }
        };
        let share = round(&mut steward, &[me.clone(), other.clone()], begun);
        assert!(share < usize::from(SHARDS));
        let (draining, later) = (Member { draining: true, ..other }, begun + Duration::from_millis(10));
        assert_eq!(round(&mut steward, &[me.clone(), draining.clone()], later), share, "nobody has told");
        steward.told(later);
        assert_eq!(round(&mut steward, &[me.clone(), draining], later), usize::from(SHARDS));
    }

    #[test]
    fn a_shard_is_released_after_everything_has_left_it() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        let held = [(Shard::all().next().unwrap(), Fence { epoch: Epoch(7), nonce: 1 })];
        let closed = steward.on(Input::Resign, &me(), &held, begun);
        assert_eq!(closed[0], Output::Close(vec![held[0].0]));
        assert!(matches!(asked(&closed), Some(Question::Leave(left, _)) if *left == [held[0].0]));
        let left = steward.on(Input::Left, &me(), &held, begun);
        assert_eq!(left, [Output::Lose(vec![held[0].0]), Output::Ask(Question::Release(held.to_vec()))]);
    }

    #[test]
    fn a_node_that_ends_after_the_store_was_slow_lets_what_is_in_flight_end() {
        let begun = Instant::now();
        let mut steward = Steward::new(LEASE, SETTLE, begun);
        let held = [(Shard::all().next().unwrap(), Fence { epoch: Epoch(7), nonce: 1 })];
        steward.on(Input::Round, &me(), &held, begun);
        steward.on(Input::Same(true), &me(), &held, begun);
        steward.on(Input::Renewed(vec![Ok(Kept::Done)]), &me(), &held, begun);
        // The next renewal was due after a third of the lease, and got no answer.
        let now = begun + LEASE / 2;
        let closed = steward.on(Input::Resign, &me(), &held, now);
        let Some(Question::Leave(_, until)) = asked(&closed) else { panic!("{closed:?}") };
        assert!(now < *until && *until < begun + LEASE * 4 / 5, "{:?}", until.duration_since(begun));
    }
}
