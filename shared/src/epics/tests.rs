use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Effect, Entity};
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;
use crate::which::Which;

const LEAD: Caller = Caller { agent: Some(Uuid::from_u128(1)), lead: true };

fn bench() -> Bench<Epics> {
    Bench::new(EntityKey::of(Kind::Epics, &Name::parse("default").unwrap()))
}

fn epic(name: &str) -> Create {
    Create {
        name: name.to_owned(),
        creator: LEAD.agent,
        lead: None,
        priority: 50,
        texts: Texts { goal: Some("win".into()), ..Texts::default() },
    }
}

fn create(bench: &mut Bench<Epics>, epic: Create) -> Result<Reply, Refusal> {
    bench.run(Command::Create(Box::new(epic)))
}

fn update(bench: &mut Bench<Epics>, update: Update) -> Result<Reply, Refusal> {
    bench.run(Command::Update(Box::new(update)))
}

fn named(name: &str) -> Which {
    Which::Name(name.to_owned())
}

fn id(bench: &Bench<Epics>, name: &str) -> Uuid {
    bench.entity.ids[name]
}

fn task(bench: &mut Bench<Epics>, epic: Uuid, task: u128, from: Option<&str>, to: Option<&str>) {
    let command =
        json!({"task_changed": {"epic": epic, "task": Uuid::from_u128(task), "from": from, "to": to}});
    bench.run(serde_json::from_value(command).unwrap()).unwrap();
}

#[test]
fn an_epic_has_the_shape_of_the_wire_and_a_channel() {
    let mut bench = bench();
    let Reply::Created(body) = create(&mut bench, epic("Ship it!")).unwrap() else { panic!("created") };
    assert_eq!(body["status"], "draft");
    assert_eq!(body["tags"], json!([]));
    assert_eq!(body["goal"], "win");
    assert_eq!(body["progress"], 0);
    assert!(body.get("plan").is_none() && body.get("startedAt").is_none());
    let key = format!("epic/{}", body["id"].as_str().unwrap());
    assert_eq!(serde_json::Value::Object(bench.body(&key).unwrap().clone()), body);
    let Effect::Entity { key, command } = &bench.effects[0] else { panic!("a channel") };
    assert_eq!(key.kind, Kind::Channels);
    let command = command.value();
    assert_eq!(command["create"]["name"], "epic-ship-it");
    assert_eq!(command["create"]["id"], body["channelId"]);
}

#[test]
fn an_epic_whose_channel_is_refused_names_none_and_says_why() {
    let mut bench = bench();
    create(&mut bench, epic("other")).unwrap();
    create(&mut bench, epic("e")).unwrap();
    let (other, e) = (id(&bench, "other"), id(&bench, "e"));
    let Effect::Entity { key: channels, command } = bench.effects[1].clone() else { panic!("a channel") };
    let full = Refusal::new(Code::QueueFull, "the swarm has 10000 channels; delete one first");
    let told = Epics::refused(&channels, &command, &full).unwrap();
    bench.run(told.clone()).unwrap();
    assert_eq!((bench.entity.epics[&e].channel, bench.entity.epics[&other].channel.is_some()), (None, true));
    let priority = Some(90);
    update(&mut bench, Update { priority, ..Update::new(named("e"), LEAD) }).unwrap();
    let body = bench.body(&Epic::key(e)).unwrap();
    assert!(!body.contains_key("channelId"), "{body:?}");
    assert_eq!(body["channelProblem"], full.message);
    assert_eq!(bench.restored(), bench.entity);
    let deleted = bench.run(Command::Delete { which: named("e"), by: LEAD });
    assert_eq!(deleted, Ok(Reply::Deleted { id: e, name: "e".into(), channel: None }));
    let channel = bench.entity.epics[&other].channel;
    let deleted = bench.run(Command::Delete { which: named("other"), by: LEAD });
    assert_eq!(deleted, Ok(Reply::Deleted { id: other, name: "other".into(), channel }));
    assert_eq!(bench.run(told), Ok(Reply::Done), "that comes late");
}

#[test]
fn arguments_are_checked() {
    let mut bench = bench();
    create(&mut bench, epic("taken")).unwrap();
    create(&mut bench, epic("other")).unwrap();
    for (bad, code) in [
        (epic("taken"), Code::AlreadyExists),
        (epic(""), Code::InvalidArgument),
        (epic(&"x".repeat(201)), Code::TooLarge),
        (Create { texts: Texts::default(), ..epic("x") }, Code::InvalidArgument),
        (Create { priority: 101, ..epic("x") }, Code::InvalidArgument),
    ] {
        assert_eq!(create(&mut bench, bad).unwrap_err().code, code);
    }
    let rename = Update { new_name: Some("taken".into()), ..Update::new(named("other"), LEAD) };
    assert_eq!(update(&mut bench, rename).unwrap_err().code, Code::AlreadyExists);
    let missing = update(&mut bench, Update::new(named("none"), LEAD));
    assert_eq!(missing.unwrap_err().code, Code::NotFound);
}

