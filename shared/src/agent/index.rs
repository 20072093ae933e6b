//! What is known of all calls and runs without going through them: one decision may end ten thousand, and asks for
//! each.

use std::cmp::Reverse;

use uuid::Uuid;

use super::call::CallRecord;
use super::state::{Agent, Class, Instance, Item, State};
use crate::cow_map::CowMap;
use crate::id::InstanceId;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Index {
    /// Open calls by the instance that serves them, or will.
    served: CowMap<(InstanceId, Uuid), ()>,
    /// Runs behind those that bid, by class and order of arrival.
    line: CowMap<(Class, u64), InstanceId>,
    in_line: usize,
    /// Of all items of the queue, the latest first.
    arrivals: CowMap<Reverse<u64>, ()>,
    active: usize,
}

/// What counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    active: bool,
    in_line: bool,
}

impl Part {
    pub(super) fn of(run: &Instance) -> Self {
        let queued = run.state == State::Queued;
        Self { active: run.slot || (queued && run.bid.is_some()), in_line: queued && run.bid.is_none() }
    }
}

impl Index {
    pub(super) fn of(agent: &Agent) -> Self {
        let mut index = Self::default();
        agent.calls.values().for_each(|call| index.serve(call));
        for run in agent.instances.values() {
            index.move_run(None, Part::default(), Part::of(run));
        }
        for item in agent.queue.values() {
            let run = agent.instances.get(&item.instance);
            index.enter(item, run.map(Part::of).unwrap_or_default());
        }
        index
    }

    /// Runs that have a slot or bid for their first one. Those that wake bid beside them, and the fleet keeps the
    /// scale: an agent whose runs wake all the time would else never start what is queued.
    pub(super) fn active(&self) -> usize {
        self.active
    }

    /// How many runs stand behind those that bid.
    pub(super) fn in_line(&self) -> usize {
        self.in_line
    }

    /// Those of one class, in the order of their arrival.
    pub(super) fn line(&self, class: Class) -> impl Iterator<Item = (u64, &InstanceId)> {
        let line = self.line.from(&(class, 0)).take_while(move |((of, _), _)| *of == class);
        line.map(|((_, number), run)| (*number, run))
    }

    /// The number of the next item of the queue.
    pub(super) fn next_number(&self) -> u64 {
        self.arrivals.keys().next().map_or(0, |Reverse(latest)| latest + 1)
    }

    pub(super) fn served_by(&self, instance: &InstanceId) -> impl Iterator<Item = Uuid> {
        let served = self.served.from(&(instance.clone(), Uuid::nil()));
        served.take_while(move |((by, _), ())| by == instance).map(|((_, call), ())| *call)
    }

    pub(super) fn serve(&mut self, call: &CallRecord) {
        if let Some(callee) = &call.callee {
            self.served.insert((callee.clone(), call.id), ());
        }
    }

    pub(super) fn serve_no_more(&mut self, call: &CallRecord) {
        if let Some(callee) = &call.callee {
            self.served.remove(&(callee.clone(), call.id));
        }
    }

    /// A run has come, is another than before, or has gone. Its item, if it is in the queue.
    pub(super) fn move_run(&mut self, item: Option<&Item>, before: Part, after: Part) {
        self.active = self.active + usize::from(after.active) - usize::from(before.active);
        match item.filter(|_| before.in_line != after.in_line) {
            Some(item) if after.in_line => self.line_up(item),
            Some(item) => self.step_out(item),
            None => {}
        }
    }

    /// An item enters the queue, of a run that is known already.
    pub(super) fn enter(&mut self, item: &Item, run: Part) {
        self.arrivals.insert(Reverse(item.number), ());
        if run.in_line {
            self.line_up(item);
        }
    }

    pub(super) fn leave(&mut self, item: &Item) {
        self.arrivals.remove(&Reverse(item.number));
        self.step_out(item);
    }

    fn line_up(&mut self, item: &Item) {
        let place = (item.class, item.number);
        if !self.line.contains_key(&place) {
            self.line.insert(place, item.instance.clone());
            self.in_line += 1;
        }
    }

    fn step_out(&mut self, item: &Item) {
        if self.line.remove(&(item.class, item.number)).is_some() {
            self.in_line -= 1;
        }
    }
}
