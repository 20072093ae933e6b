//! What agents show to others: keys and tokens, kept in files below one folder as `TYPE/INSTANCE/FIELD`.
//!
//! The layout is that of Action Llama, so that a folder of its credentials can be used as it is. An agent gets those
//! that its definition names, as variables of its environment and as files, and no others.

mod lending;
mod mask;
mod variables;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use secrecy::{ExposeSecret, SecretString};

use crate::Error;

pub use lending::take_back;
pub use mask::Mask;
pub use variables::kinds;

/// The instance of a credential that is named without one.
const USUAL: &str = "default";
/// Longest type, instance and field, bytes.
const NAME: usize = 64;
/// Longest value, bytes: a variable of the environment takes no more.
const VALUE: usize = 100 * 1024;

/// Names one credential: `TYPE` or `TYPE:INSTANCE`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    pub kind: String,
    pub instance: String,
}

impl FromStr for Reference {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (kind, instance) = text.split_once(':').unwrap_or((text, USUAL));
        if is_name(kind) && is_name(instance) {
            return Ok(Self { kind: kind.to_owned(), instance: instance.to_owned() });
        }
        let shown: String = text.chars().take(2 * NAME).collect();
        Err(format!(
            "`{shown}` names no credential; write TYPE or TYPE:INSTANCE of letters, digits, `_` and `-`, such as github_token:acme"
        ))
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.instance == USUAL {
            true => formatter.write_str(&self.kind),
            false => write!(formatter, "{}:{}", self.kind, self.instance),
        }
    }
}

/// The values of one credential, by field.
pub type Fields = BTreeMap<String, SecretString>;

/// The folder of all credentials.
#[derive(Clone, Debug)]
pub struct Credentials {
    folder: PathBuf,
}

impl Credentials {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// # Errors
    /// A sentence without any value, when it is not there or cannot be read.
    pub fn read(&self, reference: &Reference) -> Result<Fields, String> {
        let place = self.place(reference);
        let mut fields = Fields::new();
        for entry in entries(&place)
            .map_err(|error| format!("{reference}: {} cannot be read: {error}", place.display()))?
            .iter()
            .filter(|entry| entry.path().is_file())
        {
            let field = entry.file_name().to_string_lossy().into_owned();
            // A value that was being set, or what editors and file managers leave behind.
            if field.starts_with('.') {
                continue;
            }
            let value = fs::read_to_string(entry.path())
                .map_err(|error| format!("{reference}: the field {field} cannot be read: {error}"))?;
            fields.insert(field, SecretString::from(value.trim_end_matches(['\r', '\n'])));
        }
        if fields.is_empty() {
            return Err(format!(
                "there is no credential {reference} in {}; run `skein credentials set {reference}`",
                self.folder.display()
            ));
        }
        Ok(fields)
    }

    /// Writes one field, readable by this user alone.
    ///
    /// # Errors
    /// A sentence without the value: [`Error::Config`] for what is no field or no value, [`Error::Io`] for what cannot
    /// be written.
    pub fn set(&self, reference: &Reference, field: &str, value: &SecretString) -> Result<(), Error> {
        let value = value.expose_secret();
        if !is_name(field) {
            let problem = format!("`{field}` is no name of a field; use letters, digits, `_` and `-`");
            return Err(Error::config(problem));
        }
        if value.is_empty() || value.len() > VALUE || value.contains('\0') {
            let problem = format!("a value has 1 to {VALUE} bytes, none of which is zero");
            return Err(Error::config(problem));
        }
        let place = self.place(reference);
        let write = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&place)?;
            // Whole or not at all, whoever reads meanwhile.
            let draft = place.join(format!(".{field}"));
            let mut options = fs::OpenOptions::new();
            options
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&draft)?
                .write_all(value.as_bytes())?;
            fs::rename(draft, place.join(field))
        };
        write().map_err(|error| Error::io("write a credential into", &place, error))
    }

    /// Forgets a credential. False when there was none.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove(&self, reference: &Reference) -> std::io::Result<bool> {
        let place = self.place(reference);
        match fs::metadata(&place) {
            Ok(about) if about.is_dir() => fs::remove_dir_all(place).map(|()| true),
            Ok(_) => Ok(false),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            // It may be there, where this user may not look.
            Err(error) => Err(error),
        }
    }

    /// All there are, with the names of their fields.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn list(&self) -> std::io::Result<BTreeMap<Reference, Vec<String>>> {
        let mut found = BTreeMap::new();
        for kind in names(&self.folder)? {
            for instance in names(&self.folder.join(&kind))? {
                let reference = Reference { kind: kind.clone(), instance };
                let fields = names(&self.place(&reference))?;
                if !fields.is_empty() {
                    found.insert(reference, fields);
                }
            }
        }
        Ok(found)
    }

    /// The variables by which agents find a field of a credential. There is none of what they find as a file alone.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn variables_of(&self, reference: &Reference, field: &str) -> std::io::Result<Vec<String>> {
        Ok(variables::of_field(reference, &names(&self.place(reference))?, field))
    }

    fn place(&self, reference: &Reference) -> PathBuf {
        self.folder.join(&reference.kind).join(&reference.instance)
    }
}

