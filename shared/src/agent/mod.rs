//! One agent of a swarm: its runs, its work queue, the calls made to it and the waits of its instances.
//!
//! Whether a call resumes a waiting instance, starts a run or queues is one decision here, so no event can
//! fall between two of them. What happens elsewhere (locks, leases, webhooks, slots, processes) is an effect
//! (`effects`), and its acknowledgement comes back as a command.

mod apply;
mod call;
mod command;
mod decide;
mod definition;
mod due;
mod effects;
mod event;
mod finished;
mod index;
mod invariants;
mod returned;
mod state;
#[cfg(test)]
mod tests;
mod waits;

use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

use index::Index;

pub use call::{CallRecord, CallStatus};
pub use command::{CallView, Caller, Command, Overview, Reply, Report, WaitView};
pub use definition::{Defined, Definition, Standing, Terms};
pub use event::{DeadLetter, Event};
pub use returned::{Blob, Returned};
pub use state::{Agent, Class, End, Exit, Input, Instance, Item, Letter, Origin, RERUN, Spill, State, Usage};
pub use waits::{Outcome, Party, WaitRecord};

impl Entity for Agent {
    const KIND: Kind = Kind::Agent;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Agent::of(key)
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        match document.split().0 {
            "definition" => self.defined = Some(document.read()?),
            "instance" => {
                let instance: Instance = document.read()?;
                self.count_blob(instance.returned.as_ref());
                self.instances.insert(instance.id.clone(), instance);
            }
            "queue" => {
                let item: Item = document.read()?;
                self.queue.insert(item.instance.clone(), item);
            }
            "call" => {
                let call: CallRecord = document.read()?;
                if call.is_over() {
                    self.count_blob(call.value.as_ref());
                    self.finished.insert(call);
                } else {
                    self.calls.insert(call.id, call);
                }
            }
            "wait" => {
                let wait: WaitRecord = document.read()?;
                self.waits.insert(wait.id, wait);
            }
            "standing" => self.standing = document.read()?,
            "files" => self.files = document.read()?,
            "dead" => {
                let id = document.split().1.parse().map_err(|_| document.corrupt("its id is no UUID"))?;
                self.letters.insert(id, document.read()?);
            }
            other => return Err(document.corrupt(format!("an agent has no documents of type `{other}`"))),
        }
        Ok(())
    }

    fn restored(&mut self) {
        self.index = Index::of(self);
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        self.follow(event, changes);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.next_due()
    }

    fn tick() -> Command {
        Command::Tick
    }

    /// A repeated call finds the caller told of the first one, and it may serve others by then than it did.
    fn asked(command: &Command) -> Option<Command> {
        let Command::Call { call, caller, context, .. } = command else { return None };
        let caller = Caller { chain: Vec::new(), depth: None, ..caller.clone() };
        Some(Command::Call { call: *call, caller, context: context.clone(), noted: false })
    }

    fn subject(event: &Event) -> Option<String> {
        event.subject()
    }

    fn check(&self) -> Result<(), String> {
        invariants::check(self)
    }
}
