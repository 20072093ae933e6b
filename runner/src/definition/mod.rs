//! Agents as people define them: a folder for each, with its settings in `agent.toml` or `config.toml`, and its
//! instructions in `SKILL.md`.

mod client;
mod keys;
mod project;
mod settings;
mod skill;
pub mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use skein_proto::v1::AgentDefinition;
use skein_shared::id::Name;

use crate::container::{Container, Limits};
use crate::credentials::Reference;
use crate::error::Error;
use crate::harness::Program;
use settings::Settings;
use skill::Skill;

pub use client::Absent;
pub(crate) use client::PATH;
pub(crate) use project::{SHARED, shared_folder};

/// Files that may hold the settings of an agent. The second is the one of Action Llama.
const SETTINGS: [&str; 2] = ["agent.toml", "config.toml"];
const SKILL: &str = "SKILL.md";
/// What Action Llama builds an agent's image from.
const DOCKERFILE: &str = "Dockerfile";
/// Folders beside those of agents that are none, whatever they hold and whoever may look into them.
const NO_AGENTS: [&str; 2] = ["node_modules", "lost+found"];
/// Beside the agents: what they have that do not say otherwise.
const DEFAULTS: &str = "defaults.toml";
/// The swarm of agents that name none, on a runner that serves any.
const USUAL_SWARM: &str = "default";

/// An agent that this runner can start.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    /// What the coordinators are told.
    pub public: AgentDefinition,
    pub program: Program,
    pub env: BTreeMap<String, String>,
    /// Where it runs; its own work folder if none is given.
    pub workdir: Option<PathBuf>,
    pub grace: Duration,
    /// What the agent is told of its work: the text of `SKILL.md`, and `prompt`. Empty when there is none.
    pub instructions: String,
    /// What the agent is told of its surroundings, in whatever words it was written for.
    pub params: serde_json::Value,
    pub hooks: Hooks,
    /// What it is lent.
    pub credentials: Vec<Reference>,
    /// The folder that the definition was read from.
    pub folder: PathBuf,
    /// What its processes may use, if it names no image.
    pub limits: Limits,
    /// What it lives in, if it names an image.
    pub container: Option<Container>,
}

/// Lines for the shell, each run with the user, the folder and the environment of the instance.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default)]
pub struct Hooks {
    /// Before the agent. One that fails ends the run.
    pub pre: Vec<String>,
    /// After the agent has ended by itself. What goes wrong stands in the run's log.
    pub post: Vec<String>,
}

/// The agents that a runner can start, by swarm and name.
pub type Definitions = BTreeMap<(String, String), Arc<Definition>>;

/// What a folder of agents holds.
#[derive(Debug, Default)]
pub struct Folder {
    pub definitions: Definitions,
    /// Definitions that are wrong, by the names of their folders; each problem names file and key. They keep no other
    /// agent from running.
    pub wrong: Vec<(String, Error)>,
}

impl Folder {
    /// Takes out the agents that cannot run here, each with the sentence that `check` has for it.
    pub fn refuse(&mut self, check: impl Fn(&Definition) -> Result<(), String>) {
        let wrong = &mut self.wrong;
        self.definitions.retain(|(_, name), definition| match check(definition) {
            Ok(()) => true,
            Err(problem) => {
                wrong.push((name.clone(), Error::Definition { file: definition.folder.clone(), problem }));
                false
            }
        });
    }
}

/// Reads every agent of a folder, in the order of their names. A folder without settings and instructions is no agent.
///
/// `allowed` are the swarms whose agents may run here, none for any; the first is that of agents which name
/// none.
///
/// # Errors
/// When the folder cannot be read.
pub fn load(agents: &Path, allowed: &[Name]) -> Result<Folder, Error> {
    let unreadable = |error| Error::io("read the agents folder", agents, error);
    let mut names = Vec::new();
    for entry in std::fs::read_dir(agents).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_other = name.starts_with('.') || NO_AGENTS.contains(&name.as_str());
        if !is_other && is_agent(&entry.path()) {
            names.push(name);
        }
    }
    names.sort();
    let mut folder = Folder::default();
    for name in names {
        match read(&agents.join(&name), allowed) {
            Ok(definition) => {
                let key = (definition.public.swarm.clone(), definition.public.name.clone());
                folder.definitions.insert(key, Arc::new(definition));
            }
            Err(error) => folder.wrong.push((name, error)),
        }
    }
    Ok(folder)
}

