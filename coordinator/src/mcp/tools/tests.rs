//! The rules that every declaration keeps, and that the finder finds.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::catalogue;
use crate::auth::{Right, Role, View};
use crate::mcp::catalogue::{Call, Catalogue, Effect, Tier, Tool, Toolset};
use crate::mcp::result::Answer;
use crate::mcp::schema::Common;
use crate::mcp::view::Detail;
use crate::mcp::{finder, view};

/// Tokens that the short list may cost its reader.
const CORE_TOKENS: usize = 3000;
/// Tokens that a tool of the long list may cost on average.
const FULL_TOKENS: usize = 150;

fn names(catalogue: &Catalogue, role: Role, text: &str) -> Vec<&'static str> {
    let view = View::parse(text).unwrap();
    let tools: Vec<_> = catalogue.tools().collect();
    view::list(catalogue, role, &view).into_iter().map(|position| tools[position].name).collect()
}

#[test]
fn every_declaration_is_complete() {
    let catalogue = catalogue().unwrap();
    for tool in catalogue.tools() {
        let name = tool.name;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_.".contains(c);
        assert!(name.len() <= 40 && name.chars().all(fits), "{name}");
        assert!(!tool.title.is_empty() && !tool.search.is_empty(), "{name} lacks title or search words");
        assert!(tool.summary.ends_with('.') && tool.summary.len() <= 120, "{name}: {}", tool.summary.len());
        assert!(view::description(tool).len() <= 1800, "{name} is described at too great length");
        assert!(
            !(tool.hints.read_only == Some(true) && tool.hints.destructive == Some(true)),
            "{name} is hinted both read-only and destructive"
        );
        assert!(tool.hints.json() != json!({}), "{name} has no annotations");
        if tool.effect == Effect::Read {
            assert_eq!(tool.hints.read_only, Some(true), "{name} reads and does not say so");
        }
    }
}

#[test]
fn schemas_are_plain_objects_with_described_arguments() {
    let catalogue = catalogue().unwrap();
    for tool in catalogue.tools() {
        let inputs =
            [Detail::Brief, Detail::Full].map(|detail| view::listed(tool, detail)["inputSchema"].take());
        for schema in inputs.iter().chain([&Value::Object(tool.input()), &tool.output]) {
            if schema.is_null() {
                continue;
            }
            assert_eq!(schema["type"], "object", "{}", tool.name);
            assert!(!schema.to_string().contains("$ref"), "{} refers to another schema", tool.name);
            for combinator in ["anyOf", "oneOf", "allOf"] {
                assert!(schema.get(combinator).is_none(), "{} combines schemas at its root", tool.name);
            }
            jsonschema::draft202012::meta::validate(schema)
                .unwrap_or_else(|error| panic!("{}: {error}", tool.name));
        }
        for input in inputs.into_iter().chain([Value::Object(tool.input())]) {
            for (argument, schema) in input["properties"].as_object().unwrap() {
                let about = schema["description"].as_str().unwrap_or_default();
                assert!(about.len() > 3, "{} does not describe {argument}", tool.name);
            }
        }
    }
}

/// The lists are arrays of objects in their schemas, and no field stands twice.
#[test]
fn every_list_is_in_its_result() {
    let catalogue = catalogue().unwrap();
    let mut lists = 0;
    for tool in catalogue.tools() {
        let Some(list) = tool.list else { continue };
        lists += 1;
        let [rows, table] = tool.output["properties"][list.name]["anyOf"].as_array().unwrap().as_slice()
        else {
            panic!("{} has other forms", tool.name)
        };
        assert_eq!(
            (&rows["items"]["type"], &table["type"]),
            (&"object".into(), &"object".into()),
            "{}",
            tool.name
        );
        let fields: BTreeSet<_> = list.fields.iter().collect();
        assert_eq!(fields.len(), list.fields.len(), "{} names a field twice", tool.name);
        for Common { name: argument, .. } in list.arguments(tool.toolset) {
            assert!(!tool.args.names().any(|own| own == argument), "{} has {argument} of its own", tool.name);
        }
    }
    assert!(lists >= 18, "{lists} lists");
}

/// A client that is shown an output schema takes no result without structured content.
#[test]
fn who_hands_on_what_may_be_text_alone_declares_no_output_schema() {
    let catalogue = catalogue().unwrap();
    for (finder, takes) in
        [("tools_read", &[Effect::Read][..]), ("tools_call", &[Effect::Read, Effect::Write])]
    {
        let mut handed_on = catalogue.tools().filter(|tool| takes.contains(&tool.effect));
        assert!(
            handed_on.any(|tool| tool.output.is_null() && tool.toolset == Toolset::Scheduler),
            "{finder}"
        );
        let listed = view::listed(catalogue.get(finder).unwrap(), Detail::Full);
        assert!(listed.get("outputSchema").is_none(), "{finder}: {listed}");
    }
}

