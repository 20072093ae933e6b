//! The simulation: thousands of clusters in which everything goes wrong, and what must hold all the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeMap;
use std::process::Command;

use skein_shared::agent::{Event, Outcome};
use skein_tests::process::give_way;
use skein_tests::sim;
use skein_tests::sim::check::events;
use skein_tests::sim::clients::agent;
use skein_tests::sim::config::{Broken, Config};
use skein_tests::sim::runner::NOT_AGAIN;
use skein_tests::sim::world::{AGENTS, World};

/// Seeds that are the same at each change, and new ones; `SKEIN_SIM_SEEDS` says another number for both.
const FIXED: u64 = 1800;
const NEW: u64 = 200;

fn seeds(usual: u64) -> u64 {
    std::env::var("SKEIN_SIM_SEEDS").map_or(usual, |text| text.parse().expect("SKEIN_SIM_SEEDS is a number"))
}

/// New ones that found something once.
const FOUND: [u64; 6] = [
    0xa1eb_bd8b_7939_004e,
    0x4870_3e68_7e5d_005a,
    0xbdf3_a95f_7330_0e28,
    0xc14b_7eb2_e504_2577,
    0xa29f_e7b9_cddf_28ef,
    0xd6bc_43e0_302d_7919,
];

/// Runs each seed, on as many threads as there are processors.
fn hold(first: u64, count: u64) {
    give_way().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    let run = |thread: u64| {
        let mut operations = 0;
        for place in (thread..count).step_by(threads as usize) {
            let report = sim::run(first + place, None, false);
            assert!(report.broken.is_empty(), "{}", report.explain());
            operations += report.operations;
        }
        operations
    };
    let operations: usize = std::thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
        // What one of them found has been printed.
        all.into_iter().map(|one| one.join().expect("a promise was broken")).sum()
    });
    println!("{count} runs, {operations} operations");
    assert!(operations as u64 > count * 50, "{operations} operations in {count} runs: nothing happens");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    give_way().unwrap();
    let mut events = 0;
    for seed in 0..20 {
        let (first, again) = (sim::run(seed, None, false), sim::run(seed, None, false));
        assert_eq!((first.hash, first.events), (again.hash, again.events), "seed {seed}");
        events += first.events;
    }
    assert!(events > 20 * 100, "{events} events: nothing happens");
}

/// Runs that wait are of no use if none of them sleeps.
#[test]
fn runs_are_frozen_wake_by_events_and_time_and_machines_sleep() {
    give_way().unwrap();
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..150 {
        let mut world = World::new(Config::of(seed, None), false);
        world.run();
        for event in (0..AGENTS).flat_map(|number| events::<Event>(&world, &agent(number))) {
            let what = match event {
                Event::Frozen { .. } => "frozen",
                Event::Spilled { .. } => "spilled",
                Event::Restored { .. } => "started again",
                Event::Ended { exit, .. } if exit.reason.ends_with(NOT_AGAIN) => "not started again",
                Event::Resumed { .. } => "resumed",
                Event::WaitEnded { outcome: Outcome::Triggered { .. }, .. } => "triggered",
                Event::Paused { .. } => "paused",
                Event::Overruled { .. } => "overruled",
                Event::WaitEnded { outcome: Outcome::WaitTimeout, .. } => "timed out",
                _ => continue,
            };
            *seen.entry(what).or_default() += 1;
        }
        *seen.entry("slept").or_default() += usize::from(world.slept > 0);
    }
    println!("{seen:?}");
    for what in [
        "frozen",
        "spilled",
        "started again",
        "not started again",
        "resumed",
        "triggered",
        "timed out",
        "paused",
        "slept",
    ] {
        assert!(seen.get(what).is_some_and(|count| *count > 3), "{what}: {seen:?}");
    }
}

/// The same seeds at each change: whatever was found by one of them stays found.
#[test]
fn whatever_goes_wrong_the_promises_hold() {
    hold(0, seeds(FIXED));
    for seed in FOUND {
        let report = sim::run(seed, None, false);
        assert!(report.broken.is_empty(), "{}", report.explain());
    }
}

/// Others at each commit.
#[test]
fn whatever_goes_wrong_in_runs_that_were_never_tried_the_promises_hold() {
    let asked = Command::new("git").args(["rev-parse", "HEAD"]).output().unwrap();
    let commit = String::from_utf8(asked.stdout).unwrap();
    let digits = commit.get(..12).expect("the tests run in a clone");
    let first = u64::from_str_radix(digits, 16).unwrap() << 16;
    hold(first, seeds(NEW));
}

