//! The shell of `outbox/pump.rs` and of `entity/timers.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use skein_coordinator::by_kind;
use skein_coordinator::entity::Request;
use skein_coordinator::entity::timers::due;
use skein_coordinator::outbox::lanes::{Ended, Fate, Input, Name, Output};
use skein_coordinator::store::redis::shard::Shard;
use skein_coordinator::store::{Fence, Mark, OutboxEntry, OutboxPlace, StoreError};
use skein_shared::Refusal;
use skein_shared::entity::{Effect, Entity};
use skein_shared::id::EntityKey;
use skein_shared::json::Json;
use skein_shared::time::Timestamp;

use super::{Answer, Ask, In, LaneIn, Node, Out, Then};
use crate::sim::config::Broken;
use crate::sim::hosted::{Asked, Way};

/// Looks at the store at least this often.
const LONGEST: Duration = Duration::from_secs(30);
const AFTER_ERROR: Duration = Duration::from_secs(1);

impl Node {
    /// Begins anew: what was read may be another node's to deliver now, and of what came some stands behind the place
    /// up to which was read.
    pub(super) fn restart_pumps(&mut self) {
        let ended = std::mem::take(&mut self.lanes).end();
        self.lanes_turn += 1;
        self.lanes_since = self.now;
        if !ended.is_empty() {
            let effects = self.fenced(&ended);
            self.ask(Ask::TakeOut { run: self.run, effects }, Then::Nothing);
        }
        self.lanes_on(Input::Look);
        self.keep_looking();
        self.wakes.earliest = Timestamp::ZERO;
        self.look_at_timers();
    }

    fn keep_looking(&mut self) {
        let turn = self.lanes_turn;
        self.after(LONGEST, In::Lane { turn, what: LaneIn::Look });
    }

    fn ours(&self) -> Vec<Shard> {
        self.slots.all().into_iter().map(|(shard, _)| shard).collect()
    }

    /// What is over, under the fences that it was read under if these are still ours.
    fn fenced(&self, ended: &Ended) -> Vec<(Fence, OutboxPlace)> {
        let still = |place: &OutboxPlace| {
            let now = self.fence(&place.source);
            (if now == place.fence { now } else { Fence::NONE }, place.clone())
        };
        let dead = ended.dead.iter().map(|(place, _)| place);
        ended.delivered.iter().chain(dead).map(still).collect()
    }

    pub(super) fn effects_came(&mut self) {
        self.lanes_on(Input::Look);
    }

    pub(super) fn lane_in(&mut self, what: LaneIn) {
        match what {
            LaneIn::Look => {
                self.keep_looking();
                self.lanes_on(Input::Look);
            }
            LaneIn::Read { after } => self.read(after),
            LaneIn::Try { lane, entries } => self.attempt(lane, entries),
            LaneIn::Gathered => self.lanes_on(Input::Gathered),
        }
    }

    fn lanes_on(&mut self, input: Input) {
        let turn = self.lanes_turn;
        for output in self.lanes.on(input) {
            match output {
                Output::Read { after, pause } if pause.is_zero() => self.read(after),
                Output::Read { after, pause } => {
                    self.after(pause, In::Lane { turn, what: LaneIn::Read { after } });
                }
                Output::Try { lane, entries, pause } => {
                    self.after(pause, In::Lane { turn, what: LaneIn::Try { lane, entries } });
                }
                Output::Gather(pause) => self.after(pause, In::Lane { turn, what: LaneIn::Gathered }),
                Output::TakeOut(ended) => {
                    let effects = self.fenced(&ended);
                    self.ask(Ask::TakeOut { run: self.run, effects }, Then::TakeOut { turn, ended });
                }
            }
        }
    }

    fn read(&mut self, after: u64) {
        let (turn, shards) = (self.lanes_turn, self.ours());
        let held = self.slots.all().into_iter().collect();
        self.ask(Ask::Outbox { after, shards }, Then::Read { turn, held });
    }

    pub(super) fn page_is(&mut self, answer: Option<Answer>, held: &BTreeMap<Shard, Fence>) {
        let mut page = match answer {
            Some(Answer::Page(page)) => Ok(page),
            _ => Err(StoreError("no answer".to_owned())),
        };
        for entry in page.iter_mut().flatten() {
            entry.fence = held.get(&Shard::of(&entry.source)).copied().unwrap_or(Fence::NONE);
        }
        if self.broken == Some(Broken::EffectsAreNotAwaited)
            && let Ok(page) = &page
        {
            let effects = page.iter().map(|entry| (self.fence(&entry.source), entry.place())).collect();
            self.ask(Ask::TakeOut { run: self.run, effects }, Then::Nothing);
        }
        self.lanes_on(Input::Read(page));
    }

    pub(super) fn taken_out(&mut self, left: Ended) {
        self.lanes_on(Input::TakenOut(left));
    }

