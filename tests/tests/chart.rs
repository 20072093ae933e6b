//! The chart is rendered whole, what it makes fits together, and it refuses values that do not.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use skein_coordinator::config::{self, Overrides};
use skein_runner::credentials::{Credentials, Reference};
use skein_tests::deployed::{root, text};
use skein_tests::up::binary;

const CHART: &str = "deploy/helm/skein";
/// Values that go through every branch of the chart.
const EVERY_VALUE: &str = "tests/deploy/every_value.yaml";

fn yaml(path: &str) -> Value {
    serde_saphyr::from_str(&text(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

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

/// A source of webhooks, with its secret.
fn source(said: Value) -> Value {
    let mut source = json!({"existingSecret": "s", "key": "k"});
    source.as_object_mut().unwrap().extend(said.as_object().unwrap().clone());
    json!({"ingress": {"sources": [source]}})
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
        json!({"secrets": ["s".repeat(57)]}),
        json!({"authority": {"existingSecret": ""}}),
        json!({"authority": {"days": 0}}),
        json!({"image": {"runner": {"pullPolicy": "Sometimes"}}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "gitbub", "existingSecret": "s", "key": "k"}]}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "github"}]}}),
        json!({"ingress": {"sources": [{"name": "hub", "provider": "github", "existingSecret": "s", "key": "k", "bot": ""}]}}),
        source(json!({"name": "hub--two", "provider": "github"})),
        source(json!({"name": "hub", "provider": "github", "bot": "@skein"})),
        source(json!({"name": "hub", "provider": "github", "bot": "skein[bot]"})),
        source(json!({"name": "hub", "provider": "linear", "bot": "skein"})),
        source(json!({"name": "hub", "provider": "github", "allowedUsers": ["ada"]})),
        source(json!({"name": "hub", "provider": "github", "bot": "skein", "allowedUsers": ["@ada"]})),
        source(json!({"name": "hub", "provider": "github", "inboxDomains": ["example.org"]})),
        source(json!({"name": "hub", "provider": "github", "senderDomains": ["example.org"]})),
        source(json!({"name": "mail", "provider": "agentmail", "senderDomains": ["@example.org"]})),
        json!({"runners": [{"name": "a--b", "existingSecret": "s", "key": "token"}]}),
        json!({"runners": [{"name": "Runner 1", "existingSecret": "s", "key": "token"}]}),
        json!({"runners": [{"name": "runner-1"}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token", "slots": 0}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token", "labels": {"a": "b,c"}}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token", "credentials": [{"name": "k"}]}]}),
        json!({"runners": [{"name": "r", "existingSecret": "s", "key": "token",
            "credentials": [{"name": "../k", "existingSecret": "s", "key": "k"}]}]}),
        json!({"agents": {"a/b": "command = []"}}),
        json!({"agents": {"a--b": "command = []"}}),
        json!({"podDisruptionBudget": {"maxUnavailable": 0}}),
        json!({"networkPolicy": {"clients": [{}]}}),
        json!({"networkPolicy": {"dns": [{}]}}),
        json!({"networkPolicy": {"dnsPorts": []}}),
        json!({"networkPolicy": {"dnsPorts": ["dns"]}}),
        json!({"coordinators": {"service": {"ipFamilyPolicy": "Both"}}}),
        json!({"unheardOf": true}),
    ]
}

