//! `skein agent add` and `skein agent validate`: the folder in which agents are defined.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use skein_runner::credentials::Reference;
use skein_runner::definition::{self, Absent, Definition, is_agent};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use tempfile::TempDir;
use tokio::process::Command;
use url::Url;

use super::{CliError, Common, InSwarm, added, credentials, table, unwritten};
use crate::config::{self, Overrides};

/// Where a collection of agents may have one of them.
const PLACES: [&str; 3] = ["", "agents", "skills"];

#[derive(Debug, Args)]
pub(super) struct Validate {
    /// A folder of agents, or one agent's; that of the node's own runner if left out.
    folder: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Validate {
    pub(super) fn run(self) -> Result<(), CliError> {
        let is_named = self.folder.is_some();
        let folder = match self.folder {
            // One that is called `.` has another name, which is the agent's.
            Some(folder) if folder.file_name().is_none() => folder.canonicalize().unwrap_or(folder),
            Some(folder) => folder,
            None => {
                self.common.files()?;
                self.common.agents()
            }
        };
        let found = if is_agent(&folder) { vec![one(&folder)] } else { all(&folder)? };
        let wrong = found.iter().filter(|row| !row["problem"].is_null()).count();
        let mut out = std::io::stdout().lock();
        for row in &found {
            // A problem is a sentence or two, and no cell of a table.
            let (agent, problem) = (row["agent"].as_str(), row["problem"].as_str());
            match self.common.json {
                true => writeln!(out, "{row}")?,
                false => writeln!(out, "{}: {}", agent.unwrap_or_default(), problem.unwrap_or("good"))?,
            }
        }
        if is_named && found.is_empty() {
            let problem = format!(
                "there is no agent in {}: neither SKILL.md nor agent.toml or config.toml, there or in a folder of it",
                folder.display()
            );
            return Err(Refusal::new(Code::NotFound, problem).into());
        }
        if wrong == 0 {
            return Ok(());
        }
        let problem =
            format!("{wrong} of {} definitions are wrong; mend what stands beside them", found.len());
        Err(Refusal::new(Code::InvalidArgument, problem).into())
    }
}

fn all(agents: &Path) -> Result<Vec<Value>, CliError> {
    let folder = definition::load(agents, &[]).map_err(|error| CliError::Usage(error.to_string()))?;
    let good = folder.definitions.keys().map(|(swarm, name)| json!({"agent": name, "swarm": swarm}));
    let wrong =
        folder.wrong.iter().map(|(name, problem)| json!({"agent": name, "problem": told(problem, agents)}));
    Ok(good.chain(wrong).collect())
}

fn one(folder: &Path) -> Value {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    match definition::read(folder, &[]) {
        Ok(known) => json!({"agent": name, "swarm": known.public.swarm}),
        Err(problem) => json!({"agent": name, "problem": told(&problem, folder)}),
    }
}

#[derive(Debug, Args)]
pub(super) struct Add {
    /// Its name, which is that of its folder: small letters, digits and hyphens.
    name: Name,
    /// A folder or a git repository with the agent, or with several of which one has this name.
    #[arg(long, value_name = "FOLDER|URL")]
    from: Option<String>,
    /// The program that is to be the agent, with its arguments: `--command python3 --command /opt/agents/agent.py`. It
    /// starts in the agent's work folder, so files are named from the root. With --harness, where that coding agent's
    /// program is: `--command "$(command -v claude)"`.
    #[arg(long, allow_hyphen_values = true)]
    command: Vec<String>,
    /// The coding agent that it is to be, such as claude-code.
    #[arg(long)]
    harness: Option<String>,
    /// A credential that it is lent; repeat it for more.
    #[arg(long, value_name = "TYPE[:INSTANCE]")]
    credential: Vec<Reference>,
    /// A cron expression at which it runs.
    #[arg(long, value_name = "CRON")]
    schedule: Option<String>,
    /// What it is told to do.
    #[arg(long, conflicts_with = "from")]
    prompt: Option<String>,
    #[command(flatten)]
    at: InSwarm,
}

impl Add {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let (place, known) = self.put().await?;
        let swarm = known.public.swarm.as_str();
        let document = json!({"agent": self.name, "swarm": swarm, "folder": place});
        table::print_document(&document, self.at.common.json)?;
        if let Some(sentence) = not_found(&known, &definition::settings_file(&place)) {
            table::note(format_args!("skein: {sentence}"));
        }
        for sentence in unset(&self.at.common, &known) {
            table::note(format_args!("skein: {sentence}"));
        }
        added::tell(&self.at.common, swarm, &self.name).await;
        Ok(())
    }

