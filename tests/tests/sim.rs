//! The simulation: thousands of clusters in which everything goes wrong, and what must hold all the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::atomic::{AtomicU64, Ordering};

use skein_tests::sim::{self, config::Broken};

#[test]
fn the_same_seed_gives_the_same_run() {
    for seed in 0..4 {
        let (first, again) = (sim::run(seed, None, false), sim::run(seed, None, false));
        assert_eq!((first.hash, first.events), (again.hash, again.events), "seed {seed}");
        assert!(first.events > 100, "seed {seed}: nothing happens");
    }
}

#[test]
fn whatever_goes_wrong_the_promises_hold() {
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= 200 {
                        return;
                    }
                    let report = sim::run(seed, None, false);
                    assert!(report.broken.is_empty(), "{}", report.explain());
                }
            });
        }
    });
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

/// What each broken rule leads to.
const HARM: [(Broken, &[&str]); 11] = [
    (Broken::NoFenceInTheCommit, &["fences"]),
    (Broken::NoVersionInTheCommit, &["versions"]),
    (Broken::AcquireResetsEpoch, &["epochs"]),
    (Broken::NodeIgnoresItsLease, &["reads"]),
    (Broken::MarksAreNotWritten, &["effects"]),
    (Broken::RepliesAreNotKept, &["C", "inboxes", "liveness"]),
    (Broken::AnswerBeforeCommit, &["durability"]),
    (Broken::TimersAreNotWritten, &["schedules"]),
    (Broken::EffectsAreNotAwaited, &["schedules", "runs", "liveness"]),
    (Broken::MemoryOutlivesTheStore, &["versions", "durability", "C", "inboxes", "schedules"]),
    (Broken::RepeatsAreNewRequests, &["C", "inboxes", "L", "liveness"]),
];

#[test]
fn every_broken_rule_is_found_out() {
    for (broken, harms) in HARM {
        let mut runs = (0..400).map(|seed| sim::run(seed, Some(broken), false));
        let Some(report) = runs.find(|report| !report.broken.is_empty()) else {
            panic!("{broken:?} does no harm that the simulation sees");
        };
        let found = &report.broken[0];
        println!("{broken:?}: seed {}: {found}", report.seed);
        assert!(harms.iter().any(|harm| found.starts_with(harm)), "{broken:?}: {found}");
    }
}
