//! Whom an event wakes, and for whom it starts a run.

use serde_json::json;
use uuid::Uuid;

use super::command::{Command, Incoming, Kept, Rejected, Reply};
use super::effect;
use super::event::{Event, Outcome, Resumption, WaitEnd};
use super::filter::{Envelope, Filter, FilterKind};
use super::index::Place;
use super::state::{RATE_LIMITED, Triggers, Wait, delivery_id, speaker_id};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Name};
use crate::mutation::{self, Mutation};

type Answer = Result<Decision<Triggers>, Refusal>;

/// Most receipts that are remembered, some 20 MB of memory. A swarm with more events than this in seven days
/// forgets the oldest sooner.
pub(super) const RECEIPTS: usize = 200_000;
/// How many receipts go at once when there are too many, so that not every event has to make room.
const MAKE_ROOM: usize = 100;
/// How much of what one person says within a minute the swarm hears (spec: Agent Swarm 4.4).
pub(super) const MESSAGES: usize = 10;
/// Most filters that one agent may subscribe with.
const FILTERS: usize = 100;

impl Triggers {
    pub(super) fn decide_command(&self, command: &Command, ctx: &mut Ctx) -> Answer {
        match command {
            Command::Deliver { incoming } => Ok(self.deliver(incoming, ctx)),
            Command::Register {
                wait,
                agent,
                instance,
                filter,
                registered_at,
                deadline,
                broadcast,
                reply_to,
            } => {
                let entry = Wait {
                    agent: agent.clone(),
                    instance: instance.clone(),
                    filter: filter.clone(),
                    registered_at: *registered_at,
                    deadline: *deadline,
                    broadcast: *broadcast,
                };
                self.register(*wait, entry, reply_to)
            }
            Command::Cancel { wait } => Ok(self.cancel(*wait)),
            Command::Unclaimed { receipt, agent, wait, payload, kept } => {
                Ok(self.hand_on(*receipt, agent, *wait, payload, kept.as_deref(), ctx))
            }
            Command::Reject { rejected } => Ok(self.reject(rejected, ctx)),
            Command::Refused { receipt, agent, reason } => Ok(self.refused(*receipt, agent, reason)),
            Command::TakenUp { receipt, agent } => Ok(self.taken_up(*receipt, agent)),
            Command::Subscribe { agent, filters } => self.subscribe(agent, filters),
            Command::Replay { of, incoming } => self.replay(*of, incoming, ctx),
            Command::Pause { paused } => Ok(self.pause(*paused)),
            Command::AskPause => Ok(Decision::reply(self.pause.reply())),
            Command::ReceivedSince { at, limit, after } => {
                let receipts = self.received_since(*at, *after).take(*limit).collect();
                Ok(Decision::reply(Reply::Receipts(receipts)))
            }
            Command::Tick => Ok(self.sweep(ctx)),
        }
    }

    fn deliver(&self, incoming: &Incoming, ctx: &Ctx) -> Decision<Self> {
        let repeated = self.receipts.contains_key(&incoming.receipt).then_some(incoming.receipt);
        let seen = repeated.or_else(|| self.seen(delivery_id(&incoming.source, &incoming.delivery)));
        let Some(receipt) = seen else { return self.receive(incoming.clone(), None, ctx) };
        if self.receipts.get(&receipt).is_some_and(|receipt| receipt.dead.is_some()) {
            return self.look_again(Incoming { receipt, ..incoming.clone() }, ctx);
        }
        duplicate(receipt)
    }

    /// A delivery that nobody took is no duplicate when it comes again and an agent or the swarm does: its sender was
    /// asked to repeat it for that.
    fn look_again(&self, incoming: Incoming, ctx: &Ctx) -> Decision<Self> {
        let event = Envelope::webhook(&incoming);
        match self.outcome(&event) {
            outcome if outcome.matched() == 0 && !self.hears_now(&incoming, ctx) => {
                duplicate(incoming.receipt)
            }
            outcome => self.write_down(incoming, &event, outcome, None, ctx),
        }
    }

    /// Whether the swarm hears of a dead letter that comes again. What was too much stays so.
    fn hears_now(&self, incoming: &Incoming, ctx: &Ctx) -> bool {
        let dead = self.receipts.get(&incoming.receipt).and_then(|receipt| receipt.dead.as_deref());
        dead != Some(RATE_LIMITED)
            && effect::to_swarm(&self.swarm, incoming).is_some()
            && !self.is_repeated(incoming, ctx.now)
    }

    fn outcome(&self, event: &Envelope) -> Outcome {
        let mut outcome = Outcome::default();
        let woken = self.woken(event, None);
        for (agent, places) in &woken {
            self.wake(agent, places, &mut outcome);
        }
        let starts = |agent: &&Name| !woken.contains_key(*agent) || mutation::is_on(Mutation::StartBeside);
        outcome.started = self.subscribed(event).filter(starts).cloned().collect();
        outcome
    }

