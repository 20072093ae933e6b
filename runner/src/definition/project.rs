//! What a project has for all of its agents beside their folders.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{self, Path, PathBuf};

/// The folder of a project, beside that of its agents, whose files each of them finds (spec: Action Llama 2.3); also
/// what it is called in an agent's own folder.
pub(crate) const SHARED: &str = "shared";

const ROOT: u32 = 0;

/// The folder that the agents of a project share, if it has one; `folder` is that of one of its agents. An agent with
/// something of that name in its own folder keeps to that.
///
/// # Errors
/// A sentence, when a link stands there, which could lead every agent to any folder of this machine, those in
/// containers too; when it is a stranger's; or when nobody can tell what stands there.
pub(crate) fn shared_folder(folder: &Path) -> Result<Option<PathBuf>, String> {
    let folder = path::absolute(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let Some((agents, project)) = folder.parent().and_then(|agents| Some((agents, agents.parent()?))) else {
        return Ok(None);
    };
    let shared = project.join(SHARED);
    // The agents may lie in a folder of this name.
    if agents == shared || fs::symlink_metadata(folder.join(SHARED)).is_ok() {
        return Ok(None);
    }
    let unknown = |error| format!("the folder that all agents share, {}: {error}", shared.display());
    let about = match fs::symlink_metadata(&shared) {
        Ok(about) => about,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(unknown(error)),
    };
    if about.is_symlink() {
        return Err(format!(
            "the folder that all agents share, {}, is a link, and nobody follows it; put the folder itself there, or \
             give the link another name",
            shared.display()
        ));
    }
    if !about.is_dir() {
        return Ok(None);
    }
    // Beside agents that lie in a folder of everybody's, as that of temporary files is, anybody may put one.
    let theirs = fs::metadata(agents).map_err(unknown)?.uid();
    if ![theirs, rustix::process::geteuid().as_raw(), ROOT].contains(&about.uid()) {
        let shown = shared.display();
        return Err(format!(
            "the folder that all agents share, {shown}, belongs to somebody else than the agents; run \
             `chown $(id -u) {shown}` if it is yours, or give it another name"
        ));
    }
    shared.canonicalize().map(Some).map_err(unknown)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;
    use crate::definition::read;

    #[test]
    fn a_project_has_a_folder_for_all_its_agents_and_no_link_in_its_place() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let dev = root.join("agents/dev");
        fs::create_dir_all(&dev).unwrap();
        fs::write(dev.join("agent.toml"), "command = [\"sh\"]").unwrap();
        assert_eq!(shared_folder(&dev), Ok(None));
        fs::write(root.join("shared"), "no folder").unwrap();
        assert_eq!(shared_folder(&dev), Ok(None));
        fs::remove_file(root.join("shared")).unwrap();

        symlink("/etc", root.join("shared")).unwrap();
        let refused = shared_folder(&dev).unwrap_err();
        assert!(refused.contains("is a link") && refused.contains("/shared"), "{refused}");
        let wrong = read(&dev, &[]).unwrap_err().to_string();
        assert!(wrong.contains("is a link"), "whoever checks the definition is told: {wrong}");
        fs::remove_file(root.join("shared")).unwrap();

        fs::create_dir(root.join("shared")).unwrap();
        assert_eq!(shared_folder(&dev), Ok(Some(root.join("shared"))));
        read(&dev, &[]).unwrap();
        fs::create_dir(dev.join("shared")).unwrap();
        assert_eq!(shared_folder(&dev), Ok(None), "it has one of its own");
    }

    /// Only root may give a file away: the tests run as it.
    #[test]
    fn what_a_stranger_has_put_beside_the_agents_is_not_shown_to_them() {
        let root = tempfile::tempdir().unwrap();
        let (dev, shared) = (root.path().join("agents/dev"), root.path().join("shared"));
        for folder in [&dev, &shared] {
            fs::create_dir_all(folder).unwrap();
        }
        chown(&shared, Some(12_345), None).unwrap();
        let refused = shared_folder(&dev).unwrap_err();
        assert!(refused.contains("somebody else") && refused.contains("chown"), "{refused}");
        chown(dev.parent().unwrap(), Some(12_345), None).unwrap();
        assert_eq!(
            shared_folder(&dev),
            Ok(Some(shared.canonicalize().unwrap())),
            "the agents are theirs too"
        );
    }

    #[test]
    fn agents_that_lie_in_a_folder_of_that_name_are_not_shown_to_each_other() {
        let root = tempfile::tempdir().unwrap();
        let dev = root.path().join("shared/dev");
        fs::create_dir_all(&dev).unwrap();
        assert_eq!(shared_folder(&dev), Ok(None));
    }
}
