mod hearing;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::code::Code;
use crate::entity::Effect;
use crate::id::{InstanceId, Name};
use crate::testbed::Bench;

const DAY: Duration = Duration::from_secs(86_400);

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn agent_key(agent: &str) -> EntityKey {
    EntityKey::agent(&name("default"), &name(agent))
}

fn bench() -> Bench<Triggers> {
    Bench::new(EntityKey::of(Kind::Triggers, &name("default")))
}

fn filter(predicates: Value) -> Filter {
    serde_json::from_value(json!({ "kind": "webhook", "matches": predicates })).unwrap()
}

fn incoming(receipt: u128, delivery: &str, action: &str) -> Incoming {
    Incoming {
        receipt: id(receipt),
        delivery: delivery.to_owned(),
        source: "acme".to_owned(),
        provider: "github".to_owned(),
        event: "issues".to_owned(),
        context: json!({ "action": action }),
        payload: json!({ "raw": action }),
        received_at: Timestamp(1_790_000_000_000),
        unsigned: false,
        said: None,
        letter: None,
        activity: None,
    }
}

fn deliver(receipt: u128, delivery: &str, action: &str) -> Command {
    Command::Deliver { incoming: incoming(receipt, delivery, action) }
}

fn wait(bench: &Bench<Triggers>, number: u128, agent: &str, predicates: Value) -> Command {
    Command::Register {
        wait: id(number),
        agent: name(agent),
        instance: InstanceId(format!("{agent}-{number:08x}")),
        filter: filter(predicates),
        registered_at: bench.now,
        deadline: bench.now + Duration::from_secs(1800),
        broadcast: false,
        reply_to: agent_key(agent),
    }
}

fn broadcast(command: Command) -> Command {
    match command {
        Command::Register { wait, agent, instance, filter, registered_at, deadline, reply_to, .. } => {
            Command::Register {
                wait,
                agent,
                instance,
                filter,
                registered_at,
                deadline,
                broadcast: true,
                reply_to,
            }
        }
        other => other,
    }
}

fn unclaimed(receipt: u128, agent: &str, wait: u128, action: &str) -> Command {
    let payload = Envelope::webhook(&incoming(receipt, "", action));
    Command::Unclaimed { receipt: id(receipt), agent: name(agent), wait: id(wait), payload, kept: None }
}

fn subscribe(agent: &str, filters: Vec<Filter>) -> Command {
    Command::Subscribe { agent: name(agent), filters }
}

fn run(bench: &mut Bench<Triggers>, command: Command) -> Reply {
    let reply = bench.run(command).unwrap();
    assert_eq!(bench.restored(), bench.entity);
    reply
}

/// Registers waits, a second apart.
fn waiting(bench: &mut Bench<Triggers>, waits: &[(u128, &str)]) {
    for &(number, agent) in waits {
        let command = wait(bench, number, agent, json!({ "action": "opened" }));
        run(bench, command);
        bench.now = bench.now + Duration::from_secs(1);
    }
    bench.effects.clear();
}

/// The waits that were resumed, the agents that were started, and whether it was a duplicate.
fn outcome(reply: Reply) -> (Vec<u128>, Vec<String>, bool) {
    match reply {
        Reply::Delivered { resumed, started, duplicate, .. } => (
            resumed.iter().map(|resumption| resumption.wait.as_u128()).collect(),
            started.iter().map(Name::to_string).collect(),
            duplicate,
        ),
        other => panic!("{other:?}"),
    }
}

fn resumed(waits: &[u128]) -> (Vec<u128>, Vec<String>, bool) {
    (waits.to_vec(), vec![], false)
}

fn started(agents: &[&str]) -> (Vec<u128>, Vec<String>, bool) {
    (vec![], agents.iter().map(|agent| (*agent).to_owned()).collect(), false)
}

