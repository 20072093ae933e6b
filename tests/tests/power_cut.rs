//! A power cut in the middle of task cycles and messages: what was acknowledged is on the disk, and nothing else
//! is. Needs root and loop devices; elsewhere it says so and proves nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::process::Command;

use serde_json::Value;

#[test]
fn a_power_cut_loses_nothing_that_was_acknowledged() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let results = folder.path().join("results.json");
    let status = Command::new(env!("CARGO_BIN_EXE_skein-bench"))
        .args(["run", "power_cut", "--quick"])
        .arg("--json")
        .arg(&results)
        .arg("--charts")
        .arg(folder.path())
        .arg("--work")
        .arg(folder.path().join("work"))
        .status()
        .unwrap();
    assert!(status.success(), "the load or the cut failed");
    let results: Value = serde_json::from_slice(&std::fs::read(results).unwrap()).unwrap();
    let report = &results["benches"][0];
    let remarks = &report["remarks"];
    if report["goals"][0]["measured"].is_null() {
        let user = Command::new("id").arg("-u").output().unwrap();
        assert_ne!(user.stdout, b"0\n", "root can mount, so this must be tested: {remarks}");
        eprintln!("NOT TESTED, it needs root: {remarks}");
        return;
    }
    let measured = |goal: usize| report["goals"][goal]["measured"]["median"].as_f64().unwrap();
    assert_eq!(
        (measured(0), measured(1), measured(2)),
        (0.0, 0.0, 0.0),
        "lost, invented, unopened: {remarks}"
    );
    assert!(measured(3) >= 1.0, "a store that does not flush passed: the check finds nothing");
}
