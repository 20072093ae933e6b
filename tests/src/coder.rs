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
            Self::Opencode => "opencode",
        }
    }

    /// Where its program is, from the folder of npm's packages on; `*` is the machine's kind.
    fn place(self) -> &'static str {
        match self {
            Self::ClaudeCode => "@anthropic-ai/claude-code-linux-*/claude",
            Self::Codex => "@openai/codex-linux-*/vendor/*/bin/codex",
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
        // They are large, and a link to the same file costs nothing.
        if fs::hard_link(&found, &program).is_err() {
            fs::copy(&found, &program)?;
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
        }
        Ok(program)
    }
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