#[test]
fn a_wait_is_told_that_it_stands_and_then_resumed() {
    let mut bench = bench();
    let register = wait(&bench, 1, "worker", json!({ "raw": "opened" }));
    assert_eq!(run(&mut bench, register), Reply::Registered { wait: id(1) });
    let told = json!({ "wait_registered": { "wait": id(1) } }).into();
    assert_eq!(bench.effects, [Effect::Entity { key: agent_key("worker"), command: told }]);

    assert_eq!(outcome(run(&mut bench, deliver(9, "d1", "closed"))), resumed(&[]));
    assert_eq!(outcome(run(&mut bench, deliver(10, "d2", "opened"))), resumed(&[1]));
    let Some(Effect::Entity { key, command }) = bench.effects.last() else { panic!() };
    assert_eq!(key, &agent_key("worker"));
    let command = command.value();
    assert_eq!(
        (&command["trigger"]["wait"], &command["trigger"]["receipt"]),
        (&json!(id(1)), &json!(id(10)))
    );
    assert_eq!(command["trigger"]["payload"]["payload"], json!({ "raw": "opened" }));
    assert_eq!(command["trigger"]["payload"]["action"], "opened");
    assert_eq!(outcome(run(&mut bench, deliver(11, "d3", "opened"))), resumed(&[]));
}

#[test]
fn the_longest_waiting_comes_first_for_each_agent() {
    let mut bench = bench();
    waiting(&mut bench, &[(5, "worker"), (2, "worker"), (7, "other")]);
    let both = subscribe("worker", vec![filter(json!({}))]);
    run(&mut bench, both);
    run(&mut bench, subscribe("third", vec![filter(json!({ "action": "opened" }))]));
    let reply = outcome(run(&mut bench, deliver(10, "d1", "opened")));
    assert_eq!(reply, (vec![7, 5], vec!["third".to_owned()], false));
    assert_eq!(outcome(run(&mut bench, deliver(11, "d2", "opened"))).0, [2]);
    assert_eq!(outcome(run(&mut bench, deliver(12, "d3", "opened"))), started(&["third", "worker"]));
    assert_eq!(outcome(run(&mut bench, deliver(13, "d4", "closed"))), started(&["worker"]));
    let Some(Effect::Entity { command, .. }) = bench.effects.last() else { panic!() };
    let command = command.value();
    assert_eq!(command["enqueue"]["class"], "webhook");
    assert_eq!(command["enqueue"]["source"], "webhook:acme");
    assert_eq!(command["enqueue"]["receipt"], json!(id(13)));
    assert_eq!(command["enqueue"]["input"]["action"], "closed");
}

#[test]
fn a_delivery_counts_once_for_seven_days() {
    let mut bench = bench();
    run(&mut bench, subscribe("worker", vec![filter(json!({}))]));
    assert_eq!(outcome(run(&mut bench, deliver(1, "d1", "opened"))), started(&["worker"]));
    bench.advance(7 * DAY - Duration::from_secs(1));
    bench.restart();
    let reply = run(&mut bench, deliver(2, "d1", "opened"));
    let Reply::Delivered { receipt, duplicate: true, .. } = reply else { panic!("{reply:?}") };
    assert_eq!(receipt, id(1));
    // The same receipt again, without a delivery id.
    assert_eq!(outcome(run(&mut bench, deliver(3, "", "opened"))), started(&["worker"]));
    assert!(outcome(run(&mut bench, deliver(3, "", "opened"))).2);
    assert_eq!(bench.effects.len(), 2);

    bench.advance(Duration::from_secs(3602));
    assert!(bench.head(&format!("receipt/{}", id(1))).is_none());
    assert!(bench.head(&format!("receipt/{}", id(3))).is_some());
    assert_eq!(outcome(run(&mut bench, deliver(4, "d1", "opened"))), started(&["worker"]));
    let mut elsewhere = incoming(5, "d1", "opened");
    elsewhere.source = "other".to_owned();
    assert!(!outcome(run(&mut bench, Command::Deliver { incoming: elsewhere })).2);
}

#[test]
fn what_nobody_wants_is_recorded() {
    let mut bench = bench();
    run(&mut bench, deliver(1, "d1", "opened"));
    let body = bench.body(&format!("receipt/{}", id(1))).unwrap();
    assert_eq!(
        (&body["matched"], &body["status"], &body["reason"]),
        (&json!(0), &json!("dead_letter"), &json!("no_match"))
    );
    assert_eq!(body["incoming"]["delivery"], "d1");
}

