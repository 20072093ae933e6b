//! A decision in the making, which follows its own events on a copy: what was just freed can be granted.
//! The copy is made with the first event.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::agent::{self, Agent};
use crate::entity::{Changes, Ctx, Decision, Effect};
use crate::fence::Token;
use crate::fleet::event::Event;
use crate::fleet::state::{Fleet, Place};
use crate::fleet::{HeldInstance, Reply};
use crate::id::{EntityKey, InstanceId, Name};
use crate::time::Timestamp;

pub(super) struct Draft<'a> {
    pub(super) fleet: Cow<'a, Fleet>,
    pub(super) ctx: &'a mut Ctx,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(fleet: &'a Fleet, ctx: &'a mut Ctx) -> Self {
        Self { fleet: Cow::Borrowed(fleet), ctx, events: Vec::new(), effects: Vec::new() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.ctx.now
    }

    pub(super) fn push(&mut self, event: Event) {
        self.fleet.to_mut().follow(&event, &mut Changes::default());
        self.events.push(event);
    }

    pub(super) fn send(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn tell(&mut self, swarm: &Name, agent: &Name, command: &agent::Command) {
        self.send(Effect::entity::<Agent>(EntityKey::agent(swarm, agent), command));
    }

    /// Tells each agent concerned that these of its instances went with the runner.
    pub(super) fn report_lost(&mut self, runner: &str, places: &[Place]) {
        let mut agents: Vec<_> = places.iter().map(|place| (&place.swarm, &place.agent)).collect();
        agents.sort();
        agents.dedup();
        for (swarm, agent) in agents {
            let own = places.iter().filter(|place| (&place.swarm, &place.agent) == (swarm, agent));
            let instances: Vec<InstanceId> = own.map(|place| place.instance.clone()).collect();
            let command = agent::Command::RunnerLost { runner: runner.to_owned(), instances };
            self.tell(swarm, agent, &command);
        }
    }

    /// Tells each agent concerned which of its instances the runner holds.
    pub(super) fn report_held(&mut self, runner: &str, held: &[&HeldInstance]) {
        let mut agents: BTreeMap<_, Vec<(InstanceId, Token)>> = BTreeMap::new();
        for held in held {
            let own = agents.entry((&held.swarm, &held.agent)).or_default();
            own.push((held.instance.clone(), held.token));
        }
        for ((swarm, agent), held) in agents {
            let command = agent::Command::RunnerHolds { runner: runner.to_owned(), held };
            self.tell(swarm, agent, &command);
        }
    }

    pub(super) fn done(self, reply: Reply) -> Decision<Fleet> {
        Decision::new(reply, self.events).effects(self.effects)
    }
}
