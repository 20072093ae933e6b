//! Runs that ask to be run again, for there was more to do than one run should take on.
//!
//! Each is an instance of its own. A call has one answer and a webhook one run, so theirs are not run again.

use super::draft::Draft;
use super::queue::OVERFLOW;
use crate::agent::Reply;
use crate::agent::event::Event;
use crate::agent::state::{End, Exit, Instance, RERUN};
use crate::code::{Code, Refusal};
use crate::id::InstanceId;

impl Draft<'_> {
    /// # Errors
    /// `wrong_state` for a run that is never run again; `no_capacity` when it was often enough.
    pub(super) fn request_rerun(&mut self, id: &InstanceId) -> Result<Reply, Refusal> {
        let run = self.instance(id)?;
        let (number, again) = (run.rerun + 1, run.again);
        if run.origin.is_none() {
            return Err(Refusal::new(
                Code::WrongState,
                format!(
                    "only runs by schedule or by hand are run again, and {id} is none; do the rest in this run"
                ),
            ));
        }
        let most = self.agent.limits().max_reruns;
        if number > most {
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "this is the last run: agent {} is run again at most {most} times; do the rest in this run",
                    self.agent.name
                ),
            ));
        }
        if !again {
            self.push(Event::RerunWanted { instance: id.clone() });
        }
        Ok(Reply::WillRerun { number, most })
    }

    /// Queues the next run of one that asked for it and is done. One that failed is not run again for that.
    pub(super) fn rerun(&mut self, ended: &Instance, exit: &Exit) {
        let asked = ended.again || exit.code == Some(RERUN);
        let most = self.agent.limits().max_reruns;
        if !asked || exit.end != End::Completed || ended.rerun >= most || self.accepts_work().is_err() {
            return;
        }
        let Some(origin) = ended.origin.clone() else { return };
        let source = format!("rerun {}/{most}", ended.rerun + 1);
        if !self.make_room() {
            self.dead_letter(ended.class, &source, None, (origin.input.get(), ended.rerun + 1), OVERFLOW);
            return;
        }
        let item = self.item(ended.class, &source, None, origin.input.clone());
        let next = Instance { origin: Some(origin), rerun: ended.rerun + 1, ..Instance::of(&item) };
        self.queue_run(next, item);
    }
}
