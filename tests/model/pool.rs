//! The pool's claim, expiry and retry, on the product's own rules: one task, two agents, one of them with two runs.
//!
//! An agent that is thought dead may be alive and say so late; signs of life are forgotten by a takeover; timers
//! come late or more than once; time goes by in halves of a lease and in whole reservations.
//!
//! A task belongs to an agent and not to one of its runs. So a late result is refused once another agent has the
//! task, or may take it; while the task is the agent's own, the result of its older run counts, and the first
//! result stays. The model keeps that apart and says both.

use std::collections::BTreeMap;
use std::time::Duration;

use skein_shared::entity::{Ctx, Entity, Signal};
use skein_shared::fence::Epoch;
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::limits::{TASK_LEASE_RUNNER, TASK_RETURN};
use skein_shared::pool::{
    Command, Create, Event, Finish, Join, Pool, Progress, Reply, Rules, Status, Target, TaskSpec, TaskView,
};
use skein_shared::time::Timestamp;
use stateright::{Model, Property};
use uuid::Uuid;

use crate::check;
use crate::entity::{Shown, Stage};

/// The rules, and what becomes of them when one is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Variant {
    Sound,
    /// A report is taken whoever has the task.
    AnyReporter,
    /// A claim decided on an older state takes effect all the same: two deciders, and a store without a version.
    StaleClaim,
    /// An expiry names the task alone, so one that was found earlier ends whatever lease there is.
    StaleExpiry,
    /// A new owner does not wait one period for the signs of life that it could not hear.
    NoGrace,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Harm {
    TwoHolders,
    LateResult,
    RecoveredTwice,
    RecoveredAlive,
    Invariant,
}

/// The runs: two of Ann's and one of Bob's.
const RUNS: usize = 3;
const RUN_NAMES: [&str; RUNS] = ["ann-00000001", "ann-00000002", "bob-00000001"];
const ANN: Uuid = Uuid::from_u128(0xa);
const BOB: Uuid = Uuid::from_u128(0xb);
const TASK: Uuid = Uuid::from_u128(0x7);
const START: Timestamp = Timestamp(1_790_000_000_000);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    pool: Stage<Pool>,
    now: Timestamp,
    since: Timestamp,
    steps: u8,
    takeovers: u8,
    /// The attempt that each run believes to have.
    holds: [Option<u32>; RUNS],
    /// To which run an attempt was given.
    given: BTreeMap<u32, usize>,
    /// Attempts that were lost, each with how often.
    lost: BTreeMap<u32, u32>,
    /// The last sign of life of the run that has the task.
    heard: Timestamp,
    /// Decided and not yet applied, and for whom.
    late: Option<(Option<usize>, Shown<Vec<Event>>)>,
    finished: Option<Finished>,
    late_refused: bool,
    harm: Option<Harm>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Finished {
    attempt: u32,
    /// The attempt that the run had been given.
    by: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Claim(usize),
    Poll(usize),
    Finish(usize),
    SignOfLife(usize),
    /// The runner says that the run has ended.
    End(usize),
    Tick,
    HalfALease,
    Reservation,
    Takeover,
    /// Decides, and lets the world go on before the decision takes effect.
    ClaimLate(usize),
    TickLate,
    Land,
}

#[derive(Clone, Copy, Debug)]
struct Work {
    variant: Variant,
    /// Most steps of the clock.
    steps: u8,
    takeovers: u8,
    /// Most attempts to be given.
    attempts: u32,
}

fn agent(run: usize) -> Uuid {
    if run < 2 { ANN } else { BOB }
}

fn instance(run: usize) -> InstanceId {
    InstanceId(RUN_NAMES[run].to_owned())
}

fn ctx(state: &State) -> Ctx {
    Ctx::new(state.now, state.now, state.since, Epoch(START.0), Uuid::nil())
}

fn join(agent: Uuid, name: &str) -> Command {
    Command::Join(Join {
        agent,
        name: name.to_owned(),
        lead: false,
        role: None,
        capabilities: Vec::new(),
        description: None,
        max_tasks: None,
        managed: true,
        texts: None,
    })
}

