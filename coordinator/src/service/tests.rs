//! Use cases over a store that fails once it has taken a change, and over a read side that is late.

use serde_json::json;
use skein_shared::Code;
use skein_shared::channels::Read;
use skein_shared::epics::{self, Epics};
use skein_shared::id::Kind;
use skein_shared::pool::{Profile, Rules, Target, TaskSpec};
use skein_shared::questions::Questions;
use skein_shared::which::Which;

use super::swarm::Introduction;
use super::tasks::{Action, Wanted};
use super::*;
use crate::entity::tests::{Node, lists as held, node};
use crate::store::memory::Fault;

/// Longer than what a node has at hand, so that it is looked for in the store.
fn long() -> String {
    "x".repeat(3000)
}

fn id_of(shown: &Value) -> Uuid {
    Uuid::try_parse(shown["id"].as_str().unwrap()).unwrap()
}

async fn joined(service: &Service, name: &str) -> Principal {
    let who = Principal::named(name, Role::Worker);
    let introduction = Introduction { name: name.to_owned(), ..Introduction::default() };
    service.join(&who, Uuid::now_v7(), introduction).await.unwrap();
    who
}

/// Makes a change after which no document can be read until it is over.
async fn blinded<T>(node: &Node, change: impl Future<Output = Result<T, Refusal>>) -> T {
    let faults = node.store.contents().faults();
    faults.push(Fault::ThenUnreadable);
    let told = change.await;
    faults.let_read();
    told.unwrap_or_else(|refusal| panic!("what was done is told as refused: {refusal}"))
}

#[tokio::test]
async fn what_was_done_is_told_though_it_cannot_be_shown() {
    let node = node();
    let service = Service::new(node.entities.clone());
    let (worker, operator) = (joined(&service, "worker").await, Principal::named("boss", Role::Operator));
    let request = Uuid::now_v7;

    let wanted = Wanted { spec: TaskSpec::new(long()), target: Target::Pool, rules: Rules::Plain };
    let made = blinded(&node, Box::pin(service.send_task(&operator, request(), wanted))).await.task;
    assert_eq!(made["status"], "unassigned");
    let cancel = Action::Cancel { reason: None };
    let cancelled =
        blinded(&node, Box::pin(service.act(&operator, request(), id_of(&made), cancel))).await.task;
    assert_eq!((&cancelled["id"], &cancelled["status"]), (&made["id"], &json!("cancelled")));

    let draft = questions::Draft { question: long(), ..questions::Draft::default() };
    let asked = blinded(&node, Box::pin(service.ask_question(&worker, request(), draft))).await.question;
    assert_eq!(asked["status"], "open");
    let word = questions::Word::Answer("blue".to_owned());
    let answer = service.answer_question(&operator, request(), id_of(&asked), word);
    let answered = blinded(&node, Box::pin(answer)).await;
    assert_eq!((&answered["status"], &answered["answer"]), (&json!("answered"), &json!("blue")));

    let profile = Profile { role: Some("painter".to_owned()), ..Profile::default() };
    let described = blinded(&node, Box::pin(service.describe(&worker, request(), profile))).await;
    assert_eq!(described["id"], json!(worker.agent));

    let texts =
        epics::Texts { goal: Some("ship it".to_owned()), plan: Some(long()), ..epics::Texts::default() };
    let create = epics::Create {
        name: "Launch".to_owned(),
        creator: Some(worker.agent),
        lead: None,
        priority: 50,
        texts,
    };
    let command = epics::Command::Create(Box::new(create));
    service.change::<Epics>(&operator.entity(Kind::Epics), request(), command).await.unwrap();
    let which = Which::Name("Launch".to_owned());
    let status = Some(epics::Status::Active);
    let update = epics::Update { status, ..epics::Update::new(which, Caller::agent(worker.agent)) };
    let updated = blinded(&node, Box::pin(service.update_epic(&worker, request(), update))).await;
    assert_eq!((&updated["name"], &updated["status"]), (&json!("Launch"), &json!("active")));
}

#[tokio::test]
async fn messages_that_count_as_read_and_cannot_be_shown_come_with_a_repeat() {
    let node = node();
    let service = Service::new(node.entities.clone());
    let (writer, reader) = (joined(&service, "writer").await, joined(&service, "reader").await);
    for _ in 0..2 {
        let draft = messages::Draft { content: long(), ..messages::Draft::default() };
        service.post_message(&writer, Uuid::now_v7(), draft).await.unwrap();
    }
    let (request, read) = (Uuid::now_v7(), Read::new(reader.agent));
    let faults = node.store.contents().faults();
    faults.push(Fault::ThenUnreadable);
    let unseen = service.read_messages(&reader, request, read.clone()).await.unwrap_err();
    faults.let_read();
    assert_eq!(unseen.code, Code::Unknown, "{unseen}");
    assert!(unseen.message.contains("the messages count as read now"), "{unseen}");
    let again = service.read_messages(&reader, request, read).await.unwrap();
    assert_eq!(again.messages.len(), 2);
}

