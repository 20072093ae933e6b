//! How events change the questions and their documents.

use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Command, Reply};
use super::event::Event;
use super::state::{Head, Open, Questions, Settled, State};
use super::{decide, key};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::limits::{QUESTIONS_KEPT, QUESTIONS_OPEN};
use crate::time::Timestamp;

impl Entity for Questions {
    const KIND: Kind = Kind::Questions;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self::of(&key.swarm)
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        let id = || Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()));
        match kind {
            "question" => match document.read()? {
                Head::Open(open) => self.insert_open(id()?, open),
                Head::Settled(settled) => self.insert_settled(id()?, settled),
            },
            "lead" => self.lead = Some(document.read()?),
            _ => return Err(document.corrupt("questions have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn asked(command: &Command) -> Option<Command> {
        let mut asked = command.clone();
        match &mut asked {
            Command::Ask(ask) => {
                (ask.at_work, ask.lead, ask.denied) = (None, None, None);
                ask.name.clear();
            }
            Command::Answer { by, .. } | Command::Decline { by, .. } => {
                by.caller.lead = false;
                by.name.clear();
            }
            Command::Withdraw { .. }
            | Command::WithdrawAll { .. }
            | Command::TellLead { .. }
            | Command::Tick => return None,
        }
        Some(asked)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Asked { question, ask, at, expires } => {
                let (task, choices) = (ask.waiting(), ask.choices.clone());
                let open = Open { agent: ask.agent, task, choices, expires: *expires };
                changes.create(key(*question), &open, ask.body(*question, *at, *expires));
                self.insert_open(*question, open);
            }
            Event::Answered { question, by, agent, answer, at } => {
                let said = json!({ "answer": answer, "answeredBy": by, "answeredByAgentId": agent });
                self.settled(*question, State::Answered, Some(by), *at, said, changes);
            }
            Event::Declined { question, by, agent, reason, at } => {
                let said = json!({ "reason": reason, "answeredBy": by, "answeredByAgentId": agent });
                self.settled(*question, State::Declined, Some(by), *at, said, changes);
            }
            Event::Withdrawn { question, at } => {
                self.settled(*question, State::Withdrawn, None, *at, json!({}), changes);
            }
            Event::Expired { question, at } => {
                self.settled(*question, State::Expired, None, *at, json!({}), changes);
            }
            Event::Forgotten { questions } => {
                for question in questions {
                    self.remove(*question);
                    changes.delete(key(*question));
                }
            }
            Event::LeadChanged { lead } => {
                match lead {
                    Some(lead) => changes.put(Self::LEAD, lead, None),
                    None => changes.delete(Self::LEAD),
                }
                self.lead = *lead;
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(at, _)| *at)
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Asked { question, .. }
            | Event::Answered { question, .. }
            | Event::Declined { question, .. }
            | Event::Withdrawn { question, .. }
            | Event::Expired { question, .. } => Some(question.to_string()),
            Event::Forgotten { .. } | Event::LeadChanged { .. } => None,
        }
    }

    /// The task that waits shows it, so whoever looks at the task is woken too.
    fn topics(&self, event: &Event) -> Vec<String> {
        let task = match event {
            Event::Asked { ask, .. } => ask.waiting(),
            Event::Answered { question, .. }
            | Event::Declined { question, .. }
            | Event::Withdrawn { question, .. }
            | Event::Expired { question, .. } => self.open.get(question).and_then(|open| open.task),
            Event::Forgotten { .. } | Event::LeadChanged { .. } => None,
        };
        Self::subject(event).into_iter().chain(task.map(|task| task.to_string())).collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.ends.len() != self.open.len() + self.settled.len() {
            return Err("questions: the time of each is over one day".to_owned());
        }
        if let Some(both) = self.open.keys().find(|id| self.settled.contains_key(id)) {
            return Err(format!("questions: {both} is open and over"));
        }
        // What is over leaves its place in the event that follows.
        if self.open.len() > QUESTIONS_OPEN || self.settled.len() > QUESTIONS_KEPT + QUESTIONS_OPEN {
            return Err("questions: there are more than may be".to_owned());
        }
        Ok(())
    }
}

impl Questions {
    fn settled(
        &mut self,
        question: Uuid,
        state: State,
        by: Option<&String>,
        at: Timestamp,
        said: Value,
        changes: &mut Changes,
    ) {
        let settled = Settled { state, by: by.cloned(), at };
        let mut body = json!({ "status": state, "settledAt": at.iso() });
        if let (Value::Object(body), Value::Object(said)) = (&mut body, said) {
            body.extend(said);
        }
        changes.put(key(question), &settled, Some(body.into()));
        self.insert_settled(question, settled);
    }
}
