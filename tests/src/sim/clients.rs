//! What clients do: take locks, work off tasks, write to one another, plan.

use fastrand::Rng;
use serde::Serialize;
use serde_json::{Value, json};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::inboxes::{self, Deliver, Slack};
use skein_shared::json::Json;
use skein_shared::{Code, agent, lockspace, pool, schedules};
use uuid::Uuid;

use super::guests::Guests;
use super::history::{Call, Outcome};
use super::moods::{Moods, usual};
use super::ringer::Ringer;
use super::runner::Runner;

/// Locks that are asked for.
pub const LOCKS: usize = 3;
/// Messages of one sender.
const MESSAGES: u32 = 12;
/// Runs of one agent.
const RUNS: u32 = 6;
/// The schedules' interval.
pub const INTERVAL_MS: u64 = 5_000;

pub fn swarm(name: &str) -> Name {
    Name::parse(name).expect("a name")
}

pub fn locks() -> EntityKey {
    EntityKey::of(Kind::Lockspace, &swarm("alpha"))
}

pub fn tasks() -> EntityKey {
    EntityKey::of(Kind::Pool, &swarm("beta"))
}

pub fn plans() -> EntityKey {
    EntityKey::of(Kind::Schedules, &swarm("beta"))
}

pub fn inbox() -> EntityKey {
    EntityKey::of(Kind::Inboxes, &swarm("gamma"))
}

pub fn agent(number: usize) -> EntityKey {
    EntityKey::agent(&swarm("beta"), &agent_name(number))
}

pub fn agent_name(number: usize) -> Name {
    swarm(&format!("agent-{number}"))
}

/// Whose inbox is written to.
pub const READER: Uuid = Uuid::from_u128(7);

/// Whether things still go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Storm,
    /// All is healed. What was begun is brought to an end.
    Calm,
}

/// What a client does next.
pub enum Next {
    Ask {
        key: EntityKey,
        command: Json,
        changes: bool,
        call: Call,
    },
    /// Nothing, for a moment.
    Rest,
    Done,
}

pub enum Role {
    Locker {
        holder: InstanceId,
        has: Option<String>,
        left: Vec<String>,
    },
    Worker {
        agent: Uuid,
        /// How often it dies with what it has: once in so many operations, or never.
        dies: u32,
        /// Instances that it has been.
        lives: u32,
        joined: bool,
        holds: Vec<Uuid>,
        idle: u32,
    },
    Sender {
        name: String,
        next: u32,
        /// Whether it goes on when it hears nothing, instead of asking the same again.
        once: bool,
    },
    Reader {
        idle: u32,
    },
    Planner {
        left: usize,
    },
    /// Has an agent run, again and again.
    Starter {
        agent: EntityKey,
        defined: bool,
        left: u32,
        /// The run that it asked for last.
        last: Option<InstanceId>,
        moods: Option<Moods>,
    },
    Runner(Runner),
    /// The runs of a runner that wait.
    Guests(Guests),
    Ringer(Ringer),
}

pub struct Client {
    pub role: Role,
    pub rng: Rng,
}

pub fn ask(key: EntityKey, command: &impl Serialize, call: Call) -> Next {
    Next::Ask { key, command: Json::of(command), changes: true, call }
}

/// A question that is asked anew each time.
pub fn ask_again(key: EntityKey, command: &impl Serialize, call: Call) -> Next {
    Next::Ask { key, command: Json::of(command), changes: false, call }
}

fn lock(number: usize) -> String {
    format!("file:///lock-{number}")
}

impl Client {
    pub fn locker(number: usize, rng: Rng) -> Self {
        let holder = InstanceId(format!("locker-{number:08x}"));
        let left = (0..LOCKS).map(lock).collect();
        Self { role: Role::Locker { holder, has: None, left }, rng }
    }

    pub fn worker(number: usize, dies: u32, rng: Rng) -> Self {
        let agent = Uuid::from_u128(1000 + number as u128);
        Self { role: Role::Worker { agent, dies, lives: 0, joined: false, holds: Vec::new(), idle: 0 }, rng }
    }