fn create() -> Command {
    let spec = TaskSpec { id: Some(TASK), ..TaskSpec::new("weave") };
    let facts = vec![skein_shared::pool::Fact::unknown(TASK)];
    Command::Create(Box::new(Create { by: None, spec, target: Target::Pool, rules: Rules::Plain, facts }))
}

fn claim(run: usize) -> Command {
    Command::Claim { agent: agent(run), instance: instance(run), managed: true, task: TASK }
}

fn result(run: usize, variant: Variant) -> Command {
    // The administration may report on any task: this is what it would mean if everyone could.
    let by = (variant != Variant::AnyReporter).then_some(agent(run));
    Command::Progress(Box::new(Progress {
        task: TASK,
        by,
        instance: Some(instance(run)),
        managed: true,
        progress: None,
        finish: Some(Finish::Completed { output: Some(RUN_NAMES[run].to_owned()) }),
        cost: None,
        about: None,
    }))
}

/// Whether the pool has given the task to somebody who is thought to work on it.
fn leased(pool: &Stage<Pool>) -> Option<u32> {
    pool.entity.task(TASK).filter(|task| task.status == Status::InProgress).map(|task| task.attempt)
}

impl Work {
    fn run(&self, state: &mut State, command: &Command) -> Option<Reply> {
        let decision = state.pool.decide(command, ctx(state)).ok()?;
        self.apply(state, &decision.events);
        Some(decision.reply)
    }

    /// Applies events one by one, and keeps the books about leases.
    fn apply(&self, state: &mut State, events: &[Event]) {
        for event in events {
            let before = leased(&state.pool);
            match event {
                Event::LeaseLost { .. } => {
                    *state.lost.entry(before.unwrap_or_default()).or_default() += 1;
                    if before.is_none() {
                        state.harm = Some(Harm::RecoveredTwice);
                    }
                }
                Event::Started { at, .. } => state.heard = *at,
                _ => {}
            }
            state.pool.apply(std::slice::from_ref(event));
        }
        if state.pool.entity.check().is_err() {
            state.harm = state.harm.or(Some(Harm::Invariant));
        }
    }

    /// Time ends leases, and none of a run that gave a sign of life within its length.
    fn expire(&self, state: &mut State, events: &[Event]) {
        let alive = state.now < state.heard + TASK_LEASE_RUNNER;
        let ends = events.iter().any(|event| matches!(event, Event::LeaseLost { .. }));
        self.apply(state, events);
        if ends && alive {
            state.harm = state.harm.or(Some(Harm::RecoveredAlive));
        }
    }

    /// What a run is told of the task, it believes.
    fn told(state: &mut State, run: usize, task: Option<TaskView>) {
        let Some(task) = task else { return };
        state.holds[run] = Some(task.attempt);
        if *state.given.entry(task.attempt).or_insert(run) != run {
            state.harm = Some(Harm::TwoHolders);
        }
    }

    fn ask(&self, state: &mut State, run: usize, command: &Command) {
        match self.run(state, command) {
            Some(Reply::Task { task, .. }) => Self::told(state, run, Some(task)),
            Some(Reply::Polled { task, .. }) => Self::told(state, run, task),
            _ => {}
        }
    }

    fn finish(&self, state: &mut State, run: usize) {
        let Some(by) = state.holds[run].take() else { return };
        let before = state.pool.entity.task(TASK);
        if self.run(state, &result(run, self.variant)).is_none() {
            state.late_refused = true;
            return;
        }
        let Some(task) = before else { return };
        state.finished = Some(Finished { attempt: task.attempt, by });
        if task.agent != Some(agent(run)) {
            state.harm = Some(Harm::LateResult);
        }
    }

    fn sign_of_life(state: &mut State, run: usize) {
        let (now, instances) = (state.now, vec![RUN_NAMES[run].to_owned()]);
        let signal = Signal::RunnerAlive { runner: "r".to_owned(), instances };
        state.pool.observe(|pool| pool.observe(&signal, now));
        if state.pool.entity.task(TASK).is_some_and(|task| task.instance == Some(instance(run))) {
            state.heard = now;
        }
    }

