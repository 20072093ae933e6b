use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Effect, Entity};
use crate::id::{EntityKey, InstanceId, Kind, Name};
use crate::limits::{QUESTION_EXPIRY, QUESTION_KEEP, QUESTIONS_KEPT, QUESTIONS_OPEN_AGENT};
use crate::testbed::Bench;

const LEAD: u128 = 9;
const DAY: Duration = Duration::from_secs(86_400);

fn bench() -> Bench<Questions> {
    Bench::new(EntityKey::of(Kind::Questions, &Name::parse("default").unwrap()))
}

fn agent(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn colour(asker: u128) -> Ask {
    Ask {
        agent: agent(asker),
        name: format!("agent-{asker}"),
        instance: InstanceId(format!("agent-{asker}-00000001")),
        task: None,
        question: "Red or blue?".to_owned(),
        choices: vec!["red".to_owned(), "blue".to_owned()],
        open_for: None,
        at_work: None,
        lead: Some(agent(LEAD)),
        denied: None,
    }
}

fn ask(bench: &mut Bench<Questions>, ask: Ask) -> Result<Value, Refusal> {
    match bench.run(Command::Ask(Box::new(ask)))? {
        Reply::Asked(asked) => Ok(asked.question),
        Reply::Done => panic!("it was not asked"),
    }
}

fn asked(bench: &mut Bench<Questions>, asker: u128) -> Uuid {
    id(&ask(bench, colour(asker)).unwrap())
}

fn id(question: &Value) -> Uuid {
    question["id"].as_str().unwrap().parse().unwrap()
}

fn lead() -> By {
    let caller = Caller { agent: Some(agent(LEAD)), lead: true };
    By { caller, name: "lead".to_owned(), through: Through::Swarm }
}

fn operator() -> By {
    By { caller: Caller { agent: None, lead: true }, name: "operator".to_owned(), through: Through::Swarm }
}

fn by(number: u128, through: Through) -> By {
    By { caller: Caller::agent(agent(number)), name: format!("agent-{number}"), through }
}

fn answer(bench: &mut Bench<Questions>, question: Uuid, by: By, answer: &str) -> Result<Reply, Refusal> {
    bench.run(Command::Answer { question, by, answer: answer.to_owned() })
}

fn body(bench: &Bench<Questions>, question: Uuid) -> Value {
    Value::Object(bench.body(&key(question)).unwrap().clone())
}

#[test]
fn the_first_answer_counts_and_a_second_hears_who_gave_it() {
    let mut bench = bench();
    let question = ask(&mut bench, colour(1)).unwrap();
    assert_eq!((&question["status"], &question["taskId"]), (&json!("open"), &Value::Null));
    let question = id(&question);
    answer(&mut bench, question, operator(), " blue ").unwrap();
    let second = answer(&mut bench, question, lead(), "red").unwrap_err();
    assert_eq!((second.code, &second.detail["by"]), (Code::WrongState, &json!("operator")));
    assert!(second.message.contains("operator has answered"), "{}", second.message);
    let declined = bench.run(Command::Decline { question, by: lead(), reason: None }).unwrap_err();
    assert_eq!(declined.code, Code::WrongState);
    let shown = body(&bench, question);
    assert_eq!(
        (&shown["status"], &shown["answer"], &shown["answeredBy"]),
        (&json!("answered"), &json!("blue"), &json!("operator"))
    );
    bench.restart();
    assert_eq!(answer(&mut bench, question, lead(), "red").unwrap_err().code, Code::WrongState);
}

#[test]
fn an_answer_is_one_of_the_choices_and_any_text_where_there_are_none() {
    let mut bench = bench();
    let question = asked(&mut bench, 1);
    let green = answer(&mut bench, question, lead(), "green").unwrap_err();
    assert_eq!((green.code, &green.detail["choices"]), (Code::InvalidArgument, &json!(["red", "blue"])));
    assert!(green.message.contains("red | blue"), "{}", green.message);
    answer(&mut bench, question, lead(), "red").unwrap();
    let open = id(&ask(&mut bench, Ask { choices: Vec::new(), ..colour(1) }).unwrap());
    assert_eq!(answer(&mut bench, open, lead(), "  ").unwrap_err().code, Code::InvalidArgument);
    answer(&mut bench, open, lead(), "green").unwrap();
}

#[test]
fn leads_and_operators_answer_and_nobody_a_question_of_its_own() {
    let mut bench = bench();
    let question = asked(&mut bench, 1);
    for (who, through) in [(1, Through::Swarm), (2, Through::Swarm), (2, Through::Client)] {
        let refused = answer(&mut bench, question, by(who, through), "red").unwrap_err();
        assert_eq!(refused.code, Code::Forbidden, "{who} {through:?}");
    }
    // The person in front of the client that asked.
    answer(&mut bench, question, by(1, Through::Client), "red").unwrap();
    let own = asked(&mut bench, LEAD);
    assert_eq!(answer(&mut bench, own, lead(), "red").unwrap_err().code, Code::Forbidden);
    answer(&mut bench, own, operator(), "red").unwrap();
    let unknown = answer(&mut bench, agent(77), lead(), "red").unwrap_err();
    assert_eq!(unknown.code, Code::NotFound);
}

#[test]
fn a_question_is_declined_or_taken_back_by_whoever_may() {
    let mut bench = bench();
    let declined = asked(&mut bench, 1);
    let reason = Some("ask the owner".to_owned());
    bench.run(Command::Decline { question: declined, by: lead(), reason }).unwrap();
    assert_eq!(body(&bench, declined)["reason"], "ask the owner");
    let withdrawn = asked(&mut bench, 1);
    let by_another = bench.run(Command::Withdraw { question: withdrawn, by: agent(2) }).unwrap_err();
    assert_eq!(by_another.code, Code::Forbidden);
    bench.run(Command::Withdraw { question: withdrawn, by: agent(1) }).unwrap();
    let late = answer(&mut bench, withdrawn, lead(), "red").unwrap_err();
    assert!(late.message.contains("the agent that asked has withdrawn"), "{}", late.message);
}

#[test]
fn all_that_an_agent_asked_is_withdrawn_and_nothing_of_others() {
    let mut bench = bench();
    let answered = asked(&mut bench, 1);
    answer(&mut bench, answered, lead(), "red").unwrap();
    let own: Vec<Uuid> = (0..QUESTIONS_OPEN_AGENT).map(|_| asked(&mut bench, 1)).collect();
    let other = asked(&mut bench, 2);
    bench.run(Command::WithdrawAll { agent: agent(1) }).unwrap();
    for question in own {
        assert_eq!(body(&bench, question)["status"], "withdrawn");
    }
    assert_eq!(body(&bench, answered)["status"], "answered");
    assert_eq!(body(&bench, other)["status"], "open");
    assert_eq!(bench.restored(), bench.entity);
    let events = bench.events.len();
    bench.run(Command::WithdrawAll { agent: agent(1) }).unwrap();
    assert_eq!(bench.events.len(), events, "nothing of it waits any more");
    asked(&mut bench, 1);
}

#[test]
fn the_lead_is_told_of_a_question_with_its_id() {
    let mut bench = bench();
    let long = Ask { question: "x".repeat(4000), ..colour(1) };
    let question = id(&ask(&mut bench, long).unwrap()).to_string();
    let [Effect::Entity { key, command }] = bench.effects.as_slice() else { panic!("{:?}", bench.effects) };
    let post = &command.value()["post"];
    let content = post["content"].as_str().unwrap();
    assert_eq!((key.kind, &post["mentions"]), (Kind::Channels, &json!([agent(LEAD)])));
    assert!(content.contains("xxx") && content.ends_with(&question), "{content}");
    assert_eq!(content.chars().count(), 4000, "a message may have no more");
    ask(&mut bench, Ask { lead: None, ..colour(1) }).unwrap();
    asked(&mut bench, LEAD);
    assert_eq!(bench.effects.len(), 1, "there is nobody to tell");
}

#[test]
fn a_new_lead_is_told_in_one_message_of_the_questions_that_wait() {
    let mut bench = bench();
    let alone = Ask { lead: None, ..colour(1) };
    let later = id(&ask(&mut bench, alone.clone()).unwrap());
    let soon = id(&ask(&mut bench, Ask { open_for: Some(DAY), ..alone.clone() }).unwrap());
    let own = id(&ask(&mut bench, Ask { agent: agent(LEAD), ..alone.clone() }).unwrap());
    let over = id(&ask(&mut bench, alone.clone()).unwrap());
    answer(&mut bench, over, operator(), "red").unwrap();
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    let [Effect::Entity { key, command }] = bench.effects.as_slice() else { panic!("{:?}", bench.effects) };
    let post = &command.value()["post"];
    let content = post["content"].as_str().unwrap();
    assert_eq!((key.kind, &post["mentions"]), (Kind::Channels, &json!([agent(LEAD)])));
    let all = format!(" 2, those with the least time first: {soon}, {later}.");
    assert!(content.contains(&all) && !content.contains(&own.to_string()), "{content}");
    for number in 0..10 {
        ask(&mut bench, Ask { agent: agent(100 + number), ..alone.clone() }).unwrap();
    }
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    let Some(Effect::Entity { command, .. }) = bench.effects.last() else { panic!("{:?}", bench.effects) };
    let content = command.value()["post"]["content"].as_str().unwrap().to_owned();
    assert!(content.contains(" 12, ") && content.contains(" and 2 more."), "{content}");
}

#[test]
fn a_new_lead_is_told_of_nothing_where_only_its_own_questions_wait() {
    let mut bench = bench();
    ask(&mut bench, Ask { agent: agent(LEAD), lead: None, ..colour(1) }).unwrap();
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    assert!(bench.effects.is_empty(), "{:?}", bench.effects);
}

/// Whom the last message is for.
fn told(bench: &Bench<Questions>) -> Value {
    let Some(Effect::Entity { command, .. }) = bench.effects.last() else { panic!("{:?}", bench.effects) };
    command.value()["post"]["mentions"].clone()
}

#[test]
fn whoever_has_come_to_lead_meanwhile_is_told_of_a_question() {
    let mut bench = bench();
    let (next, looked) = (agent(8), |lead| Ask { lead, ..colour(1) });
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    // Its asker has looked when nobody led.
    ask(&mut bench, looked(None)).unwrap();
    assert_eq!((bench.effects.len(), told(&bench)), (1, json!([agent(LEAD)])));
    bench.run(Command::TellLead { lead: next }).unwrap();
    bench.restart();
    // Its asker has looked when another one led.
    ask(&mut bench, looked(Some(agent(LEAD)))).unwrap();
    assert_eq!((bench.effects.len(), told(&bench)), (3, json!([next])));
    let events = bench.events.len();
    bench.run(Command::TellLead { lead: next }).unwrap();
    assert_eq!(bench.events.len(), events, "it led already");
}

#[test]
fn the_answer_says_whether_a_lead_is_told() {
    let mut bench = bench();
    let lead_told = |bench: &mut Bench<Questions>, asker| {
        let ask = Ask { lead: None, ..colour(asker) };
        match bench.run(Command::Ask(Box::new(ask))).unwrap() {
            Reply::Asked(asked) => asked.lead_told,
            Reply::Done => None,
        }
    };
    assert_eq!(lead_told(&mut bench, 1), Some(false));
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    assert_eq!(lead_told(&mut bench, 1), Some(true));
    assert_eq!(lead_told(&mut bench, LEAD), Some(false), "it asks itself");

    // As an earlier program has stored it, and as it is stored now.
    let question = json!({ "id": agent(1), "question": "Red or blue?" });
    let stored = Reply::Asked(Asked { question: question.clone(), lead_told: None });
    assert_eq!(serde_json::from_value::<Reply>(json!({ "asked": question })).unwrap(), stored);
    let now = Reply::Asked(Asked { question, lead_told: Some(true) });
    assert_eq!(serde_json::from_value::<Reply>(serde_json::to_value(&now).unwrap()).unwrap(), now);
}

#[test]
fn who_led_and_has_left_is_told_of_no_question() {
    let mut bench = bench();
    bench.run(Command::TellLead { lead: agent(LEAD) }).unwrap();
    bench.run(Command::WithdrawAll { agent: agent(2) }).unwrap();
    ask(&mut bench, Ask { lead: None, ..colour(1) }).unwrap();
    assert_eq!((bench.effects.len(), told(&bench)), (1, json!([agent(LEAD)])));
    bench.run(Command::WithdrawAll { agent: agent(LEAD) }).unwrap();
    bench.restart();
    ask(&mut bench, Ask { lead: None, ..colour(1) }).unwrap();
    assert_eq!(bench.effects.len(), 1, "nobody leads");
}

#[test]
fn a_question_is_of_the_task_that_it_names_or_of_the_only_one_at_work() {
    let mut bench = bench();
    let only = ask(&mut bench, Ask { at_work: Some(agent(5)), ..colour(1) }).unwrap();
    assert_eq!(only["taskId"], json!(agent(5)));
    let named = Ask { task: Some(agent(6)), at_work: Some(agent(5)), ..colour(1) };
    let named = ask(&mut bench, named).unwrap();
    assert_eq!(named["taskId"], json!(agent(6)));
    let event = Event::Withdrawn { question: id(&named), at: bench.now };
    assert_eq!(bench.entity.topics(&event), [id(&named).to_string(), agent(6).to_string()]);
    // What was looked up is no part of the request.
    let first = Command::Ask(Box::new(colour(1)));
    let denied = Some(Refusal::new(Code::Forbidden, "the task is not yours"));
    let again = Ask { at_work: Some(agent(5)), lead: None, denied, ..colour(1) };
    assert_eq!(ask(&mut bench, again.clone()).unwrap_err().code, Code::Forbidden);
    let again = Command::Ask(Box::new(again));
    assert_eq!(Questions::asked(&first), Questions::asked(&again));
}

#[test]
fn what_nobody_answers_ends_and_what_came_of_it_is_kept_for_a_while() {
    let mut bench = bench();
    let soon = id(&ask(&mut bench, Ask { open_for: Some(DAY), ..colour(1) }).unwrap());
    let late = asked(&mut bench, 2);
    bench.advance(DAY);
    assert_eq!(body(&bench, soon)["status"], "expired");
    let refused = answer(&mut bench, soon, lead(), "red").unwrap_err();
    assert!(refused.message.contains("in time"), "{}", refused.message);
    bench.advance(QUESTION_KEEP);
    assert!(bench.body(&key(soon)).is_none(), "it is forgotten");
    assert_eq!(body(&bench, late)["status"], "open");
    bench.advance(QUESTION_EXPIRY);
    bench.advance(QUESTION_KEEP);
    assert_eq!((bench.body(&key(late)), bench.entity.next_wake()), (None, None));
}

#[test]
fn so_many_questions_wait_and_so_many_are_kept() {
    let mut bench = bench();
    let questions: Vec<Uuid> = (0..QUESTIONS_OPEN_AGENT).map(|_| asked(&mut bench, 1)).collect();
    let refused = ask(&mut bench, colour(1)).unwrap_err();
    assert_eq!(refused.code, Code::QueueFull);
    assert!(refused.message.contains("withdraw_question"), "{}", refused.message);
    for asker in 100..100 + 49 {
        (0..QUESTIONS_OPEN_AGENT).for_each(|_| _ = asked(&mut bench, asker));
    }
    let refused = ask(&mut bench, colour(2)).unwrap_err();
    assert!(
        refused.code == Code::QueueFull && refused.message.contains("of the swarm"),
        "{}",
        refused.message
    );
    bench.run(Command::Withdraw { question: questions[0], by: agent(1) }).unwrap();
    ask(&mut bench, colour(2)).unwrap();

    // All of them end at one moment, and with those more are over than are kept.
    bench.advance(QUESTION_EXPIRY);
    assert_eq!((bench.entity.open.len(), bench.entity.settled.len()), (0, QUESTIONS_KEPT));
    let newest = asked(&mut bench, 1);
    answer(&mut bench, newest, lead(), "red").unwrap();
    assert_eq!(bench.entity.settled.len(), QUESTIONS_KEPT);
    assert!(bench.entity.settled.contains_key(&newest));
}

#[test]
fn arguments_are_checked() {
    let mut bench = bench();
    let choices = |choices: &[&str]| choices.iter().map(|choice| (*choice).to_owned()).collect();
    for (bad, code) in [
        (Ask { question: String::new(), ..colour(1) }, Code::InvalidArgument),
        (Ask { question: "x".repeat(4001), ..colour(1) }, Code::TooLarge),
        (Ask { choices: choices(&["a"; 21]), ..colour(1) }, Code::TooLarge),
        (Ask { choices: choices(&["a", "a"]), ..colour(1) }, Code::InvalidArgument),
        (Ask { choices: choices(&["a "]), ..colour(1) }, Code::InvalidArgument),
        (Ask { choices: choices(&[" "]), ..colour(1) }, Code::InvalidArgument),
        (Ask { choices: vec!["x".repeat(201)], ..colour(1) }, Code::TooLarge),
        (Ask { open_for: Some(Duration::ZERO), ..colour(1) }, Code::InvalidArgument),
        (Ask { open_for: Some(31 * DAY), ..colour(1) }, Code::InvalidArgument),
    ] {
        let shown = format!("{bad:?}").chars().take(200).collect::<String>();
        assert_eq!(ask(&mut bench, bad).unwrap_err().code, code, "{shown}");
    }
    let question = asked(&mut bench, 1);
    assert_eq!(answer(&mut bench, question, lead(), &"x".repeat(4001)).unwrap_err().code, Code::TooLarge);
    assert!(bench.events.len() == 1, "a refusal changes nothing");
}

proptest! {
    #[test]
    fn every_question_has_one_end_whatever_happens(
        steps in prop::collection::vec((0..9_u8, 0..4_u128, 0..6_usize, any::<bool>()), 1..80)
    ) {
        let mut bench = bench();
        let mut questions: Vec<(Uuid, u128)> = Vec::new();
        for (what, who, which, soon) in steps {
            let (question, asker) = questions.get(which).copied().unwrap_or((agent(77), 1));
            let by = if soon { operator() } else { lead() };
            let command = match what {
                0 | 1 => {
                    let open_for = soon.then_some(DAY);
                    questions.push((id(&ask(&mut bench, Ask { open_for, ..colour(who) }).unwrap()), who));
                    continue;
                }
                2 => Command::Answer { question, by, answer: if soon { "red" } else { "green" }.to_owned() },
                3 => Command::Decline { question, by, reason: None },
                4 => Command::Withdraw { question, by: agent(asker) },
                5 => Command::WithdrawAll { agent: agent(asker) },
                6 => Command::TellLead { lead: agent(who) },
                7 => { bench.restart(); continue }
                _ => { bench.advance(if soon { DAY } else { 5 * DAY }); continue }
            };
            let _ = bench.run(command);
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
        for (question, _) in questions {
            let of = question.to_string();
            let ends = bench.events.iter().filter(|event| {
                !matches!(event, Event::Asked { .. }) && Questions::subject(event).as_ref() == Some(&of)
            });
            let (ends, open) = (ends.count(), bench.entity.open.contains_key(&question));
            prop_assert_eq!(ends, usize::from(!open));
        }
    }
}
