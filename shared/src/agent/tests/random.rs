//! Random commands against an agent and its fleet: invariants hold, documents tell the state, and a restart
//! in the middle changes nothing. [`Bench`] and [`World::settle`] do the checking.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::unheard::given_back;
use super::*;
use crate::agent::{Event, Outcome, Returned};
use crate::entity::{Changes, Entity};

#[derive(Clone, Debug)]
enum Step {
    Enqueue(u8),
    Call { call: u128, caller: u8 },
    Cancel(u128),
    CallerEnded(u8, bool),
    Return(u8),
    Wait { who: u8, wait: u128, webhook: bool, broadcast: bool },
    Check { who: u8 },
    Lose { who: u8, before: bool },
    Trigger(u128),
    Ack(u128, u8),
    Report { who: u8, what: u8, behind: u64 },
    Kill(u8),
    Finish(u8, u8),
    Attach(u8),
    Complete(u8),
    Enable(bool),
    Pause(bool),
    PauseSwarm(bool, u64),
    Scale(u32),
    Rerun(u8),
    Replay(u8),
    Define { scale: u32, group: bool, spills: bool },
    Undefine,
    Lost(u8),
    Holds(u8, Option<u64>),
    Register { slots: u32, keep: bool },
    Advance(u64),
    Prompt { runner: bool, acks: bool },
    RestartAgent,
    RestartFleet,
}

fn step() -> impl Strategy<Value = Step> {
    let who = 0..6u8;
    let number = 0..8u128;
    prop_oneof![
        6 => (0..3u8).prop_map(Step::Enqueue),
        4 => (number.clone(), 0..3u8).prop_map(|(call, caller)| Step::Call { call, caller }),
        1 => number.clone().prop_map(Step::Cancel),
        1 => (0..3u8, any::<bool>()).prop_map(|(caller, cancel)| Step::CallerEnded(caller, cancel)),
        2 => who.clone().prop_map(Step::Return),
        6 => (who.clone(), number.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(who, wait, webhook, broadcast)| Step::Wait { who, wait, webhook, broadcast }),
        2 => who.clone().prop_map(|who| Step::Check { who }),
        2 => (who.clone(), any::<bool>()).prop_map(|(who, before)| Step::Lose { who, before }),
        4 => number.clone().prop_map(Step::Trigger),
        3 => (number, 0..5u8).prop_map(|(wait, by)| Step::Ack(wait, by)),
        8 => (who.clone(), 0..7u8, 0..2u64)
            .prop_map(|(who, what, behind)| Step::Report { who, what, behind }),
        1 => who.clone().prop_map(Step::Kill),
        1 => (who.clone(), prop::sample::select(vec![0, 3, 42])).prop_map(|(who, code)| Step::Finish(who, code)),
        1 => (0..2u8).prop_map(Step::Attach),
        1 => who.clone().prop_map(Step::Complete),
        1 => any::<bool>().prop_map(Step::Enable),
        2 => any::<bool>().prop_map(Step::Pause),
        1 => (any::<bool>(), 0..9u64).prop_map(|(paused, word)| Step::PauseSwarm(paused, word)),
        1 => (0..4u32).prop_map(Step::Scale),
        1 => who.clone().prop_map(Step::Rerun),
        1 => who.clone().prop_map(Step::Replay),
        2 => (0..4u32, any::<bool>(), any::<bool>())
            .prop_map(|(scale, group, spills)| Step::Define { scale, group, spills }),
        1 => Just(Step::Undefine),
        1 => who.clone().prop_map(Step::Lost),
        2 => (who, prop::option::of(0..3u64)).prop_map(|(who, behind)| Step::Holds(who, behind)),
        2 => (0..4u32, any::<bool>()).prop_map(|(slots, keep)| Step::Register { slots, keep }),
        3 => prop_oneof![Just(1), Just(20), Just(1000), Just(8000)].prop_map(Step::Advance),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(runner, acks)| Step::Prompt { runner, acks }),
        1 => Just(Step::RestartAgent),
        1 => Just(Step::RestartFleet),
    ]
}

impl World {
    /// One of the live instances, or one that never was.
    fn pick(&self, who: u8) -> InstanceId {
        let live = &self.agent.entity.instances;
        let chosen = live.keys().nth(usize::from(who) % live.len().max(1)).cloned();
        chosen.unwrap_or_else(|| InstanceId("worker-00000000".to_owned()))
    }

