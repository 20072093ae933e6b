use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::code::{Code, Refusal};
use crate::entity::Effect;
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;
use crate::time::Timestamp;

mod forgotten;

const A: Uuid = Uuid::from_u128(0xa);
const B: Uuid = Uuid::from_u128(0xb);
const C: Uuid = Uuid::from_u128(0xc);

fn bench() -> Bench<Channels> {
    Bench::new(EntityKey::of(Kind::Channels, &Name::parse("default").unwrap()))
}

fn post(author: Uuid, content: &str) -> Post {
    Post {
        author: Some(Author { id: author, name: "agent".into() }),
        channel: None,
        content: content.to_owned(),
        reply_to: None,
        mentions: Vec::new(),
        strangers: Vec::new(),
        assignees: Vec::new(),
    }
}

fn say(bench: &mut Bench<Channels>, post: Post) -> Result<Reply, Refusal> {
    bench.run(Command::Post(Box::new(post)))
}

fn create(bench: &mut Bench<Channels>, name: &str) -> Result<Reply, Refusal> {
    bench.run(Command::Create(Create { name: name.into(), ..Create::default() }))
}

fn read(bench: &mut Bench<Channels>, read: Read) -> (Vec<Batch>, u64) {
    match bench.run(Command::Read(read)).unwrap() {
        Reply::Messages { batches, total_unread } => (batches, total_unread),
        other => panic!("{other:?}"),
    }
}

fn general(agent: Uuid) -> Read {
    Read { channel: Some("general".into()), ..Read::new(agent) }
}

#[test]
fn the_general_channel_is_always_there() {
    let mut bench = bench();
    assert_eq!(GENERAL.to_string(), "00000000-0000-4000-8000-000000000001");
    let Reply::List(all) = bench.run(Command::List).unwrap() else { panic!("a list") };
    assert_eq!(all.len(), 1);
    let refused = bench.run(Command::Delete { channel: GENERAL.to_string() });
    assert_eq!(refused.unwrap_err().code, Code::Forbidden);
}

#[test]
fn names_are_unique_unless_a_suffix_may_help() {
    let mut bench = bench();
    create(&mut bench, "x").unwrap();
    let refusal = create(&mut bench, "x").unwrap_err();
    assert_eq!(refusal.code, Code::AlreadyExists);
    assert_eq!(refusal.detail["name"], "x");
    for want in ["x-2", "x-3"] {
        let create = Create { name: "x".into(), suffix: true, ..Create::default() };
        let Reply::Created(body) = bench.run(Command::Create(create)).unwrap() else { panic!("created") };
        assert_eq!(body["name"], want);
    }
    assert_eq!(create(&mut bench, "").unwrap_err().code, Code::InvalidArgument);
    assert_eq!(create(&mut bench, &"x".repeat(101)).unwrap_err().code, Code::TooLarge);
}

