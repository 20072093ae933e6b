//! `skein token issue|fetch|refresh|revoke|revoked|rotate-keys`: a signature needs nothing but the key, so tokens are
//! issued beside a running node; what ends them has to reach it.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use skein_proto::v1::RevokeRequest;
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::cluster_init::CA_KEY;
use super::{CliError, Common, InSwarm, ids, list, oauth, table};
use crate::auth::token::{Claims, Issued, Keys, LONGEST, Origin, Rotation};
use crate::auth::{Rights, Role, View};
use crate::entity::Clock;
use crate::node::datadir::Layout;

#[derive(Debug, Subcommand)]
pub(super) enum Token {
    /// Issue a token. It is the last line of the output.
    Issue(Box<Issue>),
    /// Fetch a token from a node with a client's secret. It is the last line of the output.
    Fetch(oauth::Fetch),
    /// Exchange a token for a later one of the same agent, or for a narrower one. It is the last line of the output.
    Refresh(oauth::Refresh),
    /// End a token, all of an agent, or all of a swarm's agents, before their time.
    Revoke(Revoke),
    /// List what was revoked.
    Revoked {
        #[command(flatten)]
        at: InSwarm,
    },
    /// Let another key sign; tokens of the old one hold until their end.
    RotateKeys(RotateKeys),
}

impl Token {
    pub(super) async fn run(self) -> Result<(), CliError> {
        match self {
            Token::Issue(issue) => issue.run(),
            Token::Fetch(fetch) => fetch.run().await,
            Token::Refresh(refresh) => refresh.run().await,
            Token::Revoke(revoke) => revoke.run().await,
            Token::RotateKeys(rotate) => rotate.run(),
            Token::Revoked { at } => list::rows(&at, "revocations", "", REVOKED, list::ALL).await,
        }
    }
}

const REVOKED: &[table::Column] =
    &[("REVOKED", &["of"]), ("AT", &["at"]), ("BY", &["by"]), ("KEPT UNTIL", &["until"])];

#[derive(Debug, Args)]
pub(super) struct Issue {
    /// lead, worker, observer, operator or runner.
    #[arg(long)]
    role: Role,
    /// The name of the agent, operator or runner.
    #[arg(long)]
    name: Name,
    /// The agent's id; a new one if left out.
    #[arg(long, value_parser = ids::id)]
    agent: Option<Uuid>,
    /// How long it is good for.
    #[arg(long, default_value = "30d", value_parser = lifetime)]
    lifetime: Duration,
    /// How long it may be exchanged for later ones, with `skein token refresh`.
    #[arg(long, value_name = "SPAN", value_parser = lifetime)]
    renewable: Option<Duration>,
    /// The scopes that it is left with, such as "swarm:read swarm:work"; all of its role if left out.
    #[arg(long)]
    scope: Option<Rights>,
    /// The view of the tools that it shows, such as full or core/readonly.
    #[arg(long)]
    view: Option<View>,
    #[command(flatten)]
    at: InSwarm,
}

pub(super) fn lifetime(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(Duration::ZERO) => {
            Err("a token that has ended already is of no use; write 30d, for example".to_owned())
        }
        Ok(span) if span > LONGEST => {
            Err("a token holds for a year at most; write 30d, for example".to_owned())
        }
        Ok(span) => Ok(span),
        Err(error) => Err(format!("{error}; write 12h or 30d, for example")),
    }
}

impl Issue {
    fn run(self) -> Result<(), CliError> {
        let agent = self.agent.unwrap_or_else(Uuid::new_v4);
        let clock = Clock::start();
        let rights = self.scope.unwrap_or_default();
        if rights.and(Rights::of(self.role)).are_none() {
            let has = Rights::of(self.role);
            return Err(CliError::Usage(format!(
                "--scope: a {} has none of these; it may have {has}",
                self.role
            )));
        }
        let claims = Claims {
            swarm: self.at.swarm.clone(),
            agent,
            agent_name: self.name.clone(),
            role: self.role,
            view: self.view,
            instance: None,
            lifetime: self.lifetime,
        };
        let renewable = self.renewable.map(|span| clock.now() + span);
        let origin = Origin { rights, renewable, ..Origin::default() };
        let issued = sign(&self.at.common, claims, origin, &clock)?;
        if self.at.common.json {
            let (expires, token) = (issued.expires_at.iso(), issued.text());
            let shown = json!({"agent": agent, "id": issued.id, "expiresAt": expires, "token": token});
            return Ok(table::print_document(&shown, true)?);
        }
        table::note(format_args!(
            "{} `{}` ({agent}), good until {}",
            self.role, self.name, issued.expires_at
        ));
        table::print_text(issued.text())
    }
}

