//! All nodes, clients and the store in one process and one thread, with one clock and one list of what comes next.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use skein_coordinator::entity::timers::PAGE;
use skein_coordinator::store::CommitError;
use skein_coordinator::store::redis::lease::Acquired;
use skein_shared::entity::RunnerCommand;
use skein_shared::fence::Token;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::time::Instant;
use uuid::Uuid;

use super::clients::{Client, Next, Phase, Role, agent};
use super::config::{Config, stream};
use super::history::{Call, Operation, Outcome, Write};
use super::hosted;
use super::network::{Network, Place};
use super::node::{Answer, Ask, In, Node, Out, Reply, Wish};
use super::store::Store;
use super::trace::Trace;
use super::witness::{Floor, Witness};

/// The time on all walls when a run begins, milliseconds.
pub const BEGIN: u64 = 1_790_000_000_000;
/// How long a node waits for the store, and for another node.
const STORE_LIMIT: u64 = 2_000_000;
const PEER_LIMIT: u64 = 6_000_000;
/// How long a client waits.
const CLIENT_LIMIT: u64 = 12_000_000;
/// How often a client repeats a request of which it does not know what became.
const REPEATS: u32 = 6;
/// How soon a supervisor starts a process again.
const RESTART: u64 = 700_000;
/// How long all goes on at least after everything was healed.
const CALM: u64 = 20_000_000;
/// Agents that are run.
pub const AGENTS: usize = 2;
/// How often runners give signs of life.
const BEAT: u64 = 2_000_000;
/// How often the replica catches up at most.
const LAG: u64 = 3_000_000;

pub(super) enum Event {
    Node {
        index: usize,
        life: u64,
        input: In,
    },
    Store {
        index: usize,
        life: u64,
        id: u64,
        run: u64,
        ask: Ask,
    },
    Client {
        client: usize,
    },
    /// A request reaches a node; or a client has waited long enough.
    Knock {
        client: usize,
        number: u64,
        node: usize,
        wish: Box<Wish>,
    },
    Told {
        client: usize,
        number: u64,
        outcome: Result<serde_json::Value, Refusal>,
    },
    GiveUp {
        client: usize,
        number: u64,
    },
    Write(Write),
    Start {
        index: usize,
    },
    Crash,
    Pause,
    Cut,
    Drain,
    FailOver,
    Replicate,
    Look,
    /// Runners give signs of life.
    Beat,
    ContainerDeath,
    Command {
        client: usize,
        command: RunnerCommand,
    },
    Ended {
        client: usize,
        instance: String,
    },
    Heal,
    End,
}

impl Event {
    /// Whether it is something that no longer happens once all is healed.
    fn is_a_fault(&self) -> bool {
        matches!(
            self,
            Event::Crash | Event::Pause | Event::Cut | Event::Drain | Event::FailOver | Event::ContainerDeath
        )
    }
}

/// A place for a process.
struct Seat {
    node: Option<Node>,
    /// Rises with each start and each end.
    life: u64,
    /// When the process was started, by true time, and by how much its clock is off and runs wrong.
    began: u64,
    offset: i64,
    rate: i64,
    paused_until: u64,
}

/// A client with the operation that it waits for.
struct Waiting {
    client: Client,
    open: Option<Open>,
    number: u64,
    done: bool,
}

struct Open {
    operation: usize,
    wish: Wish,
    repeats: u32,
}

pub struct World {
    pub config: Config,
    pub now: u64,
    start: Instant,
    order: u64,
    events: BTreeMap<(u64, u64, u64), Event>,
    ties: Rng,
    network: Network,
    ids: Rng,
    faults: BTreeMap<&'static str, Rng>,
    seats: Vec<Seat>,
    pub store: Store,
    clients: Vec<Waiting>,
    /// The clients that are runners, by name.
    runners: BTreeMap<String, usize>,
    phase: Phase,
    pub witness: Witness,
    pub history: Vec<Operation>,
    pub writes: Vec<Write>,
    /// The highest token that each guarded resource has seen.
    resource: BTreeMap<String, Token>,
    /// Requests of which a copy may still be on its way.
    muddy: BTreeSet<Uuid>,
    /// What was asked when, for whoever answers.
    floors: BTreeMap<Uuid, Floor>,
    pub trace: Trace,
    pub healed: Option<u64>,
    pub failovers: u32,
    /// Until then the store takes no connection.
    store_back: u64,
    /// Whether everybody has come to an end once, and has to once more: for what others did meanwhile.
    last_round: bool,
    over: bool,
}

