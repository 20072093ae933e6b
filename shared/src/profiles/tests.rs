use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;

const ANN: Uuid = Uuid::from_u128(1);

fn bench() -> Bench<Profiles> {
    Bench::new(EntityKey::of(Kind::Profiles, &Name::parse("default").unwrap()))
}

fn write(bench: &mut Bench<Profiles>, field: Field, text: &str, before: Option<&str>) {
    let change = Change { text: text.to_owned(), before: before.map(str::to_owned) };
    let texts = [(field, change)].into();
    let (source, by) = (Source::SelfEdit, Some(ANN));
    bench.run(Command::Changed { agent: ANN, texts, source, by, reason: None }).unwrap();
    assert_eq!(bench.restored(), bench.entity);
}

fn versions(bench: &Bench<Profiles>) -> Vec<(u32, &str, Source)> {
    let versions = bench.events.iter().map(|Event::VersionKept(version)| version);
    versions.map(|version| (version.version, version.text.as_str(), version.source)).collect()
}

#[test]
fn each_new_text_is_a_version() {
    let mut bench = bench();
    write(&mut bench, Field::ClaudeMd, "one", Some("as it began"));
    write(&mut bench, Field::ClaudeMd, "two", Some("one"));
    let expected =
        [(1, "as it began", Source::System), (2, "one", Source::SelfEdit), (3, "two", Source::SelfEdit)];
    assert_eq!(versions(&bench), expected);
    let Event::VersionKept(last) = &bench.events[2];
    let Event::VersionKept(before) = &bench.events[1];
    assert_eq!(last.previous, Some(before.id));
    let body = bench.body(&format!("version/{}", last.id)).unwrap();
    assert_eq!((body["contentLength"].as_u64(), body["field"].as_str()), (Some(3), Some("claudeMd")));
    assert!(!body.contains_key("content"), "a history is read without its texts");
    assert_eq!(bench.body(&format!("text/{}", last.id)).unwrap()["content"], "two");
}

#[test]
fn the_same_text_again_is_no_version() {
    let mut bench = bench();
    write(&mut bench, Field::SoulMd, "calm", Some("calm"));
    assert_eq!(versions(&bench), [(1, "calm", Source::System)]);
    write(&mut bench, Field::SoulMd, "calm", Some("calm"));
    assert_eq!(bench.events.len(), 1);
    bench.restart();
    write(&mut bench, Field::SoulMd, "calm", None);
    assert_eq!(bench.events.len(), 1);
    // What was there before is the first version of a text that has none, and of no other.
    write(&mut bench, Field::SoulMd, "brave", Some("something else"));
    assert_eq!(versions(&bench)[1], (2, "brave", Source::SelfEdit));
    write(&mut bench, Field::ToolsMd, "hammer", Some(""));
    assert_eq!(versions(&bench)[2], (1, "hammer", Source::SelfEdit));
}

#[test]
fn a_version_says_who_has_changed_it_and_why() {
    let mut bench = bench();
    let lead = Uuid::from_u128(2);
    let change = Change { text: "ask first".to_owned(), before: Some("as it began".to_owned()) };
    let texts = [(Field::SoulMd, change)].into();
    let (source, reason) = (Source::LeadCoaching, Some("it guessed".to_owned()));
    bench.run(Command::Changed { agent: ANN, texts, source, by: Some(lead), reason }).unwrap();
    let told: Vec<Value> = bench
        .events
        .iter()
        .map(|Event::VersionKept(version)| {
            let body = bench.body(&format!("version/{}", version.id)).unwrap();
            json!([body["changeSource"], body.get("changedByAgentId"), body.get("changeReason")])
        })
        .collect();
    // What it was until then nobody has changed for a reason.
    assert_eq!(told, [json!(["system", null, null]), json!(["lead_coaching", lead, "it guessed"])]);
}
