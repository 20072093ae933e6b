//! What the lead is told of others' work, each time by a task of its own; and who reads it when the lead has left.

use uuid::Uuid;

use crate::entity::Ctx;
use crate::pool::creation::TaskSpec;
use crate::pool::event::{Created, Event};
use crate::pool::state::{Pool, Status};

/// So much is passed on at once, for it has to be written at once; the rest when the lead joins again.
const AT_ONCE: usize = 10_000;

impl Pool {
    /// A task that tells the lead something.
    pub(super) fn news(&self, lead: Uuid, spec: TaskSpec, ctx: &mut Ctx) -> Event {
        Event::Created(Box::new(Created {
            task: self.new_id(ctx),
            by: None,
            spec,
            status: Status::Pending,
            agent: Some(lead),
            offered_to: None,
            dependencies: Vec::new(),
            until: None,
            sketch: None,
            news: true,
            at: ctx.now,
        }))
    }

    /// What a member leaves: news for the lead, which wait for the next one, and what is for everybody.
    pub(super) fn left_by(&self, agent: Uuid) -> (Vec<Uuid>, Vec<Uuid>) {
        let is_news = |id: &Uuid| self.tasks.get(*id).is_some_and(|task| task.news);
        self.indexes.held_by(agent).chain(self.indexes.offers_to(agent)).partition(is_news)
    }

    /// What whoever comes to lead is to read: what its predecessor has not, and what has stalled by now.
    pub(super) fn news_until_now(&self, lead: Uuid, ctx: &mut Ctx) -> Vec<Event> {
        let mut events = self.pass_on(lead, ctx);
        events.extend(self.stalled_until_now(lead, ctx));
        events
    }

    /// Gives the lead what waited while nobody led.
    pub(super) fn pass_on(&self, lead: Uuid, ctx: &Ctx) -> Vec<Event> {
        let waiting = self.indexes.parked().take(AT_ONCE);
        waiting.map(|task| Event::PassedOn { task, agent: lead, at: ctx.now }).collect()
    }
}