#[test]
fn the_charts_values_follow_its_schema_and_mistakes_are_refused() {
    let schema: Value = serde_json::from_str(&text(&format!("{CHART}/values.schema.json"))).unwrap();
    jsonschema::meta::validate(&schema).unwrap();
    let schema = jsonschema::validator_for(&schema).unwrap();
    // It is compared without the space.
    let spaced = source(json!({"name": "mail", "provider": "agentmail", "inboxDomains": [" example.org"]}));
    for good in [json!({}), json!({"secrets": ["s".repeat(56)]}), spaced, yaml(EVERY_VALUE)] {
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
        doors_are_open_to_both_kinds_of_addresses(&documents);
        names_are_found(&documents, &values(&over));
        runners_find_coordinators(&documents, &values(&over));
        settings_are_read(&documents);
        secrets_are_mounted(&documents, &values(&over));
        credentials_are_found(&documents, &values(&over));
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

/// Whichever kind a cluster has, its pods listen on, and name themselves to the others by.
fn doors_are_open_to_both_kinds_of_addresses(documents: &[Value]) {
    let mut count = 0;
    for pod in pods(documents) {
        let Some(arguments) = pod["spec"]["containers"][0]["args"].as_array() else { continue };
        let given = |flag: &str| {
            let at = arguments.iter().position(|one| one == flag)?;
            Some(arguments[at + 1].as_str().unwrap().to_owned())
        };
        for door in ["--listen", "--grpc", "--ingress"].into_iter().filter_map(given) {
            assert_eq!(door.parse::<SocketAddr>().unwrap().ip(), IpAddr::V6(Ipv6Addr::UNSPECIFIED));
            count += 1;
        }
        for address in ["10.0.0.9", "fd00::9"] {
            let node = given("--node-addr").unwrap().replace("$(POD_IP)", address);
            let said = Overrides { node: Some(node), ..Overrides::default() };
            let config = config::load(Path::new("/nowhere/config.toml"), &said).unwrap();
            let used: SocketAddr = config.cluster.node.parse().unwrap();
            assert_eq!((used.ip().to_string(), used.port()), (address.to_owned(), 7703));
        }
    }
    assert_eq!(count, 4);
}

/// A policy sees the port behind a Service, which for the DNS is another one with some.
fn names_are_found(documents: &[Value], values: &Value) {
    let ports = values["networkPolicy"]["dnsPorts"].as_array().unwrap().iter();
    let wanted: Vec<Value> = ports
        .flat_map(|port| ["UDP", "TCP"].map(|protocol| json!({"port": port, "protocol": protocol})))
        .collect();
    let peers = match &values["networkPolicy"]["dns"] {
        Value::Array(peers) if !peers.is_empty() => json!(peers),
        _ => json!([{"namespaceSelector": {}}]),
    };
    let policies = of_kind(documents, "NetworkPolicy");
    assert_eq!(policies.len(), 3);
    for policy in policies {
        let mut out = policy["spec"]["egress"].as_array().unwrap().iter();
        assert!(out.any(|rule| rule["ports"] == json!(wanted) && rule["to"] == peers), "{policy}");
    }
}

#[test]
fn services_have_the_kinds_of_addresses_that_are_asked_for() {
    let policies = |over: &Value| -> BTreeMap<String, Value> {
        let documents = rendered(over).unwrap();
        let services = of_kind(&documents, "Service").into_iter();
        let named = |one: &Value| one["metadata"]["name"].as_str().unwrap().to_owned();
        services.map(|one| (named(one), one["spec"]["ipFamilyPolicy"].clone())).collect()
    };
    assert!(policies(&json!({})).values().all(Value::is_null), "the cluster's own way is not left to it");
    let asked = policies(&yaml(EVERY_VALUE));
    assert_eq!(
        (&asked["flock"], &asked["flock-ingress"]),
        (&json!("PreferDualStack"), &json!("RequireDualStack"))
    );
}

/// By the Service and by the first one; who else there is they are told.
fn runners_find_coordinators(documents: &[Value], values: &Value) {
    let set = of_kind(documents, "StatefulSet")[0];
    let (name, service) =
        (set["metadata"]["name"].as_str().unwrap(), set["spec"]["serviceName"].as_str().unwrap());
    for (named, address) in [(name, Value::Null), (service, json!("None"))] {
        let services = of_kind(documents, "Service");
        let found = services.into_iter().find(|one| one["metadata"]["name"] == json!(named)).unwrap();
        assert_eq!(found["spec"]["clusterIP"], address, "{named}");
        let ports = found["spec"]["ports"].as_array().unwrap();
        assert!(ports.iter().any(|port| port["port"] == json!(7701)), "{named} leads no runner anywhere");
    }
    let expected =
        [format!("http://{name}.geese.svc:7701"), format!("http://{name}-0.{service}.geese.svc:7701")];
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

/// Their agents would end with them.
#[test]
fn runners_stay_when_the_number_of_coordinators_changes() {
    let runners = |replicas: u32| -> Vec<Value> {
        let documents = rendered(&json!({ "coordinators": { "replicas": replicas } })).unwrap();
        let component = "app.kubernetes.io/component";
        let is_runner = |pod: &&Value| pod["metadata"]["labels"][component] == json!("runner");
        pods(&documents).into_iter().filter(is_runner).cloned().collect()
    };
    let before = runners(3);
    assert!(!before.is_empty());
    assert_eq!(before, runners(5));
}

/// A coordinator that starts anew gives its shards away before, and those who wait at it have to come again.
#[test]
fn nodes_start_anew_for_their_own_settings_alone() {
    let nodes = |component: &str, over: &Value| -> Vec<Value> {
        let documents = rendered(over).unwrap();
        let is_one =
            |pod: &&Value| pod["metadata"]["labels"]["app.kubernetes.io/component"] == json!(component);
        let found: Vec<Value> = pods(&documents).into_iter().filter(is_one).cloned().collect();
        assert_eq!(found.len(), 1, "{component}");
        found
    };
    let agent = json!({"agents": {"ada": "command = [\"ada\"]"}});
    let source = source(json!({"name": "hub", "provider": "github"}));
    let setting = json!({"coordinators": {"config": "limits.drain = \"11s\""}});
    let durability = json!({"redis": {"durability": "everysec"}});
    for (over, coordinators, ingress) in
        [(agent, false, false), (source, false, true), (setting, true, false), (durability, true, true)]
    {
        for (component, starts) in [("coordinator", coordinators), ("ingress", ingress)] {
            let differs = nodes(component, &over) != nodes(component, &json!({}));
            assert_eq!(differs, starts, "{component}: {over}");
        }
    }
}

/// It finds what it has left behind itself.
#[test]
fn the_first_container_of_a_pod_may_be_cut_off_after_each_of_its_steps() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_string_lossy().into_owned();
    let documents = rendered(&json!({})).unwrap();
    let mut scripts = pods(&documents).into_iter().map(|pod| &pod["spec"]["initContainers"][0]["command"][2]);
    let mut script = scripts.find_map(Value::as_str).unwrap().to_owned();
    for there in ["/etc/skein", "/run/skein", "/var/lib/skein"] {
        script = script.replace(there, &format!("{place}{there}"));
    }
    let programs = binary("skein").parent().unwrap().display().to_string();
    let path = format!("{programs}:{}", std::env::var("PATH").unwrap());
    let run_at = |address: &str, script: &str| {
        let mut shell = Command::new("sh");
        let output = shell.args(["-ec", script]).env("PATH", &path).env("POD_IP", address).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    };
    let run = |script: &str| run_at("10.0.0.9", script);
    run(&format!(
        "mkdir -p {place}/etc/skein {place}/run/skein; touch {place}/etc/skein/config.toml
        skein cluster init --out {place}/run/skein/authority 10.0.0.1"
    ));
    let steps: Vec<&str> = script.lines().collect();
    for done in 0..steps.len() {
        run(&steps[..done].join("\n"));
        run(&script);
    }
    run_at("fd00::9", &script);
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
                config::load(&file, &Overrides::default()).unwrap();
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

/// What a runner's agents may be lent lies where the runner looks for it.
fn credentials_are_found(documents: &[Value], values: &Value) {
    for runner in values["runners"].as_array().unwrap() {
        let pods = pods(documents);
        let pod =
            pods.iter().find(|pod| pod["metadata"]["labels"]["skein/runner"] == runner["name"]).unwrap();
        let container = &pod["spec"]["containers"][0];
        let set = container["env"].as_array().unwrap().iter();
        let folder = set.clone().find(|one| one["name"] == json!("SKEIN_RUNNER_CREDENTIALS"));
        let named = |one: &Value, name: &str| one["name"] == json!(name);
        let mount =
            container["volumeMounts"].as_array().unwrap().iter().find(|one| named(one, "credentials"));
        assert_eq!(folder.map(|one| &one["value"]), mount.map(|one| &one["mountPath"]), "{pod}");
        let volume = pod["spec"]["volumes"].as_array().unwrap().iter().find(|one| named(one, "credentials"));

        let there = volume.map(projected).unwrap_or_default();
        let text = |one: &Value, key: &str, or: &str| one[key].as_str().unwrap_or(or).to_owned();
        let wanted = runner["credentials"].as_array().into_iter().flatten().map(|one| {
            let reference =
                format!("{}:{}", text(one, "name", ""), text(one, "instance", "default")).parse().unwrap();
            (reference, vec![text(one, "field", "token")])
        });
        assert_eq!(there, wanted.collect(), "{pod}");
    }
}

/// The credentials that a runner finds in a volume, which Kubernetes fills behind links that it can change at once.
fn projected(volume: &Value) -> BTreeMap<Reference, Vec<String>> {
    let place = tempfile::tempdir().unwrap();
    let behind = place.path().join("..2026");
    for source in volume["projected"]["sources"].as_array().unwrap() {
        let path = source["secret"]["items"][0]["path"].as_str().unwrap();
        let file = behind.join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "a secret of a test").unwrap();
    }
    symlink("..2026", place.path().join("..data")).unwrap();
    for entry in behind.read_dir().unwrap() {
        let name = entry.unwrap().file_name();
        symlink(Path::new("..data").join(&name), place.path().join(name)).unwrap();
    }
    let found = Credentials::new(place.path().to_owned());
    let listed = found.list().unwrap();
    for reference in listed.keys() {
        found.read(reference).unwrap();
    }
    listed
}

#[test]
fn helm_refuses_mistakes() {
    for mistake in mistakes() {
        assert!(rendered(&mistake).is_err(), "{mistake} is rendered");
    }
}