/// Whether a folder defines an agent, well or not. One that cannot be looked into does: it may have been one a moment
/// ago, and whoever reads it is told what is wrong.
pub fn is_agent(folder: &Path) -> bool {
    SETTINGS.iter().chain([&SKILL]).any(|file| is_file(&folder.join(file)).unwrap_or(true))
}

/// Whether there is such a file.
///
/// # Errors
/// When nobody can tell.
fn is_file(file: &Path) -> io::Result<bool> {
    match std::fs::metadata(file) {
        Ok(about) => Ok(about.is_file()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The file that has the settings of an agent, or would have them.
pub fn settings_file(folder: &Path) -> PathBuf {
    let files = SETTINGS.map(|file| folder.join(file));
    files.iter().find(|file| file.is_file()).unwrap_or(&files[0]).clone()
}

/// The text of settings without some keys, by whatever names it has them. One that has none of them stays as it is, and
/// so does what cannot be read: whoever reads it is told.
pub fn without(text: &str, keys: &[&str]) -> String {
    let Ok(mut settings) = text.parse::<toml::Table>() else { return text.to_owned() };
    let before = settings.len();
    settings.retain(|written, _| keys::name(written).is_none_or(|key| !keys.contains(&key)));
    if settings.len() == before { text.to_owned() } else { settings.to_string() }
}

/// Reads one agent, which has the name of its folder.
///
/// # Errors
/// Naming the file and what to mend in it.
pub fn read(folder: &Path, allowed: &[Name]) -> Result<Definition, Error> {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let mut found = Vec::new();
    for file in SETTINGS.map(|file| folder.join(file)) {
        if is_file(&file).map_err(|error| Error::io("read the definition", &file, error))? {
            found.push(file);
        }
    }
    let file = found.first().cloned().unwrap_or_else(|| folder.join(SKILL));
    let wrong = |file: &Path, problem: String| Error::Definition { file: file.to_owned(), problem };
    if let [_, second] = found.as_slice() {
        return Err(wrong(second, "the agent has an agent.toml too; keep one of the two".to_owned()));
    }
    let mut skill = match text(&folder.join(SKILL))? {
        Some(text) => Skill::parse(&text).map_err(|problem| wrong(&folder.join(SKILL), problem))?,
        None => Skill::default(),
    };
    let shared = folder.with_file_name(DEFAULTS);
    let mut defaults = table(&shared)?;
    let mut written = found.first().map(|file| table(file)).transpose()?.unwrap_or_default();
    let foreign = [&mut defaults, &mut skill.settings, &mut written].map(keys::without_foreign).concat();
    Settings::of([defaults.clone()]).map_err(|problem| wrong(&shared, problem))?;
    if !foreign.is_empty() {
        let keys = foreign.join(", ");
        tracing::warn!(agent = %name, keys, "these are left out; say what the agent is with `harness` or `command`");
    }
    let doubled = keys::doubled(&skill.settings, &written);
    if !doubled.is_empty() {
        let keys = doubled.join(", ");
        tracing::warn!(agent = %name, keys, "SKILL.md sets these too; what the settings' own file says counts");
    }
    let usual = allowed.first().map_or(USUAL_SWARM, Name::as_str);
    let definition = Settings::of([defaults, skill.settings, written])
        .and_then(|settings| settings.define(&name, folder, usual, skill.instructions))
        .and_then(|definition| permitted(&definition.public.swarm, allowed).map(|()| definition))
        .and_then(|definition| shared_folder(folder).map(|_| definition))
        .map_err(|problem| wrong(&file, problem))?;
    if is_unbuilt(&definition) {
        tracing::warn!(agent = %name, "its Dockerfile counts for nothing; build it, then name what it makes in `image`");
    }
    Ok(definition)
}

/// Whether an agent that was written to live in an image of its own is to live in none.
fn is_unbuilt(definition: &Definition) -> bool {
    definition.container.is_none() && definition.folder.join(DOCKERFILE).is_file()
}

/// None when there is no such file.
fn text(file: &Path) -> Result<Option<String>, Error> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("read the definition", file, error)),
    }
}