/// A lead, a worker, and a task that the worker has begun.
async fn at_work(service: &Service) -> (Principal, Principal, Uuid) {
    let (lead, worker) = (Principal::named("boss", Role::Lead), joined(service, "ann").await);
    let introduction = Introduction { name: "boss".to_owned(), lead: true, ..Introduction::default() };
    service.join(&lead, Uuid::now_v7(), introduction).await.unwrap();
    let wanted = Wanted { spec: TaskSpec::new("paint"), target: Target::Pool, rules: Rules::Plain };
    let made = Box::pin(service.send_task(&lead, Uuid::now_v7(), wanted)).await.unwrap().task;
    let task = id_of(&made);
    Box::pin(service.act(&worker, Uuid::now_v7(), task, Action::Claim)).await.unwrap();
    (lead, worker, task)
}

#[tokio::test]
async fn the_lead_hears_of_a_question_and_its_task_shows_it_also_while_lists_are_late() {
    let node = node();
    let service = Service::new(node.entities.clone());
    let hold = held::arriving(&node, "worker-1").await;
    let (_, worker, task) = at_work(&service).await;
    let ask = async |task: Option<Uuid>| {
        let draft = questions::Draft { question: "Blue?".to_owned(), task, ..questions::Draft::default() };
        Box::pin(service.ask_question(&worker, Uuid::now_v7(), draft)).await
    };
    tokio::time::pause();
    let refused = ask(None).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable, "which task waits is not known: {refused}");
    let named = ask(Some(task)).await.unwrap();
    assert_eq!((named.lead_told, &named.question["taskId"]), (true, &json!(task)));
    tokio::time::resume();
    drop(hold);
    let unnamed = ask(None).await.unwrap();
    assert_eq!((unnamed.lead_told, &unnamed.question["taskId"]), (true, &json!(task)));
    let (shown, freshness) = service.task_with_questions(&worker, task).await.unwrap();
    assert_eq!(lists::warning(freshness), None);
    let waits: BTreeSet<Uuid> = shown["waitsForInput"].as_array().unwrap().iter().map(id_of).collect();
    assert_eq!(waits, BTreeSet::from([id_of(&named.question), id_of(&unnamed.question)]));
}

#[tokio::test]
async fn whether_a_lead_is_told_of_a_question_says_who_tells_it() {
    let node = node();
    let service = Service::new(node.entities.clone());
    let worker = joined(&service, "ann").await;
    let ask = async || {
        let draft = questions::Draft { question: "Blue?".to_owned(), ..questions::Draft::default() };
        Box::pin(service.ask_question(&worker, Uuid::now_v7(), draft)).await.unwrap().lead_told
    };
    assert!(!ask().await);
    // Nobody led when the asker's service looked.
    let led = skein_shared::questions::Command::TellLead { lead: Uuid::now_v7() };
    service.change::<Questions>(&worker.entity(Kind::Questions), Uuid::now_v7(), led).await.unwrap();
    assert!(ask().await);
}

#[tokio::test]
async fn what_has_no_place_to_say_that_it_may_be_old_is_refused_meanwhile() {
    let node = node();
    let service = Service::new(node.entities.clone());
    let hold = held::arriving(&node, "worker-1").await;
    let (lead, _, task) = at_work(&service).await;
    let tasks = resources::Resource::All(resources::Sort::Tasks);
    let looked_at = async || {
        [
            Box::pin(service.lines(&lead, None)).await.map(drop).map_err(|refusal| refusal.code),
            Box::pin(service.show(&lead, &tasks)).await.map(drop).map_err(|refusal| refusal.code),
            Box::pin(service.outline(&lead)).await.map(drop).map_err(|refusal| refusal.code),
            Box::pin(service.called(&lead, resources::Sort::Tasks, ""))
                .await
                .map(drop)
                .map_err(|refusal| refusal.code),
        ]
    };
    tokio::time::pause();
    assert_eq!(looked_at().await, [Err(Code::Unavailable); 4]);
    // What can say it is shown, and says it.
    let listed =
        service.list_tasks(&lead, lists::Tasks { limit: 10, ..lists::Tasks::default() }).await.unwrap();
    assert!(listed.warning().is_some(), "{listed:?}");
    let (_, freshness) = service.count_tasks(&lead, None).await.unwrap();
    assert!(lists::warning(freshness).is_some(), "{freshness:?}");
    // What needs no list is there.
    assert_eq!(service.get_task(&lead, task).await.unwrap()["status"], "in_progress");
    assert_eq!(service.member_named(&lead, "ann").await.unwrap().current, 1);
    tokio::time::resume();
    drop(hold);
    assert_eq!(looked_at().await, [Ok(()); 4]);
}
