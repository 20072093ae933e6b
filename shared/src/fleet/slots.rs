//! How many slots are taken, by runner, by agent and by swarm. They are counted as places come and go: a fleet of ten
//! thousand places is not gone through for every bid.

use super::state::Place;
use crate::cow_map::CowMap;
use crate::id::Name;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Slots {
    by_runner: CowMap<String, u32>,
    by_agent: CowMap<(Name, Name), u32>,
    by_swarm: CowMap<Name, u32>,
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

    pub(crate) fn of_swarm(&self, swarm: &Name) -> u32 {
        self.by_swarm.get(swarm).copied().unwrap_or_default()
    }

    pub(super) fn take(&mut self, place: &Place) {
        self.change(place, |taken| taken + 1);
    }

    pub(super) fn free(&mut self, place: &Place) {
        self.change(place, |taken| taken.saturating_sub(1));
    }

    fn change(&mut self, place: &Place, change: fn(u32) -> u32) {
        if place.slot {
            count(&mut self.by_runner, place.runner.clone(), change);
            count(&mut self.by_agent, (place.swarm.clone(), place.agent.clone()), change);
            count(&mut self.by_swarm, place.swarm.clone(), change);
        }
    }
}

/// Nothing is kept of what has none.
fn count<K: Ord + Clone>(counts: &mut CowMap<K, u32>, key: K, change: fn(u32) -> u32) {
    match change(counts.get(&key).copied().unwrap_or_default()) {
        0 => {
            counts.remove(&key);
        }
        taken => counts.insert(key, taken),
    }
}
