//! People in Slack: who gets what they say, and what they are told.

use super::*;
use crate::entity::Effect;
use crate::slack::{Note, Said};

fn said(ts: &str, thread: &str, text: &str, mentioned: bool) -> Said {
    Said {
        channel: "C1".into(),
        thread: thread.into(),
        ts: ts.into(),
        user: "U1".into(),
        text: text.into(),
        bot: Some("UBOT".into()),
        mentioned,
    }
}

impl Swarm {
    /// What is said opens these tasks.
    fn hears(&mut self, said: Said) -> Vec<Uuid> {
        self.heard(Command::Hear(Box::new(said)))
    }

    fn notes(&self) -> Vec<Note> {
        let note = |effect: &Effect| match effect {
            Effect::Slack { note, .. } => Some(note.clone()),
            _ => None,
        };
        self.0.effects.iter().filter_map(note).collect()
    }

    /// Who would get the last message that was left to the inboxes, if nobody has its thread.
    fn otherwise(&self) -> Option<Value> {
        self.sent(Kind::Inboxes).last().map(|command| command["hear"]["otherwise"].clone())
    }
}

#[test]
fn whoever_is_named_gets_a_task_each_and_the_lead_a_message() {
    let mut swarm = Swarm::new();
    let tasks = swarm.hears(said("1.0", "1.0", &format!("swarm#{ANN} fix it"), false));
    let [task] = tasks[..] else { panic!("{tasks:?}") };
    let body = swarm.body(task);
    assert_eq!((&body["task"], &body["agentId"]), (&"fix it".into(), &ANN.to_string().into()));
    assert_eq!((&body["source"], &body["status"]), (&"slack".into(), &"pending".into()));
    for (field, value) in [("slackChannelId", "C1"), ("slackThreadTs", "1.0"), ("slackUserId", "U1")] {
        assert_eq!(body[field], value);
    }
    assert_eq!(swarm.hears(said("2.0", "2.0", "swarm#all fix it", true)).len(), 2, "all but the lead");
    assert!(swarm.sent(Kind::Inboxes).is_empty());
    assert!(swarm.hears(said("3.0", "3.0", &format!("swarm#{LEAD} fix it"), false)).is_empty());
    assert_eq!(swarm.otherwise(), Some(LEAD.to_string().into()));
}

#[test]
fn a_thread_stays_with_whoever_works_in_it() {
    let mut swarm = Swarm::new();
    let first = swarm.hears(said("1.0", "1.0", &format!("swarm#{ANN} fix it"), false))[0];
    let more = swarm.hears(said("2.0", "1.0", "and that", false));
    assert_eq!(swarm.body(more[0])["agentId"], ANN.to_string());
    assert!(swarm.hears(said("3.0", "3.0", "chatter", false)).is_empty());
    assert!(swarm.hears(said("4.0", "9.0", "in another thread", false)).is_empty());
    assert_eq!(swarm.otherwise(), Some(Value::Null), "only an owner of that thread gets it");
    swarm.0.restart();
    for task in [first, more[0]] {
        swarm.poll(ANN);
        swarm.finish(task, ANN, completed("done")).unwrap();
    }
    assert!(swarm.hears(said("5.0", "1.0", "thanks", false)).is_empty(), "nobody works there any more");
}

#[test]
fn a_mention_is_for_the_lead_and_for_the_pool_without_one() {
    let mut swarm = Swarm::new();
    swarm.run(Command::Offline { agent: LEAD }).unwrap();
    assert!(swarm.hears(said("1.0", "1.0", "<@UBOT> help", true)).is_empty());
    assert_eq!(swarm.otherwise(), Some(LEAD.to_string().into()), "also while it is offline");
    let command = swarm.sent(Kind::Inboxes).pop().unwrap();
    assert_eq!(command["hear"]["request"], "help");

    let mut leaderless = Swarm::empty();
    let tasks = leaderless.hears(said("1.0", "1.0", "<@UBOT> help", true));
    assert_eq!(leaderless.body(tasks[0])["status"], "unassigned");
    assert!(leaderless.notes()[0].text.contains("waits for an agent"));
    assert!(leaderless.hears(said("2.0", "2.0", "chatter", false)).is_empty());
}

#[test]
fn what_is_left_to_the_inboxes_is_for_whoever_leads_now() {
    let mut swarm = Swarm::new();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    assert!(swarm.hears(said("2.0", "1.0", "and that", false)).is_empty());
    let left = swarm.sent(Kind::Inboxes).pop().unwrap();
    assert_eq!((&left["hear"]["lead"], &left["hear"]["otherwise"]), (&Value::Null, &Value::Null));
    let next = Uuid::from_u128(9);
    swarm.run(Command::Join(join(next, "next", true))).unwrap();
    assert!(swarm.hears(said("3.0", "1.0", "and that", false)).is_empty());
    let left = swarm.sent(Kind::Inboxes).pop().unwrap();
    let (lead, otherwise) = (&left["hear"]["lead"], &left["hear"]["otherwise"]);
    assert_eq!((lead, otherwise), (&next.to_string().into(), &Value::Null));
}