    fn take_over(&self, state: &mut State) {
        let before = state.pool.entity.clone();
        state.pool.restore();
        if state.pool.entity != before {
            state.harm = Some(Harm::Invariant);
        }
        state.takeovers += 1;
        if self.variant != Variant::NoGrace {
            state.since = state.now;
        }
    }

    fn decide_late(state: &mut State, run: Option<usize>, command: &Command) {
        let decision = state.pool.decide(command, ctx(state));
        state.late = decision.ok().map(|decision| (run, Shown(decision.events)));
    }

    /// A decision takes effect on a state that it was not made on.
    fn land(&self, state: &mut State) {
        let Some((run, Shown(events))) = state.late.take() else { return };
        if state.pool.entity.task(TASK).is_none() {
            return;
        }
        self.expire(state, &events);
        if let Some(run) = run {
            let task = state.pool.entity.task(TASK).map(|task| task.view(TASK));
            // It was told what it was decided to have, which a second start may have numbered alike.
            let told = events.iter().find_map(|event| match event {
                Event::Started { attempt, .. } => Some(*attempt),
                _ => None,
            });
            let view = task.zip(told).map(|(task, attempt)| TaskView { attempt, ..task });
            Self::told(state, run, view);
        }
    }

    fn actions_of(&self, state: &State, run: usize, actions: &mut Vec<Action>) {
        let room = state.given.len() < self.attempts as usize;
        match state.holds[run] {
            Some(_) => {
                actions.extend([Action::Finish(run), Action::SignOfLife(run), Action::End(run)]);
            }
            None if room => {
                actions.extend([Action::Claim(run), Action::Poll(run)]);
                if self.variant == Variant::StaleClaim && state.late.is_none() {
                    actions.push(Action::ClaimLate(run));
                }
            }
            None => {}
        }
    }
}