fn standing(bench: &Bench<Triggers>, receipt: u128) -> (Value, Value) {
    let body = bench.body(&format!("receipt/{}", id(receipt))).unwrap();
    (body["status"].clone(), body.get("reason").cloned().unwrap_or_default())
}

#[test]
fn a_delivery_that_nobody_took_is_looked_at_again_under_its_receipt() {
    let mut bench = bench();
    assert_eq!(outcome(run(&mut bench, deliver(1, "d1", "opened"))), started(&[]));
    assert!(outcome(run(&mut bench, deliver(2, "d1", "opened"))).2, "still nobody");
    run(&mut bench, subscribe("worker", vec![filter(json!({}))]));
    bench.restart();
    let reply = run(&mut bench, deliver(3, "d1", "opened"));
    let Reply::Delivered { receipt, duplicate: false, ref started, .. } = reply else { panic!("{reply:?}") };
    assert_eq!((receipt, started.len()), (id(1), 1));
    assert_eq!(standing(&bench, 1), (json!("processed"), Value::Null));
    assert!(outcome(run(&mut bench, deliver(4, "d1", "opened"))).2, "somebody has it now");
    assert!(bench.head(&format!("receipt/{}", id(3))).is_none());
}

#[test]
fn an_event_that_all_agents_refuse_is_dead_for_their_reason() {
    let mut bench = bench();
    for agent in ["one", "two"] {
        run(&mut bench, subscribe(agent, vec![filter(json!({}))]));
    }
    run(&mut bench, deliver(1, "d1", "opened"));
    let refused = |agent: &str, receipt: u128| Command::Refused {
        receipt: id(receipt),
        agent: name(agent),
        reason: "disabled".to_owned(),
    };
    run(&mut bench, refused("one", 1));
    assert_eq!(standing(&bench, 1), (json!("processed"), Value::Null));
    run(&mut bench, refused("two", 1));
    assert_eq!(standing(&bench, 1), (json!("dead_letter"), json!("disabled")));
    assert!(bench.body(&format!("receipt/{}", id(1))).unwrap()["refused:one"] == "disabled");
    assert_eq!(run(&mut bench, refused("one", 77)), Reply::Done);
    let back = Command::TakenUp { receipt: id(1), agent: name("two") };
    run(&mut bench, back);
    assert_eq!(standing(&bench, 1), (json!("processed"), Value::Null));
    assert!(outcome(run(&mut bench, deliver(9, "d1", "opened"))).2, "one of them has it");
    run(&mut bench, refused("two", 1));
    // The sender repeats it once the agents are back.
    assert_eq!(outcome(run(&mut bench, deliver(2, "d1", "opened"))), started(&["one", "two"]));
}

#[test]
fn what_cannot_be_read_is_kept_and_uses_up_no_delivery() {
    let mut bench = bench();
    let rejected = Rejected {
        receipt: id(1),
        source: "acme".to_owned(),
        provider: "github".to_owned(),
        problem: "not JSON".to_owned(),
        body: "{oops".to_owned(),
        received_at: bench.now,
    };
    assert_eq!(run(&mut bench, Command::Reject { rejected }), Reply::Done);
    assert_eq!(standing(&bench, 1), (json!("dead_letter"), json!("parse_error")));
    assert!(!outcome(run(&mut bench, deliver(2, "d1", "opened"))).2);
    bench.advance(7 * DAY + Duration::from_secs(3602));
    assert!(bench.head(&format!("receipt/{}", id(1))).is_none());
}

#[test]
fn an_event_given_back_goes_to_the_next_and_then_to_the_subscription() {
    let mut bench = bench();
    waiting(&mut bench, &[(1, "worker"), (2, "worker")]);
    run(&mut bench, subscribe("worker", vec![filter(json!({ "action": "opened" }))]));
    assert_eq!(outcome(run(&mut bench, deliver(10, "d1", "opened"))), resumed(&[1]));
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 1, "opened"))), resumed(&[2]));
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 2, "opened"))), started(&["worker"]));
    assert_eq!(bench.effects.len(), 3);
    let body = bench.body(&format!("receipt/{}", id(10))).unwrap();
    assert_eq!(body[&format!("unclaimed:{}", id(2))]["started"], json!(["worker"]));
}