#[test]
fn a_message_has_the_shape_of_the_wire_and_leaves_memory() {
    let mut bench = bench();
    let human = Post { author: None, mentions: vec![B, B], ..post(A, "hello") };
    let Reply::Posted { number, message, .. } = say(&mut bench, human).unwrap() else { panic!("posted") };
    assert_eq!(message["agentId"], json!(null));
    assert_eq!(message["agentName"], "Human");
    assert_eq!(message["mentions"], json!([B]));
    let body = bench.body(&message_key(GENERAL, number)).unwrap();
    assert_eq!(body["content"], "hello");
    assert_eq!(bench.body(&format!("channel/{GENERAL}")).unwrap()["name"], "general");
    for (content, code) in [
        (String::new(), Code::InvalidArgument),
        ("x".repeat(4001), Code::TooLarge),
        (" /task  ".to_owned(), Code::InvalidArgument),
    ] {
        assert_eq!(say(&mut bench, post(A, &content)).unwrap_err().code, code);
    }
    let lost = Post { channel: Some("nowhere".into()), ..post(A, "x") };
    assert_eq!(say(&mut bench, lost).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_message_is_read_once() {
    let mut bench = bench();
    say(&mut bench, post(A, "one")).unwrap();
    say(&mut bench, post(A, "two")).unwrap();
    assert_eq!(read(&mut bench, Read::new(A)).1, 0, "own messages are not unread");
    let (batches, total) = read(&mut bench, Read::new(B));
    assert_eq!((batches[0].numbers.clone(), batches[0].unread, total), (vec![1, 2], 0, 2));
    assert_eq!(read(&mut bench, Read::new(B)), (vec![], 0));
    let plain = read(&mut bench, Read { limit: 1, ..general(B) }).0;
    assert_eq!(plain[0].numbers, vec![2]);
}

#[test]
fn posting_hides_nothing_from_its_author() {
    let mut bench = bench();
    say(&mut bench, post(A, "one")).unwrap();
    say(&mut bench, post(B, "two")).unwrap();
    say(&mut bench, post(A, "three")).unwrap();
    let (batches, total) = read(&mut bench, Read { unread_only: true, ..general(B) });
    assert_eq!((batches[0].numbers.clone(), total), (vec![1, 3], 2));
    assert_eq!(read(&mut bench, Read::new(B)).1, 0);
    assert_eq!(read(&mut bench, Read::new(A)).0[0].numbers, vec![2]);
}

#[test]
fn the_mark_goes_only_to_what_was_returned() {
    let mut bench = bench();
    say(&mut bench, Post { mentions: vec![B], ..post(A, "one") }).unwrap();
    say(&mut bench, post(A, "two")).unwrap();
    let mentions = Read { mentions_only: true, ..general(B) };
    let first = read(&mut bench, Read { mark_as_read: false, ..mentions.clone() }).0;
    assert_eq!((first[0].numbers.clone(), first[0].mark, first[0].unread), (vec![1], 0, 2));
    let second = read(&mut bench, mentions).0;
    assert_eq!((second[0].mark, second[0].unread), (1, 1));
    say(&mut bench, Post { mentions: vec![B], ..post(A, "three") }).unwrap();
    let third = read(&mut bench, Read { mentions_only: true, ..Read::new(B) }).0;
    assert_eq!((third[0].numbers.clone(), third[0].mark, third[0].unread), (vec![3], 1, 1));
    assert_eq!(bench.run(Command::Count { agent: B }).unwrap(), Reply::Count { unread: 1, mentions: 0 });
    let rest = read(&mut bench, Read::new(B)).0;
    assert_eq!((rest[0].numbers.clone(), rest[0].mark, rest[0].unread), (vec![2], 3, 0));
    say(&mut bench, post(A, "four")).unwrap();
    let newest = bench.now;
    let none = read(&mut bench, Read { since: Some(newest), ..general(B) }).0;
    assert_eq!((none[0].numbers.clone(), none[0].unread), (vec![], 1));
}

#[test]
fn what_does_not_fit_into_a_read_comes_with_the_next() {
    let mut bench = bench();
    for _ in 0..25 {
        say(&mut bench, post(A, "m")).unwrap();
    }
    let mut got = Vec::new();
    for (first, last, total) in [(6, 25, 25), (1, 5, 5)] {
        let (batches, unread) = read(&mut bench, Read::new(B));
        assert_eq!((batches[0].numbers.clone(), unread), ((first..=last).collect(), total));
        got.push(batches[0].unread);
    }
    assert_eq!(got, [5, 0]);
    assert_eq!(read(&mut bench, Read::new(B)), (vec![], 0));
    let later = Read { after: [(GENERAL, 24)].into(), since: Some(Timestamp::ZERO), ..general(C) };
    assert_eq!(read(&mut bench, later).0[0].numbers, [25]);
    assert_eq!(read(&mut bench, Read::new(C)).1, 24);
}

#[test]
fn a_read_of_all_channels_gives_so_many_and_the_rest_stays_unread() {
    let mut bench = bench();
    for name in ["a", "b", "c"] {
        create(&mut bench, name).unwrap();
        for _ in 0..400 {
            say(&mut bench, Post { channel: Some(name.into()), ..post(A, "m") }).unwrap();
        }
    }
    let all = Read { limit: 1000, ..Read::new(B) };
    let mut seen = BTreeSet::new();
    for (total, given, left) in [(1200, 1000, 200), (200, 200, 0)] {
        let (batches, unread) = read(&mut bench, all.clone());
        let stays: u64 = batches.iter().map(|batch| batch.unread).sum();
        let before = seen.len();
        for batch in batches {
            seen.extend(batch.numbers.into_iter().map(|number| (batch.channel, number)));
        }
        assert_eq!((unread, seen.len() - before, stays), (total, given, left));
        let count = bench.run(Command::Count { agent: B }).unwrap();
        assert_eq!(count, Reply::Count { unread: left, mentions: 0 });
    }

    // What a whole answer has no room for is counted as well.
    for (name, count) in [("a", 1000), ("b", 1)] {
        for _ in 0..count {
            say(&mut bench, Post { channel: Some(name.into()), ..post(A, "m") }).unwrap();
        }
    }
    let (batches, _) = read(&mut bench, all);
    let shown = |batch: &Batch| (batch.name.clone(), batch.numbers.len(), batch.unread);
    let shown: Vec<_> = batches.iter().map(shown).collect();
    assert_eq!(shown, [("a".to_owned(), 1000, 0), ("b".to_owned(), 0, 1)]);
}

#[test]
fn marks_of_earlier_releases_are_read() {
    let stored = json!({ "read": 4, "own": [6, 7, 9], "mentions": [2] });
    let mark: Mark = serde_json::from_value(stored).unwrap();
    assert_eq!((mark.read, mark.unread(10)), (4, 3));
    assert!([5, 8, 10].into_iter().all(|number| mark.is_unread(number)));
    assert_eq!(serde_json::to_value(&mark).unwrap()["seen"], json!([[6, 7], 9]));
}

#[test]
fn more_gaps_than_are_kept_show_messages_again_and_lose_none() {
    let mut bench = bench();
    for _ in 0..Mark::RUNS + 10 {
        say(&mut bench, post(B, "theirs")).unwrap();
        say(&mut bench, post(A, "own")).unwrap();
    }
    let (batches, total) = read(&mut bench, Read { limit: 1000, ..Read::new(A) });
    let theirs = (Mark::RUNS + 10) as u64;
    assert_eq!(total, theirs + 10, "the ten oldest of its own count as unread");
    assert!((0..theirs).all(|number| batches[0].numbers.contains(&(2 * number + 1))));
    assert_eq!(read(&mut bench, Read::new(A)).1, 0);
}

#[test]
fn a_message_mentions_as_many_as_its_schema_says() {
    let mut bench = bench();
    let many = |count: u128| (0..count).map(Uuid::from_u128).collect::<Vec<_>>();
    say(&mut bench, Post { mentions: many(100), ..post(A, "all") }).unwrap();
    let refusal = say(&mut bench, Post { mentions: many(101), ..post(A, "all") }).unwrap_err();
    assert_eq!(refusal.code, Code::TooLarge);
}

#[test]
fn a_mention_wakes_once_until_it_is_forgotten() {
    let mut bench = bench();
    say(&mut bench, Post { mentions: vec![A, B], ..post(A, "look") }).unwrap();
    let claim =
        |bench: &mut Bench<Channels>, agent| match bench.run(Command::ClaimMentions { agent }).unwrap() {
            Reply::Mentions(batches) => batches.len(),
            other => panic!("{other:?}"),
        };
    assert_eq!(claim(&mut bench, A), 0, "nobody mentions himself");
    assert_eq!(bench.run(Command::Count { agent: B }).unwrap(), Reply::Count { unread: 1, mentions: 1 });
    assert_eq!((claim(&mut bench, B), claim(&mut bench, B)), (1, 0));
    bench.advance(Duration::from_secs(30 * 60));
    assert_eq!((claim(&mut bench, B), claim(&mut bench, B)), (1, 0));
    read(&mut bench, Read::new(B));
    bench.advance(Duration::from_secs(30 * 60));
    assert_eq!(claim(&mut bench, B), 0);
}

#[test]
fn an_order_makes_one_task_per_agent() {
    let mut bench = bench();
    let order = Post { mentions: vec![B, C], assignees: vec![B, B, C], ..post(A, "  /task fix it") };
    let Reply::Posted { message, tasks, .. } = say(&mut bench, order).unwrap() else { panic!("posted") };
    assert_eq!(tasks.len(), 2);
    let content = message["content"].as_str().unwrap();
    assert!(content.starts_with("fix it\n") && content.contains(&tasks[1].to_string()), "{content}");
    assert_eq!(bench.effects.len(), 2);
    let Effect::Entity { key, command } = &bench.effects[0] else { panic!("a task") };
    assert_eq!(key.kind, Kind::Pool);
    let create = &command.value()["create"];
    assert_eq!(create["target"], json!({"assign": {"agent": B}}));
    assert_eq!(create["spec"]["id"], json!(tasks[0]));
    assert_eq!(create["spec"]["context"]["mentionMessageId"], message["id"]);
    say(&mut bench, Post { assignees: vec![B], ..post(A, "no order") }).unwrap();
    assert_eq!(bench.effects.len(), 2);
}

#[test]
fn a_deleted_channel_takes_its_messages_along() {
    let mut bench = bench();
    create(&mut bench, "x").unwrap();
    let id = bench.entity.ids["x"];
    for _ in 0..2500 {
        say(&mut bench, Post { channel: Some("x".into()), ..post(A, "m") }).unwrap();
    }
    bench.run(Command::Delete { channel: "x".into() }).unwrap();
    assert!(bench.head(&message_key(id, 1)).is_some());
    bench.advance(Duration::ZERO);
    assert!((1..=2500).all(|number| bench.head(&message_key(id, number)).is_none()));
    assert_eq!(bench.entity, Channels::empty_for_tests(&bench.key));
    assert_eq!(bench.restored(), bench.entity);
}

impl Channels {
    fn empty_for_tests(key: &EntityKey) -> Self {
        <Self as crate::entity::Entity>::empty(key)
    }
}

fn commands() -> impl Strategy<Value = Vec<Option<Command>>> {
    let channel = || prop::sample::select(vec!["general", "a", "b"]);
    let agent = || prop::sample::select(vec![A, B, C]);
    let command = prop_oneof![
        1 => channel().prop_map(|name| Command::Create(Create { name: name.into(), ..Create::default() })),
        1 => channel().prop_map(|name| Command::Delete { channel: name.into() }),
        6 => (channel(), prop::option::of(agent()), prop::collection::vec(agent(), 0..3)).prop_map(
            |(channel, author, mentions)| Command::Post(Box::new(Post {
                author: author.map(|id| Author { id, name: "n".into() }),
                channel: Some(channel.into()),
                mentions,
                ..post(A, "hi")
            }))
        ),
        3 => (agent(), prop::option::of(channel()), 1u32..5, any::<[bool; 3]>()).prop_map(
            |(agent, channel, limit, [unread_only, mentions_only, mark_as_read])| Command::Read(Read {
                channel: channel.map(str::to_owned),
                limit,
                unread_only,
                mentions_only,
                mark_as_read,
                ..Read::new(agent)
            })
        ),
        1 => agent().prop_map(|agent| Command::ClaimMentions { agent }),
        1 => (1u64..40).prop_map(|through| Command::Trim { channel: GENERAL, through }),
        1 => agent().prop_map(|agent| Command::Forget { agent }),
        1 => Just(Command::Tick),
    ];
    prop::collection::vec(prop::option::weighted(0.95, command), 1..120)
}

proptest! {
    #[test]
    fn documents_give_back_the_state(commands in commands()) {
        let (mut bench, mut forgotten) = (bench(), BTreeSet::new());
        for command in commands {
            match command {
                Some(Command::Read(wanted)) => {
                    let agent = wanted.agent;
                    if let Ok(Reply::Messages { batches, .. }) = bench.run(Command::Read(wanted.clone())) {
                        for batch in batches {
                            prop_assert!(batch.numbers.len() <= wanted.limit as usize);
                            prop_assert!(batch.numbers.windows(2).all(|pair| pair[0] < pair[1]));
                            for number in &batch.numbers {
                                let body = bench.body(&message_key(batch.channel, *number)).unwrap();
                                let own = body.get("agentId") == Some(&json!(agent));
                                // What somebody has read is forgotten with them, and so is what they wrote.
                                let unread = forgotten.contains(&agent);
                                prop_assert!(!own || unread || (wanted.channel.is_some() && !wanted.unread_only));
                            }
                        }
                    }
                }
                Some(command) => {
                    if let Command::Forget { agent } = &command {
                        forgotten.insert(*agent);
                    }
                    let _ = bench.run(command);
                }
                None => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}

/// A post by an agent with its mentions, a read: what of, how many, and which; or what retention has removed.
#[derive(Clone, Debug)]
enum Step {
    Post(&'static str, Uuid, Vec<Uuid>),
    Read(Read),
    Trim(&'static str, u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let channel = || prop::sample::select(vec!["general", "a"]);
    let agent = || prop::sample::select(vec![A, B, C]);
    let read =
        (agent(), prop::option::of(channel()), 1u32..6, any::<[bool; 3]>(), prop::option::of(0u64..40));
    let step = prop_oneof![
        12 => (channel(), agent(), prop::collection::vec(agent(), 0..3))
            .prop_map(|(channel, author, mentions)| Step::Post(channel, author, mentions)),
        8 => read.prop_map(|(agent, channel, limit, [unread_only, mentions_only, mark_as_read], after)| {
            Step::Read(Read {
                channel: channel.map(str::to_owned),
                limit,
                since: after.map(|_| Timestamp::ZERO),
                after: after.map(|after| (GENERAL, after)).into_iter().collect(),
                unread_only,
                mentions_only,
                mark_as_read,
                ..Read::new(agent)
            })
        }),
        1 => (channel(), 1u64..40).prop_map(|(channel, through)| Step::Trim(channel, through)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    /// Whatever is posted, read and removed in whatever way: what an agent did not get and what is kept stays unread to
    /// it, what it got does not, and so it gets each message of others as unread once.
    #[test]
    fn each_message_is_unread_until_it_was_returned_once(steps in steps()) {
        let mut bench = bench();
        create(&mut bench, "a").unwrap();
        let mut unread: BTreeMap<Uuid, BTreeSet<(Uuid, u64)>> = [A, B, C].map(|agent| (agent, BTreeSet::new())).into();
        for step in steps {
            match step {
                Step::Post(channel, author, mentions) => {
                    let said = Post { channel: Some(channel.to_owned()), mentions, ..post(author, "m") };
                    let Reply::Posted { number, channel, .. } = say(&mut bench, said).unwrap() else { panic!() };
                    let id = bench.entity.ids[&channel];
                    for (_, open) in unread.iter_mut().filter(|(agent, _)| **agent != author) {
                        open.insert((id, number));
                    }
                }
                Step::Read(wanted) => {
                    let open = unread.get_mut(&wanted.agent).unwrap();
                    for batch in read(&mut bench, wanted.clone()).0 {
                        for number in batch.numbers {
                            let message = (batch.channel, number);
                            prop_assert!(number > bench.entity.channels[&batch.channel].forgotten);
                            prop_assert!(
                                open.contains(&message) || (wanted.channel.is_some() && !wanted.unread_only)
                            );
                            if wanted.mark_as_read {
                                open.remove(&message);
                            }
                        }
                    }
                }
                Step::Trim(channel, through) => {
                    let id = bench.entity.ids[channel];
                    bench.run(Command::Trim { channel: id, through }).unwrap();
                    if through <= bench.entity.channels[&id].last {
                        let is_kept = |(channel, number): &(Uuid, u64)| *channel != id || *number > through;
                        unread.values_mut().for_each(|open| open.retain(is_kept));
                    }
                }
                Step::Restart => bench.restart(),
            }
            for (agent, open) in &unread {
                let Reply::Count { unread, .. } = bench.run(Command::Count { agent: *agent }).unwrap() else {
                    panic!()
                };
                prop_assert_eq!(unread, open.len() as u64);
            }
        }
        for (agent, mut open) in unread {
            while !open.is_empty() {
                let (batches, total) = read(&mut bench, Read { limit: 3, ..Read::new(agent) });
                prop_assert_eq!(total, open.len() as u64);
                for batch in batches {
                    for number in batch.numbers {
                        prop_assert!(open.remove(&(batch.channel, number)));
                    }
                }
            }
            prop_assert_eq!(read(&mut bench, Read::new(agent)), (vec![], 0));
        }
    }
}