/// The tools of a view as a model pays for them: name, description, annotations and input schema.
fn paid_for(catalogue: &Catalogue, role: Role, view: &View) -> Vec<Value> {
    let tools: Vec<_> = catalogue.tools().collect();
    let listed = view::list(catalogue, role, view).into_iter();
    listed
        .map(|position| {
            let mut tool = view::listed(tools[position], view::detail(view));
            tool.as_object_mut().unwrap().retain(|field, _| {
                ["name", "description", "annotations", "inputSchema"].contains(&field.as_str())
            });
            tool
        })
        .collect()
}

#[test]
fn the_lists_fit_their_budgets() {
    let catalogue = catalogue().unwrap();
    let tokens = |tools: Vec<Value>| {
        let text = Value::Array(tools).to_string();
        tiktoken_rs::o200k_base_singleton().encode_ordinary(&text).len()
    };
    for role in [Role::Lead, Role::Worker, Role::Observer, Role::Operator] {
        let core = tokens(paid_for(&catalogue, role, &View::default()));
        assert!(core <= CORE_TOKENS, "{role}: {core} tokens of {CORE_TOKENS}");
        let full = paid_for(&catalogue, role, &View::parse("full").unwrap());
        let (count, full) = (full.len(), tokens(full));
        assert!(full < FULL_TOKENS * count, "{role}: {full} tokens for {count} tools");
        println!("{role}: {core} tokens in the core view, {full} for {count} tools");
    }
}

/// The names on the page of Agent Swarm's tools.
const SWARM: [&str; 50] = [
    "join-swarm",
    "my-agent-info",
    "poll-task",
    "get-task-details",
    "store-progress",
    "task-action",
    "send-task",
    "get-tasks",
    "read-messages",
    "post-message",
    "slack-reply",
    "slack-read",
    "memory-search",
    "memory-get",
    "get-swarm",
    "list-schedules",
    "create-schedule",
    "update-schedule",
    "delete-schedule",
    "run-schedule-now",
    "create-epic",
    "list-epics",
    "get-epic-details",
    "update-epic",
    "delete-epic",
    "assign-task-to-epic",
    "unassign-task-from-epic",
    "register-service",
    "unregister-service",
    "list-services",
    "update-service-status",
    "set-config",
    "get-config",
    "list-config",
    "delete-config",
    "update-profile",
    "context-history",
    "context-diff",
    "slack-upload-file",
    "slack-download-file",
    "slack-list-channels",
    "slack-post",
    "create-channel",
    "delete-channel",
    "list-channels",
    "inbox-delegate",
    "get-inbox-message",
    "register-agentmail-inbox",
    "cancel-task",
    "inject-learning",
];

#[test]
fn the_swarm_has_the_fifty_tools_of_its_page() {
    let catalogue = catalogue().unwrap();
    let found: BTreeSet<_> =
        catalogue.tools().filter(|tool| tool.toolset == Toolset::Swarm).map(|tool| tool.name).collect();
    assert_eq!(found, BTreeSet::from(SWARM));
    let core = catalogue.tools().filter(|tool| tool.toolset == Toolset::Swarm && tool.tier == Tier::Core);
    assert_eq!(core.count(), 15);
}

#[test]
fn views_show_what_a_role_may_use() {
    let catalogue = catalogue().unwrap();
    let observer = names(&catalogue, Role::Observer, "full");
    let tools: Vec<_> = catalogue.tools().collect();
    for tool in &tools {
        let readable = tool.right == Right::Read;
        assert_eq!(observer.contains(&tool.name), readable, "{}", tool.name);
    }
    let readonly: BTreeSet<_> = names(&catalogue, Role::Lead, "full/readonly").into_iter().collect();
    for name in ["poll-task", "read-messages", "send-task", "tools_call", "acquire_lock"] {
        assert!(!readonly.contains(name), "{name} changes something");
    }
    assert!(readonly.contains("get-tasks") && readonly.contains("tools_read"));
    assert!(names(&catalogue, Role::Runner, "full").is_empty());
    let scheduler = names(&catalogue, Role::Worker, "x/scheduler");
    assert!(scheduler.contains(&"set_status") && scheduler.contains(&"tools_find"));
    assert!(!scheduler.contains(&"poll-task"));
}

#[test]
fn every_name_is_found_first() {
    let catalogue = catalogue().unwrap();
    for tool in catalogue.tools() {
        for name in tool.names() {
            for query in spellings(name) {
                let found = finder::search(&catalogue, &query, 1, |_| true);
                assert_eq!(found[0].name, tool.name, "{query}");
                assert_eq!(catalogue.named(&query).map(|tool| tool.name), Some(tool.name), "{query}");
            }
        }
    }
}

/// As a model asks that has the name from somewhere.
#[test]
fn a_name_in_a_sentence_is_found_first() {
    let catalogue = catalogue().unwrap();
    for tool in catalogue.tools().filter(|tool| tool.name.contains(['-', '_', '.'])) {
        for query in [format!("how do I call {}?", tool.name), format!("use `{}`, please", tool.name)] {
            let found = finder::search(&catalogue, &query, 1, |_| true);
            assert_eq!(found[0].name, tool.name, "{query}");
        }
    }
}

