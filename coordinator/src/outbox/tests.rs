//! Effects on their way out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use skein_shared::agent::{self, Agent, Class};
use skein_shared::entity::{DocumentChange, Effect, Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use skein_shared::fleet;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::json::Json;
use skein_shared::limits::EFFECT_EXPIRY;
use skein_shared::pool;
use skein_shared::schedules::Schedules;
use skein_shared::slack::Note;
use skein_shared::time::Timestamp;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::lanes::{Fate, Input, Lanes, Output};
use super::{Delivery, Runners, pump};
use crate::alarms::Kind as Alarm;
use crate::entity::Request;
use crate::entity::tests::{Node, change, first_batch, locks, member, node, poison, swarm, task};
use crate::slack::Workspaces;
use crate::store::memory::Fault;
use crate::store::{Batch, Fence, OutboxEffect, OutboxEntry, Store};

/// Runners by name: all are connected but `away`, `stuck` never answers, and `without` has no agents.
#[derive(Default)]
struct Fleet {
    /// The numbers of the commands that each got, in their order.
    got: Mutex<HashMap<String, Vec<u64>>>,
    back: Mutex<bool>,
    connected: Notify,
}

impl Fleet {
    fn got(&self, runner: &str) -> Vec<u64> {
        self.got.lock().unwrap().get(runner).cloned().unwrap_or_default()
    }

    fn connect(&self) {
        *self.back.lock().unwrap() = true;
        self.connected.notify_waiters();
    }
}

#[async_trait::async_trait]
impl Runners for Fleet {
    async fn deliver(&self, runner: &str, command: &RunnerCommand, _: &Reign) -> Delivery {
        match runner {
            "stuck" => std::future::pending().await,
            "away" if !*self.back.lock().unwrap() => Delivery::NotConnected,
            "without" if matches!(command, RunnerCommand::Start { .. }) => Delivery::NotOffered,
            "without" => Delivery::Sent,
            _ => {
                let RunnerCommand::Forget { token, .. } = command else { panic!("a forget") };
                self.got.lock().unwrap().entry(runner.to_owned()).or_default().push(token.number);
                Delivery::Sent
            }
        }
    }

    async fn connected(&self) {
        self.connected.notified().await;
    }
}

struct Pumping {
    stop: CancellationToken,
    running: JoinHandle<()>,
}

impl Pumping {
    fn start(node: &Node, runners: &Arc<Fleet>) -> Self {
        let stop = CancellationToken::new();
        let runners: Arc<dyn Runners> = runners.clone();
        let running =
            tokio::spawn(pump::run(node.entities.clone(), runners, Workspaces::default(), stop.clone()));
        Self { stop, running }
    }

    async fn end(self) {
        self.stop.cancel();
        self.running.await.unwrap();
    }
}

/// Commits one batch of a source, which asks each runner for as many things as it says.
async fn burst(node: &Node, source: &str, effects: &[(&str, u64)]) {
    commit(node, asking(node, source, effects)).await;
}

fn asking(node: &Node, source: &str, effects: &[(&str, u64)]) -> Batch {
    let mut sequence = 0;
    let mut outbox = Vec::new();
    for &(runner, count) in effects {
        for _ in 0..count {
            sequence += 1;
            let token = Token { epoch: Epoch(1), number: sequence };
            let command = RunnerCommand::Forget { instance: "worker-00000001".to_owned(), token };
            outbox.push(OutboxEffect {
                sequence,
                effect: Effect::Runner { runner: runner.to_owned(), command },
            });
        }
    }
    let key = EntityKey::agent(&swarm(), &Name::parse(source).unwrap());
    Batch { outbox, ..first_batch(node, key) }
}

async fn commit(node: &Node, batch: Batch) {
    node.store.commit(node.store.fence(&batch.key), batch.into()).await.unwrap();
    node.entities.shared().outbox.send_modify(|commits| *commits += 1);
}

/// Waits until so many effects are left.
async fn left(node: &Node, count: usize) {
    while node.store.contents().outbox_len() != count {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A failed task tells the creator of what depends on it: an effect from the pool to the inboxes.
#[tokio::test]
async fn an_effect_reaches_its_target_once_though_answers_are_lost() {
    let node = node();
    let lead = Uuid::from_u128(7);
    change(&node, 1, member(lead, true)).await;
    change(&node, 2, task(100, Some(lead), Vec::new())).await;
    change(&node, 3, task(101, Some(lead), vec![Uuid::from_u128(100)])).await;
    let cancel = pool::Command::Cancel { task: Uuid::from_u128(100), by: Some(lead), reason: None };
    change(&node, 4, cancel).await;

    for _ in 0..3 {
        node.store.contents().faults().push(Fault::AnswerLost);
    }
    let pumping = Pumping::start(&node, &Arc::default());
    left(&node, 0).await;
    pumping.end().await;
    let inboxes = EntityKey::of(Kind::Inboxes, &swarm());
    let told = node.store.load(&inboxes).await.unwrap();
    let messages = told.live.iter().filter(|document| document.key.starts_with("message/")).count();
    assert_eq!(messages, 1, "{:?}", told.live);
}

/// What one entity sends to another goes together. A lost answer sends all of it again, and the marks tell.
#[tokio::test]
async fn many_effects_for_one_entity_share_its_commits() {
    let node = node();
    let memory = EntityKey::of(Kind::Memory, &swarm());
    let learn = |number: u64| match number {
        7 => json!({"no such command": number}),
        _ => json!({"remember": {
            "scope": "swarm", "name": "x", "content": number.to_string(), "source": "manual",
        }}),
    };
    let effect = |number| Effect::Entity { key: memory.clone(), command: learn(number).into() };
    let outbox = (1..=50).map(|sequence| OutboxEffect { sequence, effect: effect(sequence) }).collect();
    commit(&node, Batch { outbox, ..first_batch(&node, locks()) }).await;
    node.store.contents().faults().push(Fault::AnswerLost);
    let pumping = Pumping::start(&node, &Arc::default());
    left(&node, 0).await;
    pumping.end().await;
    let letters = node.store.dead_letters(0, 10).await.unwrap();
    let [letter] = &letters[..] else { panic!("what nobody could read left no trace: {letters:?}") };
    assert_eq!(letter.entry.sequence, 7);
    assert!(letter.reason.contains("memory/default does not know what it was sent"), "{}", letter.reason);
    let learned = node.store.documents(None, 100).await.unwrap();
    assert_eq!(learned.iter().filter(|document| document.key == memory).count(), 49);
    let commits = node.store.load(&memory).await.unwrap().version.0;
    assert!(commits <= 2, "50 deliveries took {commits} commits");
}

/// What goes to another node is one message, and one that is too long ends the stream for all.
#[test]
fn what_is_tried_together_has_a_limited_length() {
    const MIB: usize = 1 << 20;
    let lengths = [3 * MIB, MIB / 2, MIB, 10 * MIB, 1, 1];
    let target = EntityKey::of(Kind::Memory, &swarm());
    let entry = |(place, length): (u64, &usize)| OutboxEntry {
        position: place,
        source: locks(),
        epoch: Epoch(1),
        sequence: place,
        at: Timestamp(1),
        effect: Effect::Entity { key: target.clone(), command: Json::of(&"x".repeat(*length)) },
        fence: Fence::NONE,
    };
    let mut lanes = Lanes::default();
    lanes.on(Input::Look);
    let mut outputs = lanes.on(Input::Read(Ok((1..).zip(&lengths).map(entry).collect())));
    let mut together = Vec::new();
    while let Some(Output::Try { lane, entries, .. }) =
        outputs.into_iter().find(|output| matches!(output, Output::Try { .. }))
    {
        together.push(entries.len());
        let fates = entries.iter().map(|_| Fate::Delivered).collect();
        outputs = lanes.on(Input::Tried(lane, fates));
    }
    assert_eq!(together, [2, 1, 1, 2]);
}

/// The pool refuses a task for an agent that is no member; its schedule is told.
#[tokio::test(start_paused = true)]
async fn a_refused_delivery_is_told_to_its_source() {
    let node = node();
    let schedules = EntityKey::of(Kind::Schedules, &swarm());
    let ask = async |id: u128, command: serde_json::Value| {
        let (request, command) =
            (Request::once(Uuid::from_u128(id)), serde_json::from_value(command).unwrap());
        let reply = node.entities.ask::<Schedules>(&schedules, request, command).await.unwrap();
        serde_json::to_value(reply).unwrap()
    };
    let target = Uuid::from_u128(404);
    let create = json!({"name": "nightly", "task": "clean up", "interval_ms": 3_600_000, "target": target});
    let made = ask(1, json!({"create": create})).await;
    let id = made["schedule"]["id"].as_str().unwrap().to_owned();
    ask(2, json!({"run_now": {"which": {"id": id}, "by": {"agent": null}}})).await;

    let document = format!("schedule/{id}");
    let error = async || {
        let found = node.store.document(&schedules, &document).await.unwrap().unwrap();
        found.body["lastErrorMessage"].as_str().map(str::to_owned)
    };
    assert_eq!(error().await, None);
    let pumping = Pumping::start(&node, &Arc::default());
    let told = loop {
        match error().await {
            Some(told) => break told,
            None => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    };
    assert!(told.contains("not a member"), "{told}");
    left(&node, 0).await;
    let version = async || node.store.load(&schedules).await.unwrap().version;
    let once_told = version().await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    pumping.end().await;
    assert_eq!(version().await, once_told, "it is told once");
    assert_eq!(node.store.contents().outbox_len(), 0, "nothing is tried again");
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_is_away_or_stuck_delays_no_other() {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    burst(&node, "worker", &[("stuck", 3), ("away", 3), ("here", 3)]).await;
    burst(&node, "other", &[("away", 2), ("here", 2)]).await;
    let pumping = Pumping::start(&node, &fleet);
    left(&node, 8).await;
    assert_eq!(fleet.got("here").len(), 5);

    burst(&node, "third", &[("here", 4)]).await;
    left(&node, 8).await;
    assert_eq!(fleet.got("here").len(), 9, "what comes later does not wait either");

    fleet.connect();
    left(&node, 3).await;
    let from_worker: Vec<u64> = fleet.got("away").into_iter().filter(|number| *number > 3).collect();
    assert_eq!(from_worker, [4, 5, 6]);
    pumping.end().await;
}

/// Such as what a commit has left whose outcome was never told.
#[tokio::test(start_paused = true)]
async fn what_nobody_tells_the_pump_of_is_found_though_a_runner_is_away() {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    burst(&node, "worker", &[("away", 1)]).await;
    let pumping = Pumping::start(&node, &fleet);
    tokio::time::sleep(Duration::from_secs(10)).await;
    let untold = asking(&node, "other", &[("here", 1)]);
    node.store.commit(node.store.fence(&untold.key), untold.into()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.got("here"), [1]);
    pumping.end().await;
}

/// It was granted a run while it was away, and has come back without the run's agent.
#[tokio::test(start_paused = true)]
async fn a_start_whose_runner_has_no_such_agent_any_more_ends_the_run_and_frees_its_slot() {
    let (node, runners) = (node(), Arc::new(Fleet::default()));
    let name = |text: &str| Name::parse(text).unwrap();
    let (agent, group) = (EntityKey::agent(&swarm(), &name("worker")), EntityKey::fleet(&name("default")));
    let register = async |agents: &[fleet::Offer]| {
        let registration = json!({"runner": "without", "slots": 1, "agents": agents});
        let command = fleet::Command::Register(serde_json::from_value(registration).unwrap());
        node.entities.ask::<fleet::Fleet>(&group, Request::read(), command).await.unwrap();
    };
    let slots = async || match node
        .entities
        .ask::<fleet::Fleet>(&group, Request::read(), fleet::Command::List)
        .await
        .unwrap()
    {
        fleet::Reply::Overview(all) => all.places.len(),
        other => panic!("{other:?}"),
    };
    let definition = agent::Definition { scale: 1, ..agent::Definition::default() };
    let define = agent::Command::Define { definition, group: name("default") };
    node.entities.ask::<Agent>(&agent, Request::read(), define).await.unwrap();
    register(&[fleet::Offer::new(&swarm(), &name("worker"))]).await;
    let run = agent::Command::Enqueue {
        class: Class::Manual,
        source: "manual".to_owned(),
        receipt: None,
        input: json!({}),
    };
    node.entities.ask::<Agent>(&agent, Request::read(), run).await.unwrap();
    let pumping = Pumping::start(&node, &runners);
    // A stream may hear of an agent later than the fleet does.
    left(&node, 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((slots().await, node.store.contents().outbox_len()), (1, 1), "its start is tried again");

    register(&[]).await;
    left(&node, 0).await;
    pumping.end().await;
    assert_eq!(slots().await, 0);
    let all = node.store.documents(None, 100).await.unwrap();
    let run = all.iter().find(|document| document.document.starts_with("instance/")).unwrap();
    let reason = run.body["exit"]["reason"].as_str().unwrap_or_default();
    assert!(run.body["state"] == "error" && reason.contains("has no agent `worker`"), "{:?}", run.body);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_effects_drain_in_order_and_each_is_read_once() {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    burst(&node, "absent", &[("away", 1_000)]).await;
    for source in 0..9 {
        burst(&node, &format!("worker-{source}"), &[(&format!("runner-{source}"), 1_000)]).await;
    }
    let pumping = Pumping::start(&node, &fleet);
    left(&node, 1_000).await;
    fleet.connect();
    left(&node, 0).await;
    pumping.end().await;
    let all: Vec<u64> = (1..=1_000).collect();
    assert_eq!(fleet.got("away"), all);
    for source in 0..9 {
        assert_eq!(fleet.got(&format!("runner-{source}")), all);
    }
    assert_eq!(node.store.contents().outbox_read(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn what_nobody_takes_in_for_seven_days_becomes_a_dead_letter() {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    let pumping = Pumping::start(&node, &fleet);
    burst(&node, "worker", &[("away", 2)]).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    tokio::time::advance(EFFECT_EXPIRY - Duration::from_secs(120)).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0, "not a moment sooner");

    tokio::time::advance(Duration::from_secs(60)).await;
    left(&node, 0).await;
    let letters = node.store.dead_letters(0, 10).await.unwrap();
    assert_eq!(letters.iter().map(|letter| letter.entry.sequence).collect::<Vec<_>>(), [1, 2]);
    assert!(letters[0].buried_at.since(letters[0].entry.at) > EFFECT_EXPIRY);
    fleet.connect();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(fleet.got("away"), [0; 0], "the dead stay dead");
    pumping.end().await;
}

/// A node that was away for longer than a week, with what it was to ask of a runner that has yet to connect.
async fn started_late() -> (Node, Arc<Fleet>, Pumping) {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    let at = node.entities.clock().now() - EFFECT_EXPIRY - Duration::from_secs(86_400);
    commit(&node, Batch { at, ..asking(&node, "worker", &[("away", 1)]) }).await;
    let pumping = Pumping::start(&node, &fleet);
    (node, fleet, pumping)
}

#[tokio::test(start_paused = true)]
async fn what_is_old_when_its_node_starts_waits_for_its_target_to_come_back() {
    let (node, fleet, pumping) = started_late().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
    fleet.connect();
    left(&node, 0).await;
    pumping.end().await;
    assert_eq!(fleet.got("away"), [1]);
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
}

/// However often its node starts.
#[tokio::test(start_paused = true)]
async fn what_is_old_is_given_up_once_its_target_had_time_to_come_back() {
    let (node, _fleet, pumping) = started_late().await;
    tokio::time::sleep(Duration::from_secs(590)).await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
    tokio::time::sleep(Duration::from_secs(20)).await;
    pumping.end().await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 1);
}

/// An operator may connect one yet.
#[tokio::test(start_paused = true)]
async fn what_people_are_to_be_told_waits_for_a_workspace_and_holds_up_nothing_else() {
    let (node, fleet) = (node(), Arc::new(Fleet::default()));
    let note = Note {
        id: Uuid::from_u128(1),
        channel: "C1".to_owned(),
        thread: "1.0".to_owned(),
        text: "The door is fixed.".to_owned(),
        name: None,
        edits: false,
    };
    let outbox = vec![OutboxEffect { sequence: 1, effect: Effect::Slack { swarm: swarm(), note } }];
    commit(&node, Batch { outbox, ..first_batch(&node, locks()) }).await;
    let pumping = Pumping::start(&node, &fleet);
    tokio::time::sleep(Duration::from_secs(600)).await;
    burst(&node, "worker", &[("here", 2)]).await;
    left(&node, 1).await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
    let wrong = node.entities.shared().alarms.all();
    let [alarm] = &wrong[..] else { panic!("nobody is told of it alone: {wrong:?}") };
    assert_eq!((alarm.kind, alarm.subject.as_str()), (Alarm::Slack, swarm().as_str()));

    tokio::time::advance(EFFECT_EXPIRY).await;
    left(&node, 0).await;
    pumping.end().await;
    let letters = node.store.dead_letters(0, 10).await.unwrap();
    assert!(letters[0].reason.contains("no Slack workspace is connected"), "{}", letters[0].reason);
}

#[tokio::test(start_paused = true)]
async fn effects_for_an_entity_that_cannot_be_loaded_wait_for_its_repair() {
    let node = node();
    let memory = EntityKey::of(Kind::Memory, &swarm());
    poison(&node, memory.clone()).await;
    let pumping = Pumping::start(&node, &Arc::default());
    let learn =
        json!({"remember": {"scope": "swarm", "name": "x", "content": "it rains", "source": "manual"}});
    let effect = Effect::Entity { key: memory.clone(), command: learn.into() };
    let outbox = vec![OutboxEffect { sequence: 1, effect }];
    commit(&node, Batch { outbox, ..first_batch(&node, locks()) }).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(node.store.contents().outbox_len(), 1);

    let broken = node.store.load(&memory).await.unwrap();
    let (expected, after) = (broken.version, broken.batch);
    let documents = vec![DocumentChange::Delete { key: "learning/poison".to_owned() }];
    commit(&node, Batch { expected, after, documents, ..first_batch(&node, memory.clone()) }).await;
    left(&node, 0).await;
    pumping.end().await;
    assert_eq!(node.entities.effects_given_up(10).await.unwrap(), 0);
    let learned = node.store.documents(None, 100).await.unwrap();
    assert_eq!(learned.iter().filter(|document| document.key == memory).count(), 1);
}
