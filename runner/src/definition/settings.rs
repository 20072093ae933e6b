//! The settings of an agent, as they are written and what they come to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use skein_proto::convert::definition::check;
use skein_proto::v1::AgentDefinition;
use skein_shared::{limits as usual, span};

use super::{Definition, Hooks, keys, skill};
use crate::container::{Limits, docker, limits};
use crate::harness::{Choice, Program};

/// All keys by their own names. What is left out has the product's default.
#[derive(Deserialize)]
#[serde(default)]
pub(super) struct Settings {
    #[serde(flatten)]
    choice: Choice,
    prompt: Option<String>,
    tool_timeout: Option<Span>,
    #[serde(flatten)]
    container: docker::Keys,
    #[serde(flatten)]
    limits: limits::Keys,
    role: String,
    swarm: Option<String>,
    instances: u32,
    timeout: Span,
    grace: Span,
    env: BTreeMap<String, String>,
    /// Which webhooks start a run, in the words of their providers.
    subscriptions: Vec<serde_json::Map<String, serde_json::Value>>,
    autostart: bool,
    work_queue: u32,
    max_waiting: u32,
    max_call_depth: u32,
    max_reruns: u32,
    cancel_children: bool,
    wait_timeout: Span,
    max_wait_timeout: Option<Span>,
    spill_after: Option<Span>,
    workdir: Option<PathBuf>,
    labels: BTreeMap<String, String>,
    schedule: Option<String>,
    zone: String,
    hooks: Hooks,
    credentials: Vec<String>,
    params: serde_json::Map<String, serde_json::Value>,
}

/// A duration in words, or in whole seconds.
#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "not a duration; write \"1h30m\", or a whole number of seconds")]
enum Span {
    Seconds(u64),
    Text(String),
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            choice: Choice::default(),
            prompt: None,
            tool_timeout: None,
            container: docker::Keys::default(),
            limits: limits::Keys::default(),
            role: "worker".to_owned(),
            swarm: None,
            instances: 1,
            timeout: Span::Text("1h".to_owned()),
            grace: Span::Text("10s".to_owned()),
            env: BTreeMap::new(),
            subscriptions: Vec::new(),
            autostart: false,
            work_queue: count(usual::WORK_QUEUE),
            max_waiting: count(usual::MAX_WAITING),
            max_call_depth: usual::CALL_DEPTH,
            max_reruns: usual::RERUNS,
            cancel_children: false,
            wait_timeout: Span::Seconds(usual::WAIT.as_secs()),
            max_wait_timeout: None,
            spill_after: None,
            workdir: None,
            labels: BTreeMap::new(),
            schedule: None,
            zone: "UTC".to_owned(),
            hooks: Hooks::default(),
            credentials: Vec::new(),
            params: serde_json::Map::new(),
        }
    }
}

impl Settings {
    /// Settings from several places, of which a later one counts more.
    ///
    /// # Errors
    /// A sentence that names the key.
    pub(super) fn of(places: impl IntoIterator<Item = toml::Table>) -> Result<Self, String> {
        let mut settings = toml::Table::new();
        for place in places {
            settings.extend(keys::canonical(place)?);
        }
        Self::deserialize(settings.clone()).map_err(|error| wrong_value(settings, error.message()))
    }

    /// The agent that these settings make.
    ///
    /// # Errors
    /// A sentence that names the key and what to write.
    pub(super) fn define(
        self,
        name: &str,
        folder: &Path,
        usual_swarm: &str,
        instructions: String,
    ) -> Result<Definition, String> {
        let container = self.container.clone().container(&self.limits)?;
        let limits = if container.is_some() { Limits::default() } else { self.limits.limits()? };
        if container.is_some() && self.workdir.is_some() {
            return Err("workdir: an agent in a container works in /app/static; leave it out".into());
        }
        environment(&self.env)?;
        let public = self.public(name, usual_swarm)?;
        check(&public).map_err(|refusal| refusal.message)?;
        let tool_timeout = self.tool_timeout.map(|span| span.millis("tool_timeout")).transpose()?;
        let wait_timeout = Duration::from_millis(public.wait_timeout_ms);
        let instructions = match &self.prompt {
            Some(prompt) => format!("{instructions}\n\n{}", prompt.trim()).trim().to_owned(),
            None => instructions,
        };
        let credentials = self.credentials.iter().map(|name| name.parse()).collect::<Result<_, String>>();
        skill::fits(&instructions).map_err(|problem| format!("prompt: {problem}"))?;
        Ok(Definition {
            grace: Duration::from_millis(public.grace_ms),
            public,
            program: Program::new(
                self.choice,
                container.is_some(),
                tool_timeout.map(Duration::from_millis),
                wait_timeout,
            )?,
            env: self.env,
            workdir: self.workdir.map(|workdir| folder.join(workdir)),
            instructions,
            params: serde_json::Value::Object(self.params),
            hooks: self.hooks,
            credentials: credentials.map_err(|problem| format!("credentials: {problem}"))?,
            folder: folder.to_owned(),
            limits,
            container,
        })
    }