    pub fn sender(number: usize, once: bool, rng: Rng) -> Self {
        Self { role: Role::Sender { name: format!("sender-{number}"), next: 0, once }, rng }
    }

    pub fn reader(rng: Rng) -> Self {
        Self { role: Role::Reader { idle: 0 }, rng }
    }

    pub fn planner(schedules: usize, rng: Rng) -> Self {
        Self { role: Role::Planner { left: schedules }, rng }
    }

    pub fn starter(number: usize, moody: bool, rng: Rng) -> Self {
        let (agent, moods) = (agent(number), moody.then(Moods::default));
        Self { role: Role::Starter { agent, defined: false, left: RUNS, last: None, moods }, rng }
    }

    pub fn runner(runner: Runner, rng: Rng) -> Self {
        Self { role: Role::Runner(runner), rng }
    }

    pub fn guests(guests: Guests, rng: Rng) -> Self {
        Self { role: Role::Guests(guests), rng }
    }

    pub fn ringer(rng: Rng) -> Self {
        Self { role: Role::Ringer(Ringer::default()), rng }
    }

    pub fn next(&mut self, phase: Phase) -> Next {
        let rng = &mut self.rng;
        if let Role::Starter { agent, defined: true, moods: Some(moods), .. } = &mut self.role
            && let Some(change) = moods.change(agent, phase, rng)
        {
            return change;
        }
        match &mut self.role {
            Role::Locker { holder, has, left } => {
                // Some locks are left to end by themselves.
                if phase == Phase::Storm && has.is_some() && rng.u8(0..4) == 0 {
                    *has = None;
                }
                next_lock(holder, has.as_deref(), left, phase, rng)
            }
            Role::Worker { agent, dies, lives, joined, holds, idle } => {
                if !*joined {
                    return join(*agent);
                }
                if phase == Phase::Calm && holds.is_empty() && *idle >= 3 {
                    return Next::Done;
                }
                if phase == Phase::Storm && !holds.is_empty() && *dies > 0 && rng.u32(0..*dies) == 0 {
                    holds.clear();
                    *lives += 1;
                }
                // What it has lost is kept for it.
                if *lives > 0 && holds.is_empty() && rng.bool() {
                    return poll(*agent, &instance(*agent, *lives));
                }
                next_task(*agent, &instance(*agent, *lives), holds, phase, rng)
            }
            Role::Sender { next, .. } if *next == MESSAGES => Next::Done,
            Role::Sender { name, next, .. } => {
                let text = format!("{name} {next}");
                let deliver = Deliver {
                    agent: READER,
                    content: text.clone(),
                    source: inboxes::Source::System,
                    slack: Slack::default(),
                    dedupe: None,
                    mail: None,
                };
                ask(inbox(), &inboxes::Command::Deliver(Box::new(deliver)), Call::Deliver { text })
            }
            Role::Reader { idle } if phase == Phase::Calm && *idle >= 3 => Next::Done,
            Role::Reader { .. } => {
                ask(inbox(), &inboxes::Command::Take { agent: READER, limit: rng.u32(1..6) }, Call::Take)
            }
            Role::Planner { left: 0 } | Role::Starter { left: 0, .. } => Next::Done,
            Role::Ringer(ringer) if ringer.is_done() => Next::Done,
            Role::Ringer(ringer) => ringer.next(phase, rng),
            Role::Guests(guests) => guests.next(rng),
            Role::Starter { agent, defined, last, .. } => {
                let last = last.take().filter(|_| phase == Phase::Storm && rng.u8(0..4) == 0);
                match last {
                    Some(instance) => kill(agent.clone(), instance),
                    None => run(agent.clone(), *defined),
                }
            }
            Role::Runner(runner) => runner.ask(),
            Role::Planner { left } => {
                let name = format!("plan-{left}");
                let create = schedules::Create {
                    interval_ms: Some(INTERVAL_MS),
                    ..schedules::Create::new(name.clone(), "do it")
                };
                ask(plans(), &schedules::Command::Create(Box::new(create)), Call::Schedule { name })
            }
        }
    }

