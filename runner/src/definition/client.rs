//! Whether the coding agent that a definition names is where its runs look for it.

use std::env;

use super::Definition;

/// Where programs are looked for if the agent's definition sets no PATH.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A coding agent that this machine has in none of the folders where runs look for it.
#[derive(Debug, PartialEq, Eq)]
pub struct Absent<'a> {
    pub client: &'static str,
    pub path: &'a str,
}

impl Definition {
    /// The coding agent that no run on this machine would find. What a container has only its image knows.
    pub fn absent_client(&self) -> Option<Absent<'_>> {
        if self.container.is_some() {
            return None;
        }
        let client = self.program.looked_for()?;
        let path = self.env.get("PATH").map_or(PATH, String::as_str);
        let is_there = env::split_paths(path).any(|folder| folder.join(client).is_file());
        (!is_there).then_some(Absent { client, path })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::definition::read;

    #[test]
    fn a_coding_agent_is_looked_for_where_its_runs_do_and_nowhere_else() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("coder");
        fs::create_dir(&folder).unwrap();
        let path = root.path().display().to_string();
        let known = |settings: &str| {
            fs::write(folder.join("agent.toml"), format!("{settings}\n[env]\nPATH = \"{path}\"")).unwrap();
            read(&folder, &[]).unwrap()
        };
        let absent = Absent { client: "claude", path: &path };
        assert_eq!(known("harness = \"claude-code\"").absent_client(), Some(absent));
        for settings in [
            "harness = \"claude-code\"\ncommand = [\"/opt/claude\"]",
            "harness = \"claude-code\"\nimage = \"coder\"",
            "command = [\"claude\"]",
        ] {
            assert_eq!(known(settings).absent_client(), None, "{settings}");
        }
        fs::write(root.path().join("claude"), "").unwrap();
        assert_eq!(known("harness = \"claude-code\"").absent_client(), None);
    }
}