    fn reject(&self, rejected: &Rejected, ctx: &Ctx) -> Decision<Self> {
        let mut events = self.make_room();
        events.push(Event::Rejected { rejected: rejected.clone(), at: ctx.now });
        Decision::new(Reply::Done, events)
    }

    /// The receipt may have been trimmed in the meantime.
    fn refused(&self, receipt: Uuid, agent: &Name, reason: &str) -> Decision<Self> {
        if !self.receipts.contains_key(&receipt) {
            return Decision::reply(Reply::Done);
        }
        let event = Event::Refused { receipt, agent: agent.clone(), reason: reason.to_owned() };
        Decision::new(Reply::Done, vec![event])
    }

    fn taken_up(&self, receipt: Uuid, agent: &Name) -> Decision<Self> {
        let known = self.receipts.contains_key(&receipt);
        let event = Event::TakenUp { receipt, agent: agent.clone() };
        Decision::new(Reply::Done, known.then_some(event).into_iter().collect())
    }

    /// A replay goes through under a receipt of its own and without the delivery's id, which would make it a
    /// duplicate of what it repeats.
    fn replay(&self, of: Uuid, incoming: &Incoming, ctx: &mut Ctx) -> Answer {
        if !self.receipts.contains_key(&of) {
            let message = format!("there is no receipt {of}: receipts are kept for seven days");
            return Err(Refusal::new(Code::NotFound, message).with(json!({ "receipt": of })));
        }
        let receipt = ctx.id();
        let again = Incoming { receipt, delivery: String::new(), ..incoming.clone() };
        Ok(self.receive(again, Some(of), ctx))
    }

    fn receive(&self, incoming: Incoming, replay_of: Option<Uuid>, ctx: &Ctx) -> Decision<Self> {
        let event = Envelope::webhook(&incoming);
        let outcome = self.outcome(&event);
        self.write_down(incoming, &event, outcome, replay_of, ctx)
    }

    /// What none of the agents has asked for, and what may be meant for the swarm, the swarm hears.
    fn write_down(
        &self,
        incoming: Incoming,
        event: &Envelope,
        mut outcome: Outcome,
        replay_of: Option<Uuid>,
        ctx: &Ctx,
    ) -> Decision<Self> {
        let receipt = incoming.receipt;
        let mut effects = effect::of(&outcome, &self.swarm, receipt, event);
        if outcome.matched() == 0 {
            effects.extend(self.tell_swarm(&incoming, replay_of, &mut outcome, ctx));
        }
        let mut events = self.make_room();
        events.push(Event::Received { incoming, at: ctx.now, replay_of, outcome: outcome.clone() });
        Decision::new(delivered(receipt, outcome), events).effects(effects)
    }

    /// The effect by which the swarm hears of an event, if it may concern it.
    fn tell_swarm(
        &self,
        incoming: &Incoming,
        replay_of: Option<Uuid>,
        outcome: &mut Outcome,
        ctx: &Ctx,
    ) -> Option<Effect> {
        let told = effect::to_swarm(&self.swarm, incoming)?;
        // A mention comes twice, by itself and as a message; who hands an event on means this one.
        let is_new = replay_of.is_some() || !self.is_repeated(incoming, ctx.now);
        let said = incoming.said.as_deref().filter(|said| is_new && replay_of.is_none() && said.is_request());
        let (heard, refused) = said.map_or((0, 0), |said| self.messages_of(speaker_id(said), ctx.now));
        outcome.limited = heard >= MESSAGES;
        outcome.heard = !outcome.limited;
        match said.filter(|_| outcome.limited) {
            Some(said) => (refused == 0).then(|| effect::slow_down(&self.swarm, said)),
            None => is_new.then_some(told),
        }
    }

    /// One agent's share of an event. Only if nobody waits for it does the subscription start a run.
    fn wake(&self, agent: &Name, places: &[Place], outcome: &mut Outcome) {
        outcome.resumed.extend(places.iter().filter_map(|(_, wait)| {
            let instance = self.waits.get(wait)?.instance.clone();
            Some(Resumption { agent: agent.clone(), instance, wait: *wait })
        }));
    }

    /// The wait had ended before the event reached it. As long as another instance of the agent has the same
    /// event, that is enough; otherwise the next in line gets it, and the swarm hears what no agent has any more.
    fn hand_on(
        &self,
        receipt: Uuid,
        agent: &Name,
        wait: Uuid,
        event: &Envelope,
        kept: Option<&Kept>,
        ctx: &Ctx,
    ) -> Decision<Self> {
        let mut events = self.end(wait, WaitEnd::Cancelled);
        let mut outcome = Outcome::default();
        if !self.is_shared_beyond(receipt, agent, wait) {
            match self.woken(event, Some(wait)).get(agent) {
                Some(places) => self.wake(agent, places, &mut outcome),
                None => outcome.started.extend(self.is_subscribed(agent, event).then(|| agent.clone())),
            }
        }
        let mut effects = effect::of(&outcome, &self.swarm, receipt, event);
        let had = self.receipts.get(&receipt).map_or(0, |receipt| receipt.matched);
        if had <= 1 && outcome.matched() == 0 {
            effects.extend(kept.and_then(|kept| self.pass_to_swarm(kept, &mut outcome, ctx)));
        }
        events.push(Event::HandedOn { receipt, agent: agent.clone(), wait, outcome: outcome.clone() });
        Decision::new(delivered(receipt, outcome), events).effects(effects)
    }

