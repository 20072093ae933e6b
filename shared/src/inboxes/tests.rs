use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::code::{Code, Refusal};
use crate::entity::{Changes, Effect, Entity};
use crate::id::{EntityKey, Kind, Name};
use crate::pool::{Create, Rules, Target, TaskSpec};
use crate::slack::Said;
use crate::testbed::Bench;

const LEAD: Uuid = Uuid::from_u128(1);
const OTHER: Uuid = Uuid::from_u128(2);
const HALF_HOUR: Duration = Duration::from_secs(30 * 60);

fn bench() -> Bench<Inboxes> {
    Bench::new(EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap()))
}

fn mail(agent: Uuid, dedupe: Option<&str>) -> Command {
    Command::Deliver(Box::new(Deliver {
        agent,
        content: "please help".into(),
        source: Source::Slack,
        slack: Slack { channel_id: Some("C1".into()), ..Slack::default() },
        mail: None,
        dedupe: dedupe.map(str::to_owned),
    }))
}

fn deliver(bench: &mut Bench<Inboxes>, agent: Uuid) -> Uuid {
    delivered(bench, mail(agent, None))
}

/// The swarm's own word about something.
fn notify(bench: &mut Bench<Inboxes>, agent: Uuid) -> Uuid {
    let mut notice = mail(agent, None);
    if let Command::Deliver(deliver) = &mut notice {
        (deliver.source, deliver.slack) = (Source::System, Slack::default());
    }
    delivered(bench, notice)
}

fn delivered(bench: &mut Bench<Inboxes>, command: Command) -> Uuid {
    match bench.run(command).unwrap() {
        Reply::Delivered { message, repeated: false } => message,
        other => panic!("{other:?}"),
    }
}