/// Signs a token with the key of the data directory. It may be exchanged for later ones until `renewable` is over.
pub(super) fn issue(
    at: &InSwarm,
    role: Role,
    name: Name,
    agent: Uuid,
    lifetime: Duration,
    renewable: Option<Duration>,
) -> Result<Issued, CliError> {
    let claims = Claims {
        swarm: at.swarm.clone(),
        agent,
        agent_name: name,
        role,
        view: None,
        instance: None,
        lifetime,
    };
    let clock = Clock::start();
    let renewable = renewable.map(|span| clock.now() + span);
    sign(&at.common, claims, Origin { renewable, ..Origin::default() }, &clock)
}

fn sign(common: &Common, claims: Claims, origin: Origin, clock: &Clock) -> Result<Issued, CliError> {
    let keys = Keys::load_or_create(folder(common)?).map_err(|error| unusable(common, &error))?;
    Ok(keys.issue_as(claims, origin, clock.now())?)
}

/// The data directory, which has to be there: a mistyped one must not get keys of its own.
fn folder(common: &Common) -> Result<&PathBuf, CliError> {
    if common.data.is_dir() {
        return Ok(&common.data);
    }
    let data = common.data.display();
    let problem = format!(
        "there is no data directory {data}; name that of a node with --data or SKEIN_DATA, or start one there with `skein up \
         --data {data}` first"
    );
    Err(CliError::Refused(Refusal::new(Code::NotFound, problem)))
}

fn unusable(common: &Common, error: &std::io::Error) -> CliError {
    let data = common.data.display();
    if error.kind() == std::io::ErrorKind::NotFound {
        let problem = format!(
            "there is no signing key in {data}; name the data directory of a node, or the folder of `skein cluster init`, \
             with --data"
        );
        return Refusal::new(Code::NotFound, problem).into();
    }
    Refusal::new(Code::Unauthenticated, format!("the signing key in {data} cannot be used: {error}")).into()
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false, id = "what")]
pub(super) struct What {
    /// A file with the token; - reads it from standard input.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// A token's id (`jti`), as `skein token issue --json` prints it: of those that renew one another, the id of the
    /// first.
    #[arg(long, value_parser = ids::id)]
    id: Option<Uuid>,
    /// An agent's id: all tokens that it was given until now, and all that came of them.
    #[arg(long, value_parser = ids::id)]
    agent: Option<Uuid>,
    /// All tokens that agents of the swarm were given until now. Operators and runners keep theirs.
    #[arg(long)]
    everyone: bool,
}

impl What {
    /// What there is to say to whoever has meant tokens of another swarm. A token names its own; of an id nobody knows
    /// beforehand what it is of.
    fn reach(&self, swarm: &Name) -> Option<String> {
        let names_its_own = self.token_file.is_some();
        (!names_its_own).then(|| {
            format!("this ends tokens of the swarm {swarm} alone; say --swarm NAME for those of another one")
        })
    }
}

#[derive(Debug, Args)]
pub(super) struct Revoke {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    at: InSwarm,
}

impl Revoke {
    async fn run(self) -> Result<(), CliError> {
        let text = |id: Option<Uuid>| id.map(|id| id.to_string()).unwrap_or_default();
        let request = RevokeRequest {
            swarm: self.at.swarm.to_string(),
            token: self.what.token_file.as_deref().map(secret_of).transpose()?.unwrap_or_default(),
            id: text(self.what.id),
            agent: text(self.what.agent),
            everyone: self.what.everyone,
        };
        let common = &self.at.common;
        let layout = common.layout();
        let own = std::fs::read_to_string(layout.operator_token());
        let is_own = own.is_ok_and(|token| token.trim() == request.token);
        common.print(common.admin().await?.revoke(request).await)?;
        if let Some(reach) = self.what.reach(&self.at.swarm) {
            table::note(format_args!("skein: {reach}"));
        }
        if is_own {
            table::note(format_args!("that was this command line's own; make another: {}", renewal(&layout)));
        }
        Ok(())
    }
}

/// How long the command line's next token is to be good for: it is made by hand, so as long as any may be.
const RENEWED: &str = "365d";

