//! The rules of questions.

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use uuid::Uuid;

use super::NULLABLE;
use super::command::{Ask, Asked, By, Command, Reply, Through};
use super::event::Event;
use super::state::{Open, Questions, State};
use crate::channels::{self, Author, Channels, Post};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::limits::{
    MESSAGE, QUESTION, QUESTION_CHOICE, QUESTION_CHOICES, QUESTION_EXPIRY, QUESTIONS_KEPT, QUESTIONS_OPEN,
    QUESTIONS_OPEN_AGENT,
};
use crate::wire;

/// So many of the questions that wait a new lead is told by their ids.
const NAMED: usize = 10;

pub(super) fn decide(
    state: &Questions,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Questions>, Refusal> {
    match command {
        Command::Ask(ask) => state.ask(ask, ctx),
        Command::Answer { question, by, answer } => {
            let answer = fitting(&state.answerable(*question, by)?.choices, answer)?;
            let event = Event::Answered {
                question: *question,
                by: by.name.clone(),
                agent: by.caller.agent,
                answer: answer.to_owned(),
                at: ctx.now,
            };
            Ok(state.settle(event))
        }
        Command::Decline { question, by, reason } => {
            wire::length("reason", reason.as_deref().unwrap_or_default(), 0, QUESTION)?;
            state.answerable(*question, by)?;
            let (by, agent) = (by.name.clone(), by.caller.agent);
            let event =
                Event::Declined { question: *question, by, agent, reason: reason.clone(), at: ctx.now };
            Ok(state.settle(event))
        }
        Command::Withdraw { question, by } => {
            if state.still_open(*question)?.agent != *by {
                return Err(Refusal::new(
                    Code::Forbidden,
                    "only the agent that asked takes a question back; answer or decline it",
                ));
            }
            Ok(state.settle(Event::Withdrawn { question: *question, at: ctx.now }))
        }
        Command::WithdrawAll { agent } => Ok(state.withdraw_all(*agent, ctx)),
        Command::TellLead { lead } => {
            let changed = (state.lead != Some(*lead)).then_some(Event::LeadChanged { lead: Some(*lead) });
            let told = state.word_to_a_new_lead(*lead);
            let told = told.into_iter().collect();
            Ok(Decision::new(Reply::Done, changed.into_iter().collect()).effects(told))
        }
        Command::Tick => Ok(state.tick(ctx)),
    }
}

impl Questions {
    fn ask(&self, ask: &Ask, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(ask)?;
        if let Some(denied) = &ask.denied {
            return Err(denied.clone());
        }
        let own = self.open.values().filter(|open| open.agent == ask.agent).count();
        if own >= QUESTIONS_OPEN_AGENT {
            return Err(Refusal::new(
                Code::QueueFull,
                format!(
                    "{own} of your questions wait for an answer, the most that may; withdraw_question takes one back"
                ),
            ));
        }
        if self.open.len() >= QUESTIONS_OPEN {
            return Err(Refusal::new(
                Code::QueueFull,
                format!(
                    "{QUESTIONS_OPEN} questions of the swarm wait for an answer, the most that may; ask again when some are answered"
                ),
            ));
        }
        let (question, at) = (ctx.id(), ctx.now);
        let expires = at + ask.open_for.unwrap_or(QUESTION_EXPIRY);
        let view = wire::shown(ask.body(question, at, expires), &NULLABLE);
        let word = self.word_to_the_lead(question, ask);
        let reply = Reply::Asked(Asked { question: view, lead_told: Some(word.is_some()) });
        let event = Event::Asked { question, ask: Box::new(ask.clone()), at, expires };
        Ok(Decision::new(reply, vec![event]).effects(word.into_iter().collect()))
    }

    /// To whoever leads by the pool's last word: the lead may have changed since its asker looked. Should that word be
    /// older than the look, the next one is on its way, and has the new lead told of all that wait.
    fn word_to_the_lead(&self, question: Uuid, ask: &Ask) -> Option<Effect> {
        let lead = self.lead.or(ask.lead).filter(|lead| *lead != ask.agent)?;
        let how = format!("\n\nanswer_question answers it: question_id {question}");
        let mut content = format!("Question: {}", ask.question);
        if !ask.choices.is_empty() {
            content.push_str(&format!("\n\nChoices: {}", ask.choices.join(" | ")));
        }
        let room = MESSAGE - how.len();
        if content.chars().count() > room {
            content = content.chars().take(room - 1).chain(['…']).collect();
        }
        content.push_str(&how);
        Some(self.post_to(lead, Some(Author { id: ask.agent, name: ask.name.clone() }), content))
    }

    /// It has heard of none of those that wait, however long ago they were asked.
    fn word_to_a_new_lead(&self, lead: Uuid) -> Option<Effect> {
        let is_for_it = |id: &Uuid| self.open.get(id).is_some_and(|open| open.agent != lead);
        let waiting: Vec<Uuid> = self.ends.iter().map(|(_, id)| *id).filter(is_for_it).collect();
        if waiting.is_empty() {
            return None;
        }
        let named = waiting.iter().take(NAMED).map(Uuid::to_string).collect::<Vec<_>>().join(", ");
        let more = match waiting.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let content = format!(
            "Questions that wait for an answer: {}, those with the least time first: {named}{more}.\n\nlist_questions \
             shows them, answer_question answers one.",
            waiting.len()
        );
        Some(self.post_to(lead, None, content))
    }

    fn post_to(&self, lead: Uuid, author: Option<Author>, content: String) -> Effect {
        let post = Post {
            author,
            channel: None,
            content,
            reply_to: None,
            mentions: vec![lead],
            strangers: Vec::new(),
            assignees: Vec::new(),
        };
        let key = EntityKey::of(Kind::Channels, &self.swarm);
        Effect::entity::<Channels>(key, &channels::Command::Post(Box::new(post)))
    }

    /// A question that this caller may answer now.
    fn answerable(&self, question: Uuid, by: &By) -> Result<&Open, Refusal> {
        let open = self.still_open(question)?;
        let own = by.caller.agent == Some(open.agent);
        match by.through {
            Through::Client if own => Ok(open),
            Through::Swarm if own => Err(Refusal::new(
                Code::Forbidden,
                "nobody answers a question of its own; `wait` for questions, or take it back with withdraw_question",
            )),
            Through::Swarm if by.caller.lead => Ok(open),
            _ => Err(Refusal::new(
                Code::Forbidden,
                "only the lead and operators answer questions; tell the lead what you know with post-message",
            )),
        }
    }

    fn still_open(&self, question: Uuid) -> Result<&Open, Refusal> {
        if let Some(open) = self.open.get(&question) {
            return Ok(open);
        }
        let Some(settled) = self.settled.get(&question) else {
            let problem = format!("there is no question {question}; list_questions shows those there are");
            return Err(Refusal::new(Code::NotFound, problem));
        };
        let by = settled.by.as_deref().unwrap_or("the agent that asked");
        let problem = match settled.state {
            State::Expired => "nobody answered the question in time; its asker has to ask again".to_owned(),
            state => format!("{by} has {} the question already; list_questions shows it", state.as_str()),
        };
        let detail = json!({ "status": settled.state, "by": settled.by, "at": settled.at.iso() });
        Err(Refusal::new(Code::WrongState, problem).with(detail))
    }

    fn settle(&self, event: Event) -> Decision<Self> {
        Decision::new(Reply::Done, [event].into_iter().chain(self.forget(0, 1)).collect())
    }

    fn withdraw_all(&self, agent: Uuid, ctx: &Ctx) -> Decision<Self> {
        let own = self.open.iter().filter(|(_, open)| open.agent == agent);
        let withdrawn: Vec<Event> =
            own.map(|(question, _)| Event::Withdrawn { question: *question, at: ctx.now }).collect();
        let forgotten = self.forget(0, withdrawn.len());
        let left = (self.lead == Some(agent)).then_some(Event::LeadChanged { lead: None });
        Decision::new(Reply::Done, withdrawn.into_iter().chain(forgotten).chain(left).collect())
    }

    fn tick(&self, ctx: &Ctx) -> Decision<Self> {
        let due = self.ends.iter().take_while(|(at, _)| *at <= ctx.now).map(|(_, id)| *id);
        let (open, settled): (Vec<Uuid>, Vec<Uuid>) = due.partition(|id| self.open.contains_key(id));
        let expired = open.iter().map(|question| Event::Expired { question: *question, at: ctx.now });
        Decision::new(Reply::Done, expired.chain(self.forget(settled.len(), open.len())).collect())
    }

    /// The oldest of those that are kept go: so many at least, and as many as make room for those to come.
    fn forget(&self, due: usize, coming: usize) -> Option<Event> {
        let too_many = (self.settled.len() + coming).saturating_sub(QUESTIONS_KEPT);
        let oldest = self.ends.iter().map(|(_, id)| *id).filter(|id| self.settled.contains_key(id));
        let questions: Vec<Uuid> = oldest.take(due.max(too_many)).collect();
        (!questions.is_empty()).then_some(Event::Forgotten { questions })
    }
}

/// What is kept of an answer, if it is one to a question with these choices.
///
/// # Errors
/// `invalid_argument` for nothing and for what is none of the choices; `too_large`.
pub fn fitting<'a>(choices: &[String], answer: &'a str) -> Result<&'a str, Refusal> {
    let answer = answer.trim();
    wire::length("answer", answer, 1, QUESTION)?;
    if choices.is_empty() || choices.iter().any(|choice| choice.trim() == answer) {
        return Ok(answer);
    }
    let problem = format!("answer: it is none of the choices; give one of {}", choices.join(" | "));
    Err(Refusal::new(Code::InvalidArgument, problem).with(json!({ "choices": choices })))
}

fn check(ask: &Ask) -> Result<(), Refusal> {
    wire::length("question", &ask.question, 1, QUESTION)?;
    if ask.choices.len() > QUESTION_CHOICES {
        return Err(Refusal::new(Code::TooLarge, format!("choices: give {QUESTION_CHOICES} at most")));
    }
    for choice in &ask.choices {
        wire::length("choices", choice.trim(), 1, QUESTION_CHOICE)?;
    }
    // An answer is trimmed before it is compared.
    let distinct: BTreeSet<&str> = ask.choices.iter().map(|choice| choice.trim()).collect();
    if distinct.len() < ask.choices.len() || ask.choices.iter().any(|choice| choice.trim() != choice) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            "choices: two of them are the same, or one begins or ends with a space; write each once",
        ));
    }
    let open_for = ask.open_for.unwrap_or(QUESTION_EXPIRY);
    if open_for < Duration::from_secs(1) || open_for > QUESTION_EXPIRY {
        return Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "a question is open for a second at least and {} days at most",
                QUESTION_EXPIRY.as_secs() / 86_400
            ),
        ));
    }
    Ok(())
}
