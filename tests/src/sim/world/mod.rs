//! All nodes, clients and the store in one process and one thread, with one clock and one list of what comes next.

mod asking;
mod nodes;
mod running;
mod storage;

use std::collections::{BTreeMap, BTreeSet};

use fastrand::Rng;
use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::entity::RunnerCommand;
use skein_shared::fence::Token;
use skein_shared::id::{EntityKey, InstanceId};
use tokio::time::Instant;
use uuid::Uuid;

use super::clients::{Client, Phase, Role, agent, tasks};
use super::config::{Config, stream};
use super::guests::Guests;
use super::history::{Call, Operation, Write};
use super::network::Network;
use super::node::{Ask, In, Node, Wish};
use super::runner::Runner;
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
const CALM: u64 = 12_000_000;
/// Agents that are run.
pub const AGENTS: usize = 2;
/// How often runners give signs of life.
const BEAT: u64 = 2_000_000;
/// How often the replica catches up at most.
const LAG: u64 = 3_000_000;

enum Event {
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
        outcome: Result<Value, Refusal>,
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
    /// Runners give signs of life, and one of them for the workers.
    Beat,
    ContainerDeath,
    /// All machines have stood still for a while: their walls are ahead, and nothing else has gone on. Once: who starts
    /// after that is ahead of the others by as much, and they wait for it when they take over.
    Sleep,
    /// The clock of the store is set.
    Step,
    Command {
        client: usize,
        command: (EntityKey, RunnerCommand),
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
            Event::Crash
                | Event::Pause
                | Event::Cut
                | Event::Drain
                | Event::FailOver
                | Event::ContainerDeath
                | Event::Sleep
                | Event::Step
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
    /// For how long all machines have stood still, milliseconds.
    pub slept: u64,
    /// Until then the store takes no connection.
    store_back: u64,
    /// Whether everybody has come to an end once, and has to once more: for what others did meanwhile.
    last_round: bool,
    over: bool,
}

impl World {
    pub fn new(config: Config, aloud: bool) -> Self {
        let seed = config.seed;
        let kinds =
            ["crash", "pause", "cut", "drain", "fail over", "clock", "container death", "sleep", "step"];
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
            slept: 0,
            store_back: 0,
            last_round: false,
            over: false,
            config,
        };
        world.set_up();
        world
    }

