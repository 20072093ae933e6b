//! The simulation: thousands of clusters in which everything goes wrong, and what must hold all the same.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::process::Command;

use skein_tests::sim;
use skein_tests::sim::config::Broken;

/// Seeds of each of the two tests that run many; `SKEIN_SIM_SEEDS` says another number.
const SEEDS: u64 = 1000;

fn seeds() -> u64 {
    std::env::var("SKEIN_SIM_SEEDS").map_or(SEEDS, |text| text.parse().expect("SKEIN_SIM_SEEDS is a number"))
}

#[track_caller]
fn hold(seeds: impl Iterator<Item = u64>) {
    let (mut runs, mut operations) = (0, 0);
    for seed in seeds {
        let report = sim::run(seed, None, false);
        assert!(report.broken.is_empty(), "{}", report.explain());
        (runs, operations) = (runs + 1, operations + report.operations);
    }
    println!("{runs} runs, {operations} operations");
    assert!(operations > runs * 50, "{operations} operations in {runs} runs: nothing happens");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let mut events = 0;
    for seed in 0..20 {
        let (first, again) = (sim::run(seed, None, false), sim::run(seed, None, false));
        assert_eq!((first.hash, first.events), (again.hash, again.events), "seed {seed}");
        events += first.events;
    }
    assert!(events > 20 * 100, "{events} events: nothing happens");
}

/// The same seeds at each change: whatever was found by one of them stays found.
#[test]
fn whatever_goes_wrong_the_promises_hold() {
    hold(0..seeds());
}

/// Others at each commit.
#[test]
fn whatever_goes_wrong_in_runs_that_were_never_tried_the_promises_hold() {
    let asked = Command::new("git").args(["rev-parse", "HEAD"]).output().unwrap();
    let commit = String::from_utf8(asked.stdout).unwrap();
    let digits = commit.get(..12).expect("the tests run in a clone");
    let first = u64::from_str_radix(digits, 16).unwrap() << 16;
    hold((first..).take(usize::try_from(seeds()).unwrap()));
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
    (Broken::RepliesAreNotKept, &["C", "inboxes", "runs", "liveness"]),
    (Broken::AnswerBeforeCommit, &["durability"]),
    (Broken::TimersAreNotWritten, &["schedules"]),
    (Broken::EffectsAreNotAwaited, &["schedules", "liveness", "C"]),
    (Broken::MemoryOutlivesTheStore, &["L1", "liveness"]),
    (Broken::RepeatsAreNewRequests, &["C", "inboxes", "runs", "liveness"]),
];

/// A simulation that finds nothing proves nothing unless it finds what is there.
#[test]
fn every_broken_rule_is_found_out() {
    for (broken, harms) in HARM {
        let mut runs = (0..200).map(|seed| sim::run(seed, Some(broken), false));
        let Some(report) = runs.find(|report| !report.broken.is_empty()) else {
            panic!("{broken:?} does no harm that the simulation sees");
        };
        let found = &report.broken[0];
        println!("{broken:?}: seed {}: {found}", report.seed);
        assert!(harms.iter().any(|harm| found.starts_with(harm)), "{broken:?}: {found}");
    }
}
