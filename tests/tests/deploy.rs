//! What `deploy/` says about the programs is true of them. Commands, flags and variables are looked up in the programs'
//! own help, metrics where they are counted.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use skein_coordinator::alarms::Kind;
use skein_coordinator::config::Provider;
use skein_tests::deployed::{text, texts};
use skein_tests::up::{Folder, Up, binary};

/// Every text below `deploy/`, with its path.
fn deployed() -> Vec<(String, String)> {
    let found = texts("deploy", "");
    assert!(found.len() > 15, "deploy/ has {} files", found.len());
    found
}

// --- what is said about the programs ---

/// The commands in a text: in lists below `command:` and `args:`, in JSON arrays, and in lines of a shell.
fn commands(text: &str) -> Vec<Vec<String>> {
    let plain = text.replace("[\"", "").replace("\", \"", " ").replace("\"]", "");
    let mut found = Vec::new();
    let lines: Vec<&str> = plain.lines().collect();
    for (at, line) in lines.iter().enumerate() {
        if matches!(line.trim(), "command:" | "args:") {
            let items = lines[at + 1..].iter().map_while(|line| line.trim().strip_prefix("- "));
            let words: Vec<String> = items.map(|item| item.trim_matches('"').to_owned()).collect();
            if words.first().is_some_and(|word| word == "serve") {
                found.push([vec!["skein".to_owned()], words].concat());
            }
        }
        if let Some(rest) = line.strip_prefix("CMD serve") {
            found.push(words(&format!("skein serve{rest}")));
        }
        let spoken = line.trim().replace("/usr/local/bin/", "");
        for program in ["skein ", "skein-runner "] {
            for (at, _) in spoken.match_indices(program) {
                let before = &spoken[..at];
                let starts = ["`", "'", "&& ", "-- ", "- ", "CMD ", "ExecStart=", "coordinator-1 "];
                if before.is_empty() || starts.iter().any(|start| before.ends_with(start)) {
                    found.push(words(&spoken[at..]));
                }
            }
        }
    }
    found
}

/// The words of a command up to where it ends.
fn words(command: &str) -> Vec<String> {
    let end = command.find(['`', ';', '>', '|', '#', '&']).unwrap_or(command.len());
    command[..end].split_whitespace().map(|word| word.trim_matches('"').to_owned()).collect()
}

/// What the programs say of themselves, asked once for each command.
#[derive(Default)]
struct Manual(BTreeMap<Vec<String>, String>);

impl Manual {
    fn page(&mut self, command: &[String]) -> &str {
        self.0.entry(command.to_vec()).or_insert_with(|| {
            let output =
                Command::new(binary(&command[0])).args(&command[1..]).arg("--help").output().unwrap();
            assert!(output.status.success(), "{} --help ended with {}", command.join(" "), output.status);
            String::from_utf8(output.stdout).unwrap()
        })
    }

    /// What is wrong with a command, if anything.
    fn judge(&mut self, command: &[String]) -> Result<(), String> {
        let mut known = 1;
        loop {
            let page = self.page(&command[..known]);
            let Some((_, list)) = page.split_once("\nCommands:\n") else { break };
            let names: Vec<&str> = list
                .lines()
                .take_while(|line| !line.is_empty())
                .filter_map(|line| line.split_whitespace().next())
                .collect();
            match command.get(known) {
                Some(word) if names.contains(&word.as_str()) => known += 1,
                Some(word) if !word.starts_with("--") => return Err(format!("there is no command {word}")),
                _ => break,
            }
        }
        let page = self.page(&command[..known]).to_owned();
        let offered: BTreeSet<&str> =
            page.split([' ', ',', '=', '\n', '[', ']']).filter(|word| word.starts_with("--")).collect();
        for word in &command[known..] {
            let flag = word.split('=').next().unwrap_or_default();
            if flag.starts_with("--") && !offered.contains(flag) {
                return Err(format!("there is no flag {flag}"));
            }
        }
        Ok(())
    }
}

