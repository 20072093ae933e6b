//! Agents as people define them: `AGENTS/NAME/agent.toml`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_proto::convert::definition::check;
use skein_proto::v1::AgentDefinition;
use skein_shared::id::Name;
use skein_shared::{limits, span};

use crate::error::Error;
use crate::harness::{Choice, Program};

/// Every key that `agent.toml` may have.
const KEYS: [&str; 21] = [
    "command",
    "harness",
    "model",
    "args",
    "prompt",
    "tool_timeout",
    "image",
    "role",
    "swarm",
    "instances",
    "timeout",
    "grace",
    "env",
    "subscriptions",
    "autostart",
    "work_queue",
    "max_waiting",
    "max_call_depth",
    "wait_timeout",
    "workdir",
    "labels",
];
/// The swarm of agents that name none, on a runner that serves any.
const USUAL_SWARM: &str = "default";
const SUBSCRIPTION_KEYS: [&str; 3] = ["source", "event", "match"];

/// An agent that this runner can start.
#[derive(Clone, Debug)]
pub struct Definition {
    /// What the coordinators are told.
    pub public: AgentDefinition,
    pub program: Program,
    pub env: BTreeMap<String, String>,
    /// Where it runs; its own work folder if none is given.
    pub workdir: Option<PathBuf>,
    pub grace: Duration,
}

/// `agent.toml` as it is written.
#[derive(Deserialize)]
#[serde(default)]
struct File {
    #[serde(flatten)]
    choice: Choice,
    tool_timeout: Option<String>,
    image: Option<String>,
    role: String,
    swarm: Option<String>,
    instances: u32,
    timeout: String,
    grace: String,
    env: BTreeMap<String, String>,
    subscriptions: Vec<Subscription>,
    autostart: bool,
    work_queue: u32,
    max_waiting: u32,
    max_call_depth: u32,
    wait_timeout: String,
    workdir: Option<PathBuf>,
    labels: BTreeMap<String, String>,
}

/// Which webhooks start a run. All that is given must hold.
#[derive(Serialize, Deserialize)]
struct Subscription {
    source: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    event: Option<String>,
    #[serde(default, rename = "match", skip_serializing_if = "serde_json::Map::is_empty")]
    matching: serde_json::Map<String, serde_json::Value>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            choice: Choice::default(),
            tool_timeout: None,
            image: None,
            role: "worker".to_owned(),
            swarm: None,
            instances: 1,
            timeout: "1h".to_owned(),
            grace: "10s".to_owned(),
            env: BTreeMap::new(),
            subscriptions: Vec::new(),
            autostart: false,
            work_queue: count(limits::WORK_QUEUE),
            max_waiting: count(limits::MAX_WAITING),
            max_call_depth: limits::CALL_DEPTH,
            wait_timeout: format!("{}s", limits::WAIT.as_secs()),
            workdir: None,
            labels: BTreeMap::new(),
        }
    }
}

/// What a folder of agents holds.
#[derive(Debug, Default)]
pub struct Folder {
    pub definitions: Vec<Definition>,
    /// Definitions that are wrong, each naming file and key. They keep no other agent from running.
    pub wrong: Vec<Error>,
}

/// Reads every agent of a folder, in the order of their names. A folder without `agent.toml` is no agent.
///
/// `allowed` are the swarms whose agents may run here, none for any; the first is that of agents which name
/// none.
///
/// # Errors
/// When the folder cannot be read.
pub fn load(agents: &Path, allowed: &[Name]) -> Result<Folder, Error> {
    let entries =
        std::fs::read_dir(agents).map_err(|error| Error::io("read the agents folder", agents, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| Error::io("read the agents folder", agents, error))?;
        let file = entry.path().join("agent.toml");
        if file.is_file() {
            files.push((entry.file_name().to_string_lossy().into_owned(), file));
        }
    }
    files.sort();
    let mut folder = Folder::default();
    for (name, file) in files {
        match read(&name, &file, allowed) {
            Ok(definition) => folder.definitions.push(definition),
            Err(error) => folder.wrong.push(error),
        }
    }
    Ok(folder)
}

