//! `skein hook`: answers the hooks of a Claude Code that a person has started. In an instance of a runner its own
//! command does.
//!
//! Claude Code takes an exit status of 2 for a no, and waits with each step. So whatever goes wrong is told on stderr,
//! in a short time, and is no failure: where the swarm cannot be asked, everything goes on.

use std::env;
use std::fs;
use std::io::{self, Read};
use std::path::{self, Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http::{Request, header};
use http_body_util::Full;
use secrecy::SecretString;
use serde_json::Value;
use skein_runner::hook::{self, Hook as Asked};
use url::Url;

use super::{CliError, table, token};
use crate::entity::Clock;
use crate::https;

const PATIENCE: Duration = Duration::from_secs(2);
/// Longest event that is read, bytes. What a tool has written or brought may stand in it.
const EVENT: u64 = 16 << 20;
/// An answer is a few sentences.
const LARGEST: u64 = 256 * 1024;

#[derive(Debug, Args)]
pub(super) struct Hook {
    /// The file with what `skein mcp-config --client claude` has printed: the node and the token stand in it.
    #[arg(long, value_name = "FILE", required_unless_present = "token_file", conflicts_with = "token_file")]
    mcp_config: Option<PathBuf>,
    /// A file with the agent's token.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The node, such as http://127.0.0.1:7700, for --token-file.
    #[arg(long, env = "SKEIN_URL", default_value = "http://127.0.0.1:7700")]
    url: String,
    /// Print what switches the hooks on, for a file that Claude Code is given with --settings.
    #[arg(long)]
    settings: bool,
}

/// The route, and what opens it.
struct Node {
    route: Url,
    token: SecretString,
}

impl Hook {
    pub(super) async fn run(self) -> Result<(), CliError> {
        if self.settings {
            self.node()?;
            return table::print_text(&format!("{:#}", hook::settings(&self.line()?)));
        }
        match self.answer().await {
            Ok(Some(said)) => table::print_text(&said)?,
            Ok(None) => {}
            Err(problem) => untold(problem.to_string()),
        }
        Ok(())
    }

    async fn answer(&self) -> Result<Option<String>, CliError> {
        let mut event = String::new();
        io::stdin().take(EVENT).read_to_string(&mut event)?;
        let now = Clock::start().wall().millis();
        let Some(hook) = Asked::begin(&event, &env::temp_dir(), now) else { return Ok(None) };
        let told = match hook.question() {
            None => None,
            Some(question) => match self.node() {
                Ok(node) => Some(node.ask(question.to_owned()).await),
                Err(problem) => Some(Err(problem.to_string())),
            },
        };
        let told = told.and_then(|told| told.map_err(untold).ok());
        Ok(hook.answer(told.as_deref()))
    }

    fn node(&self) -> Result<Node, CliError> {
        let (url, token) = match (&self.mcp_config, &self.token_file) {
            (Some(file), _) => configured(file)?,
            (None, Some(file)) => (self.url.clone(), token::secret_of(file)?),
            (None, None) => {
                return Err(CliError::Usage("--mcp-config or --token-file is missing".to_owned()));
            }
        };
        let problem =
            || format!("{url} is no address of a node; write it as http://HOST:PORT or https://HOST");
        let route = route(&url).ok_or_else(|| CliError::Usage(problem()))?;
        Ok(Node { route, token: SecretString::from(token) })
    }

    /// What Claude Code is to run. A status of this program's that meant a no would stop each step.
    fn line(&self) -> Result<String, CliError> {
        let program = env::current_exe()?.display().to_string();
        let mut words = vec![program, "hook".to_owned()];
        match (&self.mcp_config, &self.token_file) {
            (Some(file), _) => words.extend(["--mcp-config".to_owned(), absolute(file)?]),
            (None, Some(file)) => {
                let url = self.url.clone();
                words.extend(["--url".to_owned(), url, "--token-file".to_owned(), absolute(file)?]);
            }
            (None, None) => {}
        }
        Ok(format!("{} || exit 1", hook::line(words.iter().map(String::as_str))))
    }
}

impl Node {
    /// What the node answers.
    async fn ask(&self, question: String) -> Result<String, String> {
        let client: https::Client = https::client(https::trusted(&self.route)?);
        let request = Request::post(self.route.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::AUTHORIZATION, https::bearer(&self.token).map_err(|failure| failure.to_string())?)
            .body(Full::from(question))
            .map_err(|error| error.to_string())?;
        let answer = https::send(&client, request, LARGEST, PATIENCE)
            .await
            .map_err(|failure| format!("{} does not answer: {failure}", self.route))?;
        if !answer.status().is_success() {
            return Err(format!("{} refuses with status {}", self.route, answer.status()));
        }
        Ok(String::from_utf8_lossy(answer.body()).into_owned())
    }
}

fn untold(problem: String) {
    table::note(format_args!("skein: the swarm was not asked: {}", table::plain_line(&problem)));
}

/// The node's address and the token that stand in the configuration of an MCP client.
fn configured(file: &Path) -> Result<(String, String), CliError> {
    let shown = file.display();
    let text = fs::read_to_string(file)
        .map_err(|error| CliError::Usage(format!("{shown} cannot be read: {error}")))?;
    // What is wrong in it is not quoted: there are secrets in it.
    let written: Value = serde_json::from_str(&text).unwrap_or_default();
    let server = &written["mcpServers"]["skein"];
    let token = server["headers"]["Authorization"].as_str().and_then(|header| header.strip_prefix("Bearer "));
    match (server["url"].as_str(), token) {
        (Some(url), Some(token)) if !token.contains("${") => Ok((url.to_owned(), token.to_owned())),
        _ => Err(CliError::Usage(format!(
            "{shown} has no server `skein` with an address and a token; write into it what `skein mcp-config --client \
             claude` prints, or give --token-file"
        ))),
    }
}

/// Where hooks ask, by the address of a node or of its MCP.
fn route(url: &str) -> Option<Url> {
    let mut route = Url::parse(url).ok().filter(Url::has_host)?;
    let path = route.path();
    let base = path.rfind("/mcp").map_or(path, |at| &path[..at]).trim_end_matches('/').to_owned();
    route.set_path(&format!("{base}/hook"));
    route.set_query(None);
    route.set_fragment(None);
    // The token opens it. A secret in the address would stand in what is told when nobody answers.
    route.set_username("").ok()?;
    route.set_password(None).ok()?;
    Some(route)
}

fn absolute(file: &Path) -> Result<String, CliError> {
    Ok(path::absolute(file)?.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(mcp_config: Option<PathBuf>, token_file: Option<PathBuf>) -> Hook {
        Hook { mcp_config, token_file, url: "http://127.0.0.1:7700".to_owned(), settings: false }
    }

    #[test]
    fn the_route_stands_beside_mcp() {
        for (url, wanted) in [
            ("http://127.0.0.1:7700", "http://127.0.0.1:7700/hook"),
            ("http://127.0.0.1:7700/mcp/full", "http://127.0.0.1:7700/hook"),
            ("https://mcp.example.com/mcp", "https://mcp.example.com/hook"),
            ("https://mcp.example.com", "https://mcp.example.com/hook"),
            ("https://example.com/skein/mcp/x/swarm?a=b", "https://example.com/skein/hook"),
            ("https://ann:s3cret@example.com/mcp#here", "https://example.com/hook"),
        ] {
            assert_eq!(route(url).unwrap().as_str(), wanted, "{url}");
        }
        assert!(route("127.0.0.1:7700").is_none() && route("").is_none());
    }

    #[test]
    fn a_client_s_configuration_says_where_to_ask_and_nothing_of_it_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("mcp.json");
        let write = |header: &str| {
            let server =
                serde_json::json!({ "url": "http://h:1/mcp/full", "headers": { "Authorization": header } });
            let written = serde_json::json!({ "mcpServers": { "skein": server } });
            fs::write(&file, written.to_string()).unwrap();
        };
        write("Bearer t0k");
        let known = hook(Some(file.clone()), None);
        assert_eq!(known.node().unwrap().route.as_str(), "http://h:1/hook");
        let line = known.line().unwrap();
        assert!(line.ends_with("/mcp.json' || exit 1") && !line.contains("t0k"), "{line}");
        for header in ["Bearer ${SKEIN_TOKEN}", "Basic s3cret"] {
            write(header);
            let said = known.node().err().unwrap().to_string();
            assert!(said.contains("mcp.json has no server") && !said.contains(header), "{said}");
        }
        fs::write(&file, "{\"mcpServers\": s3cret").unwrap();
        let said = known.node().err().unwrap().to_string();
        assert!(said.contains("has no server") && !said.contains("s3cret"), "{said}");
    }
}
