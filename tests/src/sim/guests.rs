//! Runs that wait for events: what they ask while their runner lets them run.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use fastrand::Rng;
use skein_shared::agent;
use skein_shared::id::{EntityKey, InstanceId};
use uuid::Uuid;

use super::clients::{Next, ask, ask_again};
use super::history::{Call, Outcome};
use super::ringer::events;

/// The runs of one runner that wait, or would like to. The runner lets them stand still and go on, and a client asks
/// for them, one after the other.
#[derive(Clone, Default)]
pub struct Guests(Rc<RefCell<Held>>);

#[derive(Default)]
struct Held {
    waiting: BTreeMap<String, Guest>,
    /// Those that go on.
    over: Vec<String>,
}

struct Guest {
    agent: EntityKey,
    wait: Uuid,
    begun: bool,
    frozen: bool,
}

impl Guests {
    /// The run would like to wait.
    pub fn wait(&self, instance: &str, agent: EntityKey, wait: Uuid) {
        let guest = Guest { agent, wait, begun: false, frozen: false };
        self.0.borrow_mut().waiting.insert(instance.to_owned(), guest);
    }

    pub fn freeze(&self, instance: &str, frozen: bool) {
        if let Some(guest) = self.0.borrow_mut().waiting.get_mut(instance) {
            guest.frozen = frozen;
        }
    }

    /// It has ended.
    pub fn leave(&self, instance: &str) {
        self.0.borrow_mut().waiting.remove(instance);
    }

    /// It knows what it has waited for, or that it cannot wait.
    pub fn go_on(&self, instance: &str) {
        let mut held = self.0.borrow_mut();
        if held.waiting.remove(instance).is_some() {
            held.over.push(instance.to_owned());
        }
    }

    /// Those that have gone on since this was asked last.
    pub fn gone_on(&self) -> Vec<String> {
        std::mem::take(&mut self.0.borrow_mut().over)
    }

    pub fn next(&self, rng: &mut Rng) -> Next {
        let held = self.0.borrow();
        let awake: Vec<_> = held.waiting.iter().filter(|(_, guest)| !guest.frozen).collect();
        let Some((instance, guest)) = awake.get(rng.usize(0..awake.len().max(1))) else { return Next::Rest };
        let (id, wait) = (InstanceId((*instance).clone()), guest.wait);
        let call = Call::Wait { instance: (*instance).clone(), wait };
        let asked = Uuid::from_u128(rng.u128(..));
        if guest.begun {
            let check = agent::Command::CheckWait { instance: id, wait: Some(wait), asked };
            return ask_again(guest.agent.clone(), &check, call);
        }
        let begin = agent::Command::BeginWait {
            instance: id,
            wait,
            filter: events(),
            timeout_ms: Some(rng.u64(1_000..20_000)),
            broadcast: rng.u8(0..8) == 0,
            look_back: false,
            asked,
        };
        ask(guest.agent.clone(), &begin, call)
    }

    pub fn heard(&self, call: &Call, outcome: &Outcome) {
        let Call::Wait { instance, .. } = call else { return };
        match outcome {
            Outcome::Ok(answer) if answer["wait"]["outcome"].is_null() => {
                if let Some(guest) = self.0.borrow_mut().waiting.get_mut(instance) {
                    guest.begun = true;
                }
            }
            // A refusal is an end too: a failover may have dropped the wait, or the run.
            Outcome::Ok(_) | Outcome::Fail(_) => self.go_on(instance),
            Outcome::Unknown => {}
        }
    }
}