    /// Puts the agent together beside the others and moves it among them when it is whole: a runner that looks sees all
    /// of it or nothing. Gives its folder, and what was read of it.
    async fn put(&self) -> Result<(PathBuf, Definition), CliError> {
        self.at.common.files()?;
        let agents = self.at.common.agents();
        let place = agents.join(self.name.as_str());
        if place.exists() {
            let problem = format!("there is an agent {} in {}; change it there", self.name, agents.display());
            return Err(Refusal::new(Code::AlreadyExists, problem).into());
        }
        let workshop = workshop(&agents).map_err(|error| unwritten(&agents, error))?;
        let made = workshop.path().join(self.name.as_str());
        match &self.from {
            Some(source) => {
                let own = own(&self.at.common);
                copy_tree(&find(source, workshop.path(), &self.name, &own).await?, &made, &own)?;
            }
            None => self.write_instructions(&made)?,
        }
        self.write_settings(&made)?;
        let known = definition::read(&made, &[])
            .map_err(|problem| CliError::Usage(format!("nothing was added: {}", told(&problem, &made))))?;
        fs::rename(&made, &place)?;
        Ok((place, known))
    }

    fn write_instructions(&self, folder: &Path) -> Result<(), CliError> {
        fs::create_dir(folder)?;
        let Some(prompt) = &self.prompt else { return Ok(()) };
        Ok(fs::write(folder.join("SKILL.md"), format!("---\nname: {}\n---\n\n{prompt}\n", self.name))?)
    }

    /// What was asked for stands first, for below a table it would belong to that, and in place of what was there.
    fn write_settings(&self, folder: &Path) -> Result<(), CliError> {
        let asked = self.asked();
        let mut keys: Vec<&str> = asked.iter().map(|(key, _)| *key).collect();
        // One takes the place of the other, unless both are said: then the program is that of the harness.
        match (&self.harness, self.command.is_empty()) {
            (None, false) => keys.extend(["harness", "model", "args", "tool_timeout"]),
            (Some(_), true) => keys.push("command"),
            _ => {}
        }
        let file = definition::settings_file(folder);
        let there = definition::without(&fs::read_to_string(&file).unwrap_or_default(), &keys);
        let asked: String = asked.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
        Ok(fs::write(file, asked + &there)?)
    }

