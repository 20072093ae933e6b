use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;

fn bench() -> Bench<Mail> {
    Bench::new(EntityKey::of(Kind::Mail, &Name::parse("default").unwrap()))
}

fn agent(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn register(bench: &mut Bench<Mail>, number: u128, lead: bool, inbox: &str) -> Result<Vec<Value>, Refusal> {
    let by = Caller { agent: Some(agent(number)), lead };
    let command = Command::Register { by, agent: agent(number), inbox: inbox.to_owned(), email: None };
    addresses(bench, command)
}

fn addresses(bench: &mut Bench<Mail>, command: Command) -> Result<Vec<Value>, Refusal> {
    match bench.run(command)? {
        Reply::Addresses(addresses) => Ok(addresses),
        Reply::Done => panic!("no addresses"),
    }
}

fn unregister(bench: &mut Bench<Mail>, number: u128, inbox: &str) -> Result<Vec<Value>, Refusal> {
    addresses(bench, Command::Unregister { agent: agent(number), inbox: inbox.to_owned() })
}

fn body() -> Value {
    json!({ "event_type": "message.received", "event_id": "e1", "message": {
        "inbox_id": "Dev@agentmail.to", "thread_id": "t1", "message_id": "m1",
        "from_": "Ada <ada@example.org>", "subject": "A fault", "text": "It does not start.",
    }})
}

/// What the pool is told of a letter.
fn received(bench: &mut Bench<Mail>, letter: Letter) -> Value {
    let before = bench.effects.len();
    bench.run(Command::Receive(Box::new(letter))).unwrap();
    let [Effect::Entity { key, command }] = &bench.effects[before..] else { panic!("{:?}", bench.effects) };
    assert_eq!(key.kind, Kind::Pool);
    command.value()["mail"].clone()
}

#[test]
fn a_letter_is_read_from_its_event() {
    let letter = Letter::of(&body()).unwrap();
    assert_eq!(
        letter.words(),
        "E-mail to Dev@agentmail.to\nFrom: Ada <ada@example.org>\nSubject: A fault\n\nIt does not start."
    );
    let fields = json!({ "agentmailInboxId": "Dev@agentmail.to", "agentmailMessageId": "m1", "agentmailThreadId": "t1" });
    assert_eq!(Value::Object(letter.ids.fields()), fields);

    let mut other = body();
    other["message"] =
        json!({ "inbox_id": "a@b", "message_id": "m", "from_": ["x@y", 7, "z@y"], "html": "<p>é</p>" });
    let letter = Letter::of(&other).unwrap();
    assert_eq!(letter.ids.fields().len(), 2);
    assert_eq!(letter.words(), "E-mail to a@b\nFrom: x@y, z@y\nSubject: (none)\n\n<p>é</p>");
    other["message"]["text"] = json!("é".repeat(100_000));
    assert_eq!(Letter::of(&other).unwrap().text.chars().count(), 4001);
    for (pointer, value) in [
        ("/event_type", json!("message.sent")),
        ("/message/inbox_id", json!("")),
        ("/message/message_id", json!(7)),
        ("/message/message_id", json!("x".repeat(1001))),
    ] {
        let mut bad = body();
        *bad.pointer_mut(pointer).unwrap() = value;
        assert_eq!(Letter::of(&bad), None, "{bad}");
    }
    assert_eq!(Letter::of(&json!({})), None);
}

#[test]
fn an_inbox_is_one_agents_and_only_the_lead_takes_it_over() {
    let mut bench = bench();
    let first = register(&mut bench, 7, false, "dev@agentmail.to").unwrap();
    assert_eq!((&first[0]["agentId"], &first[0]["inboxEmail"]), (&json!(agent(7)), &Value::Null));
    assert_eq!(register(&mut bench, 7, false, "dev@agentmail.to").unwrap(), first);
    assert_eq!(bench.events.len(), 1, "what changes nothing is no event");
    assert_eq!(register(&mut bench, 8, false, "DEV@agentmail.to ").unwrap_err().code, Code::Forbidden);
    assert_eq!(unregister(&mut bench, 8, "dev@agentmail.to").unwrap_err().code, Code::Forbidden);
    let taken = register(&mut bench, 1, true, "dev@agentmail.to").unwrap();
    assert_eq!((&taken[0]["id"], &taken[0]["agentId"]), (&first[0]["id"], &json!(agent(1))));
    assert!(addresses(&mut bench, Command::List { agent: agent(7) }).unwrap().is_empty());
    assert_eq!(unregister(&mut bench, 7, "dev@agentmail.to").unwrap_err().code, Code::Forbidden);
    assert!(unregister(&mut bench, 1, "dev@agentmail.to").unwrap().is_empty());
    assert_eq!(unregister(&mut bench, 1, "dev@agentmail.to").unwrap_err().code, Code::NotFound);
    for (inbox, code) in [(" ".to_owned(), Code::InvalidArgument), ("x".repeat(501), Code::TooLarge)] {
        assert_eq!(register(&mut bench, 7, true, &inbox).unwrap_err().code, code);
    }
}

#[test]
fn a_swarm_has_so_many_inboxes_the_newest_first() {
    let mut bench = bench();
    for number in 0..1000 {
        bench.now = bench.now + std::time::Duration::from_millis(1);
        register(&mut bench, 7, false, &format!("i{number}")).unwrap();
    }
    assert_eq!(register(&mut bench, 7, false, "one more").unwrap_err().code, Code::QueueFull);
    let own = register(&mut bench, 7, false, "i3").unwrap();
    assert_eq!((&own[0]["inboxId"], &own[999]["inboxId"]), (&json!("i999"), &json!("i0")));
}

#[test]
fn a_letter_goes_on_with_whose_it_is_and_what_it_follows() {
    let mut bench = bench();
    let letter = Letter::of(&body()).unwrap();
    let told = received(&mut bench, letter.clone());
    assert_eq!((&told["agent"], &told["task"]), (&Value::Null, &Value::Null));
    register(&mut bench, 7, false, "dev@agentmail.to").unwrap();
    assert_eq!(received(&mut bench, letter.clone())["agent"], json!(agent(7)));

    let task = Uuid::from_u128(99);
    let follow = |agent| Command::Follow { thread: "t1".to_owned(), task, agent };
    bench.run(follow(Some(agent(8)))).unwrap();
    let told = received(&mut bench, letter.clone());
    assert_eq!((&told["task"], &told["worker"]), (&json!(task), &json!(agent(8))));
    let elsewhere =
        Letter { ids: Ids { thread: Some("t2".to_owned()), ..letter.ids.clone() }, ..letter.clone() };
    assert_eq!(received(&mut bench, elsewhere)["task"], Value::Null);

    // A month after the last of it the thread is forgotten.
    bench.now = bench.now + std::time::Duration::from_secs(20 * 86_400);
    bench.run(follow(None)).unwrap();
    bench.now = bench.now + std::time::Duration::from_secs(20 * 86_400);
    bench.run(Command::Tick).unwrap();
    assert_eq!(received(&mut bench, letter.clone())["task"], json!(task));
    bench.now = bench.now + std::time::Duration::from_secs(10 * 86_400);
    bench.run(Command::Tick).unwrap();
    assert_eq!(received(&mut bench, letter)["task"], Value::Null);
    assert_eq!(bench.restored(), bench.entity);
}

/// Whose each inbox is. It is nobody else's too.
fn held(bench: &mut Bench<Mail>) -> BTreeMap<String, u128> {
    let mut held = BTreeMap::new();
    for number in 0..3 {
        for row in addresses(bench, Command::List { agent: agent(number) }).unwrap() {
            let inbox = row["inboxId"].as_str().unwrap().to_lowercase();
            assert!(held.insert(inbox, number).is_none(), "{row} is another agent's too");
        }
    }
    held
}

proptest! {
    #[test]
    fn an_inbox_is_never_two_agents_whatever_happens(
        steps in prop::collection::vec((0..4_u8, 0..3_u128, 0..3_u8, any::<bool>()), 1..60)
    ) {
        let mut bench = bench();
        for (what, number, inbox, lead) in steps {
            let inbox = ["a@b", "A@B", "c@d"][usize::from(inbox)];
            let before = held(&mut bench);
            let is_anothers = |owner: &u128| *owner != number;
            let taken = before.get(&inbox.to_lowercase()).is_some_and(is_anothers);
            let done = match what {
                0 | 1 => register(&mut bench, number, lead, inbox),
                2 => unregister(&mut bench, number, inbox),
                _ => addresses(&mut bench, Command::List { agent: agent(number) }),
            };
            if taken && what < 3 && !(lead && what < 2) {
                prop_assert_eq!(done.unwrap_err().code, Code::Forbidden);
                prop_assert_eq!(held(&mut bench), before);
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
