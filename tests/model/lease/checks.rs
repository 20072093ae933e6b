//! What must hold, what must be reachable, and the runs.

use stateright::Property;

use super::{Harm, Protocol, Scope, State, Variant};
use crate::check;

const ONE_OWNER: &str = "two coordinators never commit under one fence";
const NO_RESIGNED: &str = "only the owner commits, never one that was superseded or resigned";
const NOT_OVERWRITTEN: &str = "a commit lies on what it was decided on";
const NOT_LOST: &str = "what was acknowledged is lost by a failover alone";
const VERSIONS: &str = "versions rise by one";
const ONCE: &str = "a request takes effect once";
const REFUSED: &str = "what was refused for good never takes effect";
const TOKENS: &str = "fencing tokens rise";
const READS: &str = "a read shows all that was acknowledged before";
const SURVIVED: &str = "who has seen a failover builds on what survived it";

pub(super) fn properties() -> Vec<Property<Protocol>> {
    let mut properties = safety();
    properties.extend(reachable());
    properties
}

fn safety() -> Vec<Property<Protocol>> {
    vec![
        Property::always(ONE_OWNER, |_, state: &State| state.harm != Some(Harm::SharedFence)),
        Property::always(NO_RESIGNED, |_, state: &State| state.harm != Some(Harm::NotTheOwner)),
        Property::always(NOT_OVERWRITTEN, |_, state: &State| state.harm != Some(Harm::Overwritten)),
        Property::always(TOKENS, |_, state: &State| state.harm != Some(Harm::TokensFell)),
        Property::always(NOT_LOST, |_, state: &State| {
            let there = |request: &u8| state.store.primary.has_request(*request);
            let excused = |request: &u8| there(request) || state.seen.dropped.contains(request);
            state.seen.acknowledged.iter().all(excused)
        }),
        Property::always(VERSIONS, |_, state: &State| {
            let log = &state.store.primary.log;
            log.iter().zip(1..).all(|(entry, version)| entry.version == version)
                && usize::from(state.store.primary.version) == log.len()
        }),
        Property::always(ONCE, |_, state: &State| {
            let log = &state.store.primary.log;
            let twice = |place: usize| log[..place].iter().any(|entry| entry.request == log[place].request);
            !(0..log.len()).any(twice)
        }),
        Property::always(REFUSED, |_, state: &State| {
            state.store.primary.log.iter().all(|entry| !state.seen.refused.contains(&entry.batch))
        }),
        Property::always(READS, |model: &Protocol, state: &State| model.reads_are_current(state)),
        Property::always(SURVIVED, |_, state: &State| {
            let known = state.owners.iter().filter(|owner| owner.run == state.store.run);
            known.filter_map(|owner| owner.memory.as_ref()).all(|m| state.store.primary.log.starts_with(m))
        }),
    ]
}

/// Without these the search could find nothing wrong because nothing happens.
fn reachable() -> Vec<Property<Protocol>> {
    vec![
        Property::sometimes("another coordinator takes over and commits", |_, state: &State| {
            let last = state.store.primary.lease.as_ref().map(|lease| lease.owner.node);
            let committed = |node| state.seen.writers.iter().any(|(_, by)| Some(by.node) == node);
            let others = state.seen.writers.iter().any(|(_, by)| Some(by.node) != last);
            last.is_some() && committed(last) && others
        }),
        Property::sometimes("all requests are acknowledged", |model: &Protocol, state: &State| {
            state.seen.acknowledged.len() == usize::from(model.scope.requests)
        }),
        Property::sometimes(
            "a lost answer is made good by the same batch",
            |model: &Protocol, state: &State| {
                let all = state.seen.acknowledged.len() == usize::from(state.seen.batches);
                model.scope.faults == 0 || (state.seen.lost > 0 && state.seen.batches > 0 && all)
            },
        ),
        Property::sometimes(
            "a failover drops what was acknowledged, and work goes on",
            |model: &Protocol, state: &State| {
                let lost = state.seen.acknowledged.intersection(&state.seen.dropped).next().is_some();
                model.scope.failovers == 0 || (lost && !state.store.primary.log.is_empty())
            },
        ),
        Property::sometimes("a lease is renewed after it was over", |_, state: &State| {
            state.owners.iter().any(|owner| {
                let lease = state.store.primary.lease.as_ref();
                let first = lease.is_some_and(|lease| lease.fence.epoch == 1 && !lease.free);
                first && owner.lease.as_ref().is_some_and(|held| held.fence.epoch == 1 && held.since >= 3)
            })
        }),
    ]
}

/// Lost answers, late copies, pauses, expiry and handing over, with a server that lasts.
const LASTING: Scope = Scope {
    nodes: 2,
    ticks: 4,
    requests: 2,
    batches: 2,
    grants: 2,
    under_way: 1,
    faults: 2,
    crashes: 0,
    failovers: 0,
    offsets: &[],
    steps: 0,
    hidden: false,
    releases: true,
    tokens_rise: true,
};

const CRASHES: Scope = Scope { batches: 3, grants: 3, faults: 1, crashes: 1, releases: false, ..LASTING };

/// Two batches of an owner on their way together.
const PIPELINE: Scope = Scope { batches: 3, faults: 1, under_way: 2, releases: false, ..LASTING };