/// The entries of a folder that are names, in order. Of a folder that is not there, none.
fn names(folder: &Path) -> std::io::Result<Vec<String>> {
    let found = entries(folder)?;
    let names = found.iter().filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| is_name(name)).collect();
    names.sort();
    Ok(names)
}

/// All that is in a folder; nothing where there is none.
fn entries(folder: &Path) -> std::io::Result<Vec<fs::DirEntry>> {
    match fs::read_dir(folder) {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            Ok(Vec::new())
        }
        found => found?.collect(),
    }
}

/// Letters, digits, `_` and `-`: such a name leads to no other place.
fn is_name(text: &str) -> bool {
    let usual = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    !text.is_empty() && text.len() <= NAME && text.chars().all(usual)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn reference(text: &str) -> Reference {
        text.parse().unwrap()
    }

    #[test]
    fn what_is_set_is_read_listed_and_removed() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().join("credentials"));
        assert!(credentials.list().unwrap().is_empty());
        let (acme, usual) = (reference("github_token:acme"), reference("slack_bot_token"));
        credentials.set(&acme, "token", &SecretString::from("s3cret")).unwrap();
        credentials.set(&usual, "token", &SecretString::from("other\n")).unwrap();
        assert_eq!(credentials.read(&acme).unwrap()["token"].expose_secret(), "s3cret");
        assert_eq!(credentials.read(&usual).unwrap()["token"].expose_secret(), "other");
        let listed: Vec<String> = credentials.list().unwrap().keys().map(ToString::to_string).collect();
        assert_eq!(listed, ["github_token:acme", "slack_bot_token"]);
        assert_eq!(credentials.variables_of(&usual, "token").unwrap(), ["SLACK_BOT_TOKEN"]);
        let file = credentials.place(&acme).join("token");
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(credentials.remove(&acme).unwrap() && !credentials.remove(&acme).unwrap());
        let missing = credentials.read(&acme).unwrap_err();
        assert!(missing.contains("skein credentials set github_token:acme"), "{missing}");
    }

    #[test]
    fn hidden_files_beside_the_fields_are_none() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().to_owned());
        let key = reference("openai_key");
        credentials.set(&key, "key", &SecretString::from("whole")).unwrap();
        let place = credentials.place(&key);
        fs::write(place.join(".key"), "who").unwrap();
        fs::write(place.join(".key.swp"), [0xff]).unwrap();
        let fields = credentials.read(&key).unwrap();
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["key"]);
        fs::remove_file(place.join("key")).unwrap();
        assert!(credentials.read(&key).unwrap_err().contains("there is no credential openai_key"));
    }

    #[test]
    fn what_cannot_be_looked_at_is_not_said_to_be_missing() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().to_owned());
        let (file, endless) = (reference("file"), reference("endless"));
        fs::write(root.path().join("file"), "").unwrap();
        assert!(!credentials.remove(&file).unwrap());
        std::os::unix::fs::symlink("endless", root.path().join("endless")).unwrap();
        credentials.remove(&endless).unwrap_err();
        let told = credentials.read(&endless).unwrap_err();
        assert!(told.contains("cannot be read") && !told.contains("there is no credential"), "{told}");
    }

    #[test]
    fn no_name_leads_out_of_the_folder() {
        for text in ["", "..", "a/b", "a:..", "a:", "a:b:c", "ä", &"x".repeat(65)] {
            assert!(text.parse::<Reference>().is_err(), "{text}");
        }
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().to_owned());
        let refused = credentials.set(&reference("a"), "../b", &SecretString::from("s3cret")).unwrap_err();
        assert!(matches!(refused, Error::Config { .. }) && !refused.to_string().contains("s3cret"));
    }
}
