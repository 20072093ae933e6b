//! `skein token fetch|refresh`: tokens over HTTP, from a node anywhere.

use std::io::Write;
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
use super::table::plain_line;
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
    /// What is printed.
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
            return Err(refused(&url, status, &answer).into());
        };
        let mut out = std::io::stdout().lock();
        Ok(match self.format {
            Format::Token => writeln!(out, "{token}"),
            Format::Headers => writeln!(out, "{}", json!({ "Authorization": format!("Bearer {token}") })),
            Format::Json => writeln!(out, "{answer}"),
        }?)
    }

    async fn post(&self, url: &str, form: String) -> Result<(StatusCode, Value), CliError> {
        let wrong = |problem: String| CliError::Usage(format!("--url {}: {problem}", self.url));
        // Without a scheme the host would be read as one.
        let address = Url::parse(url).ok().filter(Url::has_host);
        let address =
            address.ok_or_else(|| wrong("write it as http://HOST:PORT or https://HOST".to_owned()))?;
        let client: https::Client = https::client(https::trusted(&address).map_err(wrong)?);
        let request = Request::post(url)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
            .body(Full::from(form))
            .map_err(|error| wrong(error.to_string()))?;
        let unreachable = |failure: Failure| {
            let problem = format!("{url}: {failure}; see that the node runs, and that --url is its address");
            Refusal::new(Code::Unavailable, problem)
        };
        let answer = https::send(&client, request, LARGEST, PATIENCE).await.map_err(unreachable)?;
        Ok((answer.status(), serde_json::from_slice(answer.body()).unwrap_or_default()))
    }
}

/// Why an answer holds no token, and what to do.
fn refused(url: &str, status: StatusCode, answer: &Value) -> Refusal {
    let passing = passing(status);
    // What knows of no such address may say so in JSON too.
    let Some(error) = answer["error"].as_str().filter(|_| status != StatusCode::NOT_FOUND) else {
        return no_issuer(url, status, passing);
    };
    let code = passing.unwrap_or(match error {
        "invalid_request" | "invalid_target" | "unsupported_grant_type" => Code::InvalidArgument,
        "temporarily_unavailable" => Code::Unavailable,
        "invalid_scope" => Code::Forbidden,
        _ => Code::Unauthenticated,
    });
    let said = match answer["error_description"].as_str() {
        Some(said) => plain_line(said),
        None => format!("it refuses with `{}`", plain_line(error)),
    };
    let advice = match error {
        "invalid_client" => {
            "; look at --client, which is SWARM/NAME, and at --secret-file, which has what `skein client add` has \
             printed behind `secret: ` and nothing else"
        }
        _ => "",
    };
    Refusal::new(code, format!("{url}: {said}{advice}"))
}

/// What is said of an answer that is none of OAuth's.
fn no_issuer(url: &str, status: StatusCode, passing: Option<Code>) -> Refusal {
    let said = match passing {
        Some(_) => "what answers there cannot just now; try again in a moment, and look at --url",
        None => "nobody issues tokens at this address; look at --url, which is that of a node",
    };
    let code = passing.unwrap_or(match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Code::Forbidden,
        _ => Code::NotFound,
    });
    Refusal::new(code, format!("{url} ({status}): {said}"))
}

/// What an answer of this status says of the moment alone.
fn passing(status: StatusCode) -> Option<Code> {
    match status {
        StatusCode::TOO_MANY_REQUESTS => Some(Code::RateLimited),
        StatusCode::REQUEST_TIMEOUT => Some(Code::Unavailable),
        status => status.is_server_error().then_some(Code::Unavailable),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_gives_a_node_without_its_scheme_is_told_how_to_write_it() {
        for url in ["127.0.0.1:7700", "localhost:7700"] {
            let from = From { url: url.to_owned(), format: Format::Token };
            let refused = from.ask(Vec::new()).await.unwrap_err();
            let said = refused.to_string();
            assert!(refused.exit() == 2 && said.contains("write it as http://HOST:PORT"), "{url}: {said}");
        }
    }

    #[test]
    fn an_answer_without_a_token_is_told_by_what_it_says() {
        let no = |error: &str, said: &str| json!({ "error": error, "error_description": said });
        for (status, answer, exit, said) in [
            (429, no("temporarily_unavailable", "too many calls"), 6, "too many calls"),
            (408, Value::Null, 6, "try again in a moment"),
            (502, Value::Null, 6, "try again in a moment"),
            (503, no("temporarily_unavailable", "nobody can say yet"), 6, "nobody can say yet"),
            (409, no("temporarily_unavailable", "not now"), 6, "not now"),
            (400, no("invalid_request", "lifetime is a number"), 2, "lifetime is a number"),
            (400, no("unsupported_grant_type", "another grant"), 2, "another grant"),
            (400, no("invalid_scope", "more than it has"), 3, "more than it has"),
            (400, no("invalid_grant", "it was\nrevoked\u{7}"), 3, "it was revoked"),
            (401, no("invalid_client", "no such client"), 3, "no such client; look at --client"),
            (400, json!({ "error": "invalid_grant" }), 3, "it refuses with `invalid_grant`"),
            (404, json!({ "error": "Not Found" }), 4, "nobody issues tokens at this address; look at --url"),
            (302, Value::Null, 4, "nobody issues tokens at this address; look at --url"),
            (200, Value::Null, 4, "nobody issues tokens at this address; look at --url"),
            (403, Value::Null, 3, "nobody issues tokens at this address; look at --url"),
        ] {
            let refusal = refused("http://node", StatusCode::from_u16(status).unwrap(), &answer);
            assert_eq!(refusal.code.exit(), exit, "{status} {answer}: {}", refusal.message);
            let told = refusal.message.starts_with("http://node") && refusal.message.contains(said);
            assert!(told, "{status} {answer}: {}", refusal.message);
        }
    }
}