/// Settings as they are written; none when there is no such file.
fn table(file: &Path) -> Result<toml::Table, Error> {
    let wrong =
        |error: toml::de::Error| Error::Definition { file: file.to_owned(), problem: error.to_string() };
    text(file)?.unwrap_or_default().parse().map_err(wrong)
}

fn permitted(swarm: &str, allowed: &[Name]) -> Result<(), String> {
    if allowed.is_empty() || allowed.iter().any(|name| name.as_str() == swarm) {
        return Ok(());
    }
    let served = allowed.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
    Err(format!("swarm: this runner does not serve `{swarm}`, only {served}; change one of the two"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An agents folder with these files, as `AGENT/FILE`.
    fn agents(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        root
    }

    fn names(folder: &Folder) -> Vec<&str> {
        folder.definitions.keys().map(|(_, name)| name.as_str()).collect()
    }

    #[test]
    fn a_wrong_definition_keeps_no_other_from_being_read() {
        let root = agents(&[
            ("bad/agent.toml", "comand = [\"sh\"]"),
            ("foreign/agent.toml", "command = [\"sh\"]\nswarm = \"ducks\""),
            ("good/agent.toml", "command = [\"sh\"]"),
            ("notes/README.md", "no agent"),
            (".hidden/agent.toml", "no agent either"),
        ]);
        let any = load(root.path(), &[]).unwrap();
        assert_eq!(names(&any), ["good", "foreign"], "by their swarms");
        assert!(any.wrong[0].1.to_string().contains("bad/agent.toml"), "{:?}", any.wrong);
        let one = load(root.path(), &[Name::parse("geese").unwrap()]).unwrap();
        assert_eq!((names(&one), one.wrong.len()), (vec!["good"], 2));
        assert!(one.definitions.contains_key(&("geese".to_owned(), "good".to_owned())));
        assert!(one.wrong[1].1.to_string().contains("does not serve `ducks`, only geese"), "{:?}", one.wrong);
    }

    #[test]
    fn an_agent_of_action_llama_is_one_of_ours() {
        let root = agents(&[
            ("dev/SKILL.md", "---\nname: dev\ndescription: Mends bugs\n---\n\nMend the bug.\n"),
            (
                "dev/config.toml",
                "command = [\"sh\"]\nscale = 2\ntimeout = 900\nmaxWorkQueueSize = 20\nwaitTimeout = 60\nmaxWaitTimeout = 7200\n\
                 source = \"acme/agents\"\nmodels = [\"sonnet\"]\ncredentials = [\"github_token:acme\"]\nschedule = \"0 9 * * *\"\n\
                 [[webhooks]]\nsource = \"github\"\nrepos = [\"acme/app\"]\n[params]\nteam = \"core\"\n[hooks]\n\
                 pre = [\"git pull\"]\n[runtime]\ntype = \"container\"\n",
            ),
        ]);
        let folder = load(root.path(), &[]).unwrap();
        assert!(folder.wrong.is_empty(), "{:?}", folder.wrong);
        let [dev]: [Arc<Definition>; 1] =
            folder.definitions.into_values().collect::<Vec<_>>().try_into().expect("one agent");
        assert_eq!((dev.public.instances, dev.public.timeout_ms), (2, 900_000));
        assert_eq!((dev.public.work_queue, dev.public.wait_timeout_ms), (20, 60_000));
        assert_eq!(dev.public.max_wait_timeout_ms, 7_200_000);
        assert_eq!(dev.instructions, "Mend the bug.");
        assert_eq!(dev.params, serde_json::json!({"team": "core"}));
        assert_eq!(dev.hooks.pre, ["git pull"]);
        assert_eq!(dev.public.schedule, "0 9 * * *");
    }

    #[test]
    fn a_folder_that_cannot_be_looked_into_is_an_agent_with_a_mistake() {
        let root = agents(&[("dev/notes.md", "no agent yet"), ("lost+found/notes.md", "no agent")]);
        assert!(load(root.path(), &[]).unwrap().wrong.is_empty());
        // A link to itself, for the user of these tests may look into every folder.
        for folder in ["dev", "lost+found"] {
            std::os::unix::fs::symlink("agent.toml", root.path().join(folder).join("agent.toml")).unwrap();
        }
        let folder = load(root.path(), &[]).unwrap();
        let [(name, problem)] = &folder.wrong[..] else { panic!("{:?}", folder.wrong) };
        assert_eq!(name, "dev");
        assert!(problem.to_string().contains("cannot read the definition"), "{problem}");
        assert!(problem.to_string().contains("dev/agent.toml: "), "{problem}");
    }

    #[test]
    fn settings_lose_keys_by_any_of_their_names_and_keep_the_rest() {
        let text = "# Of others.\nscale = 2\n[params]\nsource = \"crm\"\n";
        assert_eq!(without(text, &["source", "credentials"]), text);
        let left: toml::Table = without(text, &["instances"]).parse().unwrap();
        let wanted: toml::Table = "[params]\nsource = \"crm\"".parse().unwrap();
        assert_eq!(left, wanted);
        assert_eq!(without("scale = ", &["instances"]), "scale = ");
    }

    #[test]
    fn settings_in_the_instructions_count_where_the_file_says_nothing() {
        let root = agents(&[
            ("dev/SKILL.md", "---\nname: dev\ncommand: [sh]\nscale: 3\ntimeout: 5m\n---\nWork."),
            ("dev/agent.toml", "timeout = \"7m\""),
            ("lone/SKILL.md", "---\ncommand: [sh]\n---\nWork."),
        ]);
        let folder = load(root.path(), &[]).unwrap();
        assert_eq!(names(&folder), ["dev", "lone"], "{:?}", folder.wrong);
        let dev = &folder.definitions[&("default".to_owned(), "dev".to_owned())].public;
        assert_eq!((dev.instances, dev.timeout_ms), (3, 420_000));
    }

    #[test]
    fn defaults_beside_the_agents_count_where_an_agent_says_nothing() {
        let root = agents(&[
            (
                "defaults.toml",
                "defaultWaitTimeout = 7200\ntimeout = \"5m\"\n[models.sonnet]\nprovider = \"anthropic\"",
            ),
            ("dev/agent.toml", "command = [\"sh\"]\nwaitTimeout = \"1m\""),
            ("other/SKILL.md", "---\ncommand: [sh]\ntimeout: 6m\n---\nWork."),
        ]);
        let folder = load(root.path(), &[]).unwrap();
        let times = |name: &str| {
            let public = &folder.definitions[&("default".to_owned(), name.to_owned())].public;
            (public.wait_timeout_ms, public.timeout_ms)
        };
        assert_eq!((times("dev"), times("other")), ((60_000, 300_000), (7_200_000, 360_000)));

        std::fs::write(root.path().join(DEFAULTS), "waitTimeuot = 60").unwrap();
        let wrong = load(root.path(), &[]).unwrap().wrong;
        let said = wrong[0].1.to_string();
        assert!(said.contains("defaults.toml") && said.contains("did you mean `waitTimeout`?"), "{said}");
    }

    #[test]
    fn an_agent_that_was_to_be_built_is_one_all_the_same_and_is_told_apart() {
        let root = agents(&[
            ("built/agent.toml", "image = \"built\""),
            ("built/Dockerfile", "FROM scratch"),
            ("plain/agent.toml", "command = [\"sh\"]"),
            ("unbuilt/agent.toml", "command = [\"sh\"]"),
            ("unbuilt/Dockerfile", "FROM scratch"),
        ]);
        let folder = load(root.path(), &[]).unwrap();
        assert_eq!(names(&folder), ["built", "plain", "unbuilt"], "{:?}", folder.wrong);
        let unbuilt: Vec<bool> = folder.definitions.values().map(|known| is_unbuilt(known)).collect();
        assert_eq!(unbuilt, [false, false, true]);
    }

    #[test]
    fn two_files_of_settings_are_one_too_many() {
        let root =
            agents(&[("dev/agent.toml", "command = [\"sh\"]"), ("dev/config.toml", "command = [\"sh\"]")]);
        let folder = load(root.path(), &[]).unwrap();
        assert!(folder.wrong[0].1.to_string().contains("keep one of the two"), "{:?}", folder.wrong);
    }
}