#[test]
fn every_command_and_flag_exists() {
    let (mut manual, mut wrong, mut seen) = (Manual::default(), Vec::new(), BTreeSet::new());
    for (file, text) in deployed() {
        for command in commands(&text) {
            seen.insert(command.iter().take(3).cloned().collect::<Vec<_>>().join(" "));
            if let Err(problem) = manual.judge(&command) {
                wrong.push(format!("{file}: {}: {problem}", command.join(" ")));
            }
        }
    }
    for expected in ["skein serve --roles", "skein cluster drain", "skein token issue", "skein status"] {
        assert!(seen.contains(expected), "{expected} was not found among {seen:?}");
    }
    assert!(seen.iter().any(|command| command.starts_with("skein-runner --")), "{seen:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));

    let command = |line: &str| words(line);
    assert!(manual.judge(&command("skein serve --no-such-flag")).is_err());
    assert!(manual.judge(&command("skein no-such-command")).is_err());
}

/// The variables in a text. `${SKEIN_…}` is for who starts the containers, and no program sees it.
fn variables(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("SKEIN_") {
        let name: String = text[at..]
            .chars()
            .take_while(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || *c == '_')
            .collect();
        if !text[..at].ends_with("${") {
            found.insert(name);
        }
    }
    found
}

fn serve_with(variable: &str) -> Output {
    // Settings are read before the folder is made, which is impossible: so this always ends.
    let mut command = Command::new(binary("skein"));
    command.args(["serve", "--data", "/dev/null/none"]).env(variable, "1").output().unwrap()
}

#[test]
fn every_variable_is_read() {
    let mut manual = Manual::default();
    let mut pages = manual.page(&["skein".to_owned(), "serve".to_owned()]).to_owned();
    pages.push_str(manual.page(&["skein-runner".to_owned()]));
    let unknown = |output: &Output| String::from_utf8_lossy(&output.stderr).contains("there is no setting");
    assert!(unknown(&serve_with("SKEIN_LISTEN__NONE")), "an unknown setting is not told apart");

    let mut count = 0;
    for (file, text) in deployed() {
        // What people read names the variables of `docker compose` too.
        if file.ends_with(".md") {
            continue;
        }
        for name in variables(&text) {
            count += 1;
            if name.contains("__") {
                let output = serve_with(&name);
                assert!(!unknown(&output), "{file}: {name}: {}", String::from_utf8_lossy(&output.stderr));
            } else {
                assert!(
                    pages.contains(&format!("[env: {name}")),
                    "{file}: no program says that it reads {name}"
                );
            }
        }
    }
    assert!(count > 10, "{count} variables were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_probe_is_answered() -> Result<()> {
    let mut paths = BTreeSet::new();
    for (_, text) in deployed() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        for pair in lines.windows(2).filter(|pair| pair[0] == "httpGet:") {
            paths.insert(pair[1].strip_prefix("path: ").context("a probe begins with its path")?.to_owned());
        }
    }
    ensure!(paths.len() >= 2, "only {paths:?} was found");
    let up = Up::serve_in(Folder::new()?, &[]).await?;
    for path in paths {
        let url = format!("{}{path}", up.mcp.trim_end_matches("/mcp"));
        let status = reqwest::get(&url).await?.status();
        ensure!(status.is_success(), "{path} is answered with {status}");
    }
    // The images' own check.
    up.skein(&["status"]).await?;
    up.terminate().await?;
    Ok(())
}

// --- systemd ---

/// The units, by what they start: its words, and all lines.
fn units() -> Vec<(Vec<String>, Vec<String>)> {
    let mut found = Vec::new();
    for (_, unit) in texts("deploy/systemd", ".service") {
        let lines: Vec<String> = unit.lines().map(str::to_owned).collect();
        let start = lines.iter().find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/")).unwrap();
        found.push((words(start), lines));
    }
    assert_eq!(found.len(), 4);
    found
}

#[test]
fn every_unit_waits_until_its_program_says_that_it_works_and_has_time_to_end() {
    for (command, lines) in units() {
        let seconds = |name: &str| {
            let set = lines.iter().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            set.and_then(|seconds| seconds.parse::<u64>().ok())
        };
        assert!(lines.iter().any(|line| line == "Type=notify"), "{command:?}");
        assert_eq!(seconds("LimitNOFILE"), Some(524_288), "{command:?}: systemd would give it 1,024");
        let runs_agents = command[0] == "skein-runner" || command[1] == "up";
        let after = lines.iter().find(|line| line.starts_with("After=")).unwrap();
        assert_eq!(after.contains("docker.service"), runs_agents, "{command:?}");
        // Longer than a drain may take: four steps of 20 s, of which the end of a runner has 15 s more.
        let least = if command[1] == "up" { 95 } else { 80 };
        assert!(seconds("TimeoutStopSec").is_some_and(|limit| limit > least), "{command:?}");
        if command[0] == "skein" {
            assert_eq!(seconds("TimeoutStartSec"), Some(300), "{command:?}");
        }
    }
}

/// Each listens for runners, whatever its role.
#[test]
fn a_coordinator_and_an_ingress_find_room_on_one_machine() {
    let mut taken = BTreeSet::new();
    for (command, _) in units().into_iter().filter(|(command, _)| command[1] == "serve") {
        let flags = if command.contains(&"ingress".to_owned()) { 3 } else { 2 };
        for flag in ["--listen", "--grpc", "--ingress"].into_iter().take(flags) {
            let at = command.iter().position(|word| word == flag).map(|at| &command[at + 1]);
            let port = at.unwrap_or_else(|| panic!("{command:?} has no {flag}")).rsplit(':').next();
            assert!(taken.insert(port.unwrap().to_owned()), "{command:?}: {flag} is taken");
        }
    }
    assert_eq!(taken.len(), 5);
}

// --- metrics ---

/// The names of metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    let is_part = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '_';
    let words = text.split(|letter: char| !is_part(letter)).filter(|word| word.starts_with("skein_"));
    words.map(str::to_owned).collect()
}

