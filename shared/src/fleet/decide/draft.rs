//! A decision in the making, which follows its own events on a copy: what was just freed can be granted.
//! The copy is made with the first event.

use std::borrow::Cow;

use crate::agent::{self, Agent};
use crate::entity::{Changes, Ctx, Decision, Effect};
use crate::fleet::Reply;
use crate::fleet::event::Event;
use crate::fleet::state::{Fleet, Place};
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
        self.fleet.to_mut().follow(&event, &mut Changes::of_blobs());
        self.events.push(event);
    }

    pub(super) fn send(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn tell(&mut self, swarm: &Name, agent: &Name, command: &agent::Command) {
        self.send(Effect::entity::<Agent>(EntityKey::agent(swarm, agent), command));
    }

    /// Tells each agent concerned which of its instances this is about.
    pub(super) fn tell_agents(
        &mut self,
        places: &[Place],
        command: impl Fn(Vec<InstanceId>) -> agent::Command,
    ) {
        let mut agents: Vec<_> = places.iter().map(|place| (&place.swarm, &place.agent)).collect();
        agents.sort();
        agents.dedup();
        for (swarm, agent) in agents {
            let own = places.iter().filter(|place| (&place.swarm, &place.agent) == (swarm, agent));
            let instances: Vec<InstanceId> = own.map(|place| place.instance.clone()).collect();
            self.tell(swarm, agent, &command(instances));
        }
    }

    pub(super) fn done(self, reply: Reply) -> Decision<Fleet> {
        Decision::new(reply, self.events).effects(self.effects)
    }
}