    /// Who a worker is now: a runner says for it that it lives.
    pub fn instance(&self) -> Option<InstanceId> {
        match &self.role {
            Role::Worker { agent, lives, .. } => Some(instance(*agent, *lives)),
            _ => None,
        }
    }

    /// All is healed: from now on everything must work.
    pub fn calm(&mut self) {
        match &mut self.role {
            Role::Locker { left, .. } => *left = (0..LOCKS).map(lock).collect(),
            Role::Worker { idle, .. } | Role::Reader { idle } => *idle = 0,
            Role::Starter { moods: Some(moods), .. } => moods.calm(),
            Role::Sender { .. }
            | Role::Planner { .. }
            | Role::Starter { .. }
            | Role::Runner(_)
            | Role::Guests(_)
            | Role::Ringer(_) => {}
        }
    }

    /// Learns what became of it.
    pub fn heard(&mut self, call: &Call, outcome: &Outcome) {
        let is_ok = matches!(outcome, Outcome::Ok(_));
        match (&mut self.role, call) {
            // A failover has dropped what made it known.
            (Role::Worker { joined, .. }, _) if *outcome == Outcome::Fail(Code::NotJoined) => *joined = false,
            (Role::Starter { defined, .. }, Call::Run | Call::Pause { .. })
                if *outcome == Outcome::Fail(Code::NotFound) =>
            {
                *defined = false;
            }
            (Role::Locker { has, left, .. }, Call::Acquire { key, .. }) => {
                let granted = matches!(outcome, Outcome::Ok(answer) if answer.get("acquired").is_some());
                if granted {
                    *has = Some(key.clone());
                    left.retain(|other| other != key);
                }
            }
            // Whoever does not know whether it was released has it no more.
            (Role::Locker { has, .. }, Call::Release { .. }) => *has = None,
            (Role::Worker { joined, .. }, Call::Join) => *joined |= is_ok,
            (Role::Worker { holds, idle, .. }, Call::ClaimNext | Call::Poll) => match given(outcome) {
                Some(task) => {
                    *idle = 0;
                    if !holds.contains(&task) {
                        holds.push(task);
                    }
                }
                None if is_ok => *idle += 1,
                None => {}
            },
            (Role::Worker { holds, .. }, Call::Finish { task } | Call::GiveBack { task })
                if *outcome != Outcome::Unknown =>
            {
                holds.retain(|held| held != task);
            }
            (Role::Sender { next, once, .. }, _) if is_ok || *once => *next += 1,
            (Role::Reader { idle }, Call::Take) => {
                let empty = matches!(outcome, Outcome::Ok(answer) if answer["taken"] == json!([]));
                *idle = if empty { *idle + 1 } else { 0 };
            }
            // It is there: an earlier try of which nobody said what became.
            (Role::Planner { left }, _) if is_ok || *outcome == Outcome::Fail(Code::AlreadyExists) => {
                *left -= 1
            }
            (Role::Starter { defined, .. }, Call::Define) => *defined |= is_ok,
            (Role::Starter { moods: Some(moods), .. }, Call::Redefine { .. } | Call::Pause { .. }) => {
                moods.heard(call, is_ok);
            }
            (Role::Starter { left, last, .. }, Call::Run) if is_ok => {
                *left -= 1;
                *last = queued(outcome);
            }
            (Role::Runner(runner), call) => runner.heard(call, outcome),
            (Role::Guests(guests), call) => guests.heard(call, outcome),
            (Role::Ringer(ringer), call) => ringer.heard(call, outcome),
            _ => {}
        }
    }
}

/// The instance that a worker is, in which of its lives.
fn instance(agent: Uuid, lives: u32) -> InstanceId {
    InstanceId(format!("worker-{:04x}{lives:04x}", agent.as_u128()))
}

/// The task that a claim or a poll came to.
pub fn given(outcome: &Outcome) -> Option<Uuid> {
    let Outcome::Ok(answer) = outcome else { return None };
    let given = answer.get("claimed").or_else(|| answer.get("polled"))?;
    given["task"]["id"].as_str()?.parse().ok()
}

