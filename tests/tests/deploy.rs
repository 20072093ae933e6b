//! What `deploy/` says about the programs is true of them, and the chart refuses values that do not fit. Commands,
//! flags and variables are looked up in the programs' own help.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::up::{Folder, Up, binary};

const CHART: &str = "deploy/helm/skein";
/// Values that go through every branch of the chart.
const EVERY_VALUE: &str = "tests/deploy/every_value.yaml";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests stand in the workspace").to_owned()
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every text below `deploy/`, with its path.
fn deployed() -> Vec<(String, String)> {
    let (base, mut found) = (root(), Vec::new());
    let mut folders = vec![base.join("deploy")];
    while let Some(folder) = folders.pop() {
        // Who has tried the compose file has secrets here, which only their readers can open.
        if folder.ends_with("compose/secrets") {
            continue;
        }
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&base).unwrap().to_string_lossy().into_owned();
                found.push((name, std::fs::read_to_string(&path).unwrap()));
            }
        }
    }
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
                let starts = ["`", "-- ", "- ", "CMD ", "ExecStart=", "coordinator-1 "];
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

#[test]
fn every_unit_waits_until_its_program_says_that_it_works() {
    let units: Vec<(String, String)> =
        deployed().into_iter().filter(|(file, _)| file.ends_with(".service")).collect();
    assert_eq!(units.len(), 4);
    for (file, unit) in units {
        assert!(unit.lines().any(|line| line == "Type=notify"), "{file}");
        // Longer than a drain may take.
        assert!(unit.lines().any(|line| line == "TimeoutStopSec=90"), "{file}");
    }
}

// --- the chart ---

/// Puts `over` over `under`, as Helm does.
fn merge(under: &mut Value, over: &Value) {
    match (under, over) {
        (Value::Object(under), Value::Object(over)) => {
            for (key, value) in over {
                merge(under.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (under, over) => *under = over.clone(),
    }
}

fn values(over: &Value) -> Value {
    let mut values = yaml(&format!("{CHART}/values.yaml"));
    merge(&mut values, over);
    values
}

/// Values with one mistake each.
fn mistakes() -> Vec<Value> {
    vec![
        json!({"coordinators": {"replicas": 0}}),
        json!({"coordinators": {"replicas": "three"}}),
        json!({"coordinators": {"replica": 3}}),
        json!({"coordinators": {"terminationGracePeriodSeconds": 5}}),
        json!({"coordinators": {"publicUrl": "skein.example"}}),
        json!({"coordinators": {"persistence": {"size": "plenty"}}}),
        json!({"coordinators": {"resources": {"requests": {"memory": "1 GiB"}}}}),
        json!({"redis": {"durability": "sometimes"}}),
        json!({"redis": {"url": "localhost:6379"}}),
        json!({"redis": {"url": "http://redis"}}),
        json!({"redis": {"existingSecret": ""}}),
        json!({"redis": {"ports": []}}),
        json!({"redis": {"tls": {"ca": "ca.pem"}}}),
        json!({"authority": {"existingSecret": ""}}),
        json!({"authority": {"days": 0}}),
        json!({"image": {"runner": {"pullPolicy": "Sometimes"}}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "gitbub", "existingSecret": "s", "key": "k"}]}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "github"}]}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "github", "existingSecret": "s", "key": "k", "bot": ""}]}}),
        json!({"runners": [{"name": "Runner 1", "existingSecret": "s", "key": "token"}]}),
        json!({"runners": [{"name": "runner-1"}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token", "slots": 0}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token", "labels": {"a": "b,c"}}]}),
        json!({"agents": {"a/b": "command = []"}}),
        json!({"podDisruptionBudget": {"maxUnavailable": 0}}),
        json!({"networkPolicy": {"clients": [{}]}}),
        json!({"unheardOf": true}),
    ]
}

