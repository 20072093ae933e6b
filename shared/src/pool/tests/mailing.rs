//! Letters: who gets what comes by e-mail.

use serde_json::json;

use super::*;
use crate::mail::{Ids, Letter};

fn mailed(agent: Option<Uuid>, task: Option<Uuid>, worker: Option<Uuid>) -> Mailed {
    let ids = Ids { inbox: "dev@agentmail.to".into(), message: "m1".into(), thread: Some("t1".into()) };
    let (from, subject, text) = ("ada@example.org".into(), "A fault".into(), "It does not start.".into());
    Mailed { letter: Letter { ids, from, subject, text }, agent, task, worker }
}

impl Swarm {
    /// A letter makes these tasks.
    fn gets(&mut self, mailed: Mailed) -> Vec<Uuid> {
        self.heard(Command::Mail(Box::new(mailed)))
    }

    fn gets_one(&mut self, mailed: Mailed) -> (Uuid, Map<String, Value>) {
        self.heard_one(Command::Mail(Box::new(mailed)))
    }
}

#[test]
fn a_letter_to_a_workers_inbox_is_a_task_and_one_to_the_lead_a_message() {
    let mut swarm = Swarm::new();
    let (task, body) = swarm.gets_one(mailed(Some(ANN), None, None));
    assert_eq!((&body["agentId"], &body["status"]), (&ANN.to_string().into(), &"pending".into()));
    assert_eq!((&body["source"], &body["taskType"]), (&"agentmail".into(), &"agentmail-message".into()));
    for (field, value) in
        [("agentmailInboxId", "dev@agentmail.to"), ("agentmailMessageId", "m1"), ("agentmailThreadId", "t1")]
    {
        assert_eq!(body[field], value);
    }
    assert!(body["task"].as_str().unwrap().contains("It does not start."));
    let followed = swarm.sent(Kind::Mail).last().unwrap()["follow"].clone();
    assert_eq!((&followed["task"], &followed["agent"]), (&json!(task), &json!(ANN)));

    for to in [Some(LEAD), None, Some(Uuid::from_u128(0xdead))] {
        let before = swarm.sent(Kind::Inboxes).len();
        assert!(swarm.gets(mailed(to, None, None)).is_empty());
        let sent = swarm.sent(Kind::Inboxes);
        assert_eq!(sent.len(), before + 1);
        let message = &sent.last().unwrap()["deliver"];
        assert_eq!((&message["agent"], &message["source"]), (&json!(LEAD), &json!("agentmail")));
        assert_eq!(message["mail"]["agentmailThreadId"], "t1");
    }
}

#[test]
fn what_comes_in_a_thread_goes_to_whoever_has_it() {
    let mut swarm = Swarm::new();
    let (first, _) = swarm.gets_one(mailed(Some(ANN), None, None));
    // Whose the inbox is counts no more.
    let (_, body) = swarm.gets_one(mailed(Some(LEAD), Some(first), Some(BOB)));
    assert_eq!((&body["agentId"], &body["parentTaskId"]), (&json!(ANN), &json!(first)));
    assert_eq!(body["taskType"], "agentmail-reply");
    // The task has ended and left memory: whoever had it is remembered elsewhere.
    let ended = Uuid::from_u128(0xe0d);
    assert_eq!(swarm.gets_one(mailed(None, Some(ended), Some(BOB))).1["agentId"], json!(BOB));
}

#[test]
fn what_comes_in_a_thread_whose_task_nobody_has_goes_to_its_inboxs_agent_the_lead_or_the_pool() {
    let mut swarm = Swarm::new();
    let (waiting, ended) = (swarm.task(Target::Pool), Uuid::from_u128(0xe0d));
    let gone = Some(Uuid::from_u128(0xdead));
    for (task, worker) in [(waiting, Some(BOB)), (ended, gone), (ended, None)] {
        let (_, body) = swarm.gets_one(mailed(Some(ANN), Some(task), worker));
        assert_eq!((&body["agentId"], &body["parentTaskId"]), (&json!(ANN), &json!(task)));
        assert_eq!(body["taskType"], "agentmail-reply");

        let before = swarm.sent(Kind::Inboxes).len();
        assert!(swarm.gets(mailed(gone, Some(task), worker)).is_empty());
        let sent = swarm.sent(Kind::Inboxes);
        assert_eq!((sent.len(), &sent[before]["deliver"]["agent"]), (before + 1, &json!(LEAD)));
    }
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let (_, body) = swarm.gets_one(mailed(None, Some(ended), gone));
    assert_eq!((&body["status"], &body["parentTaskId"]), (&json!("unassigned"), &json!(ended)));
}

#[test]
fn a_thread_follows_the_task_that_the_lead_made_of_its_letter_and_none_that_was_refused() {
    let mut swarm = Swarm::new();
    let delegate = |agent, rules| {
        let letter = mailed(None, None, None).letter;
        let spec = TaskSpec { context: letter.ids.fields(), ..TaskSpec::new("answer the person") };
        let target = Target::Assign { agent: Some(agent) };
        Command::Create(Box::new(Create { by: Some(LEAD), spec, target, rules, facts: Vec::new() }))
    };
    let inbox = Rules::Inbox { allow_duplicate: false };
    assert_eq!(swarm.refused(delegate(Uuid::from_u128(0xdead), inbox)), Code::NotFound);
    assert!(swarm.sent(Kind::Mail).is_empty());
    let task = created(swarm.run(delegate(ANN, inbox)));
    let followed = [json!({"follow": {"thread": "t1", "task": task, "agent": ANN}})];
    assert_eq!(swarm.sent(Kind::Mail), followed);
    assert_eq!(swarm.refused(delegate(ANN, inbox)), Code::Duplicate);
    swarm.run(delegate(BOB, Rules::Plain)).unwrap();
    assert_eq!(swarm.sent(Kind::Mail), followed, "only who hands a letter over hands its thread over");
}

#[test]
fn without_a_lead_letters_wait_in_the_pool() {
    let mut swarm = Swarm::new();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let (_, body) = swarm.gets_one(mailed(None, None, None));
    assert_eq!((&body["status"], &body["source"]), (&"unassigned".into(), &"agentmail".into()));
    assert!(swarm.sent(Kind::Inboxes).is_empty());
}
