//! What is no longer kept, who has left, and names that are taken for others.

use super::*;
use crate::channels::decide::MARKS;
use crate::entity::{Entity, LiveDocument};

fn count(bench: &mut Bench<Channels>, agent: Uuid) -> (u64, u64) {
    match bench.run(Command::Count { agent }).unwrap() {
        Reply::Count { unread, mentions } => (unread, mentions),
        other => panic!("{other:?}"),
    }
}

#[test]
fn messages_that_are_no_longer_kept_are_unread_to_nobody_and_wake_nobody() {
    let mut bench = bench();
    for number in 1..=30 {
        let mentions = if [5, 25].contains(&number) { vec![B] } else { Vec::new() };
        say(&mut bench, Post { mentions, ..post(A, "m") }).unwrap();
    }
    read(&mut bench, Read { limit: 1, ..general(B) });
    assert_eq!(count(&mut bench, B), (29, 2));
    let trim = |bench: &mut Bench<Channels>, through| {
        bench.run(Command::Trim { channel: GENERAL, through }).unwrap();
    };
    trim(&mut bench, 20);
    assert_eq!(count(&mut bench, B), (9, 1));
    let Reply::Mentions(woken) = bench.run(Command::ClaimMentions { agent: B }).unwrap() else { panic!() };
    assert_eq!(woken[0].numbers, [25]);
    let mentions = Read { mentions_only: true, mark_as_read: false, ..general(B) };
    assert_eq!(read(&mut bench, mentions).0[0].numbers, [25]);
    let kept: Vec<u64> = (21..=30).collect();
    let peek = Read { limit: 100, mark_as_read: false, ..general(C) };
    assert_eq!(read(&mut bench, peek).0[0].numbers, kept);
    let (batches, total) = read(&mut bench, Read::new(C));
    assert_eq!((&batches[0].numbers, batches[0].unread, batches[0].mark, total), (&kept, 0, 30, 10));

    // Said again, and of more than there is, it changes nothing.
    let before = bench.entity.clone();
    for through in [20, 3, 31] {
        trim(&mut bench, through);
    }
    assert_eq!(bench.entity, before);
    trim(&mut bench, 30);
    assert_eq!(count(&mut bench, B), (0, 0));
    say(&mut bench, Post { mentions: vec![B], ..post(A, "m") }).unwrap();
    assert_eq!(count(&mut bench, B), (1, 1));
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn of_a_deleted_channel_only_what_is_kept_is_removed() {
    let mut bench = bench();
    let purged = |bench: &mut Bench<Channels>, trimmed: u64| {
        create(bench, "x").unwrap();
        let id = bench.entity.ids["x"];
        for _ in 0..1500 {
            say(bench, Post { channel: Some("x".into()), ..post(A, "m") }).unwrap();
        }
        bench.run(Command::Trim { channel: id, through: trimmed }).unwrap();
        let before = bench.events.len();
        bench.run(Command::Delete { channel: "x".into() }).unwrap();
        bench.advance(Duration::ZERO);
        assert_eq!(bench.restored(), bench.entity);
        let through = |event: &Event| match event {
            Event::Purged { channel, through } if *channel == id => Some(*through),
            _ => None,
        };
        bench.events[before..].iter().filter_map(through).collect::<Vec<u64>>()
    };
    assert_eq!(purged(&mut bench, 0), [1000, 1500]);
    assert_eq!(purged(&mut bench, 1400), [1500]);
    assert!(purged(&mut bench, 1500).is_empty(), "nothing of it was kept");
}

#[test]
fn who_has_left_keeps_no_marks() {
    let mut bench = bench();
    for number in 0..=MARKS {
        let name = format!("c{number}");
        create(&mut bench, &name).unwrap();
        say(&mut bench, Post { channel: Some(name), mentions: vec![B], ..post(A, "m") }).unwrap();
    }
    let forget = |bench: &mut Bench<Channels>| bench.run(Command::Forget { agent: B }).unwrap();
    let marks = |bench: &Bench<Channels>, of: Uuid| {
        bench.entity.marks.keys().filter(|(_, agent)| *agent == of).count()
    };
    assert_eq!((forget(&mut bench), marks(&bench, B)), (Reply::Forgot { more: true }, 1));
    assert_eq!((forget(&mut bench), marks(&bench, B)), (Reply::Forgot { more: false }, 0));
    assert_eq!(marks(&bench, A), MARKS + 1);
    assert_eq!(bench.restored(), bench.entity);
    let events = bench.events.len();
    assert_eq!(forget(&mut bench), Reply::Forgot { more: false });
    assert_eq!(bench.events.len(), events);
}

#[test]
fn strangers_are_mentioned_by_nobody() {
    let mut bench = bench();
    let asked = Post { mentions: vec![B, C], ..post(A, "look") };
    let looked_up = Post { strangers: vec![C], ..asked.clone() };
    let Reply::Posted { message, .. } = say(&mut bench, looked_up.clone()).unwrap() else { panic!("posted") };
    assert_eq!(message["mentions"], json!([B]));
    assert!(bench.entity.marks.keys().all(|(_, agent)| *agent != C));
    let of = |post: Post| Channels::asked(&Command::Post(Box::new(post)));
    assert_eq!(of(looked_up), of(asked), "a repeat may find others gone");
}

#[test]
fn an_id_names_its_own_channel() {
    let mut bench = bench();
    let Reply::Created(made) = create(&mut bench, "x").unwrap() else { panic!("created") };
    let id = made["id"].as_str().unwrap().to_owned();
    for name in [id.clone(), id.to_uppercase(), id.replace('-', "")] {
        assert_eq!(create(&mut bench, &name).unwrap_err().code, Code::InvalidArgument, "{name}");
    }
    // One of earlier days has such a name.
    let mut head = serde_json::to_value(&bench.entity.channels[&GENERAL]).unwrap();
    head["id"] = json!(Uuid::from_u128(7));
    head["name"] = json!(id);
    head.as_object_mut().unwrap().remove("forgotten");
    let key = format!("channel/{}", Uuid::from_u128(7));
    bench.entity.restore(LiveDocument { key, head: head.to_string() }).unwrap();
    let said = Post { channel: Some(id), ..post(A, "hello") };
    let Reply::Posted { channel, .. } = say(&mut bench, said).unwrap() else { panic!("posted") };
    assert_eq!(channel, "x");
}