    /// Delivers effects of one lane.
    fn attempt(&mut self, lane: Name, entries: Vec<Arc<OutboxEntry>>) {
        let turn = self.lanes_turn;
        match entries.first().map(|entry| entry.effect.clone()) {
            None => {}
            Some(Effect::Entity { key, .. }) => {
                let commands = entries.iter().filter_map(|entry| {
                    let Effect::Entity { command, .. } = &entry.effect else { return None };
                    let mark =
                        Mark { source: entry.source.clone(), epoch: entry.epoch, sequence: entry.sequence };
                    Some((mark, command.clone()))
                });
                let commands = commands.collect();
                self.deliver(&key, commands, (turn, lane, entries));
            }
            Some(Effect::Runner { runner, .. }) => {
                let fates = self.command(&runner, &entries);
                self.lanes_on(Input::Tried(lane, fates));
            }
            // Nobody speaks to the swarms of the simulation.
            Some(Effect::Slack { .. }) => {
                self.lanes_on(Input::Tried(lane, vec![Fate::Delivered; entries.len()]))
            }
        }
    }

    /// Puts commands on a runner's stream, whichever node has it.
    fn command(&mut self, runner: &str, entries: &[Arc<OutboxEntry>]) -> Vec<Fate> {
        if !self.connected.contains(runner) {
            let (now, delivering) = self.delivering();
            return entries.iter().take(1).map(|entry| Fate::later(entry, now, delivering)).collect();
        }
        let mut fates = Vec::new();
        for entry in entries {
            if let Effect::Runner { runner, command } = &entry.effect {
                let (runner, source, command) = (runner.clone(), entry.source.clone(), command.clone());
                self.outs.push(Out::Runner { runner, source, command });
            }
            fates.push(Fate::Delivered);
        }
        fates
    }

    pub(super) fn tried(
        &mut self,
        turn: u64,
        lane: Name,
        entries: &[Arc<OutboxEntry>],
        outcomes: Vec<Result<(), Refusal>>,
    ) {
        if turn != self.lanes_turn {
            return;
        }
        let (now, delivering) = self.delivering();
        let fate = |(entry, outcome): (&Arc<OutboxEntry>, _)| Fate::of(entry, outcome, now, delivering);
        let fates = entries.iter().zip(outcomes).map(fate).collect();
        self.lanes_on(Input::Tried(lane, fates));
    }

    /// What time it is, and for how long it has delivered.
    fn delivering(&self) -> (Timestamp, Duration) {
        (self.clock.now(self.now), self.now.duration_since(self.lanes_since))
    }

    /// Reads the earliest timers, unless it is at it.
    pub(super) fn look_at_timers(&mut self) {
        if self.wakes.reading || self.wakes.ticking > 0 {
            self.wakes.again = true;
            return;
        }
        self.wakes.turn += 1;
        (self.wakes.reading, self.wakes.again) = (true, false);
        self.wakes.earliest = Timestamp::NEVER;
        let shards = self.ours();
        self.ask(Ask::Timers(shards), Then::Timers);
    }

    pub(super) fn timer_was_set(&mut self, at: Timestamp) {
        if at < self.wakes.earliest {
            self.wakes.earliest = at;
            self.look_at_timers();
        }
    }

    pub(super) fn timers_unknown(&mut self) {
        self.wakes.reading = false;
        self.rest(AFTER_ERROR);
    }

    pub(super) fn timers_are(&mut self, timers: Vec<(EntityKey, Timestamp)>) {
        self.wakes.reading = false;
        let (due, later) = due(timers, self.clock.time(self.now));
        (self.wakes.ticking, self.wakes.failed, self.wakes.later) = (due.len(), false, later);
        for key in &due {
            let command = by_kind!(key.kind, E => Json::of(&E::tick()));
            let request =
                Request { id: self.uuid(), timeout: Request::TIMEOUT, keep_reply: false, changes: false };
            self.post(key, vec![Asked { request, mark: None, command, way: Way::Tick }]);
        }
        if due.is_empty() {
            self.rest_until_later();
        }
    }

    pub(super) fn ticked(&mut self, taken: bool) {
        self.wakes.failed |= !taken;
        self.wakes.ticking = self.wakes.ticking.saturating_sub(1);
        if self.wakes.ticking == 0 {
            if self.wakes.failed { self.rest(AFTER_ERROR) } else { self.rest_until_later() }
        }
    }

    fn rest_until_later(&mut self) {
        let until = self.wakes.later.map_or(LONGEST, |due| due.since(self.clock.now(self.now)));
        self.rest(until.min(LONGEST));
    }

    fn rest(&mut self, pause: Duration) {
        if self.wakes.again {
            return self.look_at_timers();
        }
        let turn = self.wakes.turn;
        self.after(pause, In::Timers { turn });
    }
}
