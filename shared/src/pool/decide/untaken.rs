//! What people said or wrote, and the inboxes did not take: whoever waits for an answer gets one all the same.

use super::Answer;
use super::mail::{MESSAGE, mailed};
use crate::code::Refusal;
use crate::entity::{Ctx, Decision};
use crate::id::{EntityKey, Kind};
use crate::inboxes::{Command as Message, Deliver};
use crate::json::Json;
use crate::pool::command::{Command, Reply};
use crate::pool::state::Pool;

impl Pool {
    /// In Slack they are told; nobody answers a letter by mail, so that is a task of whoever was to have it.
    pub(super) fn decide_untaken(&self, message: &Message, refusal: &Refusal, ctx: &mut Ctx) -> Answer {
        let told = match message {
            Message::Hear { said, .. } => {
                let words = format!("This was not handed on, so say it again later: {}.", refusal.message);
                Some(self.answer_to(said, "untaken", &words))
            }
            Message::Deliver(deliver) => match deliver.as_ref() {
                Deliver { agent, content, mail: Some(ids), .. } => {
                    let agent = Some(*agent).filter(|agent| self.members.contains_key(agent));
                    return self.hand_in(ids, mailed(ids, content.clone(), MESSAGE), agent, ctx);
                }
                _ => None,
            },
            _ => None,
        };
        Ok(Decision::reply(Reply::Heard { tasks: Vec::new() }).effects(told.into_iter().collect()))
    }
}

/// What the pool wants to know when an inbox refuses it. Notices of its own are about tasks, which show the same.
pub(in crate::pool) fn refused(target: &EntityKey, command: &Json, refusal: &Refusal) -> Option<Command> {
    let command = Some(command).filter(|_| target.kind == Kind::Inboxes)?;
    let message: Message = command.read().ok()?;
    let is_of_people = match &message {
        Message::Hear { .. } => true,
        Message::Deliver(deliver) => deliver.mail.is_some(),
        _ => false,
    };
    is_of_people.then(|| Command::Untaken { message: Box::new(message), refusal: refusal.clone() })
}
