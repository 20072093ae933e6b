use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::code::Code;
use crate::entity::Entity;
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;

const AGENT: Uuid = Uuid::from_u128(1);

fn bench() -> Bench<Memory> {
    Bench::new(EntityKey::of(Kind::Memory, &Name::parse("default").unwrap()))
}

fn learning(id: u128) -> Remember {
    Remember {
        id: Some(Uuid::from_u128(id)),
        agent: Some(AGENT),
        scope: Scope::Agent,
        name: "n".into(),
        content: format!("c {id}"),
        summary: None,
        source: Source::Manual,
        source_task: None,
        source_path: None,
        tags: Vec::new(),
        chunk_index: 0,
        total_chunks: 1,
    }
}

fn piece(id: u128, path: &str, chunk_index: u32) -> Remember {
    Remember {
        source: Source::FileIndex,
        source_path: Some(path.into()),
        chunk_index,
        total_chunks: 9,
        ..learning(id)
    }
}

fn forget(memory: Uuid) -> Command {
    Command::Forget { memory, name: None }
}

fn remember(bench: &mut Bench<Memory>, learning: Remember) -> Value {
    match bench.run(Command::Remember(Box::new(learning))).unwrap() {
        Reply::Remembered(body) => body,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_learning_has_the_shape_of_the_wire() {
    let mut bench = bench();
    let command = json!({"remember": {"id": Uuid::from_u128(7), "scope": "swarm", "name": "n", "content": "c",
        "source": "task_completion", "source_task": Uuid::from_u128(8)}});
    let command: Command = serde_json::from_value(command).unwrap();
    let Reply::Remembered(body) = bench.run(command).unwrap() else { panic!("remembered") };
    let at = bench.now.iso();
    let want = json!({"id": Uuid::from_u128(7), "agentId": null, "scope": "swarm", "name": "n", "content": "c",
        "summary": null, "source": "task_completion", "sourceTaskId": Uuid::from_u128(8), "sourcePath": null,
        "chunkIndex": 0, "totalChunks": 1, "tags": [], "createdAt": at, "accessedAt": at});
    assert_eq!(body, want);
    let stored = Value::Object(bench.body(&key(Uuid::from_u128(7))).unwrap().clone());
    assert_eq!(crate::wire::shown(stored, &NULLABLE), want);
}

#[test]
fn the_same_is_learnt_once() {
    let mut bench = bench();
    let learning = |id, content: &str| Remember { content: content.into(), ..learning(id) };
    remember(&mut bench, learning(1, "Pin the\n compiler"));
    bench.advance(Duration::from_secs(5));
    let again = |bench: &mut Bench<Memory>, learning| bench.run(Command::Remember(Box::new(learning)));
    let known = Ok(Reply::Known(Uuid::from_u128(1)));
    assert_eq!(
        again(&mut bench, Remember { name: "another".into(), ..learning(2, " pin THE compiler") }),
        known
    );
    let body = bench.body(&key(Uuid::from_u128(1))).unwrap();
    assert_eq!((&body["name"], &body["accessedAt"]), (&json!("n"), &json!(bench.now.iso())));
    assert!(bench.body(&key(Uuid::from_u128(2))).is_none());
    // Another's, and what all may find, are other learnings.
    remember(&mut bench, Remember { agent: Some(Uuid::from_u128(2)), ..learning(3, "pin the compiler") });
    remember(&mut bench, Remember { scope: Scope::Swarm, ..learning(4, "pin the compiler") });
    bench.restart();
    assert_eq!(again(&mut bench, learning(5, "pin the compiler")), known);
    bench.run(forget(Uuid::from_u128(1))).unwrap();
    remember(&mut bench, learning(6, "pin the compiler"));
}

fn model(name: &str) -> Model {
    Model { name: name.into(), dimensions: Some(2) }
}

fn embed(bench: &mut Bench<Memory>, id: u128, model: &Model, meaning: Meaning) {
    let (memory, agent) = (Uuid::from_u128(id), Some(AGENT));
    let embedding = Embedding { memory, agent, scope: Scope::Agent, source: Source::Manual, meaning };
    let command = Command::Embed { model: model.clone(), embeddings: vec![embedding] };
    assert_eq!(bench.run(command), Ok(Reply::Done));
}

fn vector() -> Meaning {
    Meaning::Vector(Vector::of(&[3.0, 4.0]).unwrap())
}

fn lacking(bench: &mut Bench<Memory>, model: &Model) -> Vec<u128> {
    let Ok(Reply::Learnings(ids)) = bench.run(Command::Lacking { model: model.id(), limit: 2 }) else {
        panic!("learnings")
    };
    ids.iter().map(Uuid::as_u128).collect()
}

#[test]
fn a_learning_has_one_vector_of_one_model() {
    let (mut bench, first, second) = (bench(), model("first"), model("second"));
    (1..=3).for_each(|id| drop(remember(&mut bench, learning(id))));
    assert_eq!(lacking(&mut bench, &first), [1, 2]);
    embed(&mut bench, 1, &first, vector());
    embed(&mut bench, 2, &first, Meaning::None("too long".into()));
    assert_eq!(lacking(&mut bench, &first), [3], "and the refused one is not asked for again");
    let body = |bench: &Bench<Memory>, id| bench.body(&Memory::vector_key(Uuid::from_u128(id))).cloned();
    let kept = body(&bench, 1).unwrap();
    assert_eq!((&kept["model"], &kept["dimensions"]), (&json!("first"), &json!(2)));
    assert_eq!(json!({"v": kept["vector"]}), json!({"v": Vector::of(&[3.0, 4.0]).unwrap()}));
    assert_eq!(body(&bench, 2).unwrap()["problem"], "too long");
    bench.restart();
    assert_eq!(lacking(&mut bench, &second), [1, 2]);
    embed(&mut bench, 2, &second, vector());
    let kept = body(&bench, 2).unwrap();
    assert!(kept["model"] == "second" && !kept.contains_key("problem"), "{kept:?}");
    bench.run(forget(Uuid::from_u128(2))).unwrap();
    embed(&mut bench, 2, &second, vector());
    assert!(body(&bench, 2).is_none(), "nothing is kept of what was forgotten");
}

#[test]
fn what_tasks_left_behind_makes_room() {
    let mut bench = bench();
    let task = |id| Remember { source: Source::TaskCompletion, ..learning(id) };
    remember(&mut bench, task(1));
    remember(&mut bench, learning(2));
    for id in 3..=crate::limits::LEARNINGS as u128 {
        let (head, memory) = (state::Head { content: None, passing: false }, Uuid::from_u128(id));
        bench.entity.know(memory, head);
    }
    let (last, next) = (1 << 40, (1 << 40) + 1);
    remember(&mut bench, learning(last));
    assert!(bench.body(&key(Uuid::from_u128(1))).is_none());
    let full = bench.run(Command::Remember(Box::new(learning(next)))).unwrap_err();
    assert_eq!(full.code, Code::NoCapacity);
    assert!(bench.run(Command::Remember(Box::new(learning(2)))).is_ok(), "what is known needs no room");
}

#[test]
fn arguments_are_checked() {
    let mut bench = bench();
    for (bad, code) in [
        (Remember { name: String::new(), ..learning(1) }, Code::InvalidArgument),
        (Remember { name: "x".repeat(501), ..learning(1) }, Code::TooLarge),
        (Remember { content: String::new(), ..learning(1) }, Code::InvalidArgument),
        (Remember { agent: None, ..learning(1) }, Code::InvalidArgument),
        (Remember { chunk_index: 1, ..learning(1) }, Code::InvalidArgument),
        (Remember { tags: vec!["t".into(); 51], ..learning(1) }, Code::TooLarge),
    ] {
        assert_eq!(bench.run(Command::Remember(Box::new(bad))).unwrap_err().code, code);
    }
}

#[test]
fn reading_moves_the_time_of_access() {
    let mut bench = bench();
    remember(&mut bench, learning(1));
    bench.advance(Duration::from_secs(5));
    bench.run(Command::Touch { memory: Uuid::from_u128(1) }).unwrap();
    let body = bench.body(&key(Uuid::from_u128(1))).unwrap();
    assert_eq!(body["accessedAt"], bench.now.iso());
    assert_ne!(body["accessedAt"], body["createdAt"]);
    bench.run(forget(Uuid::from_u128(1))).unwrap();
    assert!(bench.body(&key(Uuid::from_u128(1))).is_none());
}

/// The name is no part of what is asked: its repeat finds none any more.
#[test]
fn who_has_a_learning_forgotten_is_told_its_name() {
    let mut bench = bench();
    remember(&mut bench, learning(1));
    let memory = Uuid::from_u128(1);
    let named = Command::Forget { memory, name: Some("n".into()) };
    assert_eq!(Memory::asked(&named), Some(forget(memory)));
    assert_eq!(bench.run(named), Ok(Reply::Remembered(json!({ "id": memory, "name": "n" }))));
    assert!(bench.body(&key(memory)).is_none());
    // As a node before this one says it.
    let before: Command = serde_json::from_value(json!({ "forget": { "memory": memory } })).unwrap();
    assert_eq!(before, forget(memory));
    assert_eq!(serde_json::to_value(&before).unwrap(), json!({ "forget": { "memory": memory } }));
}

#[test]
fn indexing_a_file_again_replaces_it() {
    let mut bench = bench();
    for (id, path, index) in [(1, "a.md", 0), (2, "a.md", 1), (3, "b.md", 0)] {
        remember(&mut bench, piece(id, path, index));
    }
    remember(&mut bench, piece(4, "a.md", 0));
    let there = |bench: &Bench<Memory>, id| bench.body(&key(Uuid::from_u128(id))).is_some();
    assert_eq!([1, 2, 3, 4].map(|id| there(&bench, id)), [false, false, true, true]);
    // The same path of another agent is another file.
    remember(&mut bench, Remember { agent: Some(Uuid::from_u128(2)), ..piece(5, "a.md", 0) });
    assert!(there(&bench, 4));
    for id in [3, 4, 5] {
        bench.run(forget(Uuid::from_u128(id))).unwrap();
    }
    assert!(bench.entity.files.is_empty());
}

fn text(path: Option<&str>, content: &str) -> Remember {
    let source_path = path.map(str::to_owned);
    Remember { id: None, source: Source::FileIndex, source_path, content: content.into(), ..learning(0) }
}

fn index(bench: &mut Bench<Memory>, text: Remember) -> Vec<Uuid> {
    match bench.run(Command::Index(Box::new(text))).unwrap() {
        Reply::Indexed(memories) => memories,
        other => panic!("{other:?}"),
    }
}

/// Sections of more than a piece together, each with this word.
fn long(word: &str, sections: usize) -> String {
    (0..sections).map(|number| format!("# Part {number}\n{}\n", word.repeat(1500 / word.len()))).collect()
}

fn contents(bench: &Bench<Memory>, memories: &[Uuid]) -> Vec<String> {
    let body = |memory: &Uuid| bench.body(&key(memory)).map(|body| body["content"].as_str().unwrap().into());
    memories.iter().filter_map(body).collect()
}

#[test]
fn a_file_is_replaced_as_a_whole_or_stays_as_it_was() {
    let mut bench = bench();
    let first = index(&mut bench, text(Some("a.md"), &long("zebra ", 3)));
    let said = contents(&bench, &first);
    assert_eq!(said.iter().map(|said| &said[..6]).collect::<Vec<_>>(), ["Part 0", "Part 1", "Part 2"]);
    let last = bench.body(&key(first[2])).unwrap();
    assert_eq!(
        (&last["chunkIndex"], &last["totalChunks"], &last["sourcePath"]),
        (&json!(2), &json!(3), &json!("a.md"))
    );
    for id in 0..(crate::limits::LEARNINGS - 3) as u128 {
        bench.entity.know(Uuid::from_u128((1 << 100) | id), state::Head { content: None, passing: false });
    }
    let longer = Command::Index(Box::new(text(Some("a.md"), &long("gnu ", 4))));
    assert_eq!(bench.run(longer).unwrap_err().code, Code::NoCapacity);
    assert_eq!(contents(&bench, &first), said, "nothing of it has happened");
    let second = index(&mut bench, text(Some("a.md"), &long("gnu ", 3)));
    assert!(contents(&bench, &first).is_empty());
    assert!(contents(&bench, &second).iter().all(|said| said.contains("gnu")));
    assert_eq!(bench.entity.files[&Memory::file(Some(AGENT), "a.md")].memories, second);
    assert!(index(&mut bench, text(Some("a.md"), " \n")).is_empty());
    assert!(contents(&bench, &second).is_empty() && bench.entity.files.is_empty(), "the file is empty now");
}

#[test]
fn a_file_of_no_known_path_is_remembered_once() {
    let mut bench = bench();
    let long = long("zebra ", 3);
    for path in [None, Some("")] {
        let first = index(&mut bench, text(path, &long));
        bench.restart();
        assert_eq!(index(&mut bench, text(path, &long)), first);
        assert_eq!(bench.entity.learnings.len(), 3);
    }
    let piece = contents(&bench, &[*bench.entity.learnings.keys().next().unwrap()]).remove(0);
    let known = bench.run(Command::Remember(Box::new(text(None, &piece)))).unwrap();
    assert!(matches!(known, Reply::Known(_)), "{known:?}");
    // What a text says twice is one learning.
    let section = format!("# Refrain\n{}\n", "so they say ".repeat(100));
    let twice = index(&mut bench, text(None, &section.repeat(2)));
    assert!(twice.len() == 2 && twice[0] == twice[1], "{twice:?}");
}

#[test]
fn pieces_make_room_and_keep_those_of_them_that_are_known() {
    let mut bench = bench();
    let session = |content: &str| Remember { source: Source::SessionSummary, ..text(None, content) };
    let [first, second, third] = index(&mut bench, session(&long("zebra ", 3)))[..] else { panic!("three") };
    for id in 3..crate::limits::LEARNINGS as u128 {
        bench.entity.know(Uuid::from_u128((1 << 100) | id), state::Head { content: None, passing: false });
    }
    let known = contents(&bench, &[first]).remove(0);
    // The title above a piece is made into a heading, so the same piece is cut out of it.
    let known = known.replacen("Part 0\n\n", "# Part 0\n", 1);
    let again = index(&mut bench, session(&format!("{known}\n{}", long("gnu ", 2))));
    assert_eq!(again[0], first);
    assert!(contents(&bench, &[second, third]).is_empty());
    assert_eq!((contents(&bench, &again).len(), bench.entity.learnings.len()), (3, crate::limits::LEARNINGS));
}

#[test]
fn the_pieces_of_the_longest_text_are_written_at_once() {
    let section = format!("## b\n{}\n", "x".repeat(50));
    let mut longest = format!("# {}\n", "ä".repeat(290));
    longest.push_str(&section.repeat((crate::limits::TEXT - longest.len()) / section.len()));
    let mut bench = bench();
    let written = bench.weight(&Command::Index(Box::new(text(Some("a.md"), &longest))));
    assert!(2 * written < crate::limits::DECISION, "{written} bytes");
}

proptest! {
    #[test]
    fn documents_give_back_the_state(
        steps in prop::collection::vec((0u8..12, 0u128..12, prop::sample::select(vec!["a", "b"]), 0u32..3), 1..80)
    ) {
        let mut bench = bench();
        for (what, id, path, chunk) in steps {
            let memory = Uuid::from_u128(id);
            match what {
                0..=3 => { remember(&mut bench, piece(id, path, chunk)); }
                4 => { let _ = bench.run(Command::Remember(Box::new(learning(id)))); }
                5 => { bench.run(forget(memory)).unwrap(); }
                6 => { bench.run(Command::Touch { memory }).unwrap(); }
                7 => embed(&mut bench, id, &model(path), vector()),
                8 => { let _ = bench.run(Command::Remember(Box::new(Remember { content: path.into(), ..learning(id) }))); }
                9 | 10 => {
                    let path = Some(path).filter(|_| id % 3 > 0);
                    let said = format!("\n{}", long(&format!("{} ", id % 5), chunk as usize));
                    let memories = index(&mut bench, text(path, &said));
                    prop_assert_eq!(contents(&bench, &memories).len(), chunk as usize);
                }
                _ => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