fn take(bench: &mut Bench<Inboxes>, agent: Uuid) -> Vec<Uuid> {
    match bench.run(Command::Take { agent, limit: 5 }).unwrap() {
        Reply::Taken(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn delegate(agent: Uuid, message: Uuid) -> Command {
    let (target, rules) = (Target::Assign { agent: Some(OTHER) }, Rules::Inbox { allow_duplicate: false });
    let create = Create { by: None, spec: TaskSpec::new("help them"), target, rules, facts: Vec::new() };
    Command::Delegate { agent, message, task: Box::new(create) }
}

/// What the host sends back when the pool refuses the latest task.
fn refuse_last(bench: &mut Bench<Inboxes>) {
    let Some(Effect::Entity { key, command }) = bench.effects.last().cloned() else { return };
    let refusal = Refusal::new(Code::Duplicate, "there is one like it");
    let told = Inboxes::refused(&key, &command, &refusal).unwrap();
    bench.run(told).unwrap();
}

#[test]
fn a_message_has_the_shape_of_the_wire() {
    let mut bench = bench();
    let id = deliver(&mut bench, LEAD);
    let body = bench.body(&Message::key(id)).unwrap();
    let at = bench.now.iso();
    assert_eq!(
        serde_json::Value::Object(body.clone()),
        json!({"id": id, "agentId": LEAD, "content": "please help", "source": "slack", "status": "unread",
            "slackChannelId": "C1", "createdAt": at, "lastUpdatedAt": at})
    );
    take(&mut bench, LEAD);
    bench.run(Command::Respond { agent: LEAD, message: id, text: "done".into() }).unwrap();
    let body = bench.body(&Message::key(id)).unwrap();
    assert_eq!((&body["status"], &body["responseText"]), (&json!("responded"), &json!("done")));
    assert!(bench.entity.messages.is_empty());
}

#[test]
fn the_oldest_five_are_handed_out_once() {
    let mut bench = bench();
    let ids: Vec<Uuid> = (0..7).map(|_| deliver(&mut bench, LEAD)).collect();
    deliver(&mut bench, OTHER);
    assert_eq!(take(&mut bench, LEAD), ids[..5]);
    assert_eq!(take(&mut bench, LEAD), ids[5..]);
    assert!(take(&mut bench, LEAD).is_empty());
    let refusal = bench.run(Command::Take { agent: LEAD, limit: 6 }).unwrap_err();
    assert_eq!(refusal.code, Code::InvalidArgument);
    assert_eq!(bench.run(Command::Count { agent: OTHER }).unwrap(), Reply::Count { unread: 1 });
}

#[test]
fn a_repeat_makes_no_second_message() {
    let mut bench = bench();
    let first = bench.run(mail(LEAD, Some("evt"))).unwrap();
    let Reply::Delivered { message, repeated: false } = first else { panic!("{first:?}") };
    bench.run(delegate(LEAD, message)).unwrap();
    bench.restart();
    let again = bench.run(mail(LEAD, Some("evt"))).unwrap();
    assert_eq!(again, Reply::Delivered { message, repeated: true });
    bench.advance(Duration::from_secs(7 * 86_400));
    let later = bench.run(mail(LEAD, Some("evt"))).unwrap();
    assert!(matches!(later, Reply::Delivered { repeated: false, .. }));
}

fn said(ts: &str, thread: &str) -> Said {
    let text = "and this?".to_owned();
    let (channel, user) = ("C1".to_owned(), "U1".to_owned());
    Said { channel, thread: thread.into(), ts: ts.into(), user, text, bot: None, mentioned: false }
}

fn hear(bench: &mut Bench<Inboxes>, said: Said, otherwise: Option<Uuid>) -> Reply {
    hear_under(bench, None, said, otherwise)
}

fn hear_under(bench: &mut Bench<Inboxes>, lead: Option<Uuid>, said: Said, otherwise: Option<Uuid>) -> Reply {
    let request = said.request();
    bench.run(Command::Hear { said, request, otherwise, lead, note: None }).unwrap()
}

#[test]
fn whoever_asked_is_told_once_that_it_is_in_an_inbox() {
    let mut bench = bench();
    let said = said("2.0", "1.0");
    let note = said.thread().note(LEAD, "inbox", "**lea** has this in its inbox.");
    let request = said.request();
    let told = Some(Box::new(note.clone()));
    let hear = Command::Hear { said, request, otherwise: Some(LEAD), lead: Some(LEAD), note: told };
    bench.run(hear.clone()).unwrap();
    bench.run(hear).unwrap();
    let [Effect::Slack { note: told, .. }] = &bench.effects[..] else { panic!("{:?}", bench.effects) };
    assert_eq!(*told, note);
}

#[test]
fn what_is_said_in_a_thread_is_for_whoever_had_its_newest_message() {
    let mut bench = bench();
    assert_eq!(hear(&mut bench, said("2.0", "1.0"), None), Reply::Done, "nobody is meant");
    let first = hear(&mut bench, said("2.0", "1.0"), Some(LEAD));
    let Reply::Delivered { message, repeated: false } = first else { panic!("{first:?}") };
    let body = bench.body(&Message::key(message)).unwrap();
    assert_eq!((&body["slackThreadTs"], &body["agentId"]), (&json!("1.0"), &json!(LEAD)));
    assert_eq!(
        hear(&mut bench, said("2.0", "1.0"), Some(LEAD)),
        Reply::Delivered { message, repeated: true }
    );
    bench.run(Command::Respond { agent: LEAD, message, text: "done".into() }).unwrap();
    bench.restart();
    hear(&mut bench, said("3.0", "1.0"), Some(OTHER));
    assert_eq!(take(&mut bench, LEAD).len(), 1, "the thread stays with its owner after the answer");
    assert_eq!(hear(&mut bench, said("4.0", "9.0"), None), Reply::Done, "another thread");
    bench.advance(Duration::from_secs(7 * 86_400));
    assert_eq!(hear(&mut bench, said("5.0", "1.0"), None), Reply::Done, "forgotten after a week");
}

#[test]
fn a_thread_goes_on_with_whoever_leads_now() {
    let mut bench = bench();
    hear_under(&mut bench, Some(LEAD), said("2.0", "1.0"), Some(LEAD));
    assert_eq!(take(&mut bench, LEAD).len(), 1);
    bench.restart();
    hear_under(&mut bench, Some(OTHER), said("3.0", "1.0"), Some(OTHER));
    hear_under(&mut bench, Some(OTHER), said("4.0", "1.0"), None);
    assert_eq!((take(&mut bench, OTHER).len(), take(&mut bench, LEAD).len()), (2, 0));
    let elsewhere = hear_under(&mut bench, Some(OTHER), said("5.0", "9.0"), None);
    assert_eq!(elsewhere, Reply::Done, "another thread");
}

#[test]
fn only_the_owner_ends_an_open_message() {
    let mut bench = bench();
    let message = deliver(&mut bench, LEAD);
    let respond = |agent| Command::Respond { agent, message, text: "x".into() };
    assert_eq!(bench.run(respond(OTHER)).unwrap_err().code, Code::Forbidden);
    bench.run(respond(LEAD)).unwrap();
    assert_eq!(bench.run(respond(LEAD)).unwrap_err().code, Code::NotFound);
    let get = Command::Get { agent: LEAD, message };
    assert_eq!(bench.run(get).unwrap_err().code, Code::NotFound);
}

#[test]
fn a_message_makes_one_task_and_comes_back_when_the_pool_makes_none() {
    let mut bench = bench();
    let message = deliver(&mut bench, LEAD);
    let later = deliver(&mut bench, LEAD);
    assert_eq!(bench.run(delegate(OTHER, message)).unwrap_err().code, Code::Forbidden);
    assert!(bench.effects.is_empty(), "who is refused has no task made");
    let Reply::Ended(fields) = bench.run(delegate(LEAD, message)).unwrap() else { panic!("ended") };
    assert_eq!(bench.run(delegate(LEAD, message)).unwrap_err().code, Code::NotFound);
    let [Effect::Entity { key, command }] = &bench.effects[..] else { panic!("one task") };
    let create = &command.value()["create"];
    assert_eq!((key.kind, &create["spec"]["id"]), (Kind::Pool, &fields["delegatedToTaskId"]));
    assert_eq!(
        (&create["by"], &create["spec"]["context"]["inboxMessageId"]),
        (&json!(LEAD), &json!(message))
    );

    refuse_last(&mut bench);
    let body = bench.body(&Message::key(message)).unwrap().clone();
    assert_eq!((&body["status"], body.get("delegatedToTaskId")), (&json!("unread"), None));
    assert_eq!(body["delegationRefused"]["code"], "duplicate");
    assert_eq!(body["delegationRefused"]["taskId"], fields["delegatedToTaskId"]);
    refuse_last(&mut bench);
    bench.restart();
    assert_eq!(take(&mut bench, LEAD), [later, message]);
    bench.run(delegate(LEAD, message)).unwrap();
    assert!(!bench.body(&Message::key(message)).unwrap().contains_key("delegationRefused"));
}

/// As many messages as an inbox takes: those of these numbers are notices.
fn fill(bench: &mut Bench<Inboxes>, notices: &[u64]) {
    for number in 1..=10_000 {
        let source = if notices.contains(&number) { Source::System } else { Source::Slack };
        let event = Event::Delivered {
            message: Uuid::from_u128(number.into()),
            number,
            agent: LEAD,
            content: "x".into(),
            source,
            slack: Slack::default(),
            mail: None,
            seen: None,
            at: bench.now,
        };
        bench.entity.apply(&event, &mut Changes::default());
    }
}

#[test]
fn of_a_full_inbox_the_oldest_notice_gives_way_and_what_people_wrote_does_not() {
    let mut bench = bench();
    fill(&mut bench, &[5, 9]);
    let unread = |bench: &Bench<Inboxes>, id: u128| bench.entity.messages.contains_key(&Uuid::from_u128(id));
    deliver(&mut bench, LEAD);
    assert!(!unread(&bench, 5) && unread(&bench, 9) && unread(&bench, 1));
    deliver(&mut bench, LEAD);
    assert!(!unread(&bench, 9));
    assert_eq!(bench.run(mail(LEAD, None)).unwrap_err().code, Code::QueueFull);
    deliver(&mut bench, OTHER);
}

#[test]
fn a_forgotten_message_is_unread_again() {
    let mut bench = bench();
    let message = deliver(&mut bench, LEAD);
    take(&mut bench, LEAD);
    bench.advance(HALF_HOUR - Duration::from_millis(1));
    assert!(take(&mut bench, LEAD).is_empty());
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.body(&Message::key(message)).unwrap()["status"], "unread");
    assert_eq!(take(&mut bench, LEAD), vec![message]);
}

#[test]
fn a_notice_is_handed_out_once() {
    let mut bench = bench();
    let (notice, letter) = (notify(&mut bench, LEAD), deliver(&mut bench, LEAD));
    let unseen = notify(&mut bench, OTHER);
    assert_eq!(take(&mut bench, LEAD), [notice, letter]);
    bench.now = bench.now + 2 * HALF_HOUR;
    bench.restart();
    bench.advance(HALF_HOUR - Duration::from_millis(1));
    assert_eq!(bench.body(&Message::key(notice)).unwrap()["status"], "processing", "a takeover gives time");
    bench.advance(Duration::from_millis(1));
    assert_eq!(bench.body(&Message::key(notice)).unwrap()["status"], "read");
    assert_eq!(take(&mut bench, LEAD), [letter], "a letter waits for its answer");
    assert_eq!(bench.body(&Message::key(unseen)).unwrap()["status"], "unread");
    assert_eq!(take(&mut bench, OTHER), [unseen]);
    let respond = Command::Respond { agent: LEAD, message: notice, text: "seen".into() };
    assert_eq!(bench.run(respond).unwrap_err().code, Code::NotFound);
}

fn open(bench: &mut Bench<Inboxes>, agent: Uuid, limit: u32) -> (Vec<Uuid>, u64) {
    match bench.run(Command::Open { agent, limit }).unwrap() {
        Reply::Open { messages, count } => (messages, count),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_is_open_is_found_also_while_somebody_works_on_it() {
    let mut bench = bench();
    let ids: Vec<Uuid> = (0..3).map(|_| deliver(&mut bench, LEAD)).collect();
    take(&mut bench, LEAD);
    let newest = deliver(&mut bench, LEAD);
    assert_eq!(open(&mut bench, LEAD, 2), (ids[..2].to_vec(), 4));
    bench.run(Command::Respond { agent: LEAD, message: ids[0], text: "done".into() }).unwrap();
    assert_eq!(open(&mut bench, LEAD, 5), (vec![ids[1], ids[2], newest], 3));
    assert_eq!(open(&mut bench, LEAD, 0), (Vec::new(), 3));
}

#[test]
fn what_one_lead_leaves_open_is_the_next_ones() {
    let mut bench = bench();
    let (first, second) = (deliver(&mut bench, LEAD), notify(&mut bench, LEAD));
    take(&mut bench, LEAD);
    let own = deliver(&mut bench, OTHER);
    let answered = deliver(&mut bench, LEAD);
    bench.run(Command::Respond { agent: LEAD, message: answered, text: "done".into() }).unwrap();
    bench.run(Command::Inherit { lead: OTHER }).unwrap();
    bench.restart();
    assert!(open(&mut bench, LEAD, 5).0.is_empty());
    let body = bench.body(&Message::key(first)).unwrap();
    assert_eq!((&body["agentId"], &body["status"]), (&json!(OTHER), &json!("unread")));
    assert_eq!(bench.body(&Message::key(answered)).unwrap()["agentId"], json!(LEAD));
    assert_eq!(take(&mut bench, OTHER), [first, second, own], "in the order in which they came");
    let respond = |agent| Command::Respond { agent, message: first, text: "x".into() };
    assert_eq!(bench.run(respond(LEAD)).unwrap_err().code, Code::Forbidden);
    bench.run(respond(OTHER)).unwrap();
    let told = bench.events.len();
    bench.run(Command::Inherit { lead: OTHER }).unwrap();
    assert_eq!(bench.events.len(), told, "there is nothing more to hand on");
}

#[test]
fn of_a_full_inbox_all_is_the_next_leads_also_what_was_handed_out_beside_it() {
    let mut bench = bench();
    fill(&mut bench, &[]);
    let handed_out = take(&mut bench, LEAD);
    let newest: Vec<Uuid> = handed_out.iter().map(|_| deliver(&mut bench, LEAD)).collect();
    bench.run(Command::Inherit { lead: OTHER }).unwrap();
    let left = open(&mut bench, LEAD, 5);
    assert_eq!((left.0, left.1), (Vec::new(), 10_005));
    assert_eq!(bench.run(Command::Count { agent: OTHER }).unwrap(), Reply::Count { unread: 10_005 });
    assert_eq!(take(&mut bench, OTHER), handed_out, "in the order in which they came");
    assert!(newest.iter().all(|id| bench.entity.messages[id].agent == OTHER));
}

#[test]
fn what_was_on_its_way_to_a_former_lead_is_for_who_leads() {
    let mut bench = bench();
    let delegated = deliver(&mut bench, LEAD);
    bench.run(delegate(LEAD, delegated)).unwrap();
    bench.run(Command::Inherit { lead: OTHER }).unwrap();
    bench.restart();
    refuse_last(&mut bench);
    let body = bench.body(&Message::key(delegated)).unwrap();
    assert_eq!((&body["agentId"], &body["status"]), (&json!(OTHER), &json!("unread")));
    let (late, notice) = (deliver(&mut bench, LEAD), notify(&mut bench, LEAD));
    assert_eq!(bench.body(&Message::key(late)).unwrap()["agentId"], json!(OTHER));
    assert!(take(&mut bench, LEAD).is_empty());
    assert_eq!(take(&mut bench, OTHER), [delegated, late, notice]);
    let told = bench.events.len();
    bench.run(Command::Inherit { lead: OTHER }).unwrap();
    assert_eq!(bench.events.len(), told, "it led already");
}

#[test]
fn a_takeover_gives_a_full_period() {
    let mut bench = bench();
    let message = deliver(&mut bench, LEAD);
    take(&mut bench, LEAD);
    bench.now = bench.now + 2 * HALF_HOUR;
    bench.restart();
    bench.advance(HALF_HOUR - Duration::from_millis(1));
    assert!(take(&mut bench, LEAD).is_empty());
    bench.advance(Duration::from_millis(1));
    assert_eq!(take(&mut bench, LEAD), vec![message]);
}

#[derive(Clone, Debug)]
enum Step {
    Deliver(Uuid, Option<u8>),
    Notify(Uuid),
    Inherit(Uuid),
    Hear(Option<Uuid>, u8),
    Take(Uuid, u32),
    Respond(Uuid, usize),
    Delegate(Uuid, usize, bool),
    Advance(u64),
    Restart,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let agent = || prop::sample::select(vec![LEAD, OTHER]);
    let step = prop_oneof![
        4 => (agent(), prop::option::of(0u8..6)).prop_map(|(agent, key)| Step::Deliver(agent, key)),
        1 => agent().prop_map(Step::Notify),
        1 => agent().prop_map(Step::Inherit),
        3 => (prop::option::of(agent()), 0u8..4).prop_map(|(agent, thread)| Step::Hear(agent, thread)),
        2 => (agent(), 0u32..7).prop_map(|(agent, limit)| Step::Take(agent, limit)),
        2 => (agent(), 0usize..8).prop_map(|(agent, nth)| Step::Respond(agent, nth)),
        2 => (agent(), 0usize..8, any::<bool>())
            .prop_map(|(agent, nth, refused)| Step::Delegate(agent, nth, refused)),
        1 => (0u64..5_000).prop_map(Step::Advance),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 1..100)
}

proptest! {
    #[test]
    fn documents_give_back_the_state(steps in steps()) {
        let mut bench = bench();
        for step in steps {
            let nth = |bench: &Bench<Inboxes>, nth: usize| {
                bench.entity.messages.keys().nth(nth).copied().unwrap_or_default()
            };
            match step {
                Step::Deliver(agent, key) => {
                    let key = key.map(|key| key.to_string());
                    bench.run(mail(agent, key.as_deref())).unwrap();
                }
                Step::Notify(agent) => { notify(&mut bench, agent); }
                Step::Inherit(lead) => { bench.run(Command::Inherit { lead }).unwrap(); }
                Step::Hear(otherwise, thread) => {
                    hear(&mut bench, said("1.0", &thread.to_string()), otherwise);
                }
                Step::Take(agent, limit) => { let _ = bench.run(Command::Take { agent, limit }); }
                Step::Respond(agent, n) => {
                    let message = nth(&bench, n);
                    let _ = bench.run(Command::Respond { agent, message, text: "x".into() });
                }
                Step::Delegate(agent, n, refuses) => {
                    let message = nth(&bench, n);
                    let _ = bench.run(delegate(agent, message));
                    if refuses {
                        refuse_last(&mut bench);
                    }
                }
                Step::Advance(seconds) => bench.advance(Duration::from_secs(seconds)),
                Step::Restart => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