#[test]
fn a_receipt_that_is_gone_does_not_stop_its_event() {
    let mut bench = bench();
    waiting(&mut bench, &[(1, "worker")]);
    assert_eq!(outcome(run(&mut bench, unclaimed(99, "worker", 50, "opened"))), resumed(&[1]));
    assert!(bench.head(&format!("receipt/{}", id(99))).is_none());
}

#[test]
fn broadcast_waits_all_wake() {
    let mut bench = bench();
    run(&mut bench, subscribe("worker", vec![filter(json!({}))]));
    waiting(&mut bench, &[(1, "worker")]);
    for number in [2, 3] {
        let command = broadcast(wait(&bench, number, "worker", json!({})));
        run(&mut bench, command);
    }
    waiting(&mut bench, &[(4, "worker")]);
    assert_eq!(outcome(run(&mut bench, deliver(10, "d1", "opened"))), resumed(&[1, 2, 3]));
    // While another has the event, giving it back wakes nobody and starts nothing.
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 2, "opened"))), resumed(&[]));
    bench.restart();
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 1, "opened"))), resumed(&[]));
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 3, "opened"))), resumed(&[4]));
    assert_eq!(outcome(run(&mut bench, unclaimed(10, "worker", 4, "opened"))), started(&["worker"]));
}

#[test]
fn a_wait_ends_by_its_agent_or_by_its_instances_next_one() {
    let mut bench = bench();
    waiting(&mut bench, &[(1, "worker"), (2, "worker")]);
    run(&mut bench, Command::Cancel { wait: id(1) });
    run(&mut bench, Command::Cancel { wait: id(1) });
    let next = match wait(&bench, 3, "worker", json!({})) {
        Command::Register { wait, agent, filter, registered_at, deadline, broadcast, reply_to, .. } => {
            let instance = InstanceId("worker-00000002".to_owned());
            Command::Register { wait, agent, instance, filter, registered_at, deadline, broadcast, reply_to }
        }
        other => other,
    };
    run(&mut bench, next.clone());
    let events = bench.events.len();
    // A repeat tells the agent once more and changes nothing.
    run(&mut bench, next);
    assert_eq!((bench.events.len(), bench.effects.len()), (events, 2));
    assert_eq!(bench.entity.waits.keys().copied().collect::<Vec<_>>(), [id(3)]);
}

#[test]
fn a_wait_is_kept_a_while_past_its_deadline() {
    let mut bench = bench();
    waiting(&mut bench, &[(1, "worker"), (2, "other")]);
    bench.advance(Duration::from_secs(1800 + 30));
    assert_eq!(outcome(run(&mut bench, deliver(10, "d1", "opened"))).0, [2, 1]);
    waiting(&mut bench, &[(3, "worker")]);
    bench.advance(Duration::from_secs(1800 + 60));
    assert!(bench.entity.waits.is_empty());
}

#[test]
fn a_replay_is_a_new_receipt() {
    let mut bench = bench();
    run(&mut bench, deliver(1, "d1", "opened"));
    run(&mut bench, subscribe("worker", vec![filter(json!({}))]));
    let body = bench.body(&format!("receipt/{}", id(1))).unwrap().clone();
    let incoming: Incoming = serde_json::from_value(body["incoming"].clone()).unwrap();
    let reply = run(&mut bench, Command::Replay { of: id(1), incoming: incoming.clone() });
    let Reply::Delivered { receipt, duplicate: false, ref started, .. } = reply else { panic!("{reply:?}") };
    assert!(receipt != id(1) && started.len() == 1);
    assert_eq!(bench.body(&format!("receipt/{receipt}")).unwrap()["replayOf"], json!(id(1)));
    let unknown = bench.run(Command::Replay { of: id(77), incoming }).unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
}

