//! Dead letters: what was to run and was given up, kept with the reason until somebody replays it.

use serde_json::Value;
use uuid::Uuid;

use super::draft::Draft;
use crate::agent::Reply;
use crate::agent::event::{DeadLetter, Event};
use crate::agent::state::{Class, Instance, Item};
use crate::code::{Code, Refusal};

impl Draft<'_> {
    pub(super) fn dead_letter(
        &mut self,
        class: Class,
        source: &str,
        receipt: Option<Uuid>,
        (input, rerun): (&Value, u32),
        reason: &str,
    ) -> Reply {
        let (id, at) = (self.ctx.id(), self.now());
        let told = receipt.map(|receipt| self.agent.refuse_webhook(receipt, reason));
        self.send(told);
        let (source, input, reason) = (source.to_owned(), input.clone(), reason.to_owned());
        let reply = Reply::DeadLettered { id, reason: reason.clone() };
        self.push(Event::DeadLettered(DeadLetter { id, class, source, receipt, input, rerun, reason, at }));
        reply
    }

    /// Queues what a letter holds. The letter is marked in the same decision, so two who replay it make one run.
    ///
    /// # Errors
    /// `not_found` for a letter that was replayed or is too old; else why the agent takes no work.
    pub(super) fn replay(&mut self, letter: &DeadLetter) -> Result<Reply, Refusal> {
        if !self.agent.letters.contains_key(&letter.id) {
            let problem = format!(
                "dead letter {} cannot be replayed: it was replayed before, or is not among the newest {} of agent {}",
                letter.id,
                crate::limits::LETTERS,
                self.agent.name
            );
            return Err(Refusal::new(Code::NotFound, problem));
        }
        self.accepts_work()?;
        let at = self.now();
        let same = |tick: &&Item| *tick.input.get() == letter.input;
        let queued = self.queued_ticks(letter.class, &letter.source).find(same);
        let queued = queued.map(|tick| tick.instance.clone());
        if let Some(instance) = queued {
            self.push(Event::Replayed { letter: letter.id, instance: instance.clone(), at });
            return Ok(Reply::Coalesced { instance });
        }
        if self.is_full() {
            return Err(self.queue_full());
        }
        let item = self.item(letter.class, &letter.source, letter.receipt, letter.input.clone());
        let instance = item.instance.clone();
        let run = Instance { rerun: letter.rerun, ..Instance::of(&item) };
        self.queue_run(run, item);
        self.push(Event::Replayed { letter: letter.id, instance: instance.clone(), at });
        let told = letter.receipt.map(|receipt| self.agent.take_webhook_up(receipt));
        self.send(told);
        self.bid_next();
        Ok(Reply::Queued { instance })
    }
}