    /// The keys that the command line sets, with their values.
    fn asked(&self) -> Vec<(&'static str, Value)> {
        let names: Vec<String> = self.credential.iter().map(ToString::to_string).collect();
        let swarm = Some(&self.at.swarm).filter(|swarm| swarm.as_str() != "default");
        let source = self.from.as_deref().filter(|source| source.contains("://"));
        let asked = [
            ("command", (!self.command.is_empty()).then(|| json!(self.command))),
            ("harness", self.harness.as_ref().map(|harness| json!(harness))),
            ("credentials", (!names.is_empty()).then(|| json!(names))),
            ("swarm", swarm.map(|swarm| json!(swarm))),
            ("schedule", self.schedule.as_ref().map(|schedule| json!(schedule))),
            ("source", source.map(|url| json!(public(url)))),
        ];
        asked.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

/// The folders of the node: its data, its agents, and where these work.
fn own(common: &Common) -> Vec<PathBuf> {
    let data = common.layout().root().canonicalize().ok();
    let beside = |data: &PathBuf| {
        let mut name = data.file_name()?.to_owned();
        name.push("-work");
        Some(data.with_file_name(name))
    };
    let work = data.as_ref().and_then(beside);
    let all = [data, work, Some(common.agents())].into_iter().flatten();
    all.filter_map(|folder| folder.canonicalize().ok()).collect()
}

/// Where an agent is put together, on the disk that it is to lie on.
fn workshop(agents: &Path) -> std::io::Result<TempDir> {
    fs::create_dir_all(agents)?;
    tempfile::Builder::new().prefix(".add-").tempdir_in(agents)
}

/// What there is to say of a coding agent that is not where runs look for it: nobody else would before the first
/// of them fails.
fn not_found(known: &Definition, settings: &Path) -> Option<String> {
    let Absent { client, path } = known.absent_client()?;
    Some(format!(
        "{client} is in none of the folders where a run on this machine looks for it ({path}); install it there, or \
         write where it is into {}, such as command = [\"/opt/bin/{client}\"]",
        settings.display()
    ))
}

/// What there is to say of credentials that are not set: no run starts without them. Nothing where the node has no
/// runner beside it, for every other one has credentials of its own.
fn unset(common: &Common, known: &Definition) -> Vec<String> {
    let config = config::load(&common.layout().config(), &Overrides::default());
    if config.is_ok_and(|config| !config.runner.enabled) {
        return Vec::new();
    }
    // Who may not look there cannot say what is missing.
    let Ok(set) = credentials::all(common).and_then(|all| Ok(all.list()?)) else { return Vec::new() };
    let missing = known.credentials.iter().filter(|credential| !set.contains_key(*credential));
    let data = common.data.display();
    let sentence = |credential: &Reference| {
        format!(
            "the credential {credential} is not set here, and no run starts without it; run `skein credentials set \
             {credential} --data {data} < FILE`, unless the agent is for a runner that has credentials of its own"
        )
    };
    missing.map(sentence).collect()
}

/// A problem, with its file as seen from a folder.
fn told(problem: &skein_runner::Error, folder: &Path) -> String {
    problem.to_string().trim_end().replace(&format!("{}/", folder.display()), "")
}

/// The folder of the agent at its source, which is fetched if it has to be. It is none of the node's `own`.
async fn find(source: &str, workshop: &Path, name: &Name, own: &[PathBuf]) -> Result<PathBuf, CliError> {
    let root = match Path::new(source).is_dir() {
        true => PathBuf::from(source),
        false => clone(source, &workshop.join(".source")).await?,
    };
    let named = PLACES.map(|place| root.join(place).join(name.as_str()));
    let found = named.into_iter().chain([root]).find(|folder| is_agent(folder) && !is_one_of(folder, own));
    found.ok_or_else(|| {
        let problem = format!(
            "{} has no agent {name}: neither SKILL.md nor agent.toml or config.toml, there or below agents/ and skills/",
            public(source)
        );
        Refusal::new(Code::NotFound, problem).into()
    })
}

async fn clone(url: &str, into: &Path) -> Result<PathBuf, CliError> {
    let cloned = Command::new("git")
        .args(["clone", "--quiet", "--depth", "1", "--", url])
        .arg(into)
        .env("GIT_TERMINAL_PROMPT", "0")
        .output()
        .await
        .map_err(|error| {
            CliError::Usage(format!("git cannot be run ({error}); install it, or give a folder"))
        })?;
    if cloned.status.success() {
        return Ok(into.to_owned());
    }
    let said = String::from_utf8_lossy(&cloned.stderr).replace(url, &public(url));
    let said = said.trim().lines().last().unwrap_or("git did not say why");
    Err(CliError::Usage(format!("{} is no folder, and git cannot fetch it: {said}", public(url))))
}

/// Where an agent came from, as it may be shown and written down: without a password, and without a name at a web
/// address, for that is a token there.
fn public(source: &str) -> String {
    let Ok(mut url) = Url::parse(source) else { return source.to_owned() };
    if url.password().is_none() && (url.username().is_empty() || !url.scheme().starts_with("http")) {
        return source.to_owned();
    }
    // These fail for addresses without a host alone, which have neither.
    let _ = url.set_password(None);
    if url.scheme().starts_with("http") {
        let _ = url.set_username("");
    }
    url.to_string()
}

/// Copies an agent's files. Links are left out: they may lead anywhere. So are the folders of the node, which may lie
/// in the agent's: what they hold is no agent's to read, and the copy would have to have a copy of itself.
fn copy_tree(from: &Path, to: &Path, own: &[PathBuf]) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, path, target) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        if kind.is_dir() && entry.file_name() != ".git" && !is_one_of(&path, own) {
            copy_tree(&path, &target, own)?;
        } else if kind.is_file() {
            fs::copy(path, target)?;
        }
    }
    Ok(())
}