#[test]
fn the_charts_values_follow_its_schema_and_mistakes_are_refused() {
    let schema: Value = serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    for good in [json!({}), yaml(EVERY_VALUE)] {
        let problems: Vec<String> =
            schema.iter_errors(&values(&good)).map(|e| format!("{}: {e}", e.instance_path())).collect();
        assert!(problems.is_empty(), "{}", problems.join("\n"));
    }
    for mistake in mistakes() {
        assert!(!schema.is_valid(&values(&mistake)), "{mistake} is let through");
    }
}

#[test]
fn the_chart_is_of_this_version() {
    let chart = yaml(&format!("{CHART}/Chart.yaml"));
    assert_eq!(chart["appVersion"], json!(env!("CARGO_PKG_VERSION")));
    assert!(
        text("deploy/compose/compose.yaml")
            .contains(&format!("${{SKEIN_VERSION:-{}}}", env!("CARGO_PKG_VERSION")))
    );
}

/// The chart with these values as Helm renders it, or why it does not.
fn rendered(over: &Value) -> Result<Vec<Value>, String> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.json");
    std::fs::write(&file, over.to_string()).unwrap();
    let mut helm =
        Command::new(std::env::var_os("SKEIN_TEST_HELM").expect("./tests/run installs Helm and says where"));
    helm.arg("template")
        .arg("flock")
        .arg(root().join(CHART))
        .arg("--namespace=geese")
        .arg("--values")
        .arg(file);
    let output = helm.output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

fn of_kind<'a>(documents: &'a [Value], kind: &str) -> Vec<&'a Value> {
    documents.iter().filter(|document| document["kind"] == json!(kind)).collect()
}

/// The pods of everything that has some.
fn pods(documents: &[Value]) -> Vec<&Value> {
    let kinds = ["StatefulSet", "Deployment", "DaemonSet"];
    kinds
        .iter()
        .flat_map(|kind| of_kind(documents, kind))
        .map(|document| &document["spec"]["template"])
        .collect()
}

/// Whether labels have what a selector asks for.
fn selects(selector: &Value, labels: &Value) -> bool {
    let wanted = selector.get("matchLabels").unwrap_or(selector).as_object().unwrap();
    wanted.iter().all(|(key, value)| &labels[key] == value)
}

#[test]
fn the_chart_is_rendered_whole() {
    for over in [json!({}), yaml(EVERY_VALUE)] {
        let documents = rendered(&over).unwrap();
        assert!(!documents.iter().any(|document| document.to_string().contains("hush")), "a secret is shown");
        for pod in pods(&documents) {
            pods_are_confined_and_end_gently(pod);
        }
        selectors_find_their_pods(&documents);
        streams_go_to_every_coordinator(&documents, &values(&over));
        settings_are_read(&documents);
        secrets_are_mounted(&documents, &values(&over));
    }
}

fn pods_are_confined_and_end_gently(pod: &Value) {
    let spec = &pod["spec"];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], json!(true), "{pod}");
    // Longer than a drain may take: a process that is killed leaves its leases behind.
    assert!(spec["terminationGracePeriodSeconds"].as_u64().unwrap() >= 90, "{pod}");
    for container in spec["containers"].as_array().unwrap() {
        assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], json!(false), "{container}");
        if container["name"] == json!("runner") {
            continue;
        }
        for hook in ["startupProbe", "readinessProbe", "livenessProbe"] {
            assert!(container[hook]["httpGet"]["path"].is_string(), "{} has no {hook}", container["name"]);
        }
        assert!(container["lifecycle"]["preStop"].is_object(), "{container}");
    }
}

fn selectors_find_their_pods(documents: &[Value]) {
    let pods = pods(documents);
    for kind in ["Service", "PodDisruptionBudget"] {
        let found = of_kind(documents, kind);
        assert!(!found.is_empty(), "there is no {kind}");
        for one in found {
            let selector = &one["spec"]["selector"];
            let selected = pods.iter().filter(|pod| selects(selector, &pod["metadata"]["labels"])).count();
            assert_eq!(selected, 1, "{kind} {}: pods of one kind and no others", one["metadata"]["name"]);
        }
    }
    let policies = of_kind(documents, "NetworkPolicy");
    for pod in pods {
        let held = |policy: &&Value| selects(&policy["spec"]["podSelector"], &pod["metadata"]["labels"]);
        assert!(policies.iter().any(held), "no network policy holds {pod}");
    }
}

