//! What clients are really sent as the list of tools, in every view.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

const VIEWS: [&str; 10] = [
    "core",
    "core/readonly",
    "full",
    "full/readonly",
    "x/swarm",
    "x/swarm/readonly",
    "x/scheduler",
    "x/scheduler/readonly",
    "x/skein",
    "x/skein/readonly",
];
const ROLES: [Role; 2] = [Role::Lead, Role::Worker];

/// The list of each view for each role, as it comes over HTTP.
async fn lists() -> Vec<(String, Vec<Value>)> {
    let face = Face::new();
    let mut lists = Vec::new();
    for role in ROLES {
        let agent = face.agent(role.as_str(), role);
        for view in VIEWS {
            let (_, answer) = face.send(&format!("/mcp/{view}"), &agent.token, "tools/list", json!({})).await;
            let tools = answer["result"]["tools"].as_array().unwrap().clone();
            lists.push((format!("{view} for a {role}"), tools));
        }
    }
    lists
}

fn name(tool: &Value) -> &str {
    tool["name"].as_str().unwrap()
}

/// A client may keep the list before everything else that its model reads: any other order would cost it that.
#[tokio::test]
async fn the_core_is_the_core_in_its_order() {
    let written = lists().await.into_iter().map(|(list, tools)| {
        let names: Vec<&str> = tools.iter().map(name).collect();
        format!("{list}:\n  {}\n", names.join("\n  "))
    });
    let (written, golden) = (written.collect::<String>(), include_str!("lists.txt"));
    let first = written.lines().zip(golden.lines()).find(|(now, before)| now != before);
    assert!(written == golden, "the lists are others, from {first:?} on; lists.txt is to have:\n{written}");
}

#[tokio::test]
async fn every_argument_that_is_listed_is_described() {
    for (list, tools) in lists().await {
        for tool in tools {
            assert!(!tool["description"].as_str().unwrap().is_empty(), "{list}: {tool}");
            for (argument, schema) in tool["inputSchema"]["properties"].as_object().unwrap() {
                let about = schema["description"].as_str().unwrap_or_default();
                assert!(about.len() > 3, "{list}: {} does not describe {argument}", name(&tool));
            }
        }
    }
}

/// As Agent Swarm sends them (spec: Agent Swarm 1.3); a hint that is not listed is absent.
#[tokio::test]
async fn the_annotations_are_those_of_the_seed() {
    let groups: [(&str, &str); 6] = [
        (
            r#"{"readOnlyHint":true}"#,
            "poll-task get-swarm get-tasks get-task-details my-agent-info get-config list-config get-inbox-message list-channels read-messages context-history context-diff list-services list-schedules list-epics get-epic-details memory-search memory-get",
        ),
        (
            r#"{"openWorldHint":true,"readOnlyHint":true}"#,
            "slack-read slack-list-channels slack-download-file",
        ),
        (r#"{"openWorldHint":true}"#, "slack-reply slack-post slack-upload-file"),
        (
            r#"{"destructiveHint":true}"#,
            "cancel-task delete-config delete-channel unregister-service delete-schedule delete-epic",
        ),
        (
            r#"{"destructiveHint":false}"#,
            "send-task task-action inbox-delegate create-channel post-message create-schedule run-schedule-now create-epic inject-learning",
        ),
        (
            r#"{"idempotentHint":true}"#,
            "join-swarm store-progress set-config register-agentmail-inbox update-profile register-service update-service-status update-schedule update-epic assign-task-to-epic unassign-task-from-epic",
        ),
    ];
    let mut known = BTreeMap::new();
    for (hints, names) in groups {
        for name in names.split(' ') {
            let hints: Value = serde_json::from_str(hints).unwrap();
            assert!(known.insert(name, hints).is_none(), "{name} stands twice");
        }
    }
    assert_eq!(known.len(), 50);
    let own = catalogue().unwrap();
    let mut seen = BTreeSet::new();
    for (list, tools) in lists().await {
        for tool in &tools {
            let hints = match known.get(name(tool)) {
                Some(hints) => hints.clone(),
                None => own.get(name(tool)).unwrap().hints.json(),
            };
            assert_eq!(tool["annotations"], hints, "{list}: {}", name(tool));
            seen.insert(name(tool).to_owned());
        }
    }
    assert_eq!(seen.len(), own.tools().len(), "some are in no list");
}

/// A client may run what reads without asking its person, and asks for what destroys.
#[tokio::test]
async fn what_a_finder_may_do_is_told_wherever_it_is_listed() {
    for (list, tools) in lists().await {
        let hints = |wanted: &str| {
            tools.iter().find(|tool| name(tool) == wanted).map(|tool| tool["annotations"].clone())
        };
        assert_eq!(hints("tools_read"), Some(json!({ "readOnlyHint": true })), "{list}");
        let call = hints("tools_call");
        let expected = (!list.contains("readonly")).then(|| json!({ "destructiveHint": true }));
        assert_eq!(call, expected, "{list}");
    }
}
