//! How many slots are taken, by runner and by agent. They are counted as places come and go: a fleet of ten
//! thousand places is not gone through for every bid.

use super::state::Place;
use crate::cow_map::CowMap;
use crate::id::Name;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slots {
    by_runner: CowMap<String, u32>,
    by_agent: CowMap<(Name, Name), u32>,
}

impl Slots {
    pub(crate) fn of<'a>(places: impl IntoIterator<Item = &'a Place>) -> Self {
        let mut slots = Self::default();
        places.into_iter().for_each(|place| slots.take(place));
        slots
    }

    pub(crate) fn on(&self, runner: &str) -> u32 {
        self.by_runner.get(runner).copied().unwrap_or_default()
    }

    pub(crate) fn of_agent(&self, swarm: &Name, agent: &Name) -> u32 {
        self.by_agent.get(&(swarm.clone(), agent.clone())).copied().unwrap_or_default()
    }

    pub(super) fn take(&mut self, place: &Place) {
        if place.slot {
            let (runner, agent) = counted(place);
            count(&mut self.by_runner, runner, |taken| taken + 1);
            count(&mut self.by_agent, agent, |taken| taken + 1);
        }
    }

    pub(super) fn free(&mut self, place: &Place) {
        if place.slot {
            let (runner, agent) = counted(place);
            count(&mut self.by_runner, runner, |taken| taken.saturating_sub(1));
            count(&mut self.by_agent, agent, |taken| taken.saturating_sub(1));
        }
    }
}

fn counted(place: &Place) -> (String, (Name, Name)) {
    (place.runner.clone(), (place.swarm.clone(), place.agent.clone()))
}

/// Nothing is kept of what has none.
fn count<K: Ord + Clone>(counts: &mut CowMap<K, u32>, key: K, change: impl Fn(u32) -> u32) {
    match change(counts.get(&key).copied().unwrap_or_default()) {
        0 => {
            counts.remove(&key);
        }
        taken => counts.insert(key, taken),
    }
}