/// The run that was asked for.
fn queued(outcome: &Outcome) -> Option<InstanceId> {
    let Outcome::Ok(answer) = outcome else { return None };
    answer["queued"]["instance"].as_str().map(|id| InstanceId(id.to_owned()))
}

fn next_lock(holder: &InstanceId, has: Option<&str>, left: &[String], phase: Phase, rng: &mut Rng) -> Next {
    if let Some(key) = has {
        let release = lockspace::Command::Release { holder: holder.clone(), key: key.to_owned() };
        return ask(locks(), &release, Call::Release { key: key.to_owned() });
    }
    let key = match phase {
        Phase::Storm => lock(rng.usize(0..LOCKS)),
        Phase::Calm => match left.first() {
            Some(key) => key.clone(),
            None => return Next::Done,
        },
    };
    let ttl_ms = rng.u64(500..10_000);
    let acquire = lockspace::Command::Acquire {
        holder: holder.clone(),
        agent: swarm("locker"),
        key: key.clone(),
        ttl_ms: Some(ttl_ms),
    };
    ask(locks(), &acquire, Call::Acquire { key, ttl_ms })
}

fn run(key: EntityKey, defined: bool) -> Next {
    if !defined {
        return ask(
            key,
            &agent::Command::Define { definition: usual(), group: swarm("default") },
            Call::Define,
        );
    }
    let enqueue = agent::Command::Enqueue {
        class: agent::Class::Manual,
        source: "client".to_owned(),
        receipt: None,
        input: Value::Null,
    };
    ask(key, &enqueue, Call::Run)
}

fn kill(key: EntityKey, instance: InstanceId) -> Next {
    let kill = agent::Command::Kill { instance, reason: "enough".to_owned() };
    ask(key, &kill, Call::Kill)
}

fn poll(agent: Uuid, instance: &InstanceId) -> Next {
    let poll = pool::Command::Poll { agent, instance: instance.clone(), managed: true, last: false };
    ask(tasks(), &poll, Call::Poll)
}

fn join(agent: Uuid) -> Next {
    let join = pool::Join {
        agent,
        name: format!("worker-{}", agent.as_u128()),
        lead: false,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: Some(2),
        managed: true,
        texts: None,
    };
    ask(tasks(), &pool::Command::Join(join), Call::Join)
}

fn next_task(agent: Uuid, instance: &InstanceId, holds: &[Uuid], phase: Phase, rng: &mut Rng) -> Next {
    let dice = rng.u32(0..10);
    if let Some(&task) = holds.first()
        && (holds.len() >= 2 || dice < 4 || phase == Phase::Calm)
    {
        if dice == 0 && phase == Phase::Storm {
            let release = pool::Command::Release { agent, task };
            return ask(tasks(), &release, Call::GiveBack { task });
        }
        let finish = pool::Finish::Completed { output: Some(format!("by {agent}")) };
        let progress = pool::Progress {
            task,
            by: Some(agent),
            instance: Some(instance.clone()),
            managed: true,
            progress: None,
            finish: Some(finish),
            cost: None,
            about: None,
        };
        return ask(tasks(), &pool::Command::Progress(Box::new(progress)), Call::Finish { task });
    }
    if dice < 6 && phase == Phase::Storm {
        return create(agent, rng);
    }
    let claim =
        pool::Command::ClaimNext { agent, instance: instance.clone(), managed: true, tags: Vec::new() };
    ask(tasks(), &claim, Call::ClaimNext)
}

fn create(agent: Uuid, rng: &mut Rng) -> Next {
    let task = Uuid::from_u128(rng.u128(..));
    let spec = pool::TaskSpec {
        id: Some(task),
        priority: rng.u8(0..100),
        ..pool::TaskSpec::new(format!("task {task}"))
    };
    let create = pool::Create {
        by: Some(agent),
        spec,
        target: pool::Target::Pool,
        rules: pool::Rules::Plain,
        facts: vec![pool::Fact::unknown(task)],
    };
    ask(tasks(), &pool::Command::Create(Box::new(create)), Call::Create { task })
}
