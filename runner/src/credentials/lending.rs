//! What one instance is lent, for as long as it lives.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, chown, fchown};
use std::path::{Path, PathBuf};

use secrecy::ExposeSecret;

use super::{Credentials, Fields, Reference, names, variables};
use crate::container::User;

impl Credentials {
    fn variables(&self, references: &[Reference], seen: &Path) -> Result<BTreeMap<String, String>, String> {
        let mut variables = BTreeMap::new();
        for reference in references {
            variables.extend(variables::of(reference, &self.read(reference)?, &seen.join(place(reference))));
        }
        Ok(variables)
    }

    /// The variables of an instance that was lent what lies in this folder and finds it in `seen`. Where two are of one
    /// name the later of `order` counts.
    ///
    /// # Errors
    /// A sentence without any value.
    pub fn variables_lent(
        folder: &Path,
        order: &[Reference],
        seen: &Path,
    ) -> Result<BTreeMap<String, String>, String> {
        let mut there =
            references_in(folder).map_err(|error| format!("what it was lent cannot be read: {error}"))?;
        there.sort_by_key(|reference| order.iter().position(|ordered| ordered == reference));
        Self::new(folder.to_owned()).variables(&there, seen)
    }

    /// Copies credentials into a folder, anew if it is there, that only `reader` may read, or this user if none is
    /// named. It stays this user's: nothing that runs as the reader can put something else in the place of what is
    /// written next.
    ///
    /// # Errors
    /// A sentence without any value.
    pub fn lend(&self, references: &[Reference], folder: &Path, reader: Option<User>) -> Result<(), String> {
        take_back(folder);
        for reference in references {
            let written = write(&self.read(reference)?, folder, &place(reference), reader);
            written.map_err(|error| format!("the credential {reference} cannot be handed over: {error}"))?;
        }
        Ok(())
    }
}

/// What lies in a folder into which it was lent, whatever its fields are called.
fn references_in(folder: &Path) -> std::io::Result<Vec<Reference>> {
    let mut found = Vec::new();
    for kind in names(folder)? {
        let instances = names(&folder.join(&kind))?;
        found.extend(instances.into_iter().map(|instance| Reference { kind: kind.clone(), instance }));
    }
    Ok(found)
}

fn place(reference: &Reference) -> PathBuf {
    Path::new(&reference.kind).join(&reference.instance)
}

/// Removes what an instance was lent.
pub fn take_back(folder: &Path) {
    if let Err(error) = fs::remove_dir_all(folder)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::error!(%error, "the credentials of an instance that has ended are still there");
    }
}

fn write(fields: &Fields, folder: &Path, place: &Path, reader: Option<User>) -> std::io::Result<()> {
    let mut path = folder.to_owned();
    open(&path, reader)?;
    for part in place {
        path.push(part);
        open(&path, reader)?;
    }
    for (field, value) in fields {
        let mut options = fs::OpenOptions::new();
        let mut file = options.create_new(true).write(true).mode(0o400).open(path.join(field))?;
        let value = value.expose_secret();
        file.write_all(value.as_bytes())?;
        // Values are kept without the end of their last line, and `ssh` reads no key that lacks it.
        if value.contains('\n') {
            file.write_all(b"\n")?;
        }
        fchown(&file, reader.map(|user| user.uid), None)?;
    }
    Ok(())
}

