//! The lease and the commit protocol of a cluster on Redis: a few coordinators, one shard, one entity, one store
//! with a replica.
//!
//! Checked are: acquire, renew, release, commit (fence, batch id, place), answers that are lost and batches that
//! are sent again, copies that arrive late, crashes and restarts, pauses of any length (a coordinator that takes no
//! step while the clock goes on), slow clocks, a clock of the store that is set, and failovers to a replica that lacks
//! the last writes, noticed at once or late. A restart of the server that loses the end of its log is the same thing to
//! the coordinators.
//!
//! What the checker taught, beyond the protocol as it was first written:
//!
//! - **The version alone does not say what a batch builds on.** A failover drops a commit; its owner hears of a
//!   conflict, loads anew and commits something else under the same number; then a late copy of a batch that was
//!   decided on the dropped commit arrives, with a valid fence and a fitting version. So a commit names the batch
//!   that it follows, and the store compares it ([`Variant::VersionAlone`]).
//! - With two batches under way this needs no failover: the owner gives up a batch, loads anew, and sends two; the
//!   late copy of the first takes the place of the one, the other fits behind it by its number, and its being there
//!   is taken for the word that both are.
//! - **A release takes the nonce out of the record.** Else a late copy of a batch of which the owner had given up
//!   is committed after it resigned ([`Variant::ReleaseKeepsNonce`]).
//! - **An owner must see a failover before it sends.** If something between hides it, an old lease that the failover
//!   brought back goes on under its lower epoch after a higher one was handed out: nothing is overwritten, but
//!   fencing tokens fall ([`Scope::hidden`]). Bind requests to their connection, read the run id on each new one.
//! - **A lease ends by the clock of who has watched it.** By that of the store, one that is set forward gives the shard
//!   away while its owner still reads ([`Variant::EndByTheClockOfTheStore`]).
//! - Renewing a lease that is over is safe as long as the fence is compared: who still has it was not superseded.
//!
//! What is left out: two live primaries at once. There the fence holds on each side for itself, and only
//! `min-replicas-to-write` bounds what the lost side acknowledges; the nemesis has that case. And in all failovers, a
//! read by the old owner within the rest of its lease may miss what the new one committed, if its last renewal was
//! lost.

mod checks;
mod owner;
mod store;

use std::collections::BTreeSet;

use owner::{LeaseAnswer, Owner, SENDS, Told};
use stateright::{Model, Property};
use store::{Answer, Batch, Data, Fence, Moment, Process, Store};

/// The protocol, and what becomes of it when one rule is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Sound,
    /// The store does not look at the fence.
    NoFence,
    /// The fence is the epoch alone.
    EpochAlone,
    /// The store compares neither version nor predecessor.
    NoVersion,
    /// The store compares the version and not the batch before.
    VersionAlone,
    /// The store does not know a batch again.
    NoBatchId,
    /// An owner whose lease is over renews it, and the store does not look whose it is now.
    RenewUnfenced,
    /// An owner reads and takes work although its own clock says that its lease is over.
    NoSelfFence,
    /// The lease counts without a margin for a slow clock.
    NoMargin,
    /// The lease counts from when its answer came.
    CountFromAnswer,
    /// Memory is kept when the server has changed.
    IgnoreRunChange,
    /// A released lease keeps its nonce.
    ReleaseKeepsNonce,
    /// A lease ends by the clock of the store, and not by that of who has watched it.
    EndByTheClockOfTheStore,
}

/// How much may happen.
#[derive(Clone, Copy, Debug)]
struct Scope {
    nodes: u8,
    ticks: u8,
    requests: u8,
    batches: u8,
    grants: u8,
    /// Batches of one owner that may be on their way together.
    under_way: usize,
    /// How many answers may be lost and batches be sent again, taken together.
    faults: u8,
    crashes: u8,
    failovers: u8,
    /// How far the clock of the promoted server may be off, or one that is set. While a failover lasts a tick goes by.
    offsets: &'static [i8],
    /// How often the clock of the store may be set.
    steps: u8,
    /// Requests outlive a failover, and owners may learn of it late: a proxy stands between.
    hidden: bool,
    releases: bool,
    /// Fencing tokens are expected to rise, over failovers too.
    tokens_rise: bool,
}

