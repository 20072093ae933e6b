//! Random commands: the bench checks the invariants after every event, and here that the documents give
//! back the state, that capacity is kept, that ends are final and that attempts rise.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;

use super::forges::report_of;
use super::*;
use crate::entity::Poller;
use crate::forge::{Act, Activity};

/// A step, with small numbers that stand for agents and for tasks made so far.
#[derive(Clone, Debug)]
enum Step {
    Member(u8, u8),
    Create { by: u8, target: u8, agent: u8, priority: u8, depends: Vec<u8>, text: u8 },
    Overtaken(u8, u8),
    Poll(u8, bool, bool),
    Task(u8, u8, u8),
    Report(u8, u8, u8),
    Instance(u8, u8),
    Steer(u8, u8, bool),
    Alive(u8),
    Forge(u8, u8),
    Advance(u16),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let create = (0..4u8, 0..6u8, 0..4u8, 0..3u8, prop::collection::vec(any::<u8>(), 0..3), 0..6u8);
    prop_oneof![
        2 => (0..4u8, 0..8u8).prop_map(|(agent, what)| Step::Member(agent, what)),
        5 => create.prop_map(|(by, target, agent, priority, depends, text)| Step::Create {
            by, target, agent, priority, depends, text
        }),
        1 => (0..4u8, 0..6u8).prop_map(|(agent, what)| Step::Overtaken(agent, what)),
        5 => (0..4u8, any::<bool>(), any::<bool>()).prop_map(|(a, m, l)| Step::Poll(a, m, l)),
        8 => (any::<u8>(), 0..4u8, 0..13u8).prop_map(|(task, agent, what)| Step::Task(task, agent, what)),
        4 => (any::<u8>(), 0..4u8, 0..4u8).prop_map(|(task, agent, what)| Step::Report(task, agent, what)),
        1 => (0..4u8, 0..3u8).prop_map(|(agent, what)| Step::Instance(agent, what)),
        2 => (any::<u8>(), 0..4u8, any::<bool>()).prop_map(|(task, who, take)| Step::Steer(task, who, take)),
        2 => (0..4u8).prop_map(Step::Alive),
        2 => (0..4u8, 0..3u8).prop_map(|(what, number)| Step::Forge(what, number)),
        2 => (0..2400u16).prop_map(Step::Advance),
        1 => Just(Step::Restart),
    ]
}

fn agent(number: u8) -> Uuid {
    Uuid::from_u128(0xa0 + u128::from(number))
}

struct Run {
    swarm: Swarm,
    tasks: Vec<Uuid>,
    ended: BTreeMap<Uuid, Value>,
    attempts: BTreeMap<Uuid, u32>,
    /// What was said and has reached its agent.
    heard: BTreeSet<Uuid>,
}

impl Run {
    /// The answer that a message went with has reached nobody.
    fn lose(&mut self, message: Uuid) {
        let body = self.swarm.0.body(&format!("steering/{message}")).unwrap();
        let task = body["taskId"].as_str().unwrap().parse().unwrap();
        let since = Timestamp::parse_iso(body["createdAt"].as_str().unwrap()).unwrap();
        self.heard.remove(&message);
        self.swarm.run(Command::SteeringLost { messages: vec![Untold { message, task, since }] }).unwrap();
    }