    fn step(&mut self, step: Step) {
        let people = ["lead", "tester", "scribe"];
        let command = match step {
            Step::Enqueue(class) => {
                enqueue([Class::Manual, Class::Webhook, Class::Schedule][usize::from(class)])
            }
            Step::Call { call, caller: who } => {
                let caller = caller(people[usize::from(who)], &[]);
                Command::Call { call: id(call), caller, context: "c".to_owned(), noted: call % 2 == 1 }
            }
            Step::Cancel(call) => {
                let instance = caller("lead", &[]).instance;
                Command::CancelCall { call: id(call), instance }
            }
            Step::CallerEnded(who, cancel) => {
                Command::CallerEnded { instance: caller(people[usize::from(who)], &[]).instance, cancel }
            }
            Step::Return(who) => {
                // Never the same blob for two values, as the ids of requests have it.
                let blob = Blob { id: id(5000 + self.agent.events.len() as u128), bytes: 300_000 };
                let long = Returned::Long { blob, preview: "v".to_owned() };
                let value = if who % 2 == 0 { long } else { "v".into() };
                Command::ReturnValue { instance: self.pick(who), value }
            }
            Step::Wait { who, wait, webhook, broadcast } => Command::BeginWait {
                instance: self.pick(who),
                wait: id(wait + 100 * self.agent.events.len() as u128),
                filter: if webhook { webhook_filter() } else { agent_filter(Some("lead")) },
                timeout_ms: Some(1_000_000),
                broadcast,
                look_back: webhook && wait % 2 == 0,
                asked: id(7000 + self.agent.events.len() as u128),
            },
            Step::Check { who } => {
                let asked = id(6000 + self.agent.events.len() as u128);
                Command::CheckWait { instance: self.pick(who), wait: None, asked }
            }
            Step::Lose { who, before } => {
                let instance = self.pick(who);
                let latest = self.agent.entity.instances.get(&instance).and_then(|known| known.wait);
                let latest = latest.and_then(|wait| self.agent.entity.waits.get(&wait));
                let asked = latest.and_then(|wait| if before { wait.after } else { wait.asked });
                Command::AnswerLost { instance, asked: asked.unwrap_or_default(), event: Some(envelope()) }
            }
            Step::Trigger(wait) => {
                Command::Trigger { wait: self.any_wait(wait), receipt: id(wait), payload: envelope() }
            }
            Step::Ack(wait, by) => {
                let wait = self.any_wait(wait);
                match by {
                    0 => Command::LocksExtended { wait },
                    1 => Command::LeasesExtended { wait },
                    2 => Command::LookedBack { wait, found: None },
                    3 => Command::LookedBack { wait, found: Some((id(77), envelope())) },
                    _ => Command::WaitRegistered { wait },
                }
            }
            Step::Report { who, what, behind } => self.some_report(who, what, behind),
            Step::Finish(who, code) => Command::Finish { instance: self.pick(who), code },
            Step::Kill(who) => Command::Kill { instance: self.pick(who), reason: "chance".to_owned() },
            Step::Attach(who) => {
                Command::Attach { instance: InstanceId(format!("token-{who}")), agent_id: id(who.into()) }
            }
            Step::Complete(who) => Command::Complete { instance: self.pick(who) },
            Step::Enable(enabled) => Command::SetEnabled { enabled },
            Step::Pause(paused) => Command::SetPaused { paused },
            Step::PauseSwarm(paused, word) => Command::SetSwarmPaused { paused, word },
            Step::Scale(scale) => Command::SetScale { scale: NonZeroU32::new(scale) },
            Step::Rerun(who) => Command::RequestRerun { instance: self.pick(who) },
            Step::Replay(which) => match self.any_letter(which) {
                Some(letter) => Command::Replay { letter: Box::new(letter) },
                None => return,
            },
            Step::Define { scale, group, spills } => {
                let spill_after_ms = if spills { 10_000 } else { 0 };
                let definition = Definition { scale, work_queue: 3, spill_after_ms, ..Definition::default() };
                Command::Define { definition, group: name(if group { "default" } else { "elsewhere" }) }
            }
            Step::Undefine => Command::Undefine,
            Step::Lost(who) => {
                Command::RunnerLost { runner: "r1".to_owned(), instances: vec![self.pick(who)] }
            }
            Step::Holds(who, behind) => {
                let instance = self.pick(who);
                let seen = behind.map(|behind| self.earlier_token(&instance, behind));
                Command::RunnerHolds { runner: "r1".to_owned(), held: vec![(instance, seen)] }
            }
            other => return self.surroundings(other),
        };
        let _ = self.run(command);
    }

