//! A decision in the making. One command often leads to several events, each decided on the state that the
//! ones before it made (an end completes calls and lets the next item bid), so the draft follows its own
//! events on a copy. It is made with the first event: what changes nothing copies nothing.

use std::borrow::Cow;

use uuid::Uuid;

use crate::agent::effects;
use crate::agent::event::Event;
use crate::agent::state::{Agent, Class, Instance, Item};
use crate::agent::{CallRecord, Command, Reply, WaitRecord};
use crate::code::{Code, Refusal};
use crate::entity::{Changes, Ctx, Decision, Effect};
use crate::fence::Token;
use crate::id::{EntityKey, InstanceId};
use crate::time::Timestamp;

pub(super) struct Draft<'a> {
    pub(super) agent: Cow<'a, Agent>,
    pub(super) ctx: &'a mut Ctx,
    events: Vec<Event>,
    effects: Vec<Effect>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(agent: &'a Agent, ctx: &'a mut Ctx) -> Self {
        Self { agent: Cow::Borrowed(agent), ctx, events: Vec::new(), effects: Vec::new() }
    }

    pub(super) fn now(&self) -> Timestamp {
        self.ctx.now
    }

    pub(super) fn push(&mut self, event: Event) {
        let mut changes = Changes::of_blobs();
        self.agent.to_mut().follow(&event, &mut changes);
        self.events.push(event);
        let told = changes.blobs.into_iter().map(|change| self.agent.account_for(change));
        self.effects.extend(told);
    }

    pub(super) fn send(&mut self, effect: impl IntoIterator<Item = Effect>) {
        self.effects.extend(effect);
    }

    pub(super) fn done(self, reply: Reply) -> Decision<Agent> {
        Decision::new(reply, self.events).effects(self.effects)
    }

    pub(super) fn instance(&self, id: &InstanceId) -> Result<&Instance, Refusal> {
        self.agent.instances.get(id).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("agent {} has no live instance {id}; it may have ended", self.agent.name),
            )
        })
    }

    /// Has the agent decide the rest of what one decision is too small for.
    pub(super) fn go_on_later(&mut self, rest: &Command) {
        let own = EntityKey::agent(&self.agent.swarm, &self.agent.name);
        self.send([Effect::entity::<Agent>(own, rest)]);
    }

    /// The instance's latest wait.
    pub(super) fn wait_of(&self, id: &InstanceId) -> Option<&WaitRecord> {
        let wait = self.agent.instances.get(id)?.wait?;
        self.agent.waits.get(&wait)
    }

    pub(super) fn call(&self, id: Uuid) -> Option<&CallRecord> {
        self.agent.calls.get(&id).or_else(|| self.agent.finished.get(id))
    }

    /// The token of the next command for the instance; a runner refuses lower ones than it has seen.
    pub(super) fn next_token(&self, instance: &Instance) -> Token {
        self.token_after(instance.token)
    }

    pub(super) fn token_after(&self, last: Option<Token>) -> Token {
        self.ctx.token(last.map_or(1, |token| token.number + 1))
    }

    /// Lets the most urgent queued runs bid while the scale allows.
    pub(super) fn bid_next(&mut self) {
        let free = self.agent.openings().saturating_sub(self.agent.index.active());
        for (id, class) in self.next_runs(free) {
            self.bid(&id, class);
        }
    }

    /// Bids for a slot: the first one of a queued run, or a new one of a frozen run. A frozen run stays with
    /// the fleet that its runner belongs to, also when the definition has moved on.
    pub(super) fn bid(&mut self, id: &InstanceId, class: Class) {
        let Some(instance) = self.agent.instances.get(id) else { return };
        let placed = instance.group.clone().filter(|_| instance.runner.is_some());
        let Some(group) = placed.or_else(|| self.agent.defined.as_ref().map(|d| d.group.clone())) else {
            return;
        };
        let bid = self.ctx.id();
        self.push(Event::Bid { instance: id.clone(), bid, group });
        let effect = self.agent.instances.get(id).and_then(|run| self.agent.place_bid(run, bid, class));
        self.send(effect);
    }

    /// Takes a bid back before the run has started.
    pub(super) fn unbid(&mut self, id: &InstanceId) {
        let Some(instance) = self.agent.instances.get(id) else { return };
        let Some(bid) = instance.bid else { return };
        let token = instance.token;
        let effect = effects::withdraw(instance, bid);
        self.send(effect);
        self.push(Event::Requeued { instance: id.clone(), token });
    }

    /// The most urgent runs behind those that bid. Of one class none is more urgent than who came before it.
    fn next_runs(&self, most: usize) -> Vec<(InstanceId, Class)> {
        let first = |class| self.agent.index.line(class).take(most);
        let items = Class::ALL.into_iter().flat_map(first).filter_map(|(_, id)| self.agent.queue.get(id));
        let rank =
            |item: &&Item| (item.class.aged(self.now().since(item.at), crate::fleet::AGEING), item.number);
        let mut next: Vec<&Item> = items.collect();
        next.sort_by_key(rank);
        next.into_iter().take(most).map(|item| (item.instance.clone(), item.class)).collect()
    }
}