    fn set_up(&mut self) {
        let Config {
            nodes, lockers, workers, senders, schedules, runners, waits, faults, storm, drain, ..
        } = self.config;
        for index in 0..nodes {
            let seat = Seat { node: None, life: 0, began: 0, offset: 0, rate: 0, paused_until: 0 };
            self.seats.push(seat);
            self.at(index as u64 * 300_000, Event::Start { index });
        }
        let seed = self.config.seed;
        let rng = |what: &str, number: usize| stream(seed, &format!("{what} {number}"));
        let mut clients: Vec<Client> = (0..lockers).map(|n| Client::locker(n, rng("locker", n))).collect();
        clients.extend((0..workers).map(|n| Client::worker(n, faults.worker_death, rng("worker", n))));
        let once = self.config.senders_ask_once;
        clients.extend((0..senders).map(|n| Client::sender(n, once, rng("sender", n))));
        if senders > 0 {
            clients.push(Client::reader(rng("reader", 0)));
        }
        if schedules > 0 {
            clients.push(Client::planner(schedules, rng("planner", 0)));
        }
        if runners > 0 {
            clients.extend((0..AGENTS).map(|n| Client::starter(n, waits, rng("starter", n))));
        }
        let guests: Vec<Guests> = (0..if waits { runners } else { 0 }).map(|_| Guests::default()).collect();
        for number in 0..runners {
            self.runners.insert(format!("runner-{number}"), clients.len());
            let runner = Runner::new(number, guests.get(number).cloned(), rng("restarts", number));
            clients.push(Client::runner(runner, rng("runner", number)));
        }
        if !guests.is_empty() {
            clients.push(Client::ringer(rng("ringer", 0)));
        }
        clients.extend(guests.into_iter().enumerate().map(|(n, of)| Client::guests(of, rng("guests", n))));
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
        self.soon("sleep", faults.sleep, Event::Sleep);
        self.soon("step", faults.step, Event::Step);
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
            Event::Sleep => {
                let span = self.dice("sleep").u64(1_000..60_000);
                self.trace.note(self.now, format_args!("all machines have slept for {span} ms"));
                self.slept += span;
            }
            Event::Step => self.set_clock(),
            Event::Command { client, command } => self.command(client, command),
            Event::Ended { client, instance } => self.container_is_through(client, instance),
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
        // The clock of the promoted server may be behind: by less than the failover takes, if clocks are kept together.
        let took = self.dice("fail over").u64(600_000..4_000_000);
        let least = if self.config.clocks_apart { -30_000 } else { -500 };
        let offset = self.dice("fail over").i64(least..500);
        self.trace.note(self.now, format_args!("the store fails over; its clock is off by {offset} ms"));
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

    /// Looks whether everything has drained, some time after all was healed.
    fn look_whether_over(&mut self) {
        let done = self.clients.iter().all(|waiting| waiting.done);
        if done && !self.runs_left().is_empty() {
            // One that had not heard of a failover may have answered as of what that has dropped.
            self.wake_clients(|client| matches!(client.role, Role::Starter { moods: Some(_), .. }));
            return self.after(1_000_000, Event::Look);
        }
        if done && !self.tasks_left().is_empty() {
            // Theirs again once the lease of who they were has ended.
            self.wake_clients(|client| matches!(client.role, Role::Worker { .. }));
            return self.after(1_000_000, Event::Look);
        }
        // A schedule may have fired just now.
        let done = done && self.store.primary.state.outbox(0, 1).is_empty();
        if done && !self.last_round {
            self.last_round = true;
            self.wake_clients(|_| true);
        } else {
            self.over = done;
        }
        if !self.over {
            self.after(1_000_000, Event::Look);
        }
    }

    fn wake_clients(&mut self, who: impl Fn(&Client) -> bool) {
        for waiting in self.clients.iter_mut().filter(|waiting| who(&waiting.client)) {
            waiting.client.calm();
            waiting.done = false;
        }
    }

    pub fn roles(&self) -> impl Iterator<Item = &Role> {
        self.clients.iter().map(|waiting| &waiting.client.role)
    }

    /// Workers as they are now.
    pub fn living(&self) -> BTreeSet<InstanceId> {
        self.clients.iter().filter_map(|waiting| waiting.client.instance()).collect()
    }

    /// Tasks that clients have created and nobody has done.
    fn tasks_left(&self) -> Vec<String> {
        let created = self.history.iter().filter_map(|operation| match operation.call {
            Call::Create { task } => Some(format!("task/{task}")),
            _ => None,
        });
        let created: BTreeSet<String> = created.collect();
        let live = self.store.primary.state.live(&tasks(), "task/", usize::MAX);
        live.into_iter().map(|document| document.key).filter(|key| created.contains(key)).collect()
    }

    /// Runs that were asked for and have not ended.
    fn runs_left(&self) -> Vec<String> {
        let agents = (0..AGENTS).map(agent);
        let runs = agents.flat_map(|agent| self.store.primary.state.live(&agent, "instance/", usize::MAX));
        runs.map(|document| document.key).filter(|key| key.starts_with("instance/")).collect()
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
        let agents =
            (0..AGENTS).flat_map(|number| self.store.primary.state.live(&agent(number), "", usize::MAX));
        let agents: Vec<String> =
            agents.map(|document| format!("{}: {}", document.key, document.head)).collect();
        let (tasks, runs) = (self.tasks_left(), self.runs_left());
        format!("{open:?}, effects {effects:?}, tasks {tasks:?}, runs {runs:?} of {agents:#?}")
    }
}