/// Those that the coordinator counts.
fn counted() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for (_, code) in texts("coordinator/src", ".rs") {
        for begin in ["counter!(\"", "gauge!(\"", "histogram!(\"", "metric: \""] {
            let names = code.split(begin).skip(1).filter_map(|rest| rest.split('"').next());
            found.extend(names.filter(|name| name.starts_with("skein_")).map(str::to_owned));
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

#[test]
fn every_kind_of_alarm_is_in_the_guide() {
    let guide = text("docs/operators.md");
    for kind in Kind::ALL {
        assert!(guide.contains(&format!("\n| `{}` | ", kind.as_str())), "{kind:?}");
    }
}

#[test]
fn every_provider_has_its_keys_in_the_guide() {
    let guide = text("docs/operators.md");
    let (_, keys) = guide
        .split_once("\n| provider | keys beside `source`, `event`, `match` |\n")
        .expect("the guide lists the keys of subscriptions");
    let (table, _) = keys.split_once("\n\n").expect("the table ends");
    let rows: Vec<&str> = table.lines().filter_map(|row| row.split('|').nth(1)).collect();
    for provider in Provider::ALL.map(Provider::as_str) {
        assert!(rows.iter().any(|row| row.contains(&format!("`{provider}`"))), "{provider}");
    }
}

#[test]
fn every_metric_is_in_the_guide_and_what_the_alerts_ask_for_is_counted() {
    let guide = text("docs/operators.md");
    let (_, look) = guide.split_once("\n| metric | what it says |\n").expect("the guide lists the metrics");
    let (table, _) = look.split_once("\n\n").expect("the table ends");
    assert_eq!(metrics(table), counted(), "the guide has others than are counted");

    let rules: Value = serde_saphyr::from_str(&text("deploy/prometheus/alerts.yaml")).unwrap();
    let rules =
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let mut asked = BTreeSet::new();
    for rule in rules {
        assert!(rule["alert"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
        let expression = rule["expr"].as_str().unwrap();
        let names = metrics(expression);
        assert!(!names.is_empty() || expression.starts_with("up{"), "{rule}");
        asked.extend(names);
    }
    assert!(asked.len() > 5, "{asked:?}");
    let unknown: Vec<_> = asked.difference(&counted()).cloned().collect();
    assert!(unknown.is_empty(), "nobody counts {unknown:?}");
}

/// Alarms are of embedded nodes too, which are no cluster.
#[test]
fn the_alert_of_an_alarm_names_a_command_of_every_node() {
    let rules: Value = serde_saphyr::from_str(&text("deploy/prometheus/alerts.yaml")).unwrap();
    let mut rules =
        rules["groups"].as_array().unwrap().iter().flat_map(|group| group["rules"].as_array().unwrap());
    let alarm = rules.find(|rule| rule["alert"] == "SkeinAlarm").expect("there is an alert of alarms");
    let summary = alarm["annotations"]["summary"].as_str().unwrap();
    assert!(summary.contains("`skein status`"), "{summary}");
}