/// Whether a folder is one of these, by whatever name it is called.
fn is_one_of(folder: &Path, these: &[PathBuf]) -> bool {
    folder.canonicalize().is_ok_and(|folder| these.contains(&folder))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        add: Add,
    }

    /// What a command line makes of settings that are there.
    fn settings(line: &[&str], there: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agent.toml");
        fs::write(&file, there).unwrap();
        let Line { add } = Line::try_parse_from(["add", "dev"].iter().chain(line)).unwrap();
        add.write_settings(folder.path()).unwrap();
        fs::read_to_string(file).unwrap()
    }

    #[test]
    fn a_program_takes_the_place_of_a_harness_and_is_its_own_where_both_are_said() {
        let (harness, command) = (["--harness", "claude-code"], ["--command", "/opt/claude"]);
        let (of_harness, of_command) = ("harness = \"claude-code\"", "command = [\"/opt/claude\"]");
        let there = "harness = \"codex\"\nmodel = \"x\"\ncommand = [\"codex\"]\n";
        for (line, kept, gone) in [
            (&harness[..], &[of_harness, "model"][..], "command"),
            (&command[..], &[of_command][..], "model"),
            (&[harness, command].concat()[..], &[of_harness, of_command, "model"][..], "codex"),
        ] {
            let written = settings(line, there);
            assert!(kept.iter().all(|kept| written.contains(kept)) && !written.contains(gone), "{written}");
        }
    }

    /// A file with a name of its own would pass for a good definition.
    #[test]
    fn who_names_a_folder_without_an_agent_is_told_so() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dev");
        fs::create_dir(&folder).unwrap();
        let validate = |folder: Option<PathBuf>| {
            Validate { folder, common: Common { data: root.path().to_owned(), json: false } }.run()
        };
        fs::write(folder.join("agent.tml"), "command = [\"sh\"]").unwrap();
        let refused = validate(Some(folder.clone())).unwrap_err();
        assert!(refused.exit() == 4 && refused.to_string().contains("no agent in"), "{refused}");
        fs::rename(folder.join("agent.tml"), folder.join("agent.toml")).unwrap();
        validate(Some(folder)).unwrap();
        fs::create_dir(root.path().join("agents")).unwrap();
        validate(None).unwrap();
    }

    fn added(line: [&str; 3]) -> Add {
        let [name, from, data] = line;
        Line::try_parse_from(["add", name, "--from", from, "--data", data]).unwrap().add
    }

    /// People stand in their agent's folder, and the data directory is there too unless they say otherwise.
    #[tokio::test]
    async fn an_agent_that_lies_around_the_data_directory_is_taken_without_that() {
        let project = tempfile::tempdir().unwrap();
        let data = project.path().join(".skein");
        for folder in [".skein", ".skein-work", "notes"] {
            fs::create_dir(project.path().join(folder)).unwrap();
        }
        fs::write(data.join("keys.json"), "s3cret").unwrap();
        fs::write(project.path().join("agent.toml"), "command = [\"sh\"]").unwrap();
        let (around, data) = (project.path().to_str().unwrap(), data.to_str().unwrap());
        let (place, _) = added(["dev", around, data]).put().await.unwrap();
        assert!(place.join("agent.toml").exists() && place.join("notes").exists());
        for own in [".skein", ".skein-work"] {
            assert!(!place.join(own).exists(), "the agent could read what is in {own}");
        }
        // The node's settings have the name of an agent's.
        fs::write(Path::new(data).join("config.toml"), "").unwrap();
        let refused = added(["other", data, data]).put().await.err().unwrap();
        assert_eq!(refused.exit(), Code::NotFound.exit(), "{refused}");
    }

    #[tokio::test]
    async fn an_agent_is_put_where_the_nodes_own_runner_looks_for_it() {
        let root = tempfile::tempdir().unwrap();
        let (data, source) = (root.path().join("data"), root.path().join("source"));
        for folder in [&data, &source] {
            fs::create_dir(folder).unwrap();
        }
        fs::write(source.join("agent.toml"), "command = [\"sh\"]").unwrap();
        fs::write(data.join("config.toml"), "[runner]\nagents = \"elsewhere\"").unwrap();
        let add = added(["dev", source.to_str().unwrap(), data.to_str().unwrap()]);
        let (place, _) = add.put().await.unwrap();
        assert_eq!(place, data.join("elsewhere/dev"));
        assert!(place.join("agent.toml").exists());
        fs::write(data.join("config.toml"), "").unwrap();
        assert_eq!(add.at.common.agents(), data.join("agents"));
    }

    #[test]
    fn who_adds_a_coding_agent_that_no_run_would_find_is_told_where_to_say_where_it_is() {
        let root = tempfile::tempdir().unwrap();
        let (folder, path) = (root.path().join("dev"), root.path().display());
        fs::create_dir(&folder).unwrap();
        let file = folder.join("agent.toml");
        fs::write(&file, format!("harness = \"codex\"\nenv = {{ PATH = \"{path}\" }}")).unwrap();
        let known = definition::read(&folder, &[]).unwrap();
        let said = not_found(&known, &file).unwrap();
        for part in ["codex is in none", &format!("({path})"), &file.display().to_string()] {
            assert!(said.contains(part), "{part}: {said}");
        }
        fs::write(root.path().join("codex"), "").unwrap();
        assert_eq!(not_found(&known, &file), None);
    }

    #[test]
    fn who_adds_an_agent_is_told_which_of_its_credentials_are_not_set_for_the_nodes_own_runner() {
        let root = tempfile::tempdir().unwrap();
        let (data, folder) = (root.path().join("data"), root.path().join("dev"));
        fs::create_dir(&folder).unwrap();
        let lent = "command = [\"sh\"]\ncredentials = [\"openai_key\", \"github_token:acme\"]";
        fs::write(folder.join("agent.toml"), lent).unwrap();
        let known = definition::read(&folder, &[]).unwrap();
        let common = Common { data: data.clone(), json: false };
        assert_eq!(unset(&common, &known).len(), 2);
        let field = data.join("credentials/openai_key/default");
        fs::create_dir_all(&field).unwrap();
        fs::write(field.join("token"), "s3cret").unwrap();
        let [said] = &unset(&common, &known)[..] else { panic!("one of them is set") };
        let order = format!("`skein credentials set github_token:acme --data {} < FILE`", data.display());
        assert!(said.contains("github_token:acme is not set") && said.contains(&order), "{said}");
        fs::write(data.join("config.toml"), "[runner]\nenabled = false\n").unwrap();
        assert_eq!(unset(&common, &known), Vec::<String>::new(), "other runners have their own");
    }

    /// Some problems are told by what reads TOML, which ends them with an empty line.
    #[test]
    fn a_problem_is_told_by_its_file_and_ends_with_its_last_word() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("dev");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("agent.toml"), "harness = \"claude\"").unwrap();
        let said = told(&definition::read(&folder, &[]).unwrap_err(), &folder);
        assert!(said.starts_with("agent.toml: ") && said.contains("claude-code"), "{said}");
        assert_eq!(said.trim_end(), said);
    }

    #[test]
    fn no_secret_of_a_source_is_shown() {
        for (source, shown) in [
            ("https://user:s3cret@host/a/b.git", "https://host/a/b.git"),
            ("https://s3cret@host/a/b.git", "https://host/a/b.git"),
            ("ssh://git:s3cret@host/a", "ssh://git@host/a"),
            ("ssh://git@host/a", "ssh://git@host/a"),
            ("https://host/a", "https://host/a"),
            ("file:///srv/agents", "file:///srv/agents"),
            ("git@host:a/b", "git@host:a/b"),
            ("../agents", "../agents"),
        ] {
            assert_eq!(public(source), shown);
        }
    }
}