    fn public(&self, name: &str, usual_swarm: &str) -> Result<AgentDefinition, String> {
        let subscriptions = self.subscriptions.iter().map(|fields| {
            skein_shared::triggers::subscription(fields)?;
            serde_json::to_string(fields).map_err(|error| error.to_string())
        });
        let subscriptions = subscriptions.collect::<Result<_, String>>();
        Ok(AgentDefinition {
            name: name.to_owned(),
            swarm: self.swarm.clone().unwrap_or_else(|| usual_swarm.to_owned()),
            instances: self.instances,
            timeout_ms: self.timeout.millis("timeout")?,
            work_queue: self.work_queue,
            max_waiting: self.max_waiting,
            max_call_depth: self.max_call_depth,
            max_reruns: Some(self.max_reruns),
            cancel_children: self.cancel_children,
            wait_timeout_ms: self.wait_timeout.millis("wait_timeout")?,
            grace_ms: self.grace.millis("grace")?,
            max_wait_timeout_ms: match &self.max_wait_timeout {
                Some(longest) => longest.millis("max_wait_timeout")?.max(1),
                None => 0,
            },
            spill_after_ms: self.spill_after_ms()?,
            subscriptions: subscriptions.map_err(|error| format!("subscriptions: {error}"))?,
            role: self.role.clone(),
            labels: self.labels.clone(),
            autostart: self.autostart,
            schedule: self.schedule.clone().unwrap_or_default(),
            zone: self.zone.clone(),
        })
    }

    /// 0 for never, which is said by leaving it out.
    fn spill_after_ms(&self) -> Result<u64, String> {
        match &self.spill_after {
            None => Ok(0),
            Some(span) => match span.millis("spill_after")? {
                0 => Err("spill_after: more than 0; leave it out for never".to_owned()),
                millis => Ok(millis),
            },
        }
    }
}

/// Of a value that is of the wrong kind nobody says which key has it, where several structures share the keys. So each
/// is tried alone: all others may be left out.
fn wrong_value(settings: toml::Table, problem: &str) -> String {
    let mut alone =
        settings.into_iter().map(|(key, value)| (key.clone(), toml::Table::from_iter([(key, value)])));
    let wrong = alone.find_map(|(key, alone)| Some((key, Settings::deserialize(alone).err()?)));
    wrong.map_or_else(|| problem.to_owned(), |(key, error)| format!("{key}: {}", error.message()))
}

impl Span {
    fn millis(&self, field: &str) -> Result<u64, String> {
        let span = match self {
            Self::Seconds(seconds) => Duration::from_secs(*seconds),
            Self::Text(text) => span::parse(field, text).map_err(|refusal| refusal.message)?,
        };
        Ok(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
    }
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

fn count(limit: usize) -> u32 {
    u32::try_from(limit).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn define(text: &str) -> Result<Definition, String> {
        let table = text.parse().map_err(|error: toml::de::Error| error.to_string())?;
        let settings = Settings::of([table])?;
        settings.define("worker", Path::new("/agents/worker"), "default", String::new())
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
        let definition = define(text).unwrap();
        assert_eq!(definition.public.swarm, "default");
        assert_eq!(definition.public.timeout_ms, 1_800_000);
        assert_eq!(definition.public.role, "worker");
        assert_eq!(definition.workdir.unwrap(), Path::new("/agents/worker/src"));
        assert_eq!(definition.public.subscriptions, [r#"{"match":{"action":"opened"},"source":"github"}"#]);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, said) in [
            ("comand = [\"sh\"]", "did you mean `command`"),
            ("maxWating = 3", "did you mean `maxWaiting`"),
            ("zzzzzzzzzzzzzzzzzzzzzz = 3", "the keys are command"),
            ("scale = 2\ninstances = 3", "`instances`, which is there too"),
            ("command = [\"sh\"]\n[[subscriptions]]\nsorce = \"x\"", "did you mean `source`"),
            ("command = [\"sh\"]\n[[webhooks]]\nsource = \"github\"\nrepo = \"x\"", "did you mean `repos`"),
            ("[hooks]\nbefore = [\"x\"]", "the keys are pre, post"),
            ("command = [\"sh\"]\ncredentials = [\"../x\"]", "names no credential"),
            ("image = \"x\"\nworkdir = \"src\"", "/app/static"),
            ("command = [\"sh\"]\ncpus = 1", "`image` too"),
            ("command = [\"sh\"]\nmemory = \"1m\"", "at least 64m"),
            ("", "command: missing"),
            ("command = [\"sh\"]\ntimeout = \"soon\"", "not a duration"),
            ("command = [\"sh\"]\ntimeout = 1.5", "timeout: not a duration; write \"1h30m\""),
            ("command = [\"sh\"]\nwaitTimeout = -1", "wait_timeout: not a duration"),
            ("command = \"python3 agent.py\"", "command: invalid type: string"),
            ("harness = \"pi\"", "harness: unknown variant `pi`"),
            ("command = [\"sh\"]\nmemory = 512", "memory: invalid type: integer"),
            ("image = \"x\"\ncpus = \"2\"", "cpus: invalid type: string"),
            ("command = [\"sh\"]\nenv = { A = 1 }", "env: invalid type: integer"),
            ("harness = \"claude-code\"\nswarm_hooks = \"no\"", "swarm_hooks: invalid type: string"),
            ("command = [\"sh\"]\nspillAfter = 0", "leave it out for never"),
            ("command = [\"sh\"]\nrole = \"boss\"", "lead, worker, observer"),
            ("command = [\"sh\"]\nenv = { SKEIN_TOKEN = \"x\" }", "set by the runner"),
            ("command = [\"sh\"]\nschedule = \"every day\"", "schedule"),
            ("command = [\"sh\"]\nschedule = \"@daily\"\nzone = \"Mars/Base\"", "zone"),
        ] {
            let problem = define(text).unwrap_err();
            assert!(problem.contains(said), "{text}: {problem}");
        }
    }
}
