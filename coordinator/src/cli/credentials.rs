//! `skein credentials set|list|remove`: what agents may be lent.

use std::io::{IsTerminal, Read};

use clap::{Args, Subcommand};
use secrecy::SecretString;
use serde_json::{Value, json};
use skein_runner::credentials::{Credentials, Reference};
use skein_shared::{Code, Refusal};

use super::table::{self, Column};
use super::{CliError, Common};

const COLUMNS: &[Column] = &[("CREDENTIAL", &["credential"]), ("FIELDS", &["fields"])];

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
        all(&self.common).set(&self.credential, &self.field, &value).map_err(refused)?;
        let written = json!({"credential": self.credential.to_string(), "fields": [self.field]});
        Ok(table::print_document(&written, self.common.json)?)
    }
}

#[derive(Debug, Args)]
pub(super) struct All {
    #[command(flatten)]
    common: Common,
}

impl All {
    fn run(self) -> Result<(), CliError> {
        let found = all(&self.common).list()?;
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
        if all(&self.common).remove(&self.credential)? {
            return Ok(());
        }
        let problem = format!("there is no credential {}; list those there are", self.credential);
        Err(Refusal::new(Code::NotFound, problem).into())
    }
}

fn all(common: &Common) -> Credentials {
    Credentials::new(common.layout().credentials())
}

fn refused(problem: String) -> CliError {
    Refusal::new(Code::InvalidArgument, problem).into()
}
