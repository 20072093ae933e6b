//! Dependencies point one way. The rules stand in `docs/architecture.md`; this test reads `cargo metadata` for
//! the packages and the sources for what the modules of the coordinator name.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, MetadataCommand};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_owned()
}

#[test]
fn packages_point_one_way() {
    let metadata = MetadataCommand::new().manifest_path(root().join("Cargo.toml")).no_deps().exec().unwrap();
    let allowed: [(&str, &[&str]); 5] = [
        ("skein-shared", &[]),
        ("skein-proto", &["skein-shared"]),
        ("skein-runner", &["skein-shared", "skein-proto"]),
        // `skein up` runs a runner in its own process.
        ("skein-coordinator", &["skein-shared", "skein-proto", "skein-runner"]),
        ("skein-tests", &["skein-shared", "skein-proto", "skein-runner", "skein-coordinator"]),
    ];
    for (package, may) in allowed {
        let found = metadata.packages.iter().find(|p| p.name.as_str() == package).unwrap();
        let uses: BTreeSet<&str> = found
            .dependencies
            .iter()
            .filter(|dependency| dependency.kind == DependencyKind::Normal)
            .map(|dependency| dependency.name.as_str())
            .filter(|name| name.starts_with("skein-"))
            .collect();
        let may: BTreeSet<&str> = may.iter().copied().collect();
        assert!(uses.is_subset(&may), "{package} depends on {uses:?}, and may only on {may:?}");
    }
}

#[test]
fn the_rules_of_the_swarm_are_pure() {
    let banned = [
        "tokio",
        "tonic",
        "axum",
        "rusqlite",
        "reqwest",
        "std::fs",
        "std::net",
        "std::thread",
        "SystemTime",
        "Instant::now",
        "HashMap",
        "HashSet",
        "async fn",
    ];
    for (file, text) in sources("shared/src") {
        for word in banned {
            assert!(
                !code(&text).contains(word),
                "{} names {word}: shared is pure and ordered",
                file.display()
            );
        }
    }
}

#[test]
fn each_outside_library_has_one_home() {
    let homes: [(&str, &[&str]); 8] = [
        ("use redis", &["store/redis"]),
        ("rusqlite", &["store/sqlite", "projection"]),
        ("rmcp", &["mcp/server", "mcp/connection"]),
        ("tonic", &["api", "cluster", "runners"]),
        ("ractor", &["entity"]),
        ("minijinja", &["console"]),
        ("skein_runner", &["node", "cli", "main.rs"]),
        // Whatever an agent asks for, no node starts a program for it: only people at a command line do.
        ("process::Command", &["cli", "demo"]),
    ];
    for (file, text) in sources("coordinator/src") {
        let place = file.to_string_lossy().into_owned();
        for (library, homes) in homes {
            let at_home = homes.iter().any(|home| place.starts_with(home));
            assert!(at_home || !names(&text, library), "{place} names {library}, whose home is {homes:?}");
        }
    }
}

/// What those know nothing of who speak to services outside.
const NODE: [&str; 8] = ["store", "cluster", "entity", "projection", "outbox", "service", "mcp", "auth"];

#[test]
fn the_coordinators_layers_point_down() {
    let outside = ["api", "console", "ingress", "node", "cli", "runners"].as_slice();
    let above: [(&str, [&[&str]; 2]); 18] = [
        ("store", [&["cluster", "entity", "projection", "outbox", "service", "mcp", "auth"], outside]),
        ("projection", [&["entity", "outbox", "service", "mcp", "auth"], outside]),
        ("entity", [&["outbox", "service", "mcp", "auth"], outside]),
        // It knows shards and nodes, and of what lives there only that it can leave and answer.
        ("cluster", [&["entity", "projection", "outbox", "service", "mcp", "auth"], outside]),
        ("slack", [&NODE, outside]),
        ("embeddings", [&NODE, outside]),
        ("x", [&NODE, outside]),
        ("outbox", [&["service", "mcp", "auth"], outside]),
        ("auth", [&["entity", "store", "service", "mcp"], outside]),
        ("vault", [&["entity", "store", "projection", "outbox", "service", "mcp"], outside]),
        ("service", [&["store", "mcp", "oauth"], outside]),
        ("mcp", [&["store", "entity", "projection", "compat", "gateway"], outside]),
        ("compat", [&["store", "entity", "projection", "gateway"], outside]),
        ("gateway", [&["store", "entity", "projection"], outside]),
        ("oauth", [&["store", "entity", "projection", "gateway"], outside]),
        (
            "console",
            [
                &["store", "entity", "projection", "mcp", "gateway"],
                &["api", "ingress", "node", "cli", "runners"],
            ],
        ),
        ("ingress", [&["store", "projection", "mcp"], &["console", "api", "cli", "runners"]]),
        ("api", [&["store", "mcp"], &["console", "ingress", "cli"]]),
    ];
    for (file, text) in sources("coordinator/src") {
        let place = file.to_string_lossy().into_owned();
        for (layer, banned) in above {
            if !place.starts_with(&format!("{layer}/")) {
                continue;
            }
            for other in banned.concat() {
                assert!(
                    !names(&text, &format!("crate::{other}")),
                    "{place} names crate::{other}, which stands above or beside it"
                );
            }
        }
    }
}

/// Whether the code, comments apart, names a path that begins so.
fn names(text: &str, path: &str) -> bool {
    code(text).match_indices(path).any(|(at, _)| {
        let text = code(text);
        let before = text[..at].chars().next_back();
        let after = text[at + path.len()..].chars().next();
        let word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':');
        !word(before) && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

/// The text without its comments and without its tests, which are the last in a file.
fn code(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let tests =
        |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].contains("mod ") && pair[1].ends_with('{');
    let end = lines.windows(2).position(tests).unwrap_or(lines.len());
    lines[..end].iter().map(|line| line.split("//").next().unwrap_or_default()).collect::<Vec<_>>().join("\n")
}

#[test]
fn what_stands_behind_tests_in_another_file_is_seen() {
    let apart = code("#[cfg(test)]\nmod tests;\nuse crate::mcp; // and more\n");
    assert!(names(&apart, "crate::mcp") && !apart.contains("more"), "{apart}");
    let inline = code("use crate::store;\n#[cfg(test)]\nmod tests {\n    use crate::mcp;\n}\n");
    assert!(names(&inline, "crate::store") && !names(&inline, "crate::mcp"), "{inline}");
}

/// Every source below a folder with its path from there. Files that hold tests alone are left out.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let base = root().join(folder);
    let mut found = Vec::new();
    let mut folders = vec![base.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.extend(Some(path).filter(|path| !path.ends_with("tests")));
            } else if path.extension().is_some_and(|e| e == "rs")
                && path.file_name().is_none_or(|name| name != "tests.rs")
            {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path.strip_prefix(&base).unwrap().to_owned(), text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources below {folder}");
    found
}