    fn task(&self, number: u8) -> Uuid {
        match self.tasks.len() {
            0 => Uuid::from_u128(1),
            count => self.tasks[usize::from(number) % count],
        }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Member(who, what) => self.member(agent(*who), *who, *what),
            Step::Create { by, target, agent: whom, priority, depends, text } => {
                let depends_on = depends.iter().map(|&number| self.task(number)).collect();
                let text = ["a b c d", "a b c e", "x", "y z", "🦢", "ログイン"][usize::from(*text)];
                let parent = (text.len() == 1).then(|| self.tasks.last().copied()).flatten();
                let spec = TaskSpec {
                    parent,
                    priority: priority * 50,
                    depends_on,
                    tags: (0..text.len() % 3).map(|tag| format!("t{tag}")).collect(),
                    epic: (*priority == 1).then(|| Uuid::from_u128(7)),
                    epic_name: (*priority == 1).then(|| "Launch".to_owned()),
                    ..TaskSpec::new(text)
                };
                let whom = Some(agent(*whom));
                let target = match target {
                    0 | 1 => Target::Pool,
                    2 => Target::Backlog,
                    3 => Target::Offer { agent: whom },
                    _ => Target::Assign { agent: whom },
                };
                let rules = match by {
                    0 => Rules::Plain,
                    by => Rules::Delegation { allow_duplicate: *by == 1 },
                };
                let create = Create { by: Some(agent(*by)), spec, target, rules, facts: Vec::new() };
                self.create(create, |_| ());
            }
            Step::Overtaken(who, what) => self.overtaken(agent(*who), *what),
            Step::Poll(who, managed, last) => {
                let who = agent(*who);
                let command =
                    Command::Poll { agent: who, instance: instance(who), managed: *managed, last: *last };
                self.hand_out(who, command);
            }
            Step::Task(task, who, what) => self.act(self.task(*task), agent(*who), *what),
            Step::Report(task, who, what) => {
                let progress = (*what != 1).then(|| format!("step {}", what % 2));
                let finish = match what {
                    1 => Some(completed("ok")),
                    2 => Some(Finish::Failed { reason: None }),
                    _ => None,
                };
                let about =
                    Some(About { text: "a task of some length for memory".into(), ..About::default() });
                let report = Progress { progress, finish, about, ..report(self.task(*task), agent(*who)) };
                let _ = self.swarm.run(Command::Progress(Box::new(report)));
            }
            Step::Instance(who, what) => {
                let instance = instance(agent(*who));
                let until = self.swarm.0.now + Duration::from_secs(u64::from(*what) * 1000);
                let name = Name::parse("ann").unwrap();
                let command = match what {
                    0 => Command::EndInstance { instance, reason: "gone".to_owned() },
                    _ => Command::ExtendLease {
                        instance,
                        until,
                        wait: Uuid::nil(),
                        reply_to: EntityKey::agent(&name, &name),
                        over: self.swarm.0.events.len().is_multiple_of(2),
                    },
                };
                self.swarm.run(command).unwrap();
            }
            Step::Steer(task, who, take) => {
                let (task, agent) = (self.task(*task), agent(*who));
                let command = match take {
                    true => Command::TakeSteering { agent, instance: instance(agent) },
                    false => Command::Steer { task, by: Some(agent), text: format!("by {who}") },
                };
                if let Ok(Reply::Steering(messages)) = self.swarm.run(command) {
                    for message in messages {
                        assert!(self.heard.insert(message), "{message} was given twice");
                        if message.as_u128().is_multiple_of(3) {
                            self.lose(message);
                        }
                    }
                }
            }
            Step::Alive(who) => {
                let (now, instance) = (self.swarm.0.now, instance(agent(*who)).to_string());
                let agent = agent(*who);
                let signal = match self.swarm.0.events.len() % 4 {
                    0 => Signal::AgentPolls(Poller {
                        agent,
                        instance: InstanceId(instance),
                        managed: who % 2 == 0,
                        poll: Uuid::from_u128(u128::from(*who)),
                    }),
                    1 => Signal::AgentWent { agent, poll: Uuid::from_u128(u128::from(*who)) },
                    2 => Signal::RunnerAlive { runner: "r".to_owned(), instances: vec![instance] },
                    _ => Signal::AgentsAlive { agents: vec![(agent, instance)] },
                };
                self.swarm.0.entity.observe(&signal, now);
            }
            Step::Forge(what, number) => self.forge(*what, *number),
            Step::Advance(seconds) => self.swarm.0.advance(Duration::from_secs(u64::from(*seconds))),
            Step::Restart => self.swarm.0.restart(),
        }
    }

    /// Something happens to one of two pull requests, or to both.
    fn forge(&mut self, what: u8, number: u8) {
        let task_type = "github-pr".to_owned();
        let act = match what {
            0 | 1 => Act::Ask { task_type, once: what == 0 },
            2 => Act::News { task_type },
            _ => Act::Withdraw,
        };
        let numbers = if number == 2 { vec![0, 1] } else { vec![number] };
        let subject = |number: &u8| format!("github:acme/api#{number}").parse().unwrap();
        let subjects = numbers.iter().map(subject).collect();
        let activity =
            Activity { subjects, act, report: report_of("look at it"), key: None, fields: Map::new() };
        let made = self.swarm.heard(Command::Forge(Box::new(activity)));
        self.tasks.extend(made);
    }

    fn member(&mut self, who: Uuid, number: u8, what: u8) {
        let command = match what {
            0 => Command::Leave { agent: who },
            1 => Command::Offline { agent: who },
            2 => Command::Ping { agent: who, managed: true },
            3 | 4 => Command::SetCapacity { agent: who, max_tasks: u32::from(what) - 2 },
            _ => Command::Join(join(who, &format!("n{}", number % 3), number == 0 || what == 7)),
        };
        let _ = self.swarm.run(command);
    }

    /// Creates as the service does: it supplies the facts that are asked for. Once these are looked up for the first
    /// time, something else happens.
    fn create(&mut self, mut create: Create, meanwhile: impl FnOnce(&mut Self)) {
        let mut meanwhile = Some(meanwhile);
        for _ in 0..4 {
            match self.swarm.run(Command::Create(Box::new(create.clone()))) {
                Ok(Reply::Created { task, .. }) => return self.tasks.push(task.id),
                Ok(Reply::NeedFacts { tasks, asked }) => {
                    create.facts.retain(|fact| !tasks.contains(&fact.task));
                    create.facts.extend(tasks.iter().map(|&task| Fact { asked, ..self.fact(task) }));
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => return,
            }
            if let Some(happens) = meanwhile.take() {
                happens(self);
            }
        }
        panic!("{create:?} is never decided");
    }

    /// A task waits for one that nobody knows when it is looked up. That is made meanwhile, and ends perhaps, and the
    /// pool may get another owner.
    fn overtaken(&mut self, who: Uuid, what: u8) {
        let late = Uuid::from_u128(0xf000 + self.tasks.len() as u128);
        let create = |id, depends_on| {
            let spec = TaskSpec { id, depends_on, ..TaskSpec::new("overtaken") };
            Create { by: Some(who), spec, target: Target::Pool, rules: Rules::Plain, facts: Vec::new() }
        };
        self.create(create(None, vec![late]), |run| {
            run.create(create(Some(late), Vec::new()), |_| ());
            let _ = match what % 3 {
                0 => run.swarm.run(Command::Cancel { task: late, by: None, reason: None }),
                1 => {
                    run.swarm.run(claim(who, late)).and_then(|_| run.swarm.finish(late, who, completed("ok")))
                }
                _ => run.swarm.run(claim(who, late)),
            };
            if what > 2 {
                run.swarm.0.restart();
            }
        });
    }

    fn fact(&self, task: Uuid) -> Fact {
        let Some(head) = self.swarm.0.head(&format!("task/{task}")) else { return Fact::unknown(task) };
        let head: Task = serde_json::from_value(head.clone()).unwrap();
        let outcome = match head.status {
            Status::Completed => Outcome::Completed,
            Status::Failed => Outcome::Failed,
            Status::Cancelled => Outcome::Cancelled,
            live => panic!("{task} is {live} and yet asked for"),
        };
        Fact { outcome: Some(outcome), agent: head.agent, ..Fact::unknown(task) }
    }

    /// What waits for a task sees how that has ended.
    fn check_dependencies(&self, task: Uuid, head: &Task) {
        if head.status.is_terminal() {
            return;
        }
        for dependency in head.dependencies.iter().filter(|dependency| dependency.outcome.is_none()) {
            let other = self.swarm.0.head(&format!("task/{}", dependency.task)).cloned();
            let other = other.map(|head| serde_json::from_value::<Task>(head).unwrap().status);
            assert!(
                !other.is_some_and(Status::is_terminal),
                "{task} waits for {dependency}, which has ended"
            );
        }
    }

    /// News are for whoever leads, and for nobody while nobody does.
    fn check_news(&self) {
        let pool = &self.swarm.0.entity;
        for (id, task) in pool.tasks.iter().filter(|(_, task)| task.news) {
            assert_eq!(task.agent, pool.lead(), "{id} is with somebody else");
        }
    }

    fn act(&mut self, task: Uuid, who: Uuid, what: u8) {
        let command = match what {
            0..=2 => {
                return self.hand_out(who, claim(who, task));
            }
            12 => {
                let tags = if task.as_u128().is_multiple_of(2) {
                    Vec::new()
                } else {
                    vec!["t0".to_owned(), "t1".to_owned()]
                };
                let claim = Command::ClaimNext { agent: who, instance: instance(who), managed: false, tags };
                return self.hand_out(who, claim);
            }
            3 => Command::Release { agent: who, task },
            4 => Command::Accept { agent: who, task },
            5 => Command::Reject { agent: who, task, reason: None },
            6 => Command::ToBacklog { task, by: Some(who) },
            7 => Command::FromBacklog { task, by: Some(who) },
            8 => Command::Cancel { task, by: Some(who), reason: None },
            9 => Command::Pause { task, by: Some(who) },
            10 => Command::Resume { task, by: Some(who), instance: instance(who), managed: false },
            _ => Command::Review { agent: who },
        };
        let _ = self.swarm.run(command);
    }

    /// Whatever a poll or a claim newly gives, it gives within the capacity.
    fn hand_out(&mut self, who: Uuid, command: Command) {
        let before = self.swarm.0.entity.active(who);
        let Ok(reply) = self.swarm.run(command) else { return };
        let after = self.swarm.0.entity.active(who);
        let most = self.swarm.0.entity.member(who).unwrap().max_tasks as usize;
        assert!(after == before || after <= most, "{reply:?} exceeds {most}");
    }

    /// Each lease has one recovery at most, and no task more than may be.
    fn check_recoveries(&self) {
        let mut losses: BTreeMap<Uuid, u32> = BTreeMap::new();
        let mut leases = BTreeSet::new();
        let mut attempts: BTreeMap<Uuid, u32> = BTreeMap::new();
        for event in &self.swarm.0.events {
            match event {
                Event::Started { task, attempt, .. } => {
                    attempts.insert(*task, *attempt);
                }
                Event::LeaseLost { task, generation, .. } => {
                    let count = losses.entry(*task).or_default();
                    *count += 1;
                    assert_eq!((*count, *count < crate::limits::TASK_GENERATIONS_MAX), (*generation, true));
                    assert!(leases.insert((*task, attempts[task])), "{task} was recovered twice");
                }
                _ => {}
            }
        }
    }

    fn check(&mut self) {
        assert_eq!(self.swarm.0.restored(), self.swarm.0.entity, "documents and events differ");
        for &task in &self.tasks {
            let head = self.swarm.head(task);
            let body = Value::Object(self.swarm.body(task));
            assert_eq!(body["status"], head.status.as_str());
            assert_eq!(body["agentId"].as_str(), head.agent.map(|id| id.to_string()).as_deref());
            assert_eq!(head.status.is_terminal(), self.swarm.0.entity.task(task).is_none());
            if head.status.is_terminal() {
                assert_eq!(self.ended.entry(task).or_insert_with(|| body.clone()), &body, "an end changed");
            }
            self.check_dependencies(task, &head);
            let attempts = self.attempts.insert(task, head.attempt).unwrap_or_default();
            assert!(head.attempt >= attempts);
        }
        self.check_recoveries();
        self.check_news();
        for number in 0..4 {
            let Some(member) = self.swarm.0.entity.member(agent(number)) else { continue };
            let busy = self.swarm.0.entity.active(agent(number)) > 0;
            let want = if member.offline {
                "offline"
            } else if busy {
                "busy"
            } else {
                "idle"
            };
            assert_eq!(self.swarm.member(agent(number))["status"], want);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn any_commands_keep_the_promises(steps in prop::collection::vec(step(), 1..80)) {
        let swarm = Swarm::new();
        let mut run = Run { swarm, tasks: Vec::new(), ended: BTreeMap::new(), attempts: BTreeMap::new(), heard: BTreeSet::new() };
        for step in &steps {
            run.take(step);
            run.check();
        }
    }

    #[test]
    fn commands_and_events_survive_their_json(steps in prop::collection::vec(step(), 1..30)) {
        let swarm = Swarm::new();
        let mut run = Run { swarm, tasks: Vec::new(), ended: BTreeMap::new(), attempts: BTreeMap::new(), heard: BTreeSet::new() };
        for step in &steps {
            run.take(step);
        }
        for event in &run.swarm.0.events {
            let text = serde_json::to_string(event).unwrap();
            let mut event = event.clone();
            if let Event::Created(created) = &mut event {
                created.sketch = None;
            }
            prop_assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        }
    }
}