fn streams_go_to_every_coordinator(documents: &[Value], values: &Value) {
    let set = of_kind(documents, "StatefulSet")[0];
    let (name, service) =
        (set["metadata"]["name"].as_str().unwrap(), set["spec"]["serviceName"].as_str().unwrap());
    let headless =
        of_kind(documents, "Service").into_iter().find(|one| one["metadata"]["name"] == json!(service));
    assert_eq!(headless.unwrap()["spec"]["clusterIP"], json!("None"));
    let expected: Vec<String> = (0..values["coordinators"]["replicas"].as_u64().unwrap())
        .map(|number| format!("http://{name}-{number}.{service}.geese.svc:7701"))
        .collect();
    let runners: Vec<&Value> = pods(documents)
        .into_iter()
        .map(|pod| &pod["spec"]["containers"][0])
        .filter(|container| container["name"] == json!("runner"))
        .collect();
    assert_eq!(runners.len(), values["runners"].as_array().unwrap().len());
    for runner in runners {
        let variables = runner["env"].as_array().unwrap();
        let coordinators = variables.iter().find(|one| one["name"] == json!("SKEIN_COORDINATORS")).unwrap();
        assert_eq!(coordinators["value"], json!(expected.join(",")));
    }
}

/// Every `config.toml` of the chart is one that a node takes, and every agent's definition is TOML.
fn settings_are_read(documents: &[Value]) {
    let folder = tempfile::tempdir().unwrap();
    for name in ["github", "builds"] {
        std::fs::write(folder.path().join(name), "a secret of a test").unwrap();
    }
    std::fs::create_dir(folder.path().join("slack")).unwrap();
    std::fs::write(folder.path().join("slack/bot"), "xoxb-of-a-test").unwrap();
    let place = folder.path().to_string_lossy().into_owned();
    let mut count = 0;
    for map in of_kind(documents, "ConfigMap") {
        for (name, text) in map["data"].as_object().unwrap() {
            let text = text.as_str().unwrap().replace("/run/skein/sources", &place);
            let text = text.replace("/run/skein/secrets", &place);
            if name == "config.toml" {
                let file = folder.path().join(name);
                std::fs::write(&file, text).unwrap();
                skein_coordinator::config::load(&file, &skein_coordinator::config::Overrides::default())
                    .unwrap();
                count += 1;
            } else {
                assert!(text.contains("command = "), "{name} is cut short: {text}");
            }
        }
    }
    assert_eq!(count, 2);
}

/// With all who read settings, and with nobody else.
fn secrets_are_mounted(documents: &[Value], values: &Value) {
    let secrets = values["secrets"].as_array().unwrap();
    for pod in pods(documents) {
        let container = &pod["spec"]["containers"][0];
        let mounted = |secret: &Value| {
            let name = format!("secret-{}", secret.as_str().unwrap());
            let place = format!("/run/skein/secrets/{}", secret.as_str().unwrap());
            let volumes = pod["spec"]["volumes"].as_array().unwrap();
            let mounts = container["volumeMounts"].as_array().unwrap();
            volumes.iter().any(|one| one["name"] == name && one["secret"]["secretName"] == *secret)
                && mounts.iter().any(|one| one["name"] == name && one["mountPath"] == place)
        };
        let wanted = if container["name"] == json!("runner") { 0 } else { secrets.len() };
        assert_eq!(secrets.iter().filter(|secret| mounted(secret)).count(), wanted, "{pod}");
    }
}

#[test]
fn helm_refuses_mistakes() {
    for mistake in mistakes() {
        assert!(rendered(&mistake).is_err(), "{mistake} is rendered");
    }
}
