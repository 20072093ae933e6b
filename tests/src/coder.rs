//! Coding agents as they are installed for the tests: Claude Code and others, by the programs of their npm packages.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Any key will do.
const KEY: &str = "sk-test";

/// A client that the tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coder {
    ClaudeCode,
    Codex,
    Gemini,
    Opencode,
}

/// What leads a client to a model.
#[derive(Clone, Debug, Default)]
pub struct Guide {
    /// The model's name, if the client has to be told one.
    pub model: Option<&'static str>,
    pub args: Vec<String>,
    pub env: Vec<(&'static str, String)>,
}

impl Coder {
    /// As definitions spell it.
    pub fn harness(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Opencode => "opencode",
        }
    }

    /// Where its program is, from the folder of npm's packages on; `*` is the machine's kind.
    fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => "@anthropic-ai/claude-code-linux-*/claude",
            Self::Codex => "@openai/codex-linux-*/vendor/*/bin/codex",
            Self::Gemini => "@google/gemini-cli/bundle/gemini.js",
            Self::Opencode => "opencode-linux-*/bin/opencode",
        }
    }

    /// To a model at an address.
    pub fn guide(self, model: &str) -> Guide {
        match self {
            Self::ClaudeCode => Guide {
                env: vec![("ANTHROPIC_BASE_URL", model.to_owned()), ("ANTHROPIC_API_KEY", KEY.to_owned())],
                ..Guide::default()
            },
            Self::Codex => {
                let provider = format!(
                    "model_providers.local={{name=\"local\",base_url=\"{model}/v1\",env_key=\"MODEL_KEY\",wire_api=\"responses\"}}"
                );
                Guide {
                    // It knows nothing of this one, so it offers all tools at once.
                    model: Some("gpt-5.4"),
                    args: ["-c", "model_provider=\"local\"", "-c", &provider].map(str::to_owned).to_vec(),
                    env: vec![("MODEL_KEY", KEY.to_owned())],
                }
            }
            Self::Gemini => Guide {
                // Without one it asks a model which one to ask.
                model: Some("gemini-2.5-pro"),
                args: Vec::new(),
                env: vec![("GOOGLE_GEMINI_BASE_URL", model.to_owned()), ("GEMINI_API_KEY", KEY.to_owned())],
            },
            Self::Opencode => Guide {
                model: Some("anthropic/claude-sonnet-4-5"),
                args: Vec::new(),
                env: vec![
                    ("ANTHROPIC_BASE_URL", format!("{model}/v1")),
                    ("ANTHROPIC_API_KEY", KEY.to_owned()),
                    // It carries a list of models and would look for a newer one.
                    ("OPENCODE_DISABLE_MODELS_FETCH", "1".to_owned()),
                ],
            },
        }
    }

    /// Puts the program into a folder that every user can reach, and gives its path.
    ///
    /// # Errors
    /// When it is not installed.
    pub fn install(self, folder: &Path) -> Result<PathBuf> {
        let modules = std::env::var("SKEIN_TEST_NODE_MODULES").context(
            "SKEIN_TEST_NODE_MODULES is not set: run the suite by tests/run, which installs the clients",
        )?;
        let segments: Vec<&str> = self.place().split('/').collect();
        let found = find(Path::new(&modules), &segments);
        let found = found.with_context(|| {
            format!(
                "{} is missing in {modules}: run the suite by tests/run, which installs it",
                self.harness()
            )
        })?;
        let program = folder.join(self.harness());
        match self {
            Self::Gemini => install_script(&found, folder, &program)?,
            _ => link(&found, &program)?,
        }
        Ok(program)
    }
}

/// A script of Node.js with what lies beside it, and what runs it, in one program.
fn install_script(script: &Path, folder: &Path, program: &Path) -> Result<()> {
    let bundle = folder.join(format!("{}-bundle", program.file_name().unwrap_or_default().display()));
    link_all(script.parent().context("a script lies in a folder")?, &bundle)?;
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|path| path.join("node")).find(|node| node.is_file());
    let found = found.context("node is missing: run the suite by tests/run, which provides it")?;
    let node = folder.join("node");
    link(&found.canonicalize()?, &node)?;
    let script = bundle.join(script.file_name().unwrap_or_default());
    fs::write(program, format!("#!/bin/sh\nexec '{}' '{}' \"$@\"\n", node.display(), script.display()))?;
    Ok(fs::set_permissions(program, fs::Permissions::from_mode(0o755))?)
}

/// Programs are large, and a link to the same file costs nothing.
fn link(file: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(file, to).is_err() {
        fs::copy(file, to)?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

fn link_all(folder: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() { link_all(&entry.path(), &to)? } else { link(&entry.path(), &to)? }
    }
    Ok(())
}

/// The first file below a folder on such a path.
fn find(folder: &Path, segments: &[&str]) -> Option<PathBuf> {
    let Some((segment, rest)) = segments.split_first() else {
        return folder.is_file().then(|| folder.to_owned());
    };
    let Some((before, after)) = segment.split_once('*') else { return find(&folder.join(segment), rest) };
    let mut entries: Vec<PathBuf> = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path()).collect();
    entries.sort();
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.len() >= before.len() + after.len() && name.starts_with(before) && name.ends_with(after)
    };
    entries.iter().filter(|path| fits(path)).find_map(|path| find(path, rest))
}