/// Makes a folder that the reader's group may look into.
fn open(folder: &Path, reader: Option<User>) -> std::io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        made => made?,
    }
    let Some(User { gid, .. }) = reader else { return Ok(()) };
    chown(folder, None, Some(gid))?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o750))
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    #[test]
    fn an_instance_gets_what_it_names_and_it_is_taken_back() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().join("all"));
        for (name, value) in [("github_token:acme", "g"), ("openai_key", "o"), ("other", "x")] {
            credentials.set(&name.parse().unwrap(), "token", &SecretString::from(value)).unwrap();
        }
        fs::create_dir(root.path().join("lent")).unwrap();
        let folder = root.path().join("lent/worker-1");
        let references = ["github_token:acme", "openai_key"].map(|name| name.parse().unwrap());
        // A second stage of the run is lent the same.
        for _ in 0..2 {
            credentials.lend(&references, &folder, None).unwrap();
        }
        assert_eq!(fs::read_to_string(folder.join("github_token/acme/token")).unwrap(), "g");
        assert!(!folder.join("other").exists());
        take_back(&folder);
        take_back(&folder);
        assert!(!folder.exists());
        let key = "-----BEGIN OPENSSH PRIVATE KEY-----\na\n-----END OPENSSH PRIVATE KEY-----\n";
        let ssh: Reference = "git_ssh".parse().unwrap();
        credentials.set(&ssh, "id_rsa", &SecretString::from(key.trim_end())).unwrap();
        credentials.lend(&[ssh], &folder, None).unwrap();
        let lent = fs::read_to_string(folder.join("git_ssh/default/id_rsa")).unwrap();
        assert_eq!(lent, key, "ssh reads no key without the end of its last line");
        take_back(&folder);
        let missing = ["nothing".parse().unwrap()];
        assert!(credentials.lend(&missing, &folder, None).is_err_and(|told| told.contains("nothing")));
    }

    #[test]
    fn the_variables_are_of_what_was_lent_whatever_has_become_of_it_since() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().join("all"));
        let references =
            ["openai_key", "github_token:zoo", "github_token:acme"].map(|name| name.parse().unwrap());
        for (reference, value) in references.iter().zip(["o", "z", "a"]) {
            credentials.set(reference, "token", &SecretString::from(value)).unwrap();
        }
        let folder = root.path().join("lent");
        credentials.lend(&references, &folder, None).unwrap();
        credentials.set(&references[0], "token", &SecretString::from("another")).unwrap();
        credentials.remove(&references[1]).unwrap();
        let variables = |order: &[Reference]| {
            Credentials::variables_lent(&folder, order, Path::new("/credentials")).unwrap()
        };
        assert_eq!(variables(&references)["OPENAI_API_KEY"], "o");
        assert_eq!(variables(&references)["GITHUB_TOKEN"], "a", "the last that is named counts");
        assert_eq!(variables(&references[..2])["GITHUB_TOKEN"], "z");
        take_back(&folder);
        assert!(variables(&references).is_empty());

        // Put there by hand: its only field counts, whatever that is called.
        let by_hand = root.path().join("all/openai_key/default");
        fs::remove_file(by_hand.join("token")).unwrap();
        fs::write(by_hand.join("key.txt"), "h").unwrap();
        credentials.lend(&references[..1], &folder, None).unwrap();
        assert_eq!(variables(&references)["OPENAI_API_KEY"], "h");
    }

    /// The tests run as root, as a runner that gives its instances users of their own.
    #[test]
    fn what_is_lent_is_for_the_reader_and_stays_the_runners() {
        use std::os::unix::fs::MetadataExt;

        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().join("all"));
        let reference: Reference = "github_token:acme".parse().unwrap();
        credentials.set(&reference, "token", &SecretString::from("g")).unwrap();
        let folder = root.path().join("lent");
        let reader = User { uid: 1_900_000_007, gid: 1_900_000_003 };
        credentials.lend(&[reference], &folder, Some(reader)).unwrap();
        let own = rustix::process::geteuid().as_raw();
        for place in ["", "github_token", "github_token/acme"] {
            let about = fs::metadata(folder.join(place)).unwrap();
            assert_eq!((about.uid(), about.gid(), about.mode() & 0o777), (own, reader.gid, 0o750), "{place}");
        }
        let about = fs::metadata(folder.join("github_token/acme/token")).unwrap();
        assert_eq!((about.uid(), about.mode() & 0o777), (reader.uid, 0o400));
    }
}