#[test]
fn counts_follow_the_pool() {
    let mut bench = bench();
    create(&mut bench, epic("e")).unwrap();
    let e = id(&bench, "e");
    for (number, status) in
        ["completed", "completed", "failed", "in_progress", "offered", "unassigned"].into_iter().enumerate()
    {
        task(&mut bench, e, number as u128, None, Some(status));
    }
    let body = bench.body(&Epic::key(e)).unwrap();
    assert_eq!(
        body["taskStats"],
        json!({"total": 6, "completed": 2, "failed": 1, "inProgress": 1, "pending": 1, "unassigned": 1})
    );
    assert_eq!(body["progress"], 33);
    task(&mut bench, e, 3, Some("in_progress"), Some("completed"));
    assert_eq!(bench.body(&Epic::key(e)).unwrap()["progress"], 50);
    task(&mut bench, e, 2, Some("failed"), None);
    assert_eq!(bench.body(&Epic::key(e)).unwrap()["progress"], 60);
    task(&mut bench, Uuid::nil(), 2, None, Some("pending"));
}

#[test]
fn progress_is_rounded() {
    for (completed, pending, want) in
        [(0, 0, 0), (1, 2, 33), (2, 1, 67), (1, 1, 50), (1, 199, 1), (3, 0, 100)]
    {
        let counts = Counts { completed, pending, ..Counts::default() };
        assert_eq!(counts.progress(), want, "{completed} of {}", counts.total());
    }
}

#[test]
fn the_lead_hears_of_active_epics_until_it_was_told() {
    let mut bench = bench();
    create(&mut bench, epic("e")).unwrap();
    let e = id(&bench, "e");
    task(&mut bench, e, 1, Some("in_progress"), Some("completed"));
    assert_eq!(bench.run(Command::News).unwrap(), Reply::News(vec![]));
    update(&mut bench, Update { status: Some(Status::Active), ..Update::new(named("e"), LEAD) }).unwrap();
    let Reply::News(news) = bench.run(Command::News).unwrap() else { panic!("news") };
    assert_eq!(news[0].tasks, vec![Uuid::from_u128(1)]);
    task(&mut bench, e, 2, Some("in_progress"), Some("failed"));
    let tell = || Command::TellNews { news: news.clone() };
    assert_eq!(bench.run(tell()).unwrap(), Reply::News(news.clone()));
    assert_eq!(bench.run(tell()).unwrap(), Reply::News(vec![]), "it was told meanwhile");
    let Reply::News(left) = bench.run(Command::News).unwrap() else { panic!("news") };
    assert_eq!(left[0].tasks, vec![Uuid::from_u128(2)], "what came after the question");
    bench.run(Command::TellNews { news: left }).unwrap();
    assert_eq!(bench.run(Command::News).unwrap(), Reply::News(vec![]));
}

#[test]
fn the_lead_hears_how_many_tasks_have_ended_besides_those_that_an_epic_can_name() {
    let mut bench = bench();
    create(&mut bench, epic("e")).unwrap();
    let e = id(&bench, "e");
    update(&mut bench, Update { status: Some(Status::Active), ..Update::new(named("e"), LEAD) }).unwrap();
    for number in 0..60 {
        task(&mut bench, e, number, Some("in_progress"), Some("completed"));
    }
    let Reply::News(news) = bench.run(Command::News).unwrap() else { panic!("news") };
    assert_eq!((news[0].tasks.len(), news[0].tasks[0], news[0].unnamed), (50, Uuid::from_u128(10), 10));
    // Two more end before the lead is told, so two of those that were named are not any more.
    for number in 60..62 {
        task(&mut bench, e, number, Some("pending"), Some("failed"));
    }
    let tell = || Command::TellNews { news: news.clone() };
    let Reply::News(told) = bench.run(tell()).unwrap() else { panic!("news") };
    assert_eq!((told[0].tasks.len(), told[0].unnamed), (48, 10));
    let Reply::News(again) = bench.run(tell()).unwrap() else { panic!("news") };
    assert_eq!((again[0].tasks.len(), again[0].unnamed), (0, 2), "what was told meanwhile is no news");
    let Reply::News(left) = bench.run(Command::News).unwrap() else { panic!("news") };
    assert_eq!((left[0].tasks.len(), left[0].unnamed), (2, 0));
    bench.run(Command::TellNews { news: left }).unwrap();
    assert_eq!(bench.run(Command::News).unwrap(), Reply::News(vec![]));
    assert_eq!(bench.restored(), bench.entity);
}

