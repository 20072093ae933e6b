//! What people say and write, with the events that bring it.

use super::*;
use crate::mail::Letter;
use crate::slack::Said;

fn says(receipt: u128, delivery: &str, action: &str, ts: &str, mentioned: bool) -> Command {
    let (channel, text) = ("C1".to_owned(), "hi".to_owned());
    let said =
        Said { channel, thread: ts.into(), ts: ts.into(), user: "U1".into(), text, bot: None, mentioned };
    Command::Deliver {
        incoming: Incoming { said: Some(Box::new(said)), ..incoming(receipt, delivery, action) },
    }
}

fn heard(bench: &Bench<Triggers>) -> usize {
    let to_pool = |effect: &&Effect| matches!(effect, Effect::Entity { key, .. } if key.kind == Kind::Pool);
    bench.effects.iter().filter(to_pool).count()
}

#[test]
fn a_letter_goes_to_the_swarms_mail_once_unless_an_agent_asked_for_it() {
    let mut bench = bench();
    let body =
        json!({ "event_type": "message.received", "message": { "inbox_id": "a@b", "message_id": "m" } });
    let letter = Letter::of(&body).map(Box::new);
    let written = |receipt: u128, delivery: &str| Incoming {
        letter: letter.clone(),
        ..incoming(receipt, delivery, "message.received")
    };
    let posted = |bench: &Bench<Triggers>| {
        let to_mail =
            |effect: &&Effect| matches!(effect, Effect::Entity { key, .. } if key.kind == Kind::Mail);
        bench.effects.iter().filter(to_mail).count()
    };
    for receipt in [1, 2] {
        bench.run(Command::Deliver { incoming: written(receipt, "e1") }).unwrap();
        bench.restart();
    }
    assert_eq!(posted(&bench), 1, "a repeat");
    assert_eq!(bench.body("receipt/00000000-0000-0000-0000-000000000001").unwrap()["status"], "processed");
    let waits = wait(&bench, 9, "ann", json!({ "action": "message.received" }));
    bench.run(waits).unwrap();
    bench.run(Command::Deliver { incoming: written(3, "e3") }).unwrap();
    assert_eq!(posted(&bench), 1, "whoever waited has it");
    bench.run(Command::Replay { of: id(1), incoming: written(4, "") }).unwrap();
    assert_eq!(posted(&bench), 2, "who hands it on once more means it");
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn the_swarm_hears_once_what_none_of_its_agents_asked_for() {
    let mut bench = bench();
    bench.run(says(1, "d1", "message", "1.0", true)).unwrap();
    assert_eq!(heard(&bench), 1);
    bench.restart();
    bench.run(says(2, "d1", "message", "1.0", true)).unwrap();
    bench.run(says(3, "d2", "app_mention", "1.0", true)).unwrap();
    assert_eq!(heard(&bench), 1, "a repeat, and the mention as an event of its own");
    assert_eq!(bench.body("receipt/00000000-0000-0000-0000-000000000003").unwrap()["status"], "processed");

    bench.run(says(4, "d4", "message", "2.0", false)).unwrap();
    assert_eq!(heard(&bench), 1, "people among themselves");
    assert_eq!(bench.body("receipt/00000000-0000-0000-0000-000000000004").unwrap()["status"], "dead_letter");

    let waits = wait(&bench, 9, "ann", json!({ "action": "message" }));
    bench.run(waits).unwrap();
    bench.run(says(5, "d5", "message", "3.0", true)).unwrap();
    bench.run(says(6, "d6", "app_mention", "3.0", true)).unwrap();
    assert_eq!(heard(&bench), 1, "whoever waited has it");

    let incoming = match says(7, "", "message", "1.0", true) {
        Command::Deliver { incoming } => incoming,
        other => panic!("{other:?}"),
    };
    bench.run(Command::Replay { of: id(1), incoming }).unwrap();
    assert_eq!(heard(&bench), 2, "who hands it on once more means it");
    assert_eq!(bench.restored(), bench.entity);
}
