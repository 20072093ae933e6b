//! The pool and a full inbox: what people said or wrote is not dropped without a word.

use serde_json::json;

use super::*;
use crate::entity::Effect;
use crate::inboxes::{self, Inboxes};
use crate::mail::{Ids, Letter};
use crate::slack::{Note, Said};

/// As many unread messages as an inbox holds.
const FULL: u64 = 10_000;

/// The inboxes of the swarm, in which that of the lead is full.
fn full() -> Bench<Inboxes> {
    let mut inboxes = Bench::<Inboxes>::new(EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap()));
    for number in 1..=FULL {
        let event = inboxes::Event::Delivered {
            message: Uuid::from_u128(number.into()),
            number,
            agent: LEAD,
            content: "help".into(),
            source: inboxes::Source::Slack,
            slack: inboxes::Slack::default(),
            mail: None,
            seen: None,
            at: inboxes.now,
        };
        inboxes.entity.apply(&event, &mut Changes::default());
    }
    inboxes
}

impl Swarm {
    /// Has the inboxes take what the pool sent them last, and tells the pool what they refuse, as the hosts do.
    fn leave_to(&mut self, inboxes: &mut Bench<Inboxes>) -> Vec<Uuid> {
        let sent = Json::from(self.sent(Kind::Inboxes).pop().unwrap());
        let refusal = inboxes.run(sent.read().unwrap()).unwrap_err();
        assert_eq!(refusal.code, Code::QueueFull);
        match Pool::refused(&inboxes.key, &sent, &refusal) {
            Some(command) => self.heard(command),
            None => Vec::new(),
        }
    }

    fn last_note(&self) -> Option<Note> {
        self.0.effects.iter().rev().find_map(|effect| match effect {
            Effect::Slack { note, .. } => Some(note.clone()),
            _ => None,
        })
    }
}

#[test]
fn who_speaks_to_a_full_inbox_is_told_in_the_thread() {
    let (mut swarm, mut inboxes) = (Swarm::new(), full());
    let said = Said {
        channel: "C1".into(),
        thread: "1.0".into(),
        ts: "2.0".into(),
        user: "U1".into(),
        text: "<@UBOT> help".into(),
        bot: Some("UBOT".into()),
        mentioned: true,
    };
    assert!(swarm.heard(Command::Hear(Box::new(said))).is_empty() && swarm.last_note().is_none());
    assert!(swarm.leave_to(&mut inboxes).is_empty());
    assert!(inboxes.effects.is_empty(), "nobody is told that it is there");
    let note = swarm.last_note().unwrap();
    assert_eq!((note.channel.as_str(), note.thread.as_str()), ("C1", "1.0"));
    assert!(note.text.contains("say it again later") && note.text.contains("10000 unread"), "{note:?}");
}

#[test]
fn a_letter_to_a_full_inbox_is_a_task_of_the_lead() {
    let (mut swarm, mut inboxes) = (Swarm::new(), full());
    let ids = Ids { inbox: "dev@agentmail.to".into(), message: "m1".into(), thread: Some("t1".into()) };
    let (from, subject, text) = ("ada@example.org".into(), "A fault".into(), "It does not start.".into());
    let letter = Letter { ids, from, subject, text };
    let mailed = Mailed { letter, agent: None, task: None, worker: None };
    assert!(swarm.heard(Command::Mail(Box::new(mailed))).is_empty());
    let tasks = swarm.leave_to(&mut inboxes);
    let [task] = tasks[..] else { panic!("{tasks:?}") };
    let body = swarm.body(task);
    assert_eq!((&body["agentId"], &body["source"]), (&json!(LEAD), &json!("agentmail")));
    assert_eq!((&body["taskType"], &body["agentmailThreadId"]), (&json!("agentmail-message"), &json!("t1")));
    assert!(body["task"].as_str().unwrap().contains("It does not start."));
    assert_eq!(swarm.sent(Kind::Mail).pop().unwrap()["follow"]["task"], json!(task));
}

#[test]
fn a_notice_of_the_pools_own_that_an_inbox_refuses_is_told_to_nobody() {
    let (mut swarm, mut inboxes) = (Swarm::new(), full());
    let first = swarm.assigned(ANN);
    let spec = TaskSpec { depends_on: vec![first], ..TaskSpec::new("then this") };
    swarm.create(spec, Target::Pool);
    swarm.run(Command::Cancel { task: first, by: Some(LEAD), reason: None }).unwrap();
    assert!(swarm.leave_to(&mut inboxes).is_empty() && swarm.last_note().is_none());
}
