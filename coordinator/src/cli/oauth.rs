//! `skein token fetch|refresh`: tokens over HTTP, from a node anywhere.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use http::{Request, StatusCode, header};
use http_body_util::Full;
use serde_json::{Value, json};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};
use url::Url;

use super::CliError;
use super::token::{lifetime, secret_of};
use crate::auth::{Rights, Role, View};
use crate::https::{self, Failure};

const PATIENCE: Duration = Duration::from_secs(30);
/// An answer is a token and a few words.
const LARGEST: u64 = 64 * 1024;
const EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// Where tokens come from, and in what form they are printed.
#[derive(Debug, Args)]
struct From {
    /// The node, such as http://127.0.0.1:7700.
    #[arg(long, env = "SKEIN_URL", default_value = "http://127.0.0.1:7700")]
    url: String,
    #[arg(long, value_enum, default_value = "token")]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// The token alone.
    Token,
    /// A JSON object of HTTP headers, as Claude Code's `headersHelper` prints them.
    Headers,
    /// All that the node answers.
    Json,
}

#[derive(Debug, Args)]
pub(super) struct Fetch {
    /// The client, as `skein client add` named it: SWARM/NAME.
    #[arg(long, value_name = "SWARM/NAME")]
    client: String,
    /// A file with its secret; - reads it from standard input.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// Fewer scopes than the client has.
    #[arg(long)]
    scope: Option<Rights>,
    #[command(flatten)]
    from: From,
}

#[derive(Debug, Args)]
pub(super) struct Refresh {
    /// A file with the token; - reads it from standard input.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// Hand it on, to a worker of this name.
    #[arg(long, value_name = "NAME")]
    to: Option<Name>,
    /// The role of the one that it is handed on to: worker, unless you say observer.
    #[arg(long, requires = "to")]
    role: Option<Role>,
    /// Fewer scopes than it has.
    #[arg(long)]
    scope: Option<Rights>,
    /// The view of the tools that the new one shows.
    #[arg(long)]
    view: Option<View>,
    /// How long the new one is good for.
    #[arg(long, value_parser = lifetime)]
    lifetime: Option<Duration>,
    #[command(flatten)]
    from: From,
}

impl Fetch {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut form = vec![
            ("grant_type", "client_credentials".to_owned()),
            ("client_id", self.client),
            ("client_secret", secret_of(&self.secret_file)?),
        ];
        form.extend(self.scope.map(|scope| ("scope", scope.to_string())));
        self.from.ask(form).await
    }
}

impl Refresh {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let mut form = vec![
            ("grant_type", EXCHANGE.to_owned()),
            ("subject_token_type", ACCESS_TOKEN.to_owned()),
            ("subject_token", secret_of(&self.token_file)?),
        ];
        form.extend(self.to.map(|name| ("agent", name.to_string())));
        form.extend(self.role.map(|role| ("role", role.to_string())));
        form.extend(self.scope.map(|scope| ("scope", scope.to_string())));
        form.extend(self.view.map(|view| ("view", view.to_string())));
        form.extend(self.lifetime.map(|span| ("lifetime", span.as_secs().max(1).to_string())));
        self.from.ask(form).await
    }
}

impl From {
    async fn ask(&self, form: Vec<(&str, String)>) -> Result<(), CliError> {
        let url = format!("{}/oauth/token", self.url.trim_end_matches('/'));
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let (status, answer) = self.post(&url, body).await?;
        let Some(token) = answer["access_token"].as_str() else {
            let said = answer["error_description"].as_str().unwrap_or("it gave no token");
            let code = if status.is_server_error() { Code::Unavailable } else { Code::Unauthenticated };
            return Err(Refusal::new(code, format!("{url}: {said}")).into());
        };
        match self.format {
            Format::Token => println!("{token}"),
            Format::Headers => println!("{}", json!({ "Authorization": format!("Bearer {token}") })),
            Format::Json => println!("{answer}"),
        }
        Ok(())
    }

    async fn post(&self, url: &str, form: String) -> Result<(StatusCode, Value), CliError> {
        let wrong = |problem: String| CliError::Usage(format!("--url {}: {problem}", self.url));
        let address = Url::parse(url).map_err(|error| wrong(error.to_string()))?;
        let client: https::Client = https::client(https::trusted(&address).map_err(wrong)?);
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form))
            .map_err(|error| wrong(error.to_string()))?;
        let unreachable = |failure: Failure| Refusal::new(Code::Unavailable, format!("{url}: {failure}"));
        let answer = https::send(&client, request, LARGEST, PATIENCE).await.map_err(unreachable)?;
        Ok((answer.status(), serde_json::from_slice(answer.body()).unwrap_or_default()))
    }
}