fn read(name: &str, file: &Path, allowed: &[Name]) -> Result<Definition, Error> {
    let text =
        std::fs::read_to_string(file).map_err(|error| Error::io("read the definition", file, error))?;
    let folder = file.parent().unwrap_or(Path::new("."));
    let usual = allowed.first().map_or(USUAL_SWARM, Name::as_str);
    let skill = std::fs::read_to_string(folder.join("SKILL.md")).unwrap_or_default();
    parse(name, &text, &skill, folder, usual)
        .and_then(|definition| permitted(&definition.public.swarm, allowed).map(|()| definition))
        .map_err(|problem| Error::Definition { file: file.to_owned(), problem })
}

fn permitted(swarm: &str, allowed: &[Name]) -> Result<(), String> {
    if allowed.is_empty() || allowed.iter().any(|name| name.as_str() == swarm) {
        return Ok(());
    }
    let served = allowed.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    Err(format!("swarm: this runner does not serve `{swarm}`, only {served}; change one of the two"))
}

fn parse(
    name: &str,
    text: &str,
    skill: &str,
    folder: &Path,
    usual_swarm: &str,
) -> Result<Definition, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
    known(&table, &KEYS)?;
    for subscription in table.get("subscriptions").and_then(toml::Value::as_array).into_iter().flatten() {
        if let Some(subscription) = subscription.as_table() {
            known(subscription, &SUBSCRIPTION_KEYS).map_err(|problem| format!("subscriptions: {problem}"))?;
        }
    }
    let file = File::deserialize(table).map_err(|error| error.to_string())?;
    if file.image.is_some() {
        return Err("image: this runner has no container engine; give the program to run as `command`".into());
    }
    environment(&file.env)?;
    let public = public(name, &file, usual_swarm)?;
    check(&public).map_err(|refusal| refusal.message)?;
    let tool_timeout = file.tool_timeout.as_deref().map(|text| span::parse("tool_timeout", text)).transpose();
    let tool_timeout = tool_timeout.map_err(|refusal| refusal.message)?;
    let wait_timeout = Duration::from_millis(public.wait_timeout_ms);
    Ok(Definition {
        grace: Duration::from_millis(public.grace_ms),
        public,
        program: Program::new(file.choice, skill, tool_timeout, wait_timeout)?,
        env: file.env,
        workdir: file.workdir.map(|workdir| folder.join(workdir)),
    })
}

fn public(name: &str, file: &File, usual_swarm: &str) -> Result<AgentDefinition, String> {
    let duration = |field: &str, text: &str| {
        span::parse(field, text).map(limit_millis).map_err(|refusal| refusal.message)
    };
    let subscriptions = file.subscriptions.iter().map(serde_json::to_string).collect::<Result<_, _>>();
    Ok(AgentDefinition {
        name: name.to_owned(),
        swarm: file.swarm.clone().unwrap_or_else(|| usual_swarm.to_owned()),
        instances: file.instances,
        timeout_ms: duration("timeout", &file.timeout)?,
        work_queue: file.work_queue,
        max_waiting: file.max_waiting,
        max_call_depth: file.max_call_depth,
        wait_timeout_ms: duration("wait_timeout", &file.wait_timeout)?,
        grace_ms: duration("grace", &file.grace)?,
        subscriptions: subscriptions.map_err(|error| format!("subscriptions: {error}"))?,
        role: file.role.clone(),
        labels: file.labels.clone(),
        autostart: file.autostart,
    })
}

/// The names under `SKEIN_` are the runner's: an agent that could set them could pass for another.
fn environment(env: &BTreeMap<String, String>) -> Result<(), String> {
    for (key, value) in env {
        if key.is_empty() || key.contains(['=', '\0']) || value.contains('\0') {
            return Err(format!("env: `{key}` cannot be an environment variable"));
        }
        if key.starts_with("SKEIN_") {
            return Err(format!(
                "env: `{key}`: names that begin with SKEIN_ are set by the runner; choose another"
            ));
        }
    }
    Ok(())
}