const THREE: Scope = Scope { nodes: 3, grants: 3, faults: 1, releases: false, ..LASTING };

/// The server fails once, to a replica that may lack any of the last writes.
const FAILOVER: Scope =
    Scope { ticks: 3, batches: 3, faults: 1, failovers: 1, offsets: &[0, 1], releases: false, ..LASTING };

/// The promoted server's clock is behind by as long as the failover took, so that an epoch may come again.
const BEHIND: Scope = Scope { offsets: &[-1], tokens_rise: false, ..FAILOVER };

/// The clock of the store is set, forward or back.
const SET: Scope = Scope { faults: 1, offsets: &[-1, 2], steps: 1, releases: false, ..LASTING };

/// Owners learn of the failover late, and what they had sent before arrives after it.
const HIDDEN: Scope = Scope { faults: 0, grants: 2, hidden: true, tokens_rise: false, ..FAILOVER };

/// The same for one coordinator that may send again.
const HIDDEN_ALONE: Scope = Scope { nodes: 1, batches: 4, faults: 1, ..HIDDEN };

fn holds(scope: Scope) {
    check::holds(Protocol { scope, variant: Variant::Sound }, 20_000);
}

fn fails(variant: Variant, scope: Scope, harm: &'static str) {
    check::fails(Protocol { scope, variant }, harm);
}

#[test]
fn the_protocol_holds_with_lost_answers_pauses_and_takeovers() {
    holds(LASTING);
}

#[test]
fn the_protocol_holds_with_two_batches_under_way() {
    holds(PIPELINE);
}

#[test]
fn the_protocol_holds_with_crashes() {
    holds(CRASHES);
}

#[test]
fn the_protocol_holds_among_three_coordinators() {
    holds(THREE);
}

#[test]
fn the_protocol_holds_over_a_lossy_failover() {
    holds(FAILOVER);
}

#[test]
fn the_nonce_holds_when_the_promoted_clock_is_behind() {
    holds(BEHIND);
}

#[test]
fn the_protocol_holds_whichever_way_the_clock_of_the_store_is_set() {
    holds(SET);
}

#[test]
fn nothing_is_overwritten_when_a_failover_is_seen_late() {
    holds(HIDDEN);
}

#[test]
fn a_batch_sent_again_overwrites_nothing_when_a_failover_is_seen_late() {
    let all: Vec<_> = safety().iter().map(|property| property.name).collect();
    check::keeps(Protocol { scope: HIDDEN_ALONE, variant: Variant::Sound }, &all);
}

#[test]
fn without_the_fence_a_superseded_owner_commits() {
    fails(Variant::NoFence, Scope { releases: false, ..LASTING }, NO_RESIGNED);
}

#[test]
fn with_the_epoch_alone_two_owners_have_one_fence() {
    fails(Variant::EpochAlone, BEHIND, ONE_OWNER);
    fails(Variant::EpochAlone, Scope { hidden: true, ..BEHIND }, NO_RESIGNED);
}

#[test]
fn without_the_version_a_late_copy_takes_effect_again() {
    fails(Variant::NoVersion, LASTING, ONCE);
}

#[test]
fn with_the_version_alone_a_late_copy_overwrites_after_a_failover() {
    fails(Variant::VersionAlone, HIDDEN_ALONE, NOT_OVERWRITTEN);
}

#[test]
fn with_the_version_alone_the_second_of_two_batches_overwrites_another() {
    fails(Variant::VersionAlone, PIPELINE, NOT_OVERWRITTEN);
}

#[test]
fn without_the_batch_id_a_lost_answer_is_told_as_a_refusal() {
    fails(Variant::NoBatchId, LASTING, REFUSED);
}

#[test]
fn an_owner_that_renews_without_its_fence_reads_what_is_old() {
    fails(Variant::RenewUnfenced, LASTING, READS);
}

#[test]
fn an_owner_that_does_not_fence_itself_reads_what_is_old() {
    fails(Variant::NoSelfFence, LASTING, READS);
}

#[test]
fn without_a_margin_a_slow_clock_reads_what_is_old() {
    fails(Variant::NoMargin, LASTING, READS);
}

#[test]
fn a_lease_that_counts_from_its_answer_reads_what_is_old() {
    fails(Variant::CountFromAnswer, LASTING, READS);
}

#[test]
fn a_lease_that_ends_by_a_clock_that_is_set_reads_what_is_old() {
    fails(Variant::EndByTheClockOfTheStore, SET, READS);
}

#[test]
fn an_owner_that_overlooks_a_failover_builds_on_what_is_lost() {
    fails(Variant::IgnoreRunChange, FAILOVER, SURVIVED);
}

#[test]
fn a_released_lease_that_keeps_its_nonce_lets_a_resigned_owner_commit() {
    fails(Variant::ReleaseKeepsNonce, LASTING, NO_RESIGNED);
}

#[test]
fn tokens_fall_when_a_failover_is_seen_late_or_the_clock_is_behind() {
    for scope in [HIDDEN, BEHIND] {
        fails(Variant::Sound, Scope { ticks: 4, tokens_rise: true, ..scope }, TOKENS);
    }
}
