//! What people say and write, with the events that bring it.

use serde_json::Map;

use super::*;
use crate::forge::{Act, Activity, Noun, Report};
use crate::mail::Letter;
use crate::slack::Said;

fn says(receipt: u128, delivery: &str, action: &str, ts: &str, mentioned: bool) -> Command {
    says_as("U1", receipt, delivery, action, ts, mentioned)
}

fn says_as(user: &str, receipt: u128, delivery: &str, action: &str, ts: &str, mentioned: bool) -> Command {
    let (channel, text) = ("C1".to_owned(), "hi".to_owned());
    let (thread, ts, user) = (ts.to_owned(), ts.to_owned(), user.to_owned());
    let said = Said { channel, thread, ts, user, text, bot: None, mentioned };
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
    let hears = |reply: Reply| matches!(reply, Reply::Delivered { heard: true, .. });
    assert!(!hears(bench.run(Command::Deliver { incoming: written(3, "e3") }).unwrap()));
    assert_eq!(posted(&bench), 1, "whoever waited has it");
    let replayed = bench.run(Command::Replay { of: id(1), incoming: written(4, "") }).unwrap();
    assert_eq!(posted(&bench), 2, "who hands it on once more means it");
    assert!(hears(replayed), "whoever does is told that the swarm has it");
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

#[test]
fn what_its_sender_repeats_the_swarm_hears_if_nobody_has_it() {
    let mut bench = bench();
    // Before the swarm had a workspace.
    bench.run(deliver(1, "d1", "message")).unwrap();
    let receipt = |number: u128| format!("receipt/{}", id(number));
    assert_eq!(bench.body(&receipt(1)).unwrap()["reason"], "no_match");
    bench.restart();
    bench.run(says(2, "d1", "message", "1.0", true)).unwrap();
    assert_eq!(heard(&bench), 1);
    assert_eq!(bench.body(&receipt(1)).unwrap()["status"], "processed");
    bench.run(says(3, "d1", "message", "1.0", true)).unwrap();
    assert_eq!(heard(&bench), 1, "it has heard it");

    // What it has heard by another event meanwhile it does not hear again.
    bench.run(deliver(4, "d4", "message")).unwrap();
    bench.run(says(5, "d5", "app_mention", "2.0", true)).unwrap();
    bench.run(says(6, "d4", "message", "2.0", true)).unwrap();
    assert_eq!(heard(&bench), 2);
    assert_eq!(bench.restored(), bench.entity);
}

/// The agent had ended its wait. What the receipt says is looked up for the triggers.
fn gives_back(bench: &mut Bench<Triggers>, receipt: u128, agent: &str, wait: u128) {
    let mut command = unclaimed(receipt, agent, wait, "message");
    let document = Triggers::consults(&command).unwrap();
    Triggers::consulted(&mut command, &Json::of(bench.body(&document).unwrap()));
    assert_eq!(Triggers::consults(&command), None);
    bench.run(command).unwrap();
}

#[test]
fn the_swarm_hears_what_the_last_agent_gives_back() {
    let mut bench = bench();
    for (number, agent) in [(1, "ann"), (2, "ann"), (3, "bob")] {
        let waits = wait(&bench, number, agent, json!({ "action": "message" }));
        bench.run(waits).unwrap();
        bench.advance(Duration::from_secs(1));
    }
    bench.run(says(9, "d1", "message", "1.0", true)).unwrap();
    bench.run(says(10, "d2", "app_mention", "1.0", true)).unwrap();
    gives_back(&mut bench, 9, "ann", 1);
    gives_back(&mut bench, 9, "bob", 3);
    assert_eq!(heard(&bench), 0, "the next of the name has it");
    gives_back(&mut bench, 9, "ann", 2);
    assert_eq!(heard(&bench), 1);
    let receipt = bench.body(&format!("receipt/{}", id(9))).unwrap();
    assert_eq!((&receipt["status"], &receipt["heard"]), (&json!("processed"), &json!(true)));

    let waits = wait(&bench, 4, "ann", json!({ "action": "message" }));
    bench.run(waits).unwrap();
    bench.run(says(11, "d3", "message", "2.0", false)).unwrap();
    gives_back(&mut bench, 11, "ann", 4);
    let receipt = bench.body(&format!("receipt/{}", id(11))).unwrap();
    assert_eq!(receipt["status"], "dead_letter", "people among themselves");
    assert_eq!((heard(&bench), bench.restored()), (1, bench.entity));
}

/// Checks of a commit fail, in one of the events that say so.
fn fails(receipt: u128, delivery: &str, commit: &str) -> Command {
    let activity = Activity {
        subjects: vec!["github:acme/api#7".parse().unwrap()],
        act: Act::News { task_type: "github-ci".into() },
        report: Report {
            noun: Noun::PullRequest,
            what: "It broke.".into(),
            title: None,
            url: None,
            by: None,
            text: None,
        },
        key: Some(format!("checks:{commit}")),
        fields: Map::new(),
    };
    let incoming = incoming(receipt, delivery, "completed");
    Command::Deliver { incoming: Incoming { activity: Some(Box::new(activity)), ..incoming } }
}

#[test]
fn what_several_events_of_a_forge_tell_is_heard_once() {
    let mut bench = bench();
    bench.run(fails(1, "d1", "abc")).unwrap();
    bench.restart();
    bench.run(fails(2, "d2", "abc")).unwrap();
    assert_eq!(heard(&bench), 1);
    assert_eq!(bench.body("receipt/00000000-0000-0000-0000-000000000002").unwrap()["status"], "processed");
    bench.run(fails(3, "d3", "def")).unwrap();
    assert_eq!(heard(&bench), 2);
    let waits = wait(&bench, 9, "ann", json!({ "action": "completed" }));
    bench.run(waits).unwrap();
    bench.run(fails(4, "d4", "xyz")).unwrap();
    assert_eq!(heard(&bench), 2, "whoever waited has it");
    bench.advance(Duration::from_secs(61));
    bench.run(fails(5, "d5", "abc")).unwrap();
    assert_eq!(heard(&bench), 3, "it fails once more");
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn whoever_says_too_much_at_a_time_is_told_once_and_heard_again_later() {
    let mut bench = bench();
    let told = |bench: &Bench<Triggers>| {
        let to_slack = |effect: &&Effect| matches!(effect, Effect::Slack { .. });
        bench.effects.iter().filter(to_slack).count()
    };
    let mut number = 0;
    let mut speak = |bench: &mut Bench<Triggers>| {
        number += 1;
        bench.run(says(number, &format!("d{number}"), "message", &format!("{number}.0"), true)).unwrap();
        number
    };
    for _ in 0..10 {
        speak(&mut bench);
    }
    // The mention as an event of its own is no second saying.
    bench.run(says(99, "d99", "app_mention", "1.0", true)).unwrap();
    assert_eq!((heard(&bench), told(&bench)), (10, 0));
    bench.restart();
    let refused = speak(&mut bench);
    speak(&mut bench);
    assert_eq!((heard(&bench), told(&bench)), (10, 1));
    bench.run(says_as("U2", 60, "d60", "message", "60.0", true)).unwrap();
    assert_eq!(heard(&bench), 11, "somebody else");
    let receipt = bench.body(&format!("receipt/{}", id(refused))).unwrap().clone();
    assert_eq!((&receipt["status"], &receipt["reason"]), (&json!("dead_letter"), &json!("rate_limited")));

    bench.run(says(51, &format!("d{refused}"), "message", &format!("{refused}.0"), true)).unwrap();
    assert_eq!((heard(&bench), told(&bench)), (11, 1), "nor when its sender repeats it");

    let replay = match says(50, "", "message", "11.0", true) {
        Command::Deliver { incoming } => Command::Replay { of: id(refused), incoming },
        other => panic!("{other:?}"),
    };
    bench.run(replay).unwrap();
    assert_eq!(heard(&bench), 12, "who hands it on once more means it");
    bench.advance(Duration::from_secs(61));
    speak(&mut bench);
    assert_eq!((heard(&bench), told(&bench)), (13, 1));
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn people_among_themselves_in_a_thread_are_not_counted() {
    let mut bench = bench();
    for number in 1..=12 {
        let mut command = says(number, &format!("d{number}"), "message", &format!("{number}.0"), false);
        if let Command::Deliver { incoming } = &mut command {
            incoming.said.as_mut().unwrap().thread = "0.5".into();
        }
        bench.run(command).unwrap();
    }
    assert_eq!(heard(&bench), 12);
    assert!(bench.effects.iter().all(|effect| !matches!(effect, Effect::Slack { .. })));
}

#[test]
fn a_receipt_of_an_earlier_release_still_tells_what_was_heard() {
    let stored = json!({ "at": 1, "said": id(7), "matched": 1 });
    let receipt: state::Receipt = serde_json::from_value(stored).unwrap();
    assert_eq!(receipt.dedupe, Some(id(7)));
}