#[test]
fn the_lead_hears_of_tasks_that_end_in_any_way() {
    let mut bench = bench();
    create(&mut bench, epic("e")).unwrap();
    let e = id(&bench, "e");
    update(&mut bench, Update { status: Some(Status::Active), ..Update::new(named("e"), LEAD) }).unwrap();
    for (number, end) in ["completed", "failed", "cancelled"].into_iter().enumerate() {
        task(&mut bench, e, number as u128, Some("pending"), Some(end));
    }
    task(&mut bench, e, 3, Some("pending"), Some("in_progress"));
    let Reply::News(news) = bench.run(Command::News).unwrap() else { panic!("news") };
    assert_eq!(news[0].tasks, (0..3).map(Uuid::from_u128).collect::<Vec<_>>());
}

#[test]
fn the_first_start_and_end_are_kept() {
    let mut bench = bench();
    create(&mut bench, epic("e")).unwrap();
    let set = |bench: &mut Bench<Epics>, status| {
        bench.now = bench.now + std::time::Duration::from_secs(1);
        update(bench, Update { status: Some(status), ..Update::new(named("e"), LEAD) }).unwrap();
        bench.entity.epics[&id(bench, "e")].clone()
    };
    let started = set(&mut bench, Status::Active).started;
    let completed = set(&mut bench, Status::Completed).completed;
    set(&mut bench, Status::Active);
    let last = set(&mut bench, Status::Completed);
    assert!(started.is_some() && completed.is_some());
    assert_eq!((last.started, last.completed), (started, completed));
}

#[test]
fn creator_epic_lead_and_lead_may_change() {
    let mut bench = bench();
    let owner = Caller::agent(Uuid::from_u128(5));
    create(&mut bench, Create { lead: owner.agent, ..epic("e") }).unwrap();
    let stranger = Caller::agent(Uuid::from_u128(6));
    assert_eq!(update(&mut bench, Update::new(named("e"), stranger)).unwrap_err().code, Code::Forbidden);
    let texts = Texts { plan: Some("p".into()), ..Texts::default() };
    update(&mut bench, Update { texts, ..Update::new(named("e"), owner) }).unwrap();
    let body = bench.body(&Epic::key(id(&bench, "e"))).unwrap();
    assert_eq!((&body["plan"], &body["goal"]), (&json!("p"), &json!("win")));
    let delete = |by| Command::Delete { which: named("e"), by };
    assert_eq!(bench.run(delete(owner)).unwrap_err().code, Code::Forbidden);
    bench.run(delete(LEAD)).unwrap();
    assert!(bench.entity.epics.is_empty());
}

fn commands() -> impl Strategy<Value = Vec<Option<Command>>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    let status = || {
        prop::option::of(prop::sample::select(vec![
            "pending",
            "in_progress",
            "completed",
            "failed",
            "cancelled",
            "unassigned",
        ]))
    };
    let command = prop_oneof![
        name().prop_map(|name| Command::Create(Box::new(epic(name)))),
        (name(), name()).prop_map(|(from, to)| Command::Update(Box::new(Update {
            new_name: Some(to.into()),
            status: Some(Status::Active),
            ..Update::new(named(from), LEAD)
        }))),
        name().prop_map(|name| Command::Delete { which: named(name), by: LEAD }),
        (0u128..8, 0u128..90, status(), status()).prop_map(|(epic, task, from, to)| Command::TaskChanged {
            epic: Uuid::new_v5(&Uuid::from_u128(epic), &1u64.to_be_bytes()),
            task: Uuid::from_u128(task),
            from: from.map(str::to_owned),
            to: to.map(str::to_owned),
        }),
        (0u128..8, prop::collection::vec(0u128..90, 0..9), 0u32..3).prop_map(|(epic, tasks, unnamed)| {
            let epic = Uuid::new_v5(&Uuid::from_u128(epic), &1u64.to_be_bytes());
            let tasks = tasks.into_iter().map(Uuid::from_u128).collect();
            Command::TellNews {
                news: vec![Notice { epic, name: String::new(), progress: 0, tasks, unnamed }],
            }
        }),
    ];
    prop::collection::vec(prop::option::weighted(0.95, command), 1..120)
}

proptest! {
    #[test]
    fn documents_give_back_the_state(commands in commands()) {
        let mut bench = bench();
        for command in commands {
            match command {
                Some(command) => { let _ = bench.run(command); }
                None => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
