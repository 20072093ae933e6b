//! A promise is a sentence with a test. This one sees to it that the tests named in `docs/semantics.md` exist.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeSet;
use std::path::Path;

fn collect(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, names);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            names.extend(functions.map(str::to_owned));
        }
    }
}

#[test]
fn every_promise_names_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut tests = BTreeSet::new();
    for package in ["shared", "proto", "coordinator", "runner", "tests"] {
        collect(&root.join(package), &mut tests);
    }
    let promises = std::fs::read_to_string(root.join("docs/semantics.md")).unwrap();
    let mut rows = 0;
    for row in promises.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| ---")) {
        let Some(kept_by) = row.trim_end_matches('|').rsplit('|').next().map(str::trim) else { continue };
        if kept_by == "kept by" {
            continue;
        }
        rows += 1;
        let named: Vec<&str> = kept_by.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "no test keeps this promise: {row}");
        for name in named {
            let test = name.rsplit("::").next().unwrap();
            assert!(tests.contains(test), "`{name}` is named in docs/semantics.md and does not exist");
        }
    }
    assert!(rows > 20, "the promises were not found");
}
