//! Reads the settings.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use figment::Figment;
use figment::error::{Kind, OneOf};
use figment::providers::{Env, Format};
use secrecy::{ExposeSecret, SecretString};
use serde::de::DeserializeOwned;
use skein_shared::spelling::nearest;

use super::check::check;
use super::schema::{Config, Dialect};

/// What the command line sets; `None` leaves the file's or the environment's word.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    pub http: Option<SocketAddr>,
    pub grpc: Option<SocketAddr>,
    pub ingress: Option<SocketAddr>,
    pub runner: Option<bool>,
    pub redis: Option<SecretString>,
    pub node: Option<String>,
    pub tls: Option<PathBuf>,
    pub compat: Option<Dialect>,
    pub beyond_loopback: bool,
}

/// A setting is wrong. The sentence names it and says what to write.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(super) String);

/// TOML whose mistakes are told by their place: the line that one is on may hold a secret.
struct Settings;

impl Format for Settings {
    type Error = figment::Error;

    const NAME: &'static str = "TOML";

    fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, figment::Error> {
        toml::from_str(text).map_err(|error: toml::de::Error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let place = before.map(|before| {
                let line = before.matches('\n').count() + 1;
                let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
                format!("line {line}, column {column}: ")
            });
            figment::Error::from(format!("{}{}", place.unwrap_or_default(), error.message()))
        })
    }
}

/// Reads `file` if it is there, then the environment, then the command line's `overrides`.
///
/// # Errors
/// When a key is unknown, a value does not fit, a secret's file cannot be read, or `file` is a link that leads nowhere.
pub fn load(file: &Path, overrides: &Overrides) -> Result<Config, ConfigError> {
    let mut figment = Figment::new();
    if is_there(file)? {
        figment = figment.merge(Settings::file_exact(file));
    }
    figment = figment.merge(environment());
    // As Agent Swarm calls them. Not by the provider above: it would take digits for a number.
    for (variable, key) in [
        ("SECRETS_ENCRYPTION_KEY", "secrets.key"),
        ("SECRETS_ENCRYPTION_KEY_FILE", "secrets.key_file"),
        ("SWARM_URL", "listen.services_domain"),
    ] {
        if let Some(value) = std::env::var(variable).ok().filter(|value| !value.is_empty()) {
            figment = figment.merge((key, value));
        }
    }
    for (key, address) in [
        ("listen.http", overrides.http),
        ("listen.grpc", overrides.grpc),
        ("listen.ingress", overrides.ingress),
    ] {
        if let Some(address) = address {
            figment = figment.merge((key, address.to_string()));
        }
    }
    if let Some(enabled) = overrides.runner {
        figment = figment.merge(("runner.enabled", enabled));
    }
    if let Some(url) = &overrides.redis {
        figment = figment.merge(("store.redis", url.expose_secret()));
    }
    if let Some(address) = &overrides.node {
        figment = figment.merge(("cluster.node", address));
    }
    if let Some(folder) = &overrides.tls {
        // What the command line names is relative to where it was written.
        let folder = std::path::absolute(folder)
            .map_err(|error| ConfigError(format!("--cluster-tls {}: {error}", folder.display())))?;
        figment = figment.merge(("cluster.tls", folder));
    }
    if overrides.compat == Some(Dialect::AgentSwarm) {
        figment = figment.merge(("compat.mode", "agent-swarm"));
    }
    if overrides.beyond_loopback {
        figment = figment.merge(("compat.beyond_loopback", true));
    }
    let mut config: Config = figment.extract().map_err(|error| explain(&error))?;
    check(&mut config, file.parent().unwrap_or(Path::new(".")))?;
    Ok(config)
}

/// Whether there is a file to read. Where a link leads nowhere, as before its disk is mounted, the defaults are not
/// what its file says.
fn is_there(file: &Path) -> Result<bool, ConfigError> {
    if file.exists() || !file.is_symlink() {
        return Ok(file.exists());
    }
    Err(ConfigError(format!(
        "{}: it is a link to a file that is not there or cannot be reached; put that in place, or remove the link for \
         the defaults",
        file.display()
    )))
}

/// `SKEIN_LISTEN__HTTP` sets `listen.http`. A setting always has a section, so variables without `__` are
/// not settings: `SKEIN_TOKEN` and the like belong to the command line.
fn environment() -> Env {
    Env::prefixed("SKEIN_").filter(|key| key.as_str().contains("__")).split("__")
}

fn explain(error: &figment::Error) -> ConfigError {
    let place = match error.metadata.as_ref().map(|metadata| (&metadata.source, &metadata.name)) {
        Some((Some(source), _)) => format!("{source}: "),
        Some((None, name)) => format!("{name}: "),
        None => String::new(),
    };
    let path = error.path.join(".");
    let problem = match &error.kind {
        Kind::UnknownField(field, known) => {
            // serde reports an unknown key with the path of the key itself, or of its section.
            let section = path.strip_suffix(field.as_str()).unwrap_or(&path).trim_end_matches('.');
            let full = if section.is_empty() { field.clone() } else { format!("{section}.{field}") };
            match nearest(field, known.iter().copied()) {
                Some(right) => format!("there is no setting `{full}`; did you mean `{right}`?"),
                None => format!("there is no setting `{full}`; known here: {}", known.join(", ")),
            }
        }
        // The value may be the secret itself.
        _ if ["secret", "token", "key", "store.redis"].iter().any(|part| path.contains(part)) => {
            format!("`{path}` must be a text in quotes")
        }
        // Of the file as a whole.
        Kind::Message(problem) if path.is_empty() => problem.clone(),
        kind => format!("`{path}`: {}", wanted(kind)),
    };
    ConfigError(format!("{place}{problem}"))
}

/// What a setting has to be. Never what was found, which is a whole list with its secrets if a bracket is missing.
fn wanted(kind: &Kind) -> String {
    match kind {
        Kind::InvalidType(_, expected) | Kind::InvalidValue(_, expected) if expected == "a duration" => {
            "expected a duration in quotes, as \"30s\", \"5m\" or \"1h 30m\"".to_owned()
        }
        Kind::InvalidType(_, expected) => format!("invalid type, expected {expected}"),
        Kind::InvalidValue(_, expected) => format!("invalid value, expected {expected}"),
        Kind::InvalidLength(_, expected) => format!("invalid length, expected {expected}"),
        Kind::UnknownVariant(_, known) => format!("unknown word, expected {}", OneOf(known)),
        Kind::ISizeOutOfRange(_) | Kind::USizeOutOfRange(_) => "the number is out of range".to_owned(),
        Kind::Unsupported(_) | Kind::UnsupportedKey(..) => "nothing of this type can be set here".to_owned(),
        Kind::Message(_) | Kind::UnknownField(..) | Kind::MissingField(_) | Kind::DuplicateField(_) => {
            kind.to_string()
        }
    }
}

#[cfg(test)]
mod tests;