/// What must never happen, found by looking at what the protocol does not see.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Harm {
    SharedFence,
    NotTheOwner,
    Overwritten,
    TokensFell,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    store: Store,
    owners: Vec<Owner>,
    /// Batches on their way, with their copy's number and their sender.
    network: BTreeSet<(Batch, u8, Process)>,
    /// What clients and checkers know.
    seen: Seen,
    harm: Option<Harm>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Seen {
    acknowledged: BTreeSet<u8>,
    /// Batches of which it was said that they never happen.
    refused: BTreeSet<u8>,
    /// Requests that a failover dropped.
    dropped: BTreeSet<u8>,
    writers: BTreeSet<(Fence, Process)>,
    requests: u8,
    batches: u8,
    grants: u8,
    highest: u8,
    lost: u8,
    faults: u8,
    crashes: u8,
    steps: u8,
}

impl Seen {
    fn take(&mut self, told: Vec<(Batch, Told)>) {
        for (batch, told) in told {
            match told {
                Told::Done => drop(self.acknowledged.insert(batch.request)),
                Told::Refused => drop(self.refused.insert(batch.id)),
                Told::Unknown => {}
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Tick,
    /// Asks for the lease, or for more of it; the answer is on its way.
    Ask(usize),
    TakeLease(usize),
    LoseLeaseAnswer(usize),
    Load(usize),
    Begin(usize, u8),
    SendAgain(usize, usize),
    GiveUp(usize),
    Commit(Batch, u8, Process),
    /// Commits, and the answer is lost.
    CommitUnheard(Batch, u8, Process),
    Release(usize),
    Crash(usize),
    Replicate,
    FailOver(i8),
    SetClock(i8),
    Notice(usize),
}

#[derive(Clone, Debug)]
struct Protocol {
    scope: Scope,
    variant: Variant,
}

impl Protocol {
    fn clock(&self, state: &State) -> i8 {
        i8::try_from(state.now).unwrap() + state.store.offset
    }

    /// Whether the owner may send: behind a connection that knows its server, or one that hides it.
    fn connected(&self, state: &State, owner: &Owner) -> bool {
        self.scope.hidden || owner.run == state.store.run
    }

    fn actions_of(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let owner = &state.owners[node];
        if state.seen.crashes < self.scope.crashes && owner.has_something() {
            actions.push(Action::Crash(node));
        }
        if owner.run != state.store.run {
            actions.push(Action::Notice(node));
        }
        if owner.answer.is_some() {
            actions.push(Action::TakeLease(node));
            if state.seen.faults < self.scope.faults {
                actions.push(Action::LoseLeaseAnswer(node));
            }
        }
        if self.connected(state, owner) {
            self.requests_of(state, node, actions);
        }
    }

    fn requests_of(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let owner = &state.owners[node];
        let news = owner.lease.as_ref().is_none_or(|held| held.since < state.now);
        if owner.answer.is_none() && news && (owner.lease.is_some() || self.may_grant(state)) {
            actions.push(Action::Ask(node));
        }
        if owner.lease.is_some() && owner.memory.is_none() {
            actions.push(Action::Load(node));
        }
        for (place, pending) in owner.pending.iter().enumerate() {
            if pending.sends < SENDS && state.seen.faults < self.scope.faults {
                actions.push(Action::SendAgain(node, place));
            }
        }
        if owner.pending.iter().any(|pending| pending.sends == SENDS) {
            actions.push(Action::GiveUp(node));
        }
        self.work_of(state, node, actions);
    }

    fn work_of(&self, state: &State, node: usize, actions: &mut Vec<Action>) {
        let owner = &state.owners[node];
        let room = owner.pending.len() < self.scope.under_way && state.seen.batches < self.scope.batches;
        if room && owner.serves(state.now, self.variant) {
            // The second request comes after the first: they differ in nothing else.
            let open = |request: &u8| {
                *request <= state.seen.requests
                    && !state.seen.acknowledged.contains(request)
                    && !owner.pending.iter().any(|pending| pending.batch.request == *request)
            };
            let requests = (0..self.scope.requests).filter(open);
            actions.extend(requests.map(|request| Action::Begin(node, request)));
        }
        let idle = owner.pending.is_empty() && owner.answer.is_none();
        if self.scope.releases && owner.lease.is_some() && idle {
            actions.push(Action::Release(node));
        }
    }

    /// A shard is not granted twice within one tick of the store's clock, which is a millisecond.
    fn may_grant(&self, state: &State) -> bool {
        let clock = u8::try_from(self.clock(state)).ok();
        let last = state.store.primary.lease.as_ref().map(|lease| lease.fence.epoch);
        state.seen.grants < self.scope.grants && last != clock
    }

    fn ask(&self, state: &mut State, node: usize) {
        let at = Moment { now: state.now, clock: self.clock(state) };
        let owner = &mut state.owners[node];
        let data = &mut state.store.primary;
        let grant = state.seen.grants;
        if let Some(held) = &owner.lease {
            let renewed = data.renew(at, held.fence, self.variant);
            let fence = renewed.then_some(held.fence);
            owner.answer = Some(LeaseAnswer { fence, grant: held.grant, sent: at.now });
            return;
        }
        let Some(fence) = data.acquire(at, owner.process, grant, self.variant) else { return };
        owner.answer = Some(LeaseAnswer { fence: Some(fence), grant, sent: at.now });
        state.seen.grants += 1;
        if self.scope.tokens_rise && fence.epoch <= state.seen.highest {
            state.harm = Some(Harm::TokensFell);
        }
        state.seen.highest = state.seen.highest.max(fence.epoch);
    }

    fn commit(&self, state: &mut State, batch: &Batch, copy: u8, from: Process, heard: bool) {
        state.network.remove(&(batch.clone(), copy, from));
        let before = state.store.primary.clone();
        let answer = state.store.primary.commit(batch, self.variant);
        if answer == Answer::Committed {
            state.harm = self.harm_of(&before, batch, from, &state.seen);
            state.seen.dropped.remove(&batch.request);
            state.seen.writers.insert((batch.fence, from));
        }
        let owner = &mut state.owners[usize::from(from.node)];
        if !heard {
            state.seen.lost += 1;
            state.seen.faults += 1;
        } else if owner.process == from {
            let told = owner.hear(batch.id, answer, self.variant);
            state.seen.take(told);
        }
    }

    /// What is wrong with a batch that was just committed.
    fn harm_of(&self, before: &Data, batch: &Batch, from: Process, seen: &Seen) -> Option<Harm> {
        let owned = before.lease.as_ref().is_some_and(|lease| lease.grant == batch.grant && !lease.free);
        let shared = seen.writers.iter().any(|(fence, by)| *fence == batch.fence && *by != from);
        let fell = seen.writers.iter().any(|(fence, _)| fence.epoch > batch.fence.epoch);
        if shared {
            Some(Harm::SharedFence)
        } else if !owned {
            Some(Harm::NotTheOwner)
        } else if before.batches() != batch.base {
            Some(Harm::Overwritten)
        } else if fell && self.scope.tokens_rise {
            Some(Harm::TokensFell)
        } else {
            None
        }
    }

    fn begin(&self, state: &mut State, node: usize, request: u8) {
        state.seen.requests = state.seen.requests.max(request + 1);
        let owner = &mut state.owners[node];
        if owner.has_reply(request) {
            state.seen.acknowledged.insert(request);
            return;
        }
        let process = owner.process;
        if let Some(batch) = owner.decide(state.seen.batches, request) {
            state.seen.batches += 1;
            state.network.insert((batch, 0, process));
        }
    }

    fn send_again(state: &mut State, node: usize, place: usize) {
        let owner = &mut state.owners[node];
        let process = owner.process;
        let pending = &mut owner.pending[place];
        state.network.insert((pending.batch.clone(), pending.sends, process));
        pending.sends += 1;
        state.seen.faults += 1;
    }

    fn fail_over(&self, state: &mut State, offset: i8) {
        let lost = state.store.fail_over(offset);
        state.seen.dropped.extend(lost);
        state.now += 1;
        if !self.scope.hidden {
            state.network.clear();
            for owner in &mut state.owners {
                owner.answer = None;
            }
        }
    }

    fn take(&self, state: &mut State, action: Action) {
        let run = state.store.run;
        match action {
            Action::Tick => state.now += 1,
            Action::Ask(node) => self.ask(state, node),
            Action::TakeLease(node) => {
                let data = &state.store.primary;
                state.owners[node].take_lease(state.now, &data.log, self.variant);
            }
            Action::LoseLeaseAnswer(node) => {
                state.owners[node].answer = None;
                state.seen.faults += 1;
            }
            Action::Load(node) => state.owners[node].memory = Some(state.store.primary.log.clone()),
            Action::Begin(node, request) => self.begin(state, node, request),
            Action::SendAgain(node, place) => Self::send_again(state, node, place),
            Action::GiveUp(node) => state.owners[node].give_up(),
            Action::Commit(batch, copy, from) => self.commit(state, &batch, copy, from, true),
            Action::CommitUnheard(batch, copy, from) => self.commit(state, &batch, copy, from, false),
            Action::Release(node) => {
                if let Some(held) = state.owners[node].lease.take() {
                    state.store.primary.release(held.fence, self.variant);
                }
                state.owners[node].resign();
            }
            Action::Crash(node) => {
                state.owners[node].crash(run);
                state.seen.crashes += 1;
            }
            Action::Replicate => state.store.replica = state.store.primary.clone(),
            Action::FailOver(offset) => self.fail_over(state, offset),
            Action::SetClock(offset) => {
                state.store.offset = offset;
                state.seen.steps += 1;
            }
            Action::Notice(node) => state.owners[node].notice(run, self.variant),
        }
    }

    /// A read that is served shows all that was acknowledged before it. Not promised over failovers.
    fn reads_are_current(&self, state: &State) -> bool {
        let data = &state.store.primary;
        let missed = |owner: &Owner| {
            let committed = |request: &&u8| data.has_request(**request);
            state.seen.acknowledged.iter().filter(committed).any(|request| !owner.has_reply(*request))
        };
        let serving = |owner: &&Owner| owner.serves(state.now, self.variant);
        state.store.run > 0 || !state.owners.iter().filter(serving).any(missed)
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let (primary, replica) = (Data::default(), Data::default());
        vec![State {
            now: 1,
            store: Store { run: 0, offset: 0, primary, replica },
            owners: (0..self.scope.nodes).map(|node| Owner::new(node, node == 0)).collect(),
            network: BTreeSet::new(),
            seen: Seen::default(),
            harm: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.harm.is_some() {
            return;
        }
        for node in 0..state.owners.len() {
            self.actions_of(state, node, actions);
        }
        for (batch, copy, from) in &state.network {
            actions.push(Action::Commit(batch.clone(), *copy, *from));
            if state.seen.faults < self.scope.faults {
                actions.push(Action::CommitUnheard(batch.clone(), *copy, *from));
            }
        }
        if state.now < self.scope.ticks {
            actions.push(Action::Tick);
            if state.store.run < self.scope.failovers {
                actions.extend(self.scope.offsets.iter().map(|offset| Action::FailOver(*offset)));
            }
        }
        if state.seen.steps < self.scope.steps {
            let others = self.scope.offsets.iter().filter(|offset| **offset != state.store.offset);
            actions.extend(others.map(|offset| Action::SetClock(*offset)));
        }
        if state.store.run < self.scope.failovers && state.store.replica != state.store.primary {
            actions.push(Action::Replicate);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        checks::properties()
    }
}
