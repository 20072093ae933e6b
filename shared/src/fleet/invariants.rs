//! What must hold of a fleet after every event.

use std::collections::{BTreeMap, BTreeSet};

use super::slots::Slots;
use super::state::Fleet;

pub(super) fn check(fleet: &Fleet) -> Result<(), String> {
    let mut busy: BTreeMap<&str, u32> = BTreeMap::new();
    let mut granted = BTreeSet::new();
    for place in fleet.places.values() {
        let known = fleet.runners.contains_key(&place.runner);
        rule(known, "a place is on a registered runner", &place.instance)?;
        rule(granted.insert(place.bid), "a bid is granted once", place.bid)?;
        rule(!fleet.bids.contains_key(&place.bid), "a granted bid waits no more", place.bid)?;
        *busy.entry(&place.runner).or_default() += u32::from(place.slot);
    }
    for runner in fleet.runners.values() {
        let taken = busy.get(runner.name.as_str()).copied().unwrap_or_default();
        rule(taken <= runner.slots + runner.overhang, "slots are never exceeded", &runner.name)?;
        rule(fleet.alive_until.contains_key(&runner.name), "every runner has a lease", &runner.name)?;
    }
    let counted = fleet.slots == Slots::of(fleet.places.values());
    rule(counted, "slots are counted as places take them", fleet.runners.len())?;
    let mut bidding = BTreeSet::new();
    for bid in fleet.bids.values() {
        rule(bidding.insert(&bid.instance), "an instance has one bid", &bid.instance)?;
        let Some(affinity) = &bid.affinity else { continue };
        let frozen_there =
            fleet.places.get(&bid.instance).is_none_or(|place| place.runner == *affinity && !place.slot);
        rule(frozen_there, "a resumed instance bids where it is frozen", &bid.instance)?;
    }
    Ok(())
}

fn rule(holds: bool, name: &str, about: impl std::fmt::Display) -> Result<(), String> {
    if holds { Ok(()) } else { Err(format!("`{name}` ({about})")) }
}