#[test]
fn subscriptions_are_replaced_and_ended() {
    let mut bench = bench();
    let opened = vec![filter(json!({ "action": "opened" }))];
    run(&mut bench, subscribe("worker", opened.clone()));
    run(&mut bench, subscribe("worker", opened));
    assert_eq!(bench.events.len(), 1);
    run(&mut bench, subscribe("worker", vec![filter(json!({ "action": "closed" }))]));
    assert_eq!(outcome(run(&mut bench, deliver(1, "d1", "opened"))), started(&[]));
    run(&mut bench, subscribe("worker", vec![]));
    assert_eq!(outcome(run(&mut bench, deliver(2, "d2", "closed"))), started(&[]));
}

#[test]
fn new_subscriptions_leave_open_waits_alone() {
    let mut bench = bench();
    waiting(&mut bench, &[(1, "worker"), (2, "worker")]);
    run(&mut bench, subscribe("worker", vec![filter(json!({ "action": "closed" }))]));
    assert_eq!(outcome(run(&mut bench, deliver(1, "d1", "opened"))), resumed(&[1]));
    run(&mut bench, subscribe("worker", vec![]));
    bench.restart();
    assert_eq!(outcome(run(&mut bench, deliver(2, "d2", "opened"))), resumed(&[2]));
}

#[test]
fn each_change_of_the_pause_is_a_higher_word_and_outlives_a_restart() {
    let mut bench = bench();
    let word = |paused, word| Reply::Pause { paused, word };
    assert_eq!(run(&mut bench, Command::AskPause), word(false, 0));
    assert_eq!(run(&mut bench, Command::Pause { paused: true }), word(true, 1));
    assert_eq!(run(&mut bench, Command::Pause { paused: true }), word(true, 1));
    bench.restart();
    assert_eq!(run(&mut bench, Command::AskPause), word(true, 1));
    assert_eq!(run(&mut bench, Command::Pause { paused: false }), word(false, 2));
}

#[test]
fn receipts_since_a_moment_come_the_oldest_first() {
    let mut bench = bench();
    run(&mut bench, deliver(1, "d1", "opened"));
    bench.advance(Duration::from_secs(10));
    let at = bench.now;
    run(&mut bench, deliver(3, "d3", "opened"));
    bench.advance(Duration::from_secs(10));
    run(&mut bench, deliver(2, "d2", "opened"));
    let since = |limit, after| Command::ReceivedSince { at, limit, after };
    assert_eq!(run(&mut bench, since(9, None)), Reply::Receipts(vec![id(3), id(2)]));
    assert_eq!(run(&mut bench, since(1, None)), Reply::Receipts(vec![id(3)]));
    assert_eq!(run(&mut bench, since(1, Some(id(3)))), Reply::Receipts(vec![id(2)]));
    assert_eq!(run(&mut bench, since(9, Some(id(2)))), Reply::Receipts(Vec::new()));
    assert_eq!(run(&mut bench, since(1, Some(id(9)))), Reply::Receipts(vec![id(3)]), "forgotten");
}

#[test]
fn only_webhooks_are_taken() {
    let mut bench = bench();
    let calls = Filter { kind: FilterKind::AgentTrigger, ..filter(json!({})) };
    let refusal = bench.run(subscribe("worker", vec![calls.clone()])).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    let mut register = wait(&bench, 1, "worker", json!({}));
    if let Command::Register { filter, .. } = &mut register {
        *filter = calls;
    }
    assert_eq!(bench.run(register).unwrap_err().code, Code::InvalidArgument);
    let register = wait(&bench, 1, "worker", json!({ "a": {} }));
    assert_eq!(bench.run(register).unwrap_err().code, Code::InvalidArgument);
}

#[test]
fn commands_have_their_wire_form() {
    let command = json!({ "register": {
        "wait": id(1), "agent": "worker", "instance": "worker-1", "filter": { "kind": "webhook" },
        "registered_at": 1, "deadline": 2, "broadcast": false, "reply_to": "agent/default/worker",
    }});
    assert!(serde_json::from_value::<Command>(command).is_ok());
}
