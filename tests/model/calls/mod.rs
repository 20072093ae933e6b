//! Calls from agent to agent, on the product's own rules: a hand-made lead and three agents that each run one
//! instance at a time, keep one call waiting and let calls go two deep.
//!
//! The fleet grants what is bid for; a runner starts processes, which return values and end well or badly, says so
//! late or is thought lost while they live on; callers end before their callees; answers are lost and asked for
//! again; calls run out of time.

mod checks;

use std::collections::{BTreeMap, BTreeSet};

use skein_shared::agent::{
    Agent, CallStatus, Caller, Command, Definition, Instance, Overview, Reply, Report, State as Life,
};
use skein_shared::code::Code;
use skein_shared::entity::{Ctx, Effect, Entity, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::limits::CALL_EXPIRY;
use skein_shared::time::Timestamp;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::entity::{Shown, Stage};

/// The rules, and what becomes of them when one is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Sound,
    /// A caller whose answer was lost asks again under a new id.
    NewIdAgain,
    /// A call does not carry the callers above it.
    NoChain,
    /// The queue takes whatever comes.
    NoQueueLimit,
    /// A report is taken from whatever attempt it comes.
    AnyAttempt,
    /// Nobody tells the agent that a process has ended.
    SilentEnd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Harm {
    AnsweredTwice,
    OldAttempt,
    WrongReason,
    Invariant,
}

const AGENTS: [&str; 4] = ["lead", "one", "two", "three"];
const LEAD: usize = 0;
const DEPTH: usize = 2;
const QUEUE: usize = 1;
const START: Timestamp = Timestamp(1_790_000_000_000);
const RUNNER: &str = "r1";

/// A call as its caller means it, whatever ids it was asked for under.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Call {
    target: usize,
    caller: Shown<Caller>,
    /// How deep it really is.
    depth: usize,
    ids: Vec<Uuid>,
    /// The runs that were made for it.
    runs: BTreeSet<InstanceId>,
    answer: Option<Answer>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Answer {
    Value(Option<String>),
    Error(String),
}

/// A process of a runner, by the attempt that it was started for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Process {
    agent: usize,
    instance: InstanceId,
    token: Token,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    now: Timestamp,
    agents: Vec<Stage<Agent>>,
    /// From one agent to another, in order.
    lanes: BTreeMap<(usize, usize), Vec<Shown<Command>>>,
    processes: BTreeSet<Process>,
    calls: Vec<Call>,
    again: u8,
    lost: u8,
    refused: BTreeSet<Refused>,
    harm: Option<Harm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Refused {
    Depth,
    Queue,
    Stale,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Call(usize, InstanceId, usize),
    /// The answer was lost, and the caller asks again.
    CallAgain(usize),
    Grant(usize, Uuid),
    Started(Process),
    Return(Process),
    Exit(Process, i32),
    RunnerLost(Process),
    Deliver(usize, usize),
    Expire,
}

#[derive(Clone, Copy, Debug)]
struct Calls {
    variant: Variant,
    /// Who may call whom.
    pairs: &'static [(usize, usize)],
    calls: usize,
    again: u8,
    losses: u8,
    expiry: bool,
}

fn name(agent: usize) -> Name {
    Name::parse(AGENTS[agent]).unwrap()
}

fn swarm() -> Name {
    Name::parse("swarm").unwrap()
}

fn overview(agent: &Stage<Agent>) -> Overview {
    match agent.decide(&Command::List, ctx(START, "list")).map(|decision| decision.reply) {
        Ok(Reply::Overview(overview)) => *overview,
        other => panic!("{other:?}"),
    }
}

/// What is made by an action has ids that follow from the action, whenever it happens.
fn ctx(now: Timestamp, action: &str) -> Ctx {
    Ctx::new(now, now, START, Epoch(START.0), Uuid::new_v5(&Uuid::nil(), action.as_bytes()))
}

impl State {
    fn instance(&self, agent: usize, id: &InstanceId) -> Option<Instance> {
        overview(&self.agents[agent]).instances.into_iter().find(|instance| instance.id == *id)
    }

    /// What the caller is told, if the call is over.
    fn answer(&self, call: &Call) -> Option<Answer> {
        let check = Command::CheckCall { call: call.ids[0], instance: call.caller.0.instance.clone() };
        let reply = self.agents[call.target].decide(&check, ctx(self.now, "check")).ok()?.reply;
        let Reply::Call(view) = reply else { return None };
        match view.status {
            CallStatus::Completed => Some(Answer::Value(view.return_value)),
            CallStatus::Error => Some(Answer::Error(view.error_message.unwrap_or_default())),
            CallStatus::Pending | CallStatus::Running => None,
        }
    }

    /// The call that a run was made for.
    fn call_of(&self, agent: usize, instance: &InstanceId) -> Option<&Call> {
        self.calls.iter().find(|call| call.target == agent && call.runs.contains(instance))
    }

    fn open_call_of(&self, agent: usize, instance: &InstanceId) -> Option<usize> {
        let of = |call: &Call| call.target == agent && call.runs.contains(instance);
        self.calls.iter().position(|call| of(call) && call.answer.is_none())
    }
}

impl Calls {
    /// Decides and applies, and carries the effects.
    fn run(&self, state: &mut State, agent: usize, command: &Command, action: &str) -> Result<Reply, Code> {
        let decision = state.agents[agent].decide(command, ctx(state.now, action)).map_err(|r| r.code)?;
        state.agents[agent].apply(&decision.events);
        if state.agents[agent].entity.check().is_err() {
            state.harm = Some(Harm::Invariant);
        }
        for effect in decision.effects {
            carry(state, agent, effect);
        }
        Ok(decision.reply)
    }

    fn call(&self, state: &mut State, from: usize, id: &InstanceId, target: usize, action: &str) {
        let Some(caller) = state.instance(from, id) else { return };
        let bare = self.variant == Variant::NoChain;
        let (chain, depth) = if bare { (Vec::new(), None) } else { (caller.chain, caller.depth) };
        let above = state.call_of(from, id).map_or(0, |call| call.depth);
        let ids = vec![Uuid::from_u128(1 + 16 * state.calls.len() as u128)];
        let caller = Shown(Caller { agent: name(from), instance: id.clone(), chain, depth });
        let runs = BTreeSet::new();
        let call = Call { target, caller, depth: above + 1, ids, runs, answer: None };
        match self.ask(state, &call, call.ids[0], action) {
            Ok(_) => state.calls.push(call),
            Err(Code::DepthExceeded) => drop(state.refused.insert(Refused::Depth)),
            Err(Code::QueueFull) => drop(state.refused.insert(Refused::Queue)),
            Err(_) => {}
        }
    }

    /// Asks the target, and notes with the caller whom it called, as the service does.
    fn ask(&self, state: &mut State, call: &Call, id: Uuid, action: &str) -> Result<Reply, Code> {
        let (caller, context) = (call.caller.0.clone(), "do it".to_owned());
        let from = AGENTS.iter().position(|agent| *agent == caller.agent.as_str()).unwrap();
        let note = Command::NoteCallee { instance: caller.instance.clone(), target: name(call.target) };
        let known = state.instance(from, &caller.instance);
        let noted = known.is_some_and(|known| known.callees.contains(&name(call.target)));
        let command = Command::Call { call: id, caller, context, noted };
        let reply = self.run(state, call.target, &command, action)?;
        self.run(state, from, &note, action)?;
        Ok(reply)
    }

    fn call_again(&self, state: &mut State, number: usize, action: &str) {
        state.again += 1;
        let call = state.calls[number].clone();
        let id = match self.variant {
            Variant::NewIdAgain => Uuid::from_u128(call.ids[0].as_u128() + 1),
            _ => call.ids[0],
        };
        if self.ask(state, &call, id, action).is_ok() && !call.ids.contains(&id) {
            state.calls[number].ids.push(id);
        }
    }

    fn report(&self, state: &mut State, process: &Process, what: Report, action: &str) -> bool {
        let known = state.instance(process.agent, &process.instance);
        let newest = known.and_then(|instance| instance.token);
        let token = match self.variant {
            Variant::AnyAttempt => newest.unwrap_or(process.token),
            _ => process.token,
        };
        let (instance, runner) = (process.instance.clone(), RUNNER.to_owned());
        let report = Command::Report { instance, token, runner, what };
        let taken = self.run(state, process.agent, &report, action);
        if taken == Err(Code::StaleToken) {
            state.refused.insert(Refused::Stale);
        }
        taken.is_ok()
    }

    /// A process ends, and its runner says so. A call that it served has its end by that, with the reason.
    fn exit(&self, state: &mut State, process: &Process, code: i32, action: &str) {
        state.processes.remove(process);
        if self.variant == Variant::SilentEnd {
            return;
        }
        let known = state.instance(process.agent, &process.instance);
        let served = state.open_call_of(process.agent, &process.instance);
        let what = Report::Exited { code: Some(code), signal: None, reason: None, usage: None };
        self.report(state, process, what, action);
        let Some((known, served)) = known.zip(served) else { return };
        let answer = state.answer(&state.calls[served]);
        if known.runner.is_none() || known.first_token != Some(process.token) {
            state.harm = state.harm.or(answer.is_some().then_some(Harm::OldAttempt));
            return;
        }
        let expected = match (known.stop, code) {
            (Some(stop), _) => Answer::Error(stop.reason),
            (None, 0) => Answer::Value(known.returned.map(|value| value.shown().to_owned())),
            (None, _) => Answer::Error(format!("the run exited with status {code}")),
        };
        if answer != Some(expected) {
            state.harm = Some(Harm::WrongReason);
        }
    }

    /// The runner is thought to be gone; its processes live on.
    fn lose_runner(&self, state: &mut State, process: &Process, action: &str) {
        state.lost += 1;
        let began = state.instance(process.agent, &process.instance).map(|instance| instance.state);
        let served = state.open_call_of(process.agent, &process.instance);
        let lost =
            Command::RunnerLost { runner: RUNNER.to_owned(), instances: vec![process.instance.clone()] };
        let _ = self.run(state, process.agent, &lost, action);
        if let (Some(Life::Running), Some(served)) = (began, served)
            && state.answer(&state.calls[served]) != Some(Answer::Error(format!("runner lost: {RUNNER}")))
        {
            state.harm = Some(Harm::WrongReason);
        }
    }

    /// Looks at every call the way its caller would, and at the runs that there are for it.
    fn look(&self, state: &mut State) {
        for number in 0..state.calls.len() {
            let call = &state.calls[number];
            let instances = overview(&state.agents[call.target]).instances;
            let of = |instance: &Instance| instance.call.is_some_and(|id| call.ids.contains(&id));
            let runs: Vec<_> = instances.into_iter().filter(of).map(|instance| instance.id).collect();
            let answer = state.answer(call);
            let known = call.answer.clone();
            state.calls[number].runs.extend(runs);
            if known.is_none() {
                state.calls[number].answer = answer;
            } else if answer.is_some() && answer != known {
                state.harm = Some(Harm::AnsweredTwice);
            }
        }
    }

    fn take(&self, state: &mut State, action: &Action) {
        let text = format!("{action:?}");
        match action {
            Action::Call(from, caller, target) => {
                let text = format!("{text} {}", state.calls.len());
                self.call(state, *from, caller, *target, &text);
            }
            Action::CallAgain(number) => self.call_again(state, *number, &text),
            Action::Grant(agent, bid) => {
                let granted = Command::Granted { bid: *bid, runner: RUNNER.to_owned() };
                let _ = self.run(state, *agent, &granted, &text);
            }
            Action::Started(process) => {
                self.report(state, process, Report::Started { pid: None }, &text);
            }
            Action::Return(process) => {
                let (instance, value) = (process.instance.clone(), "done".into());
                let _ = self.run(state, process.agent, &Command::ReturnValue { instance, value }, &text);
            }
            Action::Exit(process, code) => self.exit(state, process, *code, &text),
            Action::RunnerLost(process) => self.lose_runner(state, process, &text),
            Action::Deliver(from, to) => {
                let lane = state.lanes.get_mut(&(*from, *to)).unwrap();
                let Shown(command) = lane.remove(0);
                state.lanes.retain(|_, lane| !lane.is_empty());
                let _ = self.run(state, *to, &command, &text);
            }
            Action::Expire => {
                state.now = state.now + CALL_EXPIRY;
                for agent in 0..AGENTS.len() {
                    let _ = self.run(state, agent, &Agent::tick(), &format!("{text} {agent}"));
                }
            }
        }
        self.look(state);
    }

    fn calls_of(&self, state: &State, actions: &mut Vec<Action>) {
        for (from, to) in self.pairs {
            for caller in overview(&state.agents[*from]).instances {
                if caller.state == Life::Running && state.calls.len() < self.calls {
                    actions.push(Action::Call(*from, caller.id, *to));
                }
            }
        }
        // Later than that the call may be forgotten, and its id with it.
        if state.again < self.again && state.now == START {
            actions.extend((0..state.calls.len()).map(Action::CallAgain));
        }
    }

    fn process_of(&self, state: &State, process: &Process, actions: &mut Vec<Action>) {
        let instance = state.instance(process.agent, &process.instance);
        let life = instance.as_ref().map(|instance| instance.state);
        if life == Some(Life::Starting) {
            actions.push(Action::Started(process.clone()));
        }
        if instance.is_some_and(|instance| instance.state == Life::Running && instance.returned.is_none()) {
            actions.push(Action::Return(process.clone()));
        }
        actions.extend([0, 1].map(|code| Action::Exit(process.clone(), code)));
        if state.lost < self.losses && matches!(life, Some(Life::Starting | Life::Running)) {
            actions.push(Action::RunnerLost(process.clone()));
        }
    }
}

/// Carries an effect: to a runner at once, to another agent on its lane. The rest of the swarm is not here.
fn carry(state: &mut State, from: usize, effect: Effect) {
    match effect {
        Effect::Entity { key, command } if key.kind == Kind::Agent => {
            let to = AGENTS.iter().position(|agent| key.name.as_ref().is_some_and(|n| n.as_str() == *agent));
            let command: Command = command.read().unwrap();
            // The caller's service has told it already.
            if !matches!(command, Command::NoteCallee { .. }) {
                state.lanes.entry((from, to.unwrap())).or_default().push(Shown(command));
            }
        }
        Effect::Runner { command: RunnerCommand::Start { instance, token, .. }, .. } => {
            let instance = InstanceId(instance);
            state.processes.insert(Process { agent: from, instance, token });
        }
        _ => {}
    }
}

impl Model for Calls {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let key = |agent| EntityKey::agent(&swarm(), &name(agent));
        let mut state = State {
            now: START,
            agents: (0..AGENTS.len()).map(|agent| Stage::new(key(agent))).collect(),
            lanes: BTreeMap::new(),
            processes: BTreeSet::new(),
            calls: Vec::new(),
            again: 0,
            lost: 0,
            refused: BTreeSet::new(),
            harm: None,
        };
        let work_queue = if self.variant == Variant::NoQueueLimit { 100 } else { QUEUE };
        let max_call_depth = u32::try_from(DEPTH).unwrap();
        let definition =
            Definition { work_queue, max_call_depth, cancel_children: true, ..Definition::default() };
        let group = Name::parse("group").unwrap();
        for agent in 1..AGENTS.len() {
            let define = Command::Define { definition: definition.clone(), group: group.clone() };
            self.run(&mut state, agent, &define, "define").unwrap();
        }
        let attach =
            Command::Attach { instance: InstanceId("token".to_owned()), agent_id: Uuid::from_u128(9) };
        self.run(&mut state, LEAD, &attach, "attach").unwrap();
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.harm.is_some() {
            return;
        }
        self.calls_of(state, actions);
        for (number, agent) in state.agents.iter().enumerate() {
            let bids = overview(agent).instances.into_iter().filter_map(|instance| instance.bid);
            actions.extend(bids.map(|bid| Action::Grant(number, bid)));
        }
        for process in &state.processes {
            self.process_of(state, process, actions);
        }
        actions.extend(state.lanes.keys().map(|(from, to)| Action::Deliver(*from, *to)));
        if self.expiry && state.now == START && !state.calls.is_empty() {
            actions.push(Action::Expire);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, &action);
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        checks::properties()
    }
}
