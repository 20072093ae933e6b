//! `skein credentials set|list|remove`: what agents may be lent.

use std::io::{ErrorKind, IsTerminal, Read};

use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde_json::{Value, json};
use skein_runner::Error;
use skein_runner::credentials::{Credentials, Reference, kinds};
use skein_shared::spelling::distance;
use skein_shared::{Code, Refusal};

use super::table::{self, Column};
use super::{CliError, Common, unwritten};
use crate::node::datadir;

const COLUMNS: &[Column] = &[("CREDENTIAL", &["credential"]), ("FIELDS", &["fields"])];
/// Letters by which a slip of the pen differs from what was meant: a type of one's own differs by more.
const SLIP: usize = 2;

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Write one field, with the value from standard input.
    Set(Set),
    /// List them, without their values.
    List(All),
    /// Forget one.
    Remove(Remove),
}

impl Keys {
    pub(super) fn run(self) -> Result<(), CliError> {
        match self {
            Keys::Set(set) => set.run(),
            Keys::List(all) => all.run(),
            Keys::Remove(remove) => remove.run(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Set {
    /// TYPE or TYPE:INSTANCE, such as github_token or github_token:acme.
    credential: Reference,
    /// The field, of those that have several.
    #[arg(default_value = "token")]
    field: String,
    #[command(flatten)]
    common: Common,
}

impl Set {
    fn run(self) -> Result<(), CliError> {
        let credentials = all(&self.common)?;
        let mut input = std::io::stdin().lock();
        if input.is_terminal() {
            let hint = format!("skein credentials set {} {} < FILE", self.credential, self.field);
            return Err(CliError::Usage(format!(
                "the value is read from standard input, where a terminal would show it; run `{hint}`"
            )));
        }
        let mut value = String::new();
        input.read_to_string(&mut value)?;
        let value = SecretString::from(value.trim_end_matches(['\r', '\n']));
        let set = credentials.set(&self.credential, &self.field, &value);
        set.map_err(|error| refused(&credentials, error))?;
        let written = json!({"credential": self.credential.to_string(), "fields": [self.field]});
        table::print_document(&written, self.common.json)?;
        let variables = credentials.variables_of(&self.credential, &self.field)?;
        table::note(format_args!("skein: {}", found_by(&self.credential, &self.field, &variables)));
        Ok(())
    }
}

/// Where agents find a field. A type or a field that was mistyped shows by it.
fn found_by(credential: &Reference, field: &str, variables: &[String]) -> String {
    let Reference { kind, instance } = credential;
    let file = format!("the file {kind}/{instance}/{field} below SKEIN_CREDENTIALS");
    if !variables.is_empty() {
        return format!("agents that are lent it find it by {}, and as {file}", variables.join(" and "));
    }
    let near = kinds().map(|known| (distance(kind, known), known));
    let meant = near.filter(|(edits, _)| (1..=SLIP).contains(edits)).min();
    let advice = meant.map(|(_, meant)| {
        format!(
            "; did you mean {meant}? Then take this one away with `skein credentials remove {credential}`"
        )
    });
    format!(
        "no variable is set for the field {field} of {kind}: agents that are lent it find it as {file} alone{}",
        advice.unwrap_or_default()
    )
}

#[derive(Debug, Args)]
pub(super) struct All {
    #[command(flatten)]
    common: Common,
}

impl All {
    fn run(self) -> Result<(), CliError> {
        let found = all(&self.common)?.list()?;
        let row = |(credential, fields): (Reference, Vec<String>)| json!({"credential": credential.to_string(), "fields": fields});
        let rows: Vec<Value> = found.into_iter().map(row).collect();
        Ok(table::print(&rows, COLUMNS, self.common.json)?)
    }
}

#[derive(Debug, Args)]
pub(super) struct Remove {
    /// As `skein credentials list` shows it.
    credential: Reference,
    #[command(flatten)]
    common: Common,
}

impl Remove {
    fn run(self) -> Result<(), CliError> {
        let credentials = all(&self.common)?;
        let removed = credentials.remove(&self.credential);
        if removed.map_err(|error| unwritten(credentials.folder(), error))? {
            let document = json!({"removed": self.credential.to_string()});
            return Ok(table::print_document(&document, self.common.json)?);
        }
        let problem = format!("there is no credential {}; list those there are", self.credential);
        Err(Refusal::new(Code::NotFound, problem).into())
    }
}

/// Those of the data directory, for who may look at them.
pub(super) fn all(common: &Common) -> Result<Credentials, CliError> {
    let folder = common.files()?.credentials();
    datadir::look_into(&folder)?;
    Ok(Credentials::new(folder))
}

fn refused(credentials: &Credentials, error: Error) -> CliError {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            unwritten(credentials.folder(), source)
        }
        error => Refusal::new(error.code(), error.to_string()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sets_a_credential_is_told_where_agents_find_it() {
        let root = tempfile::tempdir().unwrap();
        let credentials = Credentials::new(root.path().to_owned());
        let said = |credential: &str, field: &str| {
            let credential = credential.parse().unwrap();
            credentials.set(&credential, field, &SecretString::from("s3cret")).unwrap();
            found_by(&credential, field, &credentials.variables_of(&credential, field).unwrap())
        };
        let github = said("github_token:acme", "token");
        for part in ["by GITHUB_TOKEN and GH_TOKEN", "github_token/acme/token below SKEIN_CREDENTIALS"] {
            assert!(github.contains(part) && !github.contains("alone"), "{github}");
        }
        let mistyped = said("anthropc_key", "token");
        for part in ["no variable is set", "anthropc_key/default/token", "did you mean anthropic_key?"] {
            assert!(mistyped.contains(part), "{mistyped}");
        }
        for (own, field) in [("crm", "token"), ("git_ssh", "usrname")] {
            let said = said(own, field);
            assert!(said.contains("no variable is set") && !said.contains("did you mean"), "{said}");
        }
    }
}