/// The line that makes the command line's own token anew, signed with the key of the same data directory. A shell
/// empties a file before it runs the command that is to fill it, so the token goes into another one, which takes the
/// place of the old one only when it is whole.
fn renewal(layout: &Layout) -> String {
    let own = layout.operator_token();
    let next = quoted(&own.with_extension("token.new"));
    let (data, own) = (quoted(layout.root()), quoted(&own));
    format!(
        "(umask 077; skein token issue --data {data} --role operator --name operator --lifetime {RENEWED} > {next}) && \
         mv -f {next} {own}"
    )
}

/// A path as a shell takes it for one word.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// What a file holds, without the white space at its end.
///
/// # Errors
/// When it cannot be read or holds nothing.
pub(super) fn secret_of(file: &Path) -> Result<String, CliError> {
    let mut text = String::new();
    let is_piped = file.as_os_str() == "-";
    if is_piped {
        std::io::stdin().read_to_string(&mut text)?;
    } else {
        text = std::fs::read_to_string(file)
            .map_err(|error| CliError::Usage(format!("{} cannot be read: {error}", file.display())))?;
    }
    match text.trim_end() {
        "" => {
            let from = if is_piped { "standard input".to_owned() } else { file.display().to_string() };
            Err(CliError::Usage(format!("{from} is empty; put into it what the command is to show")))
        }
        secret => Ok(secret.to_owned()),
    }
}

#[derive(Debug, Args)]
pub(super) struct RotateKeys {
    /// Only make the next key, which does not sign yet: with several coordinators, copy keys.json to all of them before
    /// the first signs with it.
    #[arg(long, conflicts_with = "retire")]
    prepare: bool,
    /// Take out the keys that sign no more, and so end all tokens that they signed.
    #[arg(long)]
    retire: bool,
    #[command(flatten)]
    common: Common,
}

impl RotateKeys {
    fn run(self) -> Result<(), CliError> {
        let step = match (self.prepare, self.retire) {
            (true, _) => Rotation::Prepare,
            (_, true) => Rotation::Retire,
            _ => Rotation::Rotate { are_shared: self.are_shared() },
        };
        let keys =
            Keys::change(folder(&self.common)?, step).map_err(|error| unusable(&self.common, &error))?;
        let document: Value = json!({ "signs": keys.first(), "keys": keys });
        Ok(table::print_document(&document, self.common.json)?)
    }

    /// Whether the folder is a node's of a cluster, or the one from which later nodes get their keys.
    fn are_shared(&self) -> bool {
        self.common.layout().belonging().exists() || self.common.data.join(CA_KEY).exists()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_without_a_key_is_none_of_a_node() {
        let folder = tempfile::tempdir().unwrap();
        let common = Common { data: folder.path().to_owned(), json: false };
        let refused = RotateKeys { prepare: false, retire: false, common }.run().unwrap_err();
        assert_eq!(refused.exit(), Code::NotFound.exit());
        assert!(refused.to_string().contains("name the data directory of a node"), "{refused}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    /// A command that has made a token and failed leaves such a file.
    #[test]
    fn a_file_that_holds_nothing_is_told_from_a_token_that_does_not_hold() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("w1.token");
        for nothing in ["", "\n"] {
            std::fs::write(&file, nothing).unwrap();
            let refused = secret_of(&file).unwrap_err();
            assert!(refused.exit() == 2 && refused.to_string().contains("w1.token is empty"), "{refused}");
        }
        std::fs::write(&file, "t0k\n").unwrap();
        assert_eq!(secret_of(&file).unwrap(), "t0k");
    }

    #[test]
    fn who_revokes_by_an_id_is_told_of_which_swarm_and_by_a_token_that_is_its_own() {
        let what =
            |token_file: Option<PathBuf>, everyone| What { token_file, id: None, agent: None, everyone };
        let swarm = Name::parse("build").unwrap();
        let said = what(None, true).reach(&swarm).unwrap();
        assert!(said.contains("of the swarm build alone") && said.contains("--swarm"), "{said}");
        assert_eq!(what(Some(PathBuf::from("-")), false).reach(&swarm), None);
    }

    #[test]
    fn the_command_lines_next_token_is_of_the_same_node_and_takes_the_place_of_the_last_when_whole() {
        assert_eq!(
            renewal(&Layout::new("/srv/ada's")),
            r"(umask 077; skein token issue --data '/srv/ada'\''s' --role operator --name operator --lifetime 365d > '/srv/ada'\''s/operator.token.new') && mv -f '/srv/ada'\''s/operator.token.new' '/srv/ada'\''s/operator.token'"
        );
        assert!(lifetime(RENEWED).is_ok());
    }
}