impl World {
    pub fn new(config: Config, aloud: bool) -> Self {
        let seed = config.seed;
        let kinds = ["crash", "pause", "cut", "drain", "fail over", "clock", "container death"];
        let mut world = Self {
            now: 0,
            start: Instant::now(),
            order: 0,
            events: BTreeMap::new(),
            ties: stream(seed, "ties"),
            network: Network::new(seed, config.faults),
            ids: stream(seed, "ids"),
            faults: kinds.into_iter().map(|kind| (kind, stream(seed, kind))).collect(),
            seats: Vec::new(),
            store: Store::new(config.broken),
            clients: Vec::new(),
            runners: BTreeMap::new(),
            phase: Phase::Storm,
            witness: Witness::default(),
            history: Vec::new(),
            writes: Vec::new(),
            resource: BTreeMap::new(),
            muddy: BTreeSet::new(),
            floors: BTreeMap::new(),
            trace: Trace::new(aloud),
            healed: None,
            failovers: 0,
            store_back: 0,
            last_round: false,
            over: false,
            config,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let Config { nodes, lockers, workers, senders, schedules, runners, faults, storm, drain, .. } =
            self.config;
        for index in 0..nodes {
            let seat = Seat { node: None, life: 0, began: 0, offset: 0, rate: 0, paused_until: 0 };
            self.seats.push(seat);
            self.at(index as u64 * 300_000, Event::Start { index });
        }
        let seed = self.config.seed;
        let rng = |what: &str, number: usize| stream(seed, &format!("{what} {number}"));
        let mut clients: Vec<Client> = (0..lockers).map(|n| Client::locker(n, rng("locker", n))).collect();
        clients.extend((0..workers).map(|n| Client::worker(n, rng("worker", n))));
        clients.extend((0..senders).map(|n| Client::sender(n, rng("sender", n))));
        if senders > 0 {
            clients.push(Client::reader(rng("reader", 0)));
        }
        if schedules > 0 {
            clients.push(Client::planner(schedules, rng("planner", 0)));
        }
        if runners > 0 {
            clients.extend((0..AGENTS).map(|n| Client::starter(n, rng("starter", n))));
        }
        for number in 0..runners {
            self.runners.insert(format!("runner-{number}"), clients.len());
            clients.push(Client::runner(number, rng("runner", number)));
        }
        for (number, client) in clients.into_iter().enumerate() {
            self.clients.push(Waiting { client, open: None, number: 0, done: false });
            self.after(1_000 * number as u64, Event::Client { client: number });
        }
        self.soon("crash", faults.crash, Event::Crash);
        self.soon("pause", faults.pause, Event::Pause);
        self.soon("cut", faults.cut, Event::Cut);
        self.soon("drain", faults.drain, Event::Drain);
        self.soon("fail over", faults.fail_over, Event::FailOver);
        self.soon("container death", faults.container_death, Event::ContainerDeath);
        self.after(BEAT, Event::Beat);
        if faults.fail_over > 0 {
            self.after(0, Event::Replicate);
        }
        self.at(storm * 1_000, Event::Heal);
        self.at((storm + drain) * 1_000, Event::End);
    }

    /// Goes on until the end, or until something is wrong.
    pub fn run(&mut self) {
        while !self.over
            && self.witness.broken.is_empty()
            && let Some(((at, ..), event)) = self.events.pop_first()
        {
            self.now = at;
            self.take(event);
        }
    }

    fn at(&mut self, at: u64, event: Event) {
        self.order += 1;
        let tie = self.ties.u64(..);
        self.events.insert((at, tie, self.order), event);
    }

    fn after(&mut self, delay: u64, event: Event) {
        self.at(self.now + delay, event);
    }

    /// Something of a kind that happens every so often, if ever.
    fn soon(&mut self, kind: &'static str, every: u64, event: Event) {
        if every > 0 && self.phase == Phase::Storm {
            let delay = self.dice(kind).u64(every / 4..every * 7 / 4) * 1_000;
            self.after(delay, event);
        }
    }

    fn dice(&mut self, kind: &'static str) -> &mut Rng {
        self.faults.get_mut(kind).expect("each kind has a stream")
    }

    fn take(&mut self, event: Event) {
        if self.phase == Phase::Calm && event.is_a_fault() {
            return;
        }
        match event {
            Event::Node { index, life, input } => self.node_in(index, life, input),
            Event::Store { index, life, id, run, ask } => self.store_in((index, life, id), run, ask),
            Event::Client { client } => self.client_next(client),
            Event::Knock { client, number, node, wish } => self.knock(client, number, node, wish),
            Event::Told { client, number, outcome } => self.client_told(client, number, outcome),
            Event::GiveUp { client, number } => self.client_gives_up(client, number),
            Event::Write(write) => self.resource_write(write),
            Event::Start { index } => self.start_node(index),
            Event::Crash => {
                let index = self.any_seat("crash");
                self.trace.note(self.now, format_args!("node {index} crashes"));
                self.stop_node(index);
                let delay = self.dice("crash").u64(0..4_000_000);
                self.after(RESTART + delay, Event::Start { index });
                self.soon("crash", self.config.faults.crash, Event::Crash);
            }
            Event::Pause => {
                let index = self.any_seat("pause");
                let most = 3 * u64::try_from(self.config.lease.as_micros()).unwrap_or(u64::MAX);
                let span = self.dice("pause").u64(most / 30..most);
                self.trace.note(self.now, format_args!("node {index} stands still for {} ms", span / 1_000));
                self.seats[index].paused_until = self.now + span;
                self.soon("pause", self.config.faults.pause, Event::Pause);
            }
            Event::Cut => {
                let cut = self.network.cut(self.seats.len(), self.now);
                self.trace.note(self.now, format_args!("cut: {cut:?}"));
                self.soon("cut", self.config.faults.cut, Event::Cut);
            }
            Event::Drain => {
                let index = self.any_seat("drain");
                self.trace.note(self.now, format_args!("node {index} is asked to end"));
                let life = self.seats[index].life;
                self.after(0, Event::Node { index, life, input: In::Resign });
                self.soon("drain", self.config.faults.drain, Event::Drain);
            }
            Event::FailOver => self.fail_over(),
            Event::Replicate => {
                self.store.replicate();
                self.witness.replicate();
                let delay = self.dice("fail over").u64(1_000..LAG);
                if self.phase == Phase::Storm {
                    self.after(delay, Event::Replicate);
                }
            }
            Event::Look => self.look_whether_over(),
            Event::Beat => self.beat(),
            Event::ContainerDeath => self.container_death(),
            Event::Command { client, command } => self.command(client, command),
            Event::Ended { client, instance } => self.container_ends(client, &instance, 0),
            Event::Heal => self.heal(),
            Event::End => {
                self.witness.broken.push(format!(
                    "liveness: after {} ms not all has drained: {}",
                    self.config.drain,
                    self.what_is_left()
                ));
            }
        }
    }

    fn any_seat(&mut self, kind: &'static str) -> usize {
        let count = self.seats.len();
        self.dice(kind).usize(0..count)
    }

    fn fail_over(&mut self) {
        // The clock of the promoted server may be behind, and by less than the failover takes.
        let took = self.dice("fail over").u64(600_000..4_000_000);
        let offset = self.dice("fail over").i64(-500..500);
        self.trace.note(self.now, format_args!("the store fails over; its clock moves by {offset} ms"));
        self.failovers += 1;
        self.store_back = self.now + took;
        self.store.fail_over(offset);
        self.witness.fail_over();
        self.soon("fail over", self.config.faults.fail_over, Event::FailOver);
    }

    fn heal(&mut self) {
        self.trace.note(self.now, format_args!("all is healed"));
        self.phase = Phase::Calm;
        self.healed = Some(self.now);
        self.network.heal();
        for seat in &mut self.seats {
            seat.paused_until = seat.paused_until.min(self.now);
        }
        for waiting in &mut self.clients {
            waiting.client.calm();
        }
        self.after(CALM, Event::Look);
    }

    // Nodes.

    fn start_node(&mut self, index: usize) {
        let Config { faults, .. } = self.config;
        let clock = self.dice("clock");
        let offset = clock.i64(-faults.offset..=faults.offset);
        let rate = clock.i64(-faults.rate..=faults.rate);
        let rng = stream(self.ids.u64(..), "node");
        let run = self.store.run;
        let seat = &mut self.seats[index];
        if seat.node.is_some() {
            return;
        }
        seat.life += 1;
        (seat.began, seat.offset, seat.rate) = (self.now, offset, rate);
        let wall = (BEGIN + self.now / 1_000).saturating_add_signed(offset);
        let local = self.local(index);
        self.trace
            .note(self.now, format_args!("node {index} starts, {offset} ms off, {rate} in a thousand wrong"));
        let mut node = Node::new(&self.config, index, rng, (local, wall), run);
        let outs = node.start();
        self.seats[index].node = Some(node);
        self.carry_out(index, outs);
    }

    /// The node's own monotonic clock.
    fn local(&self, index: usize) -> Instant {
        let seat = &self.seats[index];
        let span = self.now - seat.began;
        let rate = 1_000_u64.saturating_add_signed(seat.rate);
        self.start + Duration::from_micros(seat.began) + Duration::from_micros(span * rate / 1_000)
    }

    fn stop_node(&mut self, index: usize) {
        let seat = &mut self.seats[index];
        seat.node = None;
        seat.life += 1;
        seat.paused_until = 0;
        for waiting in &mut self.clients {
            if let Role::Runner(runner) = &mut waiting.client.role
                && runner.connected == Some(index)
            {
                runner.connected = None;
            }
        }
    }

    fn node_in(&mut self, index: usize, life: u64, input: In) {
        let seat = &self.seats[index];
        if seat.life != life {
            return;
        }
        if seat.paused_until > self.now {
            return self.at(seat.paused_until, Event::Node { index, life, input });
        }
        let local = self.local(index);
        let connected = self.connected();
        let Some(node) = self.seats[index].node.as_mut() else { return };
        node.connected = connected;
        let outs = node.on(input, local);
        self.carry_out(index, outs);
    }

    fn carry_out(&mut self, index: usize, outs: Vec<Out>) {
        let life = self.seats[index].life;
        for out in outs {
            match out {
                Out::Store { id, ask } => self.ask_store((index, life, id), ask),
                Out::Peer { to, rpc, key, call } => {
                    let to = self
                        .seats
                        .iter()
                        .position(|seat| seat.node.as_ref().is_some_and(|node| node.me.id == to));
                    self.ask_peer((index, life, rpc), to, In::Peer { from: index, rpc, key, call });
                }
                Out::Reply { to, rpc, reply } => self.reply(index, to, rpc, reply),
                Out::Client { client, number, id, outcome, version } => {
                    self.answer_client(index, client, number, id, outcome, version);
                }
                Out::Runner { runner, command } => self.command_runner(index, &runner, command),
                Out::After { delay, input } => {
                    let rate = 1_000_u64.saturating_add_signed(self.seats[index].rate);
                    let delay =
                        u64::try_from(delay.as_micros()).unwrap_or(u64::MAX).saturating_mul(1_000) / rate;
                    self.after(delay, Event::Node { index, life, input });
                }
                Out::Decided { batch, on } => self.witness.decided(batch, on),
                // Of what a failover has dropped nobody says anything any more.
                Out::Applied { target, mark } if self.is_up_to_date(index) => {
                    self.witness.applied(&target, &mark)
                }
                Out::Applied { .. } => {}
                Out::Unsound { key, invariant } => {
                    self.witness.broken.push(format!("invariants: {invariant} of {key} does not hold"));
                }
                Out::Exit { resigned } => {
                    self.trace.note(self.now, format_args!("node {index} ends, resigned: {resigned}"));
                    if resigned && let Some(node) = &self.seats[index].node {
                        let id = node.me.id.clone();
                        self.store.primary.leave(&id);
                    }
                    self.stop_node(index);
                    self.after(RESTART, Event::Start { index });
                    return;
                }
                Out::Note(what) => self.trace.note(self.now, format_args!("node {index}: {what}")),
            }
        }
    }

    /// Whether a node knows of the last failover.
    fn is_up_to_date(&self, index: usize) -> bool {
        self.seats[index].node.as_ref().is_some_and(|node| node.run == self.store.run)
    }

    fn ask_peer(&mut self, (index, life, rpc): (usize, u64, u64), to: Option<usize>, input: In) {
        let silence = Event::Node { index, life, input: In::PeerAnswer { rpc, answer: None } };
        let Some(to) = to else { return self.after(5_000, silence) };
        let request = match &input {
            In::Peer { call: super::node::Call::Ask { id, .. }, .. } => Some(*id),
            _ => None,
        };
        let (delays, clean) = self.network.carry(Place::Node(index), Place::Node(to), self.now);
        if let (Some(request), false) = (request, clean) {
            self.muddy.insert(request);
        }
        let target = self.seats[to].life;
        if let In::Peer { from, rpc, key, call } = input {
            for delay in delays {
                let input = In::Peer { from, rpc, key: key.clone(), call: call.clone() };
                self.after(delay, Event::Node { index: to, life: target, input });
            }
        }
        self.after(PEER_LIMIT, silence);
    }

    fn reply(&mut self, from: usize, to: usize, rpc: u64, reply: Reply) {
        let life = self.seats[to].life;
        let (delays, _) = self.network.carry(Place::Node(from), Place::Node(to), self.now);
        for delay in delays {
            let input = In::PeerAnswer { rpc, answer: Some(reply.clone()) };
            self.after(delay, Event::Node { index: to, life, input });
        }
    }

    // The store.

    fn ask_store(&mut self, (index, life, id): (usize, u64, u64), ask: Ask) {
        let run = self.store.run;
        if let Some(delay) = self.network.to_store(Place::Node(index), self.now) {
            self.after(delay, Event::Store { index, life, id, run, ask });
        }
        self.after(STORE_LIMIT, Event::Node { index, life, input: In::Store { id, answer: None } });
    }

    fn store_in(&mut self, (index, life, id): (usize, u64, u64), run: u64, ask: Ask) {
        let owner = format!("node-{index}");
        // A connection ends with the server that it was made to.
        let connected = run == self.store.run && self.now >= self.store_back;
        let answer = if connected { self.execute(&owner, ask) } else { None };
        if let Some(delay) = self.network.to_store(Place::Store(index), self.now) {
            self.after(delay, Event::Node { index, life, input: In::Store { id, answer } });
        }
    }

    fn execute(&mut self, owner: &str, ask: Ask) -> Option<Answer> {
        let now = (BEGIN + self.now / 1_000).saturating_add_signed(self.store.offset);
        let lease = self.config.lease;
        Some(match ask {
            Ask::IsTheSame(run) => Answer::Same(run == self.store.run),
            Ask::Renew(held) => {
                let kept =
                    held.iter().map(|(shard, fence)| self.store.primary.renew(*shard, *fence, lease, now));
                Answer::Kept(kept.collect())
            }
            Ask::Release(held) => {
                let server = &mut self.store.primary;
                let kept: Vec<_> = held.iter().map(|(shard, fence)| server.release(*shard, *fence)).collect();
                for ((shard, _), kept) in held.iter().zip(&kept) {
                    if *kept == skein_coordinator::store::redis::lease::Kept::Done {
                        self.witness.released(*shard);
                    }
                }
                Answer::Kept(kept)
            }
            Ask::Beat(me) => {
                let lives = skein_coordinator::cluster::steward::LIVES;
                Answer::Members(self.store.primary.beat(me, lives, now))
            }
            Ask::Leases => Answer::Leases(self.store.primary.leases(now)),
            Ask::Acquire(shards) => {
                let mut answers = Vec::new();
                for wanted in shards {
                    let broken = self.config.broken;
                    let answer = self.store.primary.acquire(wanted, owner, lease, now, broken);
                    if let Acquired::Taken(fence) = &answer {
                        self.witness.granted(wanted.0, *fence);
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
            Ask::Load(key) => {
                let state = &self.store.primary.state;
                let (at, base) = (state.load(&key).at, self.witness.base(&key));
                Answer::Loaded(hosted::find(&key, state, Timestamp(now)), at, base)
            }
            Ask::Timers(shards) => Answer::Timers(self.store.primary.timers(PAGE, &shards)),
            Ask::Outbox { after, shards } => {
                let page = skein_coordinator::outbox::lanes::PAGE;
                Answer::Page(self.store.primary.outbox(after, page, &shards))
            }
            Ask::TakeOut(effects) => {
                let server = &mut self.store.primary;
                let refused =
                    effects.iter().filter(|(fence, effect)| server.delivered(*fence, effect).is_err());
                Answer::TakenOut { all: refused.count() == 0 }
            }
        })
    }

    fn commit(
        &mut self,
        owner: &str,
        fence: skein_coordinator::store::Fence,
        batch: &Arc<skein_coordinator::store::Batch>,
    ) -> Result<skein_coordinator::store::Version, CommitError> {
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

    // Clients.

    fn client_next(&mut self, number: usize) {
        let phase = self.phase;
        let waiting = &mut self.clients[number];
        if waiting.open.is_some() {
            return;
        }
        match waiting.client.next(phase) {
            Next::Rest => {
                waiting.done = phase == Phase::Calm;
                self.after(300_000, Event::Client { client: number });
            }
            Next::Done => {
                waiting.done = phase == Phase::Calm;
                self.after(1_000_000, Event::Client { client: number });
            }
            Next::Ask { key, command, changes, call } => {
                waiting.done = false;
                let id = Uuid::from_u128(self.ids.u128(..));
                waiting.number += 1;
                let timeout = Duration::from_micros(CLIENT_LIMIT);
                let wish =
                    Wish { client: number, number: waiting.number, key, id, changes, command, timeout };
                let floor = self.witness.floor(&wish.key);
                self.floors.insert(id, floor);
                self.trace.note(self.now, format_args!("client {number} asks {id}: {call:?}"));
                self.history.push(Operation {
                    client: number,
                    call,
                    request: id,
                    invoked: self.now,
                    returned: u64::MAX,
                    outcome: Outcome::Unknown,
                });
                let operation = self.history.len() - 1;
                self.clients[number].open = Some(Open { operation, wish: wish.clone(), repeats: 0 });
                self.send(number, wish);
            }
        }
    }

    fn send(&mut self, client: usize, wish: Wish) {
        let node = self.any_node(client);
        let (delays, clean) = self.network.carry(Place::Clients, Place::Node(node), self.now);
        if !clean {
            self.muddy.insert(wish.id);
        }
        let number = wish.number;
        for delay in delays {
            let wish = Box::new(wish.clone());
            self.after(delay, Event::Knock { client, number, node, wish });
        }
        self.after(CLIENT_LIMIT, Event::GiveUp { client, number });
    }

    fn any_node(&mut self, client: usize) -> usize {
        let count = self.seats.len();
        let client = &mut self.clients[client].client;
        let node = client.rng.usize(0..count);
        if let Role::Runner(runner) = &mut client.role {
            runner.asked = node;
        }
        node
    }

    fn knock(&mut self, client: usize, number: u64, node: usize, wish: Box<Wish>) {
        let life = self.seats[node].life;
        if self.seats[node].node.is_some() {
            return self.after(0, Event::Node { index: node, life, input: In::Request(wish) });
        }
        let refusal = Refusal::new(Code::Unavailable, "nobody listens there");
        self.after(1_000, Event::Told { client, number, outcome: Err(refusal) });
    }

    fn answer_client(
        &mut self,
        node: usize,
        client: usize,
        number: u64,
        id: Uuid,
        outcome: Result<serde_json::Value, Refusal>,
        version: skein_coordinator::store::Version,
    ) {
        if let (Some(open), Some(floor)) = (&self.clients[client].open, self.floors.get(&id))
            && open.wish.id == id
            && was_decided(&outcome)
            && self.is_up_to_date(node)
        {
            self.witness.told(&open.wish.key, version, *floor);
        }
        let (delays, _) = self.network.carry(Place::Node(node), Place::Clients, self.now);
        for delay in delays {
            self.after(delay, Event::Told { client, number, outcome: outcome.clone() });
        }
    }

    fn client_told(&mut self, client: usize, number: u64, outcome: Result<serde_json::Value, Refusal>) {
        let waiting = &self.clients[client];
        if waiting.number != number {
            return;
        }
        let Some(open) = &waiting.open else { return };
        let muddy = open.repeats > 0 || self.muddy.contains(&open.wish.id);
        match outcome {
            Ok(answer) => self.close(client, Outcome::Ok(answer)),
            Err(refusal) if is_passing(refusal.code) => {
                if refusal.code == Code::Unknown {
                    self.muddy.insert(open.wish.id);
                }
                self.repeat(client);
            }
            Err(_) if muddy => self.close(client, Outcome::Unknown),
            Err(refusal) => self.close(client, Outcome::Fail(refusal.code)),
        }
    }

    fn client_gives_up(&mut self, client: usize, number: u64) {
        let waiting = &self.clients[client];
        if let Some(open) = &waiting.open
            && waiting.number == number
        {
            self.muddy.insert(open.wish.id);
            self.repeat(client);
        }
    }

    /// The same request again, through another node perhaps.
    fn repeat(&mut self, client: usize) {
        let calm = self.phase == Phase::Calm;
        let waiting = &mut self.clients[client];
        let Some(open) = &mut waiting.open else { return };
        open.repeats += 1;
        // In a storm some give up, and never know.
        let insists = matches!(waiting.client.role, Role::Sender { .. });
        if !calm && !insists && open.repeats > REPEATS {
            return self.close(client, Outcome::Unknown);
        }
        waiting.number += 1;
        open.wish.number = waiting.number;
        let wish = open.wish.clone();
        let number = wish.number;
        let delay = self.clients[client].client.rng.u64(10_000..500_000);
        let node = self.any_node(client);
        self.after(delay, Event::Knock { client, number, node, wish: Box::new(wish) });
        self.after(CLIENT_LIMIT, Event::GiveUp { client, number });
    }

    fn close(&mut self, client: usize, outcome: Outcome) {
        let Some(open) = self.clients[client].open.take() else { return };
        let operation = &mut self.history[open.operation];
        operation.outcome = outcome.clone();
        if outcome != Outcome::Unknown {
            operation.returned = self.now;
        }
        let call = operation.call.clone();
        let told = match &outcome {
            Outcome::Ok(_) => "done",
            Outcome::Fail(code) => code.as_str(),
            Outcome::Unknown => "unknown",
        };
        self.trace.note(self.now, format_args!("client {client} hears of {}: {told}", open.wish.id));
        self.trace.detail(format_args!("{outcome:?}"));
        self.clients[client].client.heard(&call, &outcome);
        if let (Call::Acquire { key, .. }, Outcome::Ok(answer)) = (&call, &outcome)
            && let Some(token) = answer["acquired"]["token"].as_str()
        {
            self.guarded_writes(client, key, token);
        }
        let think = self.config.think * 1_000;
        let delay = self.clients[client].client.rng.u64(0..think * 2 + 1);
        self.after(delay, Event::Client { client });
    }

    /// Whoever has a lock writes what it guards, sooner or later.
    fn guarded_writes(&mut self, client: usize, key: &str, token: &str) {
        for _ in 0..2 {
            let delay = self.clients[client].client.rng.u64(0..3_000_000);
            let write = Write { key: key.to_owned(), client, token: token.to_owned() };
            self.after(delay, Event::Write(write));
        }
    }

    /// The resource refuses tokens that are lower than the highest that it has seen.
    fn resource_write(&mut self, write: Write) {
        let Ok(token) = write.token.parse::<Token>() else { return };
        let highest = self.resource.entry(write.key.clone()).or_insert(token);
        if token >= *highest {
            *highest = token;
            self.writes.push(write);
        }
    }

    /// Looks whether everything has drained, some time after all was healed.
    fn look_whether_over(&mut self) {
        let done = self.clients.iter().all(|waiting| waiting.done);
        let done = done && self.runs_left().is_empty();
        if done && !self.last_round && self.store.primary.state.outbox(0, 1).is_empty() {
            self.last_round = true;
            self.wake_clients();
        } else {
            self.over = done && self.last_round;
        }
        if !self.over {
            self.after(1_000_000, Event::Look);
        }
    }

    fn wake_clients(&mut self) {
        for waiting in &mut self.clients {
            waiting.client.calm();
            waiting.done = false;
        }
    }

    // Runners.

    fn runner(&mut self, client: usize) -> Option<(&mut super::runner::Runner, &mut Rng)> {
        match &mut self.clients[client].client {
            Client { role: Role::Runner(runner), rng } => Some((runner, rng)),
            _ => None,
        }
    }

    fn connected(&self) -> BTreeSet<String> {
        let runners = self.runners.iter().filter(|(_, client)| {
            matches!(&self.clients[**client].client.role, Role::Runner(runner) if runner.connected.is_some())
        });
        runners.map(|(name, _)| name.clone()).collect()
    }

    fn command_runner(&mut self, node: usize, runner: &str, command: RunnerCommand) {
        let Some(&client) = self.runners.get(runner) else { return };
        let (delays, _) = self.network.carry(Place::Node(node), Place::Clients, self.now);
        if delays.is_empty()
            && let Some((runner, _)) = self.runner(client)
        {
            // The stream broke; the runner makes a new one, and says what it holds.
            runner.connected = None;
        }
        for delay in delays {
            self.after(delay, Event::Command { client, command: command.clone() });
        }
    }

    fn command(&mut self, client: usize, command: RunnerCommand) {
        self.trace.note(self.now, format_args!("client {client} is commanded: {command:?}"));
        let Some((runner, rng)) = self.runner(client) else { return };
        if let Some((instance, lasts)) = runner.command(command, rng) {
            self.after(lasts, Event::Ended { client, instance });
        }
    }

    fn container_ends(&mut self, client: usize, instance: &str, code: i32) {
        if let Some((runner, _)) = self.runner(client) {
            runner.ended(instance, code);
        }
    }

    fn container_death(&mut self) {
        let clients: Vec<usize> = self.runners.values().copied().collect();
        for client in clients {
            let victim = self.runner(client).and_then(|(runner, rng)| runner.victim(rng));
            if let Some(instance) = victim {
                self.trace.note(self.now, format_args!("the container of {instance} dies"));
                self.container_ends(client, &instance, 137);
            }
        }
        self.soon("container death", self.config.faults.container_death, Event::ContainerDeath);
    }

    fn beat(&mut self) {
        let clients: Vec<usize> = self.runners.values().copied().collect();
        for client in clients {
            let Some((runner, _)) = self.runner(client) else { continue };
            if runner.connected.is_none() {
                continue;
            }
            let signal = runner.signal();
            for index in 0..self.seats.len() {
                let life = self.seats[index].life;
                let (delays, _) = self.network.carry(Place::Clients, Place::Node(index), self.now);
                for delay in delays {
                    let input = In::Observe(super::runner::group(), signal.clone());
                    self.after(delay, Event::Node { index, life, input });
                }
            }
        }
        if !self.runners.is_empty() {
            self.after(BEAT, Event::Beat);
        }
    }

    /// Runs that were asked for and have not ended.
    fn runs_left(&self) -> BTreeSet<String> {
        let mut left = BTreeSet::new();
        for number in 0..AGENTS {
            for event in self.witness.events(&agent(number)) {
                if let Some(instance) = event["queued"]["instance"]["id"].as_str() {
                    left.insert(instance.to_owned());
                }
                if let Some(instance) = event["ended"]["instance"].as_str() {
                    left.remove(instance);
                }
            }
        }
        left
    }

    fn what_is_left(&self) -> String {
        let open = self.clients.iter().enumerate().filter(|(_, waiting)| !waiting.done);
        let open: Vec<String> = open
            .map(|(number, waiting)| {
                format!("client {number} waits for {:?}", waiting.open.as_ref().map(|open| open.wish.id))
            })
            .collect();
        let effects = self.store.primary.state.outbox(0, 5);
        let effects: Vec<_> = effects.iter().map(|entry| (entry.source.to_string(), &entry.effect)).collect();
        format!("{open:?}, effects {effects:?}, runs {:?}", self.runs_left())
    }
}

/// Whether an entity has decided this, be it a refusal.
fn was_decided(outcome: &Result<serde_json::Value, Refusal>) -> bool {
    !matches!(outcome, Err(refusal) if is_passing(refusal.code))
}

fn is_passing(code: Code) -> bool {
    matches!(code, Code::NotOwner | Code::Unavailable | Code::Overloaded | Code::Unknown | Code::Internal)
}