    fn surroundings(&mut self, step: Step) {
        match step {
            Step::Register { slots, keep } => self.reregister(slots, keep),
            Step::Advance(seconds) => self.advance(seconds),
            Step::Prompt { runner, acks } => (self.prompt_runner, self.prompt_acks) = (runner, acks),
            Step::RestartAgent => self.agent.restart(),
            Step::RestartFleet => self.fleet.restart(),
            other => panic!("{other:?} is the agent's"),
        }
    }

    fn any_wait(&self, which: u128) -> Uuid {
        let waits: Vec<_> = self.agent.entity.waits.keys().copied().collect();
        waits.get(which as usize % waits.len().max(1)).copied().unwrap_or(id(which))
    }

    fn any_letter(&self, which: u8) -> Option<super::super::DeadLetter> {
        let letters = self.agent.events.iter().filter_map(|event| match event {
            Event::DeadLettered(letter) => Some(letter.clone()),
            _ => None,
        });
        letters.collect::<Vec<_>>().into_iter().rev().nth(usize::from(which))
    }

    /// The token of a command so many before the last.
    fn earlier_token(&self, instance: &InstanceId, behind: u64) -> Token {
        let known = self.agent.entity.instances.get(instance);
        let last =
            known.and_then(|known| known.token).unwrap_or(Token { epoch: self.agent.epoch, number: 1 });
        Token { number: last.number.saturating_sub(behind), ..last }
    }

    fn some_report(&self, who: u8, what: u8, behind: u64) -> Command {
        let instance = self.pick(who);
        let token = self.earlier_token(&instance, behind);
        let what = match what {
            0 => Report::Started { pid: None },
            1 => Report::Frozen,
            2 => Report::Thawed,
            3 => exited(i32::from(who) % 2),
            4 => Report::Spilled,
            5 => Report::Restored { pid: None },
            _ => Report::StartFailed { reason: "chance".to_owned(), usage: None },
        };
        Command::Report { instance, token, runner: "r1".to_owned(), what }
    }

    fn reregister(&mut self, slots: u32, keep: bool) {
        let places = self.fleet.entity.places_on("r1").into_iter();
        let held = places.filter(|_| keep).map(|place| fleet::HeldInstance {
            instance: place.instance,
            swarm: place.swarm,
            agent: place.agent,
            state: "running".to_owned(),
            token: Token { epoch: self.agent.epoch, number: 1 },
        });
        let registration = Registration {
            runner: "r1".to_owned(),
            identity: String::new(),
            slots,
            labels: BTreeSet::new(),
            engines: BTreeSet::new(),
            agents: BTreeSet::from([fleet::Offer::new(&name("s"), &name("worker"))]),
            swarms: BTreeSet::new(),
            held: held.collect(),
        };
        self.fleet.run(fleet::Command::Register(registration)).unwrap();
        self.settle();
    }

    /// What was asked for has come to one end, and nothing hangs on what is over.
    fn check_ends(&self) {
        let (mut begun, mut ended) = (BTreeMap::new(), BTreeMap::new());
        let (mut called, mut answered, mut forgotten) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut placed = BTreeSet::new();
        for event in &self.agent.events {
            match event {
                Event::Queued { instance, .. } => *begun.entry(instance.id.clone()).or_insert(0) += 1,
                Event::Attached { instance, .. } => {
                    *begun.entry(instance.id.clone()).or_insert(0) += 1;
                    placed.insert(instance.id.clone());
                }
                Event::Granted { instance, .. } => drop(placed.insert(instance.clone())),
                Event::Ended { instance, .. } => *ended.entry(instance.clone()).or_insert(0) += 1,
                Event::Called { call, .. } => *called.entry(call.id).or_insert(0) += 1,
                Event::CallEnded { call, .. } => *answered.entry(*call).or_insert(0) += 1,
                Event::CallForgotten { call } => *forgotten.entry(*call).or_insert(0) += 1,
                _ => {}
            }
        }
        assert_eq!(begun, ended, "each run ends once");
        // An id may call again once its first call is forgotten.
        assert_eq!(called, answered, "each call is answered once");
        assert_eq!(called, forgotten, "each call is forgotten once");
        let freed = self.sent.iter().filter(|(key, _)| key.kind == Kind::Lockspace);
        let freed: BTreeSet<InstanceId> = freed
            .filter_map(|(_, command)| serde_json::from_value(command["release_all"]["holder"].clone()).ok())
            .collect();
        let missing: Vec<_> = placed.difference(&freed).collect();
        assert!(missing.is_empty(), "{missing:?} ended with their locks");
    }

