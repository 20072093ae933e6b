//! The compose file keeps what was promised of it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use skein_tests::up::binary;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The lines of a file that leaves things out, which are patterns.
fn patterns(path: &str) -> Vec<String> {
    let is_pattern = |line: &&str| !line.is_empty() && !line.starts_with('#');
    text(path).lines().map(str::trim).filter(is_pattern).map(str::to_owned).collect()
}

fn compose() -> Value {
    serde_saphyr::from_str(&text("compose/compose.yaml")).unwrap()
}

/// How many seconds a service has to end.
fn grace(service: &Value) -> u64 {
    let grace = service["stop_grace_period"].as_str().unwrap_or_default();
    grace.strip_suffix('s').and_then(|seconds| seconds.parse().ok()).unwrap_or_default()
}

/// Whoever waits for another service waits until that is healthy.
#[test]
fn every_service_of_the_compose_file_says_when_it_works_and_has_time_to_end() {
    let compose = compose();
    let services = compose["services"].as_object().unwrap();
    let awaited = |service: &Value| -> BTreeSet<String> {
        let awaited = service["depends_on"].as_object().cloned().unwrap_or_default();
        for (name, how) in &awaited {
            assert_eq!(how["condition"], json!("service_healthy"), "{name}");
        }
        awaited.into_iter().map(|(name, _)| name).collect()
    };
    let coordinators = ["coordinator-1", "coordinator-2", "coordinator-3"];
    for name in coordinators.into_iter().chain(["ingress"]) {
        let service = &services[name];
        assert_eq!(awaited(service), BTreeSet::from(["redis".to_owned()]), "{name}");
        assert!(grace(service) >= 90, "{name}: a drain may take as long");
        // That of the image holds.
        assert!(service["healthcheck"].is_null(), "{name}");
    }
    for name in ["runner-1", "runner-2"] {
        assert_eq!(awaited(&services[name]), coordinators.map(str::to_owned).into(), "{name}");
        assert!(grace(&services[name]) >= 90, "{name}: its agents have their grace");
    }
    let redis = &services["redis"];
    assert!(redis["healthcheck"]["test"].as_array().unwrap().contains(&json!("ping")), "{redis}");
    assert!(grace(redis) >= 30, "{redis}");
    let image = text("docker/Dockerfile.coordinator");
    assert!(image.contains("HEALTHCHECK") && image.contains(r#"CMD ["skein", "status"]"#));
    for image in [image, text("docker/Dockerfile.runner")] {
        assert!(image.contains("STOPSIGNAL SIGTERM"), "{image}");
    }
}

#[test]
fn the_compose_file_keeps_what_was_promised() {
    let compose = compose();
    let redis = compose["services"]["redis"]["command"].as_array().unwrap();
    let set = |flag: &str, value: &str| redis.windows(2).any(|pair| pair[0] == flag && pair[1] == value);
    assert!(set("--appendfsync", "always") && set("--appendonly", "yes"), "{redis:?}");
    assert!(set("--maxmemory-policy", "noeviction"), "{redis:?}");
    assert!(set("--rdbcompression", "no") && set("--auto-aof-rewrite-min-size", "512mb"), "{redis:?}");
    for (name, secret) in compose["secrets"].as_object().unwrap() {
        assert!(secret["file"].is_string(), "the secret {name} is no file");
    }
    let services = compose["services"].as_object().unwrap();
    let serving = |role: &str| {
        let is = move |service: &&Value| {
            let command = service["command"].as_array().cloned().unwrap_or_default();
            command.windows(2).any(|pair| pair[0] == "--roles" && pair[1] == role)
        };
        services.values().filter(is).count()
    };
    assert_eq!((serving("coordinator"), serving("ingress")), (3, 1));
    for runner in ["runner-1", "runner-2"] {
        let environment = &services[runner]["environment"];
        assert_eq!(environment["SKEIN_RUNNER_NAME"], json!(runner));
        let coordinators = environment["SKEIN_COORDINATORS"].as_str().unwrap();
        for one in ["coordinator-1", "coordinator-2", "coordinator-3"] {
            assert!(coordinators.contains(&format!("http://{one}:7701")), "{coordinators}");
        }
    }
    // A URL with a password stands in a secret alone.
    assert!(!text("compose/compose.yaml").contains("redis://"));
    builders_are_sent_no_secrets();
}

/// The whole repository is sent to whoever builds an image, and Docker does not ask git what belongs to it.
fn builders_are_sent_no_secrets() {
    let anywhere = patterns("../.gitignore").into_iter().map(|pattern| match pattern.strip_prefix('/') {
        Some(path) => path.to_owned(),
        None => format!("**/{pattern}"),
    });
    let beside = patterns("compose/.gitignore").into_iter();
    let beside = beside.map(|pattern| format!("deploy/compose/{}", pattern.trim_matches('/')));
    let kept_back: Vec<String> = anywhere.chain(beside).chain([".git".to_owned()]).collect();
    assert!(kept_back.iter().any(|path| path == "deploy/compose/secrets"), "{kept_back:?}");
    for image in ["coordinator", "runner"] {
        let ignored = patterns(&format!("docker/Dockerfile.{image}.dockerignore"));
        for path in &kept_back {
            let is_kept_back = ignored.contains(path) || ignored.contains(&format!("**/{path}"));
            assert!(is_kept_back, "whoever builds the image of the {image} is sent {path}");
        }
    }
}

/// A folder of secrets, with programs that stand in for those that root alone may use.
struct Secrets {
    place: tempfile::TempDir,
    programs: tempfile::TempDir,
}

impl Secrets {
    fn new() -> Self {
        let (place, programs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (name, does) in [("chown", "exit 0"), ("install", "for last; do :; done; mkdir -p \"$last\"")] {
            let program = programs.path().join(name);
            fs::write(&program, format!("#!/bin/sh\n{does}\n")).unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Self { place, programs }
    }

    fn make(&self) {
        let there = format!("cd {}", self.place.path().display());
        let script = text("compose/make-secrets").replace("cd /secrets", &there);
        let (stands_in, ours) = (self.programs.path().display(), binary("skein"));
        let ours = ours.parent().unwrap().display();
        let path = format!("{stands_in}:{ours}:{}", std::env::var("PATH").unwrap());
        let output = Command::new("bash").args(["-c", &script]).env("PATH", path).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn at(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// All files with what is in them.
    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut folders, mut found) = (vec![self.place.path().to_owned()], BTreeMap::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    found.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        found
    }
}

/// What was set since stands in `config.toml`, and nowhere else.
#[test]
fn secrets_that_are_made_again_complete_what_is_there_and_change_none_of_it() {
    let secrets = Secrets::new();
    secrets.make();
    let config = secrets.at("config.toml");
    let set = format!("{}\n[limits]\ndrain = \"11s\"\n", fs::read_to_string(&config).unwrap());
    fs::remove_file(&config).unwrap();
    fs::write(&config, set).unwrap();
    let whole = secrets.files();
    for gone in ["redis.acl", "runner-2.token", "node-2/secrets.json"] {
        fs::remove_file(secrets.at(gone)).unwrap();
    }
    secrets.make();
    let again = secrets.files();
    assert!(again.keys().eq(whole.keys()), "{:?}", again.keys());
    let is_new = |path: &PathBuf| path.starts_with(secrets.at("node-2")) || path.ends_with("runner-2.token");
    for (path, content) in whole.iter().filter(|(path, _)| !is_new(path)) {
        assert!(again[path] == *content, "{} is another one", path.display());
    }
}