#[test]
fn a_plural_finds_what_its_singular_does() {
    let catalogue = catalogue().unwrap();
    let found = |query: &str| -> Vec<&str> {
        finder::search(&catalogue, query, 10, |_| true).iter().map(|tool| tool.name).collect()
    };
    for (one, many) in [
        ("the setting", "the settings"),
        ("a learning", "learnings"),
        ("the memory", "memories"),
        ("a query", "queries"),
        ("a task", "tasks"),
    ] {
        assert!(!found(one).is_empty(), "{one}");
        assert_eq!(found(one), found(many), "{many}");
    }
    assert!(found("change the settings")[..5].contains(&"set-config"));
}

fn spellings(name: &str) -> [String; 5] {
    let by = |mark: &str| name.replace(['-', '_', '.'], mark);
    [name.to_owned(), by(" "), by("_"), by("-"), name.to_uppercase()]
}

/// Whoever comes from scripts knows the tools of the scheduler by the names of its commands (docs/agents.md).
#[test]
fn the_commands_for_scripts_are_names_of_their_tools() {
    let catalogue = catalogue().unwrap();
    for (command, tool) in [
        ("rlock", "acquire_lock"),
        ("rlock-heartbeat", "heartbeat_lock"),
        ("runlock", "release_lock"),
        ("al-subagent", "call_agent"),
        ("al-subagent-check", "check_call"),
        ("al-subagent-wait", "wait_for_calls"),
        ("al-return", "return_value"),
        ("al-status", "set_status"),
        ("al-rerun", "request_rerun"),
        ("al-exit", "exit_run"),
    ] {
        assert_eq!(catalogue.get(command).map(|found| found.name), Some(tool), "{command}");
    }
}

#[test]
fn no_name_is_taken_twice_however_it_is_spelt() {
    let tool = |name, aliases| {
        Tool::new(name, "Nothing", Toolset::Skein, async |_: Call, _: Value| Ok(Answer::new("", json!({}))))
            .known_as(aliases)
    };
    for (name, aliases) in
        [("fly-away", &["go"][..]), ("Fly_Away", &[]), ("go", &["fly.away"]), ("go", &["go"])]
    {
        let made = Catalogue::new(vec![tool("fly_away", &[]), tool(name, aliases)]);
        assert!(made.is_err(), "{name} {aliases:?}");
    }
    assert!(Catalogue::new(vec![tool("fly_away", &["go"]), tool("land", &["fly"])]).is_ok());
}

/// Queries and the tools that they mean, a line each.
fn labelled() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = include_str!("queries.txt").lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split_once(" = ").unwrap())
}

/// The bar stands in the research on facades: of 150 queries at least, 95 in 100 find what is meant among the first
/// five.
#[test]
fn words_find_what_is_meant() {
    let catalogue = catalogue().unwrap();
    let (mut asked, mut missed) = (0, Vec::new());
    for (query, wanted) in labelled() {
        asked += 1;
        assert!(catalogue.get(wanted).is_some(), "there is no {wanted}");
        let found: Vec<_> = finder::search(&catalogue, query, 5, |_| true).iter().map(|t| t.name).collect();
        if !found.contains(&wanted) {
            missed.push(format!("{query}: {found:?} and not {wanted}"));
        }
    }
    assert!(asked >= 150, "{asked} queries");
    assert!(missed.len() * 20 <= asked, "{} of {asked} missed:\n{}", missed.len(), missed.join("\n"));
}

/// The tools of Agent Swarm for these have other names, under which agents have not looked for them.
#[test]
fn a_task_to_delete_and_a_subtask_to_make_find_their_tools() {
    let catalogue = catalogue().unwrap();
    for (query, wanted) in
        [("delete a task", "cancel-task"), ("make a subtask", "send-task"), ("subtask", "send-task")]
    {
        let found: Vec<_> = finder::search(&catalogue, query, 5, |_| true).iter().map(|t| t.name).collect();
        assert!(found.contains(&wanted), "{query}: {found:?}");
    }
}

/// A slip of the finger finds what was meant.
#[test]
fn misspelt_words_find_what_is_meant() {
    let catalogue = catalogue().unwrap();
    for (query, wanted) in [
        ("aquire the mutexx", "acquire_lock"),
        ("webhok", "wait_for_trigger"),
        ("shedule", "create-schedule"),
    ] {
        let found: Vec<_> = finder::search(&catalogue, query, 5, |_| true).iter().map(|t| t.name).collect();
        assert!(found.contains(&wanted), "{query}: {found:?}");
    }
}

#[test]
fn a_wrong_name_is_answered_with_near_ones() {
    let catalogue = catalogue().unwrap();
    assert_eq!(finder::nearest(&catalogue, "send_tasks", 1), ["send-task"]);
    assert!(finder::nearest(&catalogue, "aquire_lock", 3).contains(&"acquire_lock"));
}