    /// How many events were heard by who waited for them: as an answer, or by being started again with them.
    fn heard(&self) -> usize {
        let (mut woken, mut heard) = (BTreeSet::new(), BTreeSet::new());
        let (mut waiters, mut begins_again) = (BTreeMap::new(), BTreeMap::new());
        for event in &self.agent.events {
            match event {
                Event::WaitBegun(wait) => {
                    waiters.insert(wait.id, wait.instance.clone());
                    heard.extend(begins_again.remove(&wait.instance));
                }
                Event::WaitEnded { wait, outcome: Outcome::Triggered { receipt: Some(_), .. } } => {
                    woken.insert(*wait);
                }
                Event::WaitDelivered { wait, asked } if woken.contains(wait) => match asked {
                    Some(_) => _ = heard.insert(*wait),
                    None => _ = begins_again.insert(waiters[wait].clone(), *wait),
                },
                Event::WaitUnread { wait } => drop(heard.remove(wait)),
                Event::Restored { instance, .. } => heard.extend(begins_again.remove(instance)),
                _ => {}
            }
        }
        heard.len()
    }

    /// Nothing waits for a start that will not be: what may not be dropped at once is due at once.
    fn check_queue(&mut self) {
        let agent = &self.agent.entity;
        let stopped = agent.defined.is_some() && !agent.takes_work();
        let serves_calls = agent.serves_calls();
        let left: Vec<_> = agent.queued().filter(|_| stopped).map(|item| (item.class, item.at)).collect();
        let due = self.agent.entity.next_due();
        for (class, at) in left {
            if class == Class::Call {
                assert!(serves_calls, "a call is left in the queue of an agent that serves none");
            } else {
                assert!(
                    due.is_some_and(|due| due <= at),
                    "an item of the queue of a disabled agent is not due"
                );
            }
        }
    }

    /// With a world that obeys and a runner with room, everything comes to an end.
    fn finish(&mut self) {
        (self.prompt_runner, self.prompt_acks) = (true, true);
        self.must(Command::Undefine);
        let live: Vec<_> = self.agent.entity.instances.values().cloned().collect();
        for run in live {
            let _ = match run.token {
                Some(token) if run.runner.is_some() => self.report(&run.id, token, exited(0)),
                _ => self.run(Command::Kill { instance: run.id, reason: "the end".to_owned() }),
            };
        }
        self.advance(3 * 3600);
        self.advance(3600);
        let agent = &self.agent.entity;
        assert!(agent.instances.is_empty(), "{:?}", agent.instances);
        assert!(agent.finished.values().next().is_none(), "calls are kept for ever");
        assert!(agent.queue.is_empty() && agent.calls.is_empty() && agent.waits.is_empty());
        assert_eq!(agent.next_due(), None);
        assert!(agent.blobs.is_empty() && self.agent.blobs().is_empty(), "values are kept for ever");
        assert!(self.fleet.entity.bids.is_empty(), "{:?}", self.fleet.entity.bids);
        assert!(self.fleet.entity.places.is_empty(), "{:?}", self.fleet.entity.places);
        self.check_ends();
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_keeps_the_rules(steps in prop::collection::vec(step(), 1..80)) {
        let mut world = World::new(2);
        let came = steps.iter().filter(|step| matches!(step, Step::Trigger(_))).count();
        for step in steps {
            world.step(step);
            world.check_queue();
        }
        world.finish();
        assert_eq!(world.heard() + given_back(&world).len(), came, "an event is heard or given back, and once");
        // As the drafts of decisions follow them.
        let mut followed = Agent::empty(&world.agent.key);
        for event in &world.agent.events {
            followed.apply(event, &mut Changes::of_blobs());
        }
        assert_eq!(followed, world.agent.entity);
    }
}