/// Refuses a key that nobody knows, naming the one that was probably meant: a misspelt limit that is
/// silently ignored is found out too late.
fn known(table: &toml::Table, keys: &[&str]) -> Result<(), String> {
    for key in table.keys() {
        if keys.contains(&key.as_str()) {
            continue;
        }
        let nearest = keys.iter().min_by_key(|known| distance(key, known));
        return Err(match nearest {
            Some(nearest) if distance(key, nearest) <= 3.max(nearest.len() / 2) => {
                format!("`{key}` is no key of a definition; did you mean `{nearest}`?")
            }
            _ => format!("`{key}` is no key of a definition; the keys are {}", keys.join(", ")),
        });
    }
    Ok(())
}

/// Levenshtein's distance, by characters, without regard to case.
fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.to_lowercase().chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, a) in left.to_lowercase().chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, &b) in right.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[right.len()]
}

fn limit_millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn count(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        parse("worker", text, "", Path::new("/agents/worker"), "default").unwrap_err()
    }

    #[test]
    fn a_definition_is_read_with_its_defaults() {
        let text = r#"
            command = ["sh", "-c", "true"]
            timeout = "30m"
            workdir = "src"
            [[subscriptions]]
            source = "github"
            match = { action = "opened" }
        "#;
        let definition = parse("worker", text, "", Path::new("/agents/worker"), "geese").unwrap();
        assert_eq!(definition.public.swarm, "geese");
        assert_eq!(definition.public.timeout_ms, 1_800_000);
        assert_eq!(definition.public.role, "worker");
        assert_eq!(definition.workdir.unwrap(), Path::new("/agents/worker/src"));
        assert_eq!(definition.public.subscriptions, [r#"{"source":"github","match":{"action":"opened"}}"#]);
    }

    #[test]
    fn a_wrong_definition_keeps_no_other_from_being_read() {
        let agents = tempfile::tempdir().unwrap();
        for (name, text) in [
            ("bad", "comand = [\"sh\"]"),
            ("foreign", "command = [\"sh\"]\nswarm = \"ducks\""),
            ("good", "command = [\"sh\"]"),
        ] {
            std::fs::create_dir(agents.path().join(name)).unwrap();
            std::fs::write(agents.path().join(name).join("agent.toml"), text).unwrap();
        }
        let names = |folder: &Folder| -> Vec<String> {
            folder.definitions.iter().map(|definition| definition.public.name.clone()).collect()
        };
        let any = load(agents.path(), &[]).unwrap();
        assert_eq!(names(&any), ["foreign", "good"]);
        assert!(any.wrong[0].to_string().contains("bad/agent.toml"), "{:?}", any.wrong);
        let one = load(agents.path(), &[Name::parse("geese").unwrap()]).unwrap();
        assert_eq!((names(&one), one.wrong.len()), (vec!["good".to_owned()], 2));
        assert_eq!(one.definitions[0].public.swarm, "geese");
        assert!(one.wrong[1].to_string().contains("does not serve `ducks`, only geese"), "{:?}", one.wrong);
    }

    #[test]
    fn mistakes_are_named() {
        assert!(problem("comand = [\"sh\"]").contains("did you mean `command`"));
        assert!(problem("maxWaiting = 3").contains("did you mean `max_waiting`"));
        assert!(problem("zzzzzzzzzzzzzzzzzzzzzz = 3").contains("the keys are command"));
        assert!(problem("[[subscriptions]]\nsorce = \"x\"").contains("did you mean `source`"));
        assert!(problem("image = \"x\"").contains("no container engine"));
        assert!(problem("").contains("command: missing"));
        assert!(problem("command = [\"sh\"]\ntimeout = \"soon\"").contains("not a duration"));
        assert!(problem("command = [\"sh\"]\nrole = \"boss\"").contains("lead, worker, observer"));
        assert!(problem("command = [\"sh\"]\nenv = { SKEIN_TOKEN = \"x\" }").contains("set by the runner"));
    }
}