/// Prints one seed: `just sim SEED`.
#[test]
#[ignore = "for people: SKEIN_SEED says which"]
fn replay() {
    let text = std::env::var("SKEIN_SEED").expect("SKEIN_SEED is the seed to replay");
    let seed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
        None => text.parse().unwrap(),
    };
    let report = sim::run(seed, None, true);
    println!("{} events, {} operations, hash {:016x}", report.events, report.operations, report.hash);
    assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
}

/// Tokens that no survivor has seen may be passed late then, and what follows from that is no news.
#[test]
fn no_shard_is_taken_below_an_epoch_that_was_seen_though_clocks_are_apart() {
    give_way().unwrap();
    let fell = |seed, broken| {
        let report = sim::run_as(Config::of(seed, broken).with_clocks_apart(), false);
        report.broken.into_iter().find(|found| found.starts_with("epochs"))
    };
    for seed in 0..100 {
        assert_eq!(fell(seed, None), None, "seed {seed}");
    }
    let forgetful = Some(Broken::EpochsSeenAreForgotten);
    assert!((0..100).any(|seed| fell(seed, forgetful).is_some()), "whoever forgets them does no harm");
}

/// By more than a lease lasts, forward and back.
#[test]
fn no_lease_ends_by_a_clock_of_the_store_that_is_set() {
    give_way().unwrap();
    let found = |seed, broken| sim::run_as(Config::of(seed, broken).with_a_clock_that_is_set(), false).broken;
    for seed in 0..100 {
        assert_eq!(found(seed, None), [""; 0], "seed {seed}");
    }
    let by_that_clock = Some(Broken::LeasesEndByTheClockOfTheStore);
    let reads = |found: Vec<String>| found.iter().any(|harm| harm.starts_with("reads"));
    assert!((0..200).any(|seed| reads(found(seed, by_that_clock))), "whoever goes by it does no harm");
}

/// What does harm so seldom that it takes the seed that found it.
const RARE: [(Broken, &str, u64); 2] = [
    (Broken::FormerLivesAreWritten, "L1", 0x4870_3e68_7e5d_005a),
    (Broken::FormerLivesAreDelivered, "liveness", 1_006_115),
];

/// What each broken rule leads to.
const HARM: [(Broken, &[&str]); 13] = [
    (Broken::NoFenceInTheCommit, &["fences"]),
    (Broken::NoVersionInTheCommit, &["versions"]),
    (Broken::AcquireResetsEpoch, &["epochs"]),
    (Broken::NodeIgnoresItsLease, &["reads"]),
    (Broken::MarksAreNotWritten, &["effects"]),
    (Broken::RepliesAreNotKept, &["C", "inboxes", "runs", "liveness"]),
    (Broken::AnswerBeforeCommit, &["durability"]),
    (Broken::TimersAreNotWritten, &["schedules"]),
    (Broken::EffectsAreNotAwaited, &["schedules", "liveness", "C", "events", "invariants"]),
    (Broken::MemoryOutlivesTheStore, &["L1", "liveness"]),
    (Broken::RepeatsAreNewRequests, &["C", "inboxes", "runs", "liveness"]),
    (Broken::SentOnIsForgotten, &["inboxes"]),
    (Broken::SchedulesHaveNoWall, &["schedules"]),
];

/// A simulation that finds nothing proves nothing unless it finds what is there.
#[test]
fn every_broken_rule_is_found_out() {
    give_way().unwrap();
    for (broken, harms) in HARM {
        let mut runs = (0..200).map(|seed| sim::run(seed, Some(broken), false));
        let Some(report) = runs.find(|report| !report.broken.is_empty()) else {
            panic!("{broken:?} does no harm that the simulation sees");
        };
        let found = &report.broken[0];
        println!("{broken:?}: seed {}: {found}", report.seed);
        assert!(harms.iter().any(|harm| found.starts_with(harm)), "{broken:?}: {found}");
    }
    for (broken, harm, seed) in RARE {
        let found = sim::run(seed, Some(broken), false).broken;
        assert!(found.first().is_some_and(|found| found.starts_with(harm)), "{broken:?}: {found:?}");
    }
}