    /// The effect by which the swarm hears of an event that an agent had. It counts for nobody's limit: what an agent
    /// asked for is not refused because it comes late.
    fn pass_to_swarm(&self, kept: &Kept, outcome: &mut Outcome, ctx: &Ctx) -> Option<Effect> {
        let told = effect::to_swarm(&self.swarm, &kept.incoming)?;
        outcome.heard = true;
        (kept.replay_of.is_some() || !self.is_repeated(&kept.incoming, ctx.now)).then_some(told)
    }

    /// Whether other waits of the agent were given the event, and have not given it back.
    fn is_shared_beyond(&self, receipt: Uuid, agent: &Name, wait: Uuid) -> bool {
        let shared = self.receipts.get(&receipt).and_then(|receipt| receipt.shared.get(agent));
        shared.is_some_and(|waits| waits.iter().any(|other| *other != wait))
    }

    fn register(&self, id: Uuid, wait: Wait, reply_to: &EntityKey) -> Answer {
        if wait.filter.kind != FilterKind::Webhook {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "waits for agent triggers belong to the agent; here only webhooks can be awaited",
            ));
        }
        wait.filter.validate()?;
        let mut events = Vec::new();
        if self.waits.get(&id) != Some(&wait) {
            let older = self.wait_of(&wait.instance).filter(|older| *older != id);
            events.extend(older.map(|wait| Event::WaitEnded { wait, reason: WaitEnd::Superseded }));
            events.push(Event::WaitRegistered {
                wait: id,
                agent: wait.agent,
                instance: wait.instance,
                filter: wait.filter,
                registered_at: wait.registered_at,
                deadline: wait.deadline,
                broadcast: wait.broadcast,
            });
        }
        let effects = vec![effect::registered(reply_to, id)];
        Ok(Decision::new(Reply::Registered { wait: id }, events).effects(effects))
    }

    /// Idempotent: an event may have ended the wait first.
    fn cancel(&self, wait: Uuid) -> Decision<Self> {
        Decision::new(Reply::Done, self.end(wait, WaitEnd::Cancelled))
    }

    fn end(&self, wait: Uuid, reason: WaitEnd) -> Vec<Event> {
        let open = self.waits.contains_key(&wait);
        open.then_some(Event::WaitEnded { wait, reason }).into_iter().collect()
    }

    fn subscribe(&self, agent: &Name, filters: &[Filter]) -> Answer {
        if filters.len() > FILTERS {
            return Err(Refusal::new(
                Code::InvalidArgument,
                format!("{} filters are too many; subscribe with at most {FILTERS}", filters.len()),
            ));
        }
        if filters.iter().any(|filter| filter.kind != FilterKind::Webhook) {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "only webhooks can be subscribed to; calls reach an agent without a subscription",
            ));
        }
        filters.iter().try_for_each(Filter::validate)?;
        let current = self.subscriptions.get(agent).map_or(&[][..], Vec::as_slice);
        if current == filters {
            return Ok(Decision::reply(Reply::Done));
        }
        let event = Event::Subscribed { agent: agent.clone(), filters: filters.to_vec() };
        Ok(Decision::new(Reply::Done, vec![event]))
    }

    fn pause(&self, paused: bool) -> Decision<Self> {
        if self.pause.paused == paused {
            return Decision::reply(self.pause.reply());
        }
        let word = self.pause.word + 1;
        Decision::new(Reply::Pause { paused, word }, vec![Event::Paused { paused, word }])
    }

    fn make_room(&self) -> Vec<Event> {
        if self.receipts.len() < RECEIPTS {
            return Vec::new();
        }
        vec![Event::Trimmed { receipts: self.oldest_receipts(MAKE_ROOM).collect() }]
    }

    fn sweep(&self, ctx: &Ctx) -> Decision<Self> {
        let overdue = self.overdue(ctx.now);
        let mut events: Vec<Event> =
            overdue.map(|wait| Event::WaitEnded { wait, reason: WaitEnd::Overdue }).collect();
        let receipts: Vec<Uuid> = self.outdated(ctx.now).collect();
        if !receipts.is_empty() {
            events.push(Event::Trimmed { receipts });
        }
        Decision::new(Reply::Done, events)
    }
}

fn duplicate(receipt: Uuid) -> Decision<Triggers> {
    let (resumed, started) = (Vec::new(), Vec::new());
    Decision::reply(Reply::Delivered { receipt, duplicate: true, resumed, started, heard: false })
}

fn delivered(receipt: Uuid, outcome: Outcome) -> Reply {
    let Outcome { resumed, started, heard, .. } = outcome;
    Reply::Delivered { receipt, duplicate: false, resumed, started, heard }
}