#[test]
fn what_was_said_in_a_thread_says_how_the_thread_is_read() {
    let mut swarm = Swarm::new();
    let alone = swarm.hears(said("1.0", "1.0", &format!("swarm#{ANN} fix it"), false))[0];
    assert_eq!(swarm.body(alone)["task"], "fix it");
    let task = swarm.hears(said("2.0", "1.0", "yes, the second one", false))[0];
    swarm.hears(said("4.0", "3.0", "<@UBOT> yes, the second one", true));
    let left = swarm.sent(Kind::Inboxes).pop().unwrap();
    for text in [&swarm.body(task)["task"], &left["hear"]["request"]] {
        let (words, line) = text.as_str().unwrap().split_once("\n\n").unwrap();
        assert_eq!(words, "yes, the second one");
        assert!(line.contains("slack-read with this taskId or inboxMessageId"), "{line}");
    }
}

#[test]
fn whoever_asks_the_lead_is_told_that_its_inbox_has_it() {
    let mut swarm = Swarm::new();
    swarm.hears(said("1.0", "1.0", &format!("swarm#{LEAD} help"), false));
    swarm.run(Command::Offline { agent: LEAD }).unwrap();
    swarm.hears(said("2.0", "2.0", "<@UBOT> help", true));
    swarm.hears(said("3.0", "1.0", "people among themselves", false));
    let left = swarm.sent(Kind::Inboxes);
    let note = |command: &Value| serde_json::from_value(command["hear"]["note"].clone()).unwrap();
    let notes: Vec<Option<Note>> = left.iter().map(note).collect();
    let [Some(named), Some(mentioned), None] = &notes[..] else { panic!("{notes:?}") };
    for (note, thread) in [(named, "1.0"), (mentioned, "2.0")] {
        assert_eq!((note.text.as_str(), note.thread.as_str()), ("*lead* has this in its inbox.", thread));
    }
    assert_ne!(named.id, mentioned.id);
}

#[test]
fn what_goes_on_in_a_thread_of_the_leads_is_left_to_its_inbox_without_a_word() {
    let mut swarm = Swarm::new();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let task = swarm.hears(said("1.0", "1.0", "<@UBOT> help", true))[0];
    swarm.run(Command::Join(join(LEAD, "lead", true))).unwrap();
    swarm.run(claim(LEAD, task)).unwrap();
    swarm.hears(said("2.0", "1.0", "it is the second one, I think", false));
    let left = swarm.sent(Kind::Inboxes);
    let heard = &left.last().expect("the lead has it")["hear"];
    assert!(
        heard["request"].as_str().unwrap().starts_with("it is the second one") && heard["note"].is_null(),
        "{heard}"
    );
}

#[test]
fn an_empty_mention_is_asked_back() {
    let mut swarm = Swarm::new();
    assert!(swarm.hears(said("1.0", "1.0", "<@UBOT>", true)).is_empty());
    let notes = swarm.notes();
    assert!(notes.len() == 1 && notes[0].thread == "1.0" && notes[0].text.contains("What shall be done"));
    assert!(swarm.sent(Kind::Inboxes).is_empty());
}

#[test]
fn people_are_told_who_has_it_how_it_goes_and_once_how_it_ended() {
    let mut swarm = Swarm::new();
    let task = swarm.hears(said("1.0", "1.0", &format!("swarm#{ANN} fix it"), false))[0];
    swarm.poll(ANN);
    swarm.say(task, ANN, "half way").unwrap();
    swarm.finish(task, ANN, completed("It is **fixed**.")).unwrap();
    let notes = swarm.notes();
    let told: Vec<(&str, bool)> = notes.iter().map(|note| (note.text.as_str(), note.edits)).collect();
    assert_eq!(told, [("*ann* has it.", true), ("*ann*: half way", true), ("It is *fixed*.", false)]);
    assert!(notes[0].id == notes[1].id && notes[1].id != notes[2].id);
    assert_eq!(notes[2].name.as_deref(), Some("ann"));
    assert!(notes.iter().all(|note| (note.channel.as_str(), note.thread.as_str()) == ("C1", "1.0")));

    // What did not come from Slack is nobody's business there, even if it is about a thread.
    let mut spec = TaskSpec::new("follow up");
    spec.context.insert("slackChannelId".into(), "C1".into());
    spec.context.insert("slackThreadTs".into(), "1.0".into());
    swarm.create(spec, Target::Pool);
    assert_eq!(swarm.notes().len(), 3);
}

#[test]
fn a_failure_and_a_cancellation_are_told_with_their_reasons() {
    let mut swarm = Swarm::new();
    let tasks = swarm.hears(said("1.0", "1.0", "swarm#all fix it", false));
    swarm.run(Command::Cancel { task: tasks[1], by: Some(LEAD), reason: Some("not now".into()) }).unwrap();
    swarm.poll(ANN);
    swarm.finish(tasks[0], ANN, Finish::Failed { reason: Some("no disk".into()) }).unwrap();
    let texts: Vec<String> = swarm.notes().into_iter().map(|note| note.text).collect();
    assert_eq!(texts[2..], ["It was cancelled: not now", "It could not be done: no disk"]);
}