impl Model for Work {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let swarm = Name::parse("swarm").unwrap();
        let mut state = State {
            pool: Stage::new(EntityKey::of(Kind::Pool, &swarm)),
            now: START,
            since: START,
            steps: 0,
            takeovers: 0,
            holds: [None; RUNS],
            given: BTreeMap::new(),
            lost: BTreeMap::new(),
            heard: START,
            late: None,
            finished: None,
            late_refused: false,
            harm: None,
        };
        for command in [join(ANN, "ann"), join(BOB, "bob"), create()] {
            self.run(&mut state, &command).unwrap();
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        if state.harm.is_some() {
            return;
        }
        for run in 0..RUNS {
            self.actions_of(state, run, actions);
        }
        actions.push(Action::Tick);
        if self.variant == Variant::StaleExpiry && state.late.is_none() {
            actions.push(Action::TickLate);
        }
        if state.late.is_some() {
            actions.push(Action::Land);
        }
        if state.steps < self.steps {
            actions.extend([Action::HalfALease, Action::Reservation]);
        }
        if state.takeovers < self.takeovers {
            actions.push(Action::Takeover);
        }
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = last.clone();
        match action {
            Action::Claim(run) => self.ask(&mut state, run, &claim(run)),
            Action::Poll(run) => {
                let (agent, instance) = (agent(run), instance(run));
                let poll = Command::Poll { agent, instance, managed: true, last: false };
                self.ask(&mut state, run, &poll);
            }
            Action::Finish(run) => self.finish(&mut state, run),
            Action::SignOfLife(run) => Self::sign_of_life(&mut state, run),
            Action::End(run) => {
                let end = Command::EndInstance { instance: instance(run), reason: "gone".to_owned() };
                self.run(&mut state, &end);
            }
            Action::Tick => {
                let events = state.pool.decide(&Pool::tick(), ctx(&state)).ok()?.events;
                self.expire(&mut state, &events);
            }
            Action::HalfALease => advance(&mut state, TASK_LEASE_RUNNER / 2),
            Action::Reservation => advance(&mut state, TASK_RETURN),
            Action::Takeover => self.take_over(&mut state),
            Action::ClaimLate(run) => Self::decide_late(&mut state, Some(run), &claim(run)),
            Action::TickLate => Self::decide_late(&mut state, None, &Pool::tick()),
            Action::Land => self.land(&mut state),
        }
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}

fn advance(state: &mut State, span: Duration) {
    state.now = state.now + span;
    state.steps += 1;
}

/// The agents whose result the pool would take now.
fn may_report(state: &State) -> usize {
    let agents = [0, 2].into_iter();
    agents.filter(|run| state.pool.decide(&result(*run, Variant::Sound), ctx(state)).is_ok()).count()
}

const ONE_HOLDER: &str = "an attempt is given to one run, and one agent's result is taken";
const NO_LATE_RESULT: &str = "a result is refused once the task is not its agent's any more";
const ONE_RECOVERY: &str = "a lease that is lost is recovered once";
const NO_EARLY_END: &str = "no lease ends by time within its length after a sign of life";
const INVARIANTS: &str = "the invariants hold and the documents give back the state";

fn properties() -> Vec<Property<Work>> {
    vec![
        Property::always(ONE_HOLDER, |_, state: &State| {
            state.harm != Some(Harm::TwoHolders) && may_report(state) <= 1
        }),
        Property::always(NO_LATE_RESULT, |_, state: &State| state.harm != Some(Harm::LateResult)),
        Property::always(ONE_RECOVERY, |_, state: &State| {
            let losses: u32 = state.lost.values().sum();
            let counted = state.pool.entity.task(TASK).is_none_or(|task| task.generation == losses);
            let once = state.lost.values().all(|times| *times == 1);
            state.harm != Some(Harm::RecoveredTwice) && once && counted
        }),
        Property::always(NO_EARLY_END, |_, state: &State| state.harm != Some(Harm::RecoveredAlive)),
        Property::always(INVARIANTS, |_, state: &State| state.harm != Some(Harm::Invariant)),
        Property::sometimes("a second agent finishes what a first one lost", |_, state: &State| {
            let by = state.finished.map(|finished| state.given.get(&finished.by));
            state.given.get(&1) == Some(&2) && matches!(by, Some(Some(0 | 1)))
        }),
        Property::sometimes("a late result is refused", |_, state: &State| state.late_refused),
        Property::sometimes("an older run of the same agent finishes", |_, state: &State| {
            state.finished.is_some_and(|finished| finished.by < finished.attempt)
        }),
        Property::sometimes("the agent gets back what it lost", |_, state: &State| {
            state.given.get(&1) == Some(&0) && state.given.get(&2) == Some(&0)
        }),
        Property::sometimes("a lease outlives a takeover", |_, state: &State| {
            let long = state.now > START + TASK_LEASE_RUNNER;
            state.takeovers > 0 && long && leased(&state.pool) == Some(1)
        }),
    ]
}

const SOUND: Work = Work { variant: Variant::Sound, steps: 3, takeovers: 1, attempts: 3 };

fn fails(variant: Variant, harm: &'static str) {
    check::fails(Work { variant, ..SOUND }, harm);
}

#[test]
fn one_agent_has_the_task_and_each_lease_has_one_recovery() {
    check::holds(SOUND, 10_000);
}

#[test]
fn if_anyone_may_report_a_late_result_is_taken() {
    fails(Variant::AnyReporter, NO_LATE_RESULT);
}

#[test]
fn a_claim_decided_on_an_older_state_gives_the_task_twice() {
    fails(Variant::StaleClaim, ONE_HOLDER);
}

#[test]
fn an_expiry_without_its_generation_ends_another_lease() {
    fails(Variant::StaleExpiry, NO_EARLY_END);
    fails(Variant::StaleExpiry, ONE_RECOVERY);
}

#[test]
fn without_a_period_of_grace_a_takeover_ends_the_lease_of_a_live_run() {
    fails(Variant::NoGrace, NO_EARLY_END);
}
