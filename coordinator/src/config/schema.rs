//! Every setting with its default. A key that is not here keeps the node from starting.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use secrecy::SecretString;
use serde::{Deserialize, Deserializer};
use skein_shared::id::Name;
use skein_shared::limits;
use url::Url;

use super::provider::Provider;
use crate::auth::issuer::Trust;
use crate::store::redis::{Durability, Tls};

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub listen: Listen,
    pub store: Store,
    pub cluster: Cluster,
    pub ingress: Ingress,
    pub slack: Slack,
    pub secrets: Secrets,
    pub embeddings: Option<Embeddings>,
    pub retention: Retention,
    pub runner: Runner,
    pub compat: Compat,
    pub auth: Auth,
    pub limits: Limits,
    /// Only the command line sets it, and no help text shows it.
    #[serde(skip)]
    pub conformance_fixture: bool,
}

/// Whose tokens are taken besides Skein's own.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// `[[auth.issuer]]`, one for each OpenID provider.
    pub issuer: Vec<Trust>,
}

/// Where the node listens. Loopback unless told otherwise: a token is the only lock on these doors.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listen {
    /// MCP and health.
    pub http: SocketAddr,
    /// Runners and administration.
    pub grpc: SocketAddr,
    /// Webhooks. The only one that is meant to be reached by strangers.
    pub ingress: SocketAddr,
    /// The base URL under which agents reach `http`, when that is not its own address.
    pub public_url: Option<String>,
    /// The URL under which runners reach `grpc`, when that is not its own address.
    pub runner_url: Option<String>,
    /// The name below which the services of agents are reached. The variable `SWARM_URL` sets it, too.
    pub services_domain: String,
}

impl Default for Listen {
    fn default() -> Self {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        Self {
            http: local(7700),
            grpc: local(7701),
            ingress: local(7702),
            public_url: None,
            runner_url: None,
            services_domain: "localhost".to_owned(),
        }
    }
}

/// Programs of another system that come as they are. Off unless it is asked for.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compat {
    pub mode: Option<Dialect>,
    /// The one key that all of its programs share. Whoever has it can act as any agent of the swarm.
    #[serde(deserialize_with = "secret")]
    pub key: Option<SecretString>,
    pub swarm: Name,
    /// Lets such programs in from other machines.
    pub beyond_loopback: bool,
}

impl Default for Compat {
    fn default() -> Self {
        Self { mode: None, key: None, swarm: default_name(), beyond_loopback: false }
    }
}

/// Whose programs come as they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    AgentSwarm,
}

/// Where the truth is kept: a file in the data directory, unless a Redis is named.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Store {
    /// `redis[s]://[user:password@]host[:port][/database]`, `unix:///path`, `redis[s]-sentinel://…` or
    /// `redis[s]-cluster://…`. `SecretString` shows nothing when printed.
    #[serde(deserialize_with = "secret")]
    pub redis: Option<SecretString>,
    /// What a crash of Redis may lose: `always` nothing, `everysec` a second; `replicated` waits for a replica.
    pub durability: Durability,
    /// Who signs the certificates of a Redis that speaks TLS, in PEM; without it those whom the system trusts.
    pub redis_ca: Option<PathBuf>,
    /// The certificate by which such a Redis knows this coordinator, and its key, in PEM.
    pub redis_certificate: Option<PathBuf>,
    pub redis_key: Option<PathBuf>,
}

impl Store {
    /// What is needed to trust Redis, and to be trusted by it.
    pub fn tls(&self) -> Tls {
        let certificate = self.redis_certificate.clone().zip(self.redis_key.clone());
        Tls { ca: self.redis_ca.clone(), certificate }
    }
}

/// How this coordinator and the others that share its Redis reach one another.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Cluster {
    /// Where the others reach this one, and where it listens for them: `HOST:PORT`.
    pub node: String,
    /// Where the others reach this one when something stands between, such as a forwarded port: `HOST:PORT`.
    pub advertise: Option<String>,
    /// The folder with this node's certificate, from `skein cluster init`. Without it nodes speak plain text, and are
    /// reached from this machine alone.
    pub tls: Option<PathBuf>,
    /// How long a shard stays with a coordinator that is not heard of.
    #[serde(with = "humantime_serde")]
    pub lease: Duration,
    /// How long nobody may come or go before shards are handed to newcomers.
    #[serde(with = "humantime_serde")]
    pub settle: Duration,
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            node: "127.0.0.1:0".to_owned(),
            advertise: None,
            tls: None,
            lease: Duration::from_secs(10),
            settle: Duration::from_secs(20),
        }
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ingress {
    /// `[[ingress.source]]`, one for each sender of webhooks.
    pub source: Vec<Source>,
}

/// A sender of webhooks. Its URL is `/webhooks/<name>`, or `/webhooks/<provider>` for all of its kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub name: Name,
    pub provider: Provider,
    /// The swarm whose agents get the events.
    #[serde(default = "default_name")]
    pub swarm: Name,
    /// What the sender signs with. `SecretString` shows nothing when printed.
    #[serde(default, deserialize_with = "secret")]
    pub secret: Option<SecretString>,
    /// A file with the secret; white space at its end does not count.
    pub secret_file: Option<PathBuf>,
    /// Of AgentMail: the domains whose inboxes count, and those whose people may write; empty for all.
    #[serde(default)]
    pub inbox_domains: Vec<String>,
    #[serde(default)]
    pub sender_domains: Vec<String>,
    /// Of GitHub and GitLab: the account by whose name people ask the swarm for something. Without one its events are
    /// for agents that wait for them alone.
    pub bot: Option<String>,
    /// Who may ask it, by the names of their accounts; empty for whoever can comment there, in public anybody.
    #[serde(default)]
    pub allowed_users: Vec<String>,
    /// Of X: the account whose doings are sent here, for the node to subscribe as it starts.
    pub account: Option<Box<Account>>,
    /// Takes events of anybody who reaches the door, in place of a secret.
    #[serde(default)]
    pub allow_unsigned: bool,
}

/// An account at X, with what an app of its own may ask for in its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Account {
    /// Where X reaches this source.
    pub url: Url,
    /// What the app shows for itself. `SecretString` shows nothing when printed.
    #[serde(default, deserialize_with = "secret")]
    pub bearer_token: Option<SecretString>,
    pub bearer_token_file: Option<PathBuf>,
    /// The app as a client of OAuth 2.0; it has a secret if it is a confidential one.
    pub client_id: String,
    #[serde(default, deserialize_with = "secret")]
    pub client_secret: Option<SecretString>,
    pub client_secret_file: Option<PathBuf>,
    /// What came of the account's consent. It is good once: each use brings the next, which the node keeps.
    #[serde(default, deserialize_with = "secret")]
    pub refresh_token: Option<SecretString>,
    pub refresh_token_file: Option<PathBuf>,
    /// Where the API is.
    #[serde(default = "x_api", deserialize_with = "address")]
    pub api: Url,
}

impl Account {
    /// There is one once the settings were checked.
    pub fn bearer_token(&self) -> SecretString {
        self.bearer_token.clone().unwrap_or_default()
    }

    /// As [`Self::bearer_token`].
    pub fn refresh_token(&self) -> SecretString {
        self.refresh_token.clone().unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Slack {
    /// `[[slack.workspace]]`, at most one for each swarm.
    pub workspace: Vec<Workspace>,
}

/// A Slack workspace whose people talk to a swarm.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Workspace {
    #[serde(default = "default_name")]
    pub swarm: Name,
    /// `xoxb-…`. `SecretString` shows nothing when printed.
    #[serde(default, deserialize_with = "secret")]
    pub bot_token: Option<SecretString>,
    /// A file with the token; white space at its end does not count.
    pub bot_token_file: Option<PathBuf>,
    /// `xapp-…`, for Socket Mode; without it events come by webhook.
    #[serde(default, deserialize_with = "secret")]
    pub app_token: Option<SecretString>,
    pub app_token_file: Option<PathBuf>,
    /// Who may speak to the swarm: people by their ids, and by the domains of their addresses; both empty for all.
    #[serde(default)]
    pub allowed_users: Vec<String>,
    #[serde(default)]
    pub allowed_domains: Vec<String>,
    /// Where the methods of the Web API are.
    #[serde(default = "slack_api", deserialize_with = "address")]
    pub api: Url,
}

/// What seals the secrets of the swarms. Without it the node has a key of its own in the data directory.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Secrets {
    /// 32 bytes in base64 or hexadecimal digits; of several, with commas between them, the first seals. The variable
    /// `SECRETS_ENCRYPTION_KEY` sets it, too, and `SECRETS_ENCRYPTION_KEY_FILE` the file.
    #[serde(deserialize_with = "secret")]
    pub key: Option<SecretString>,
    /// A file with the same; white space at its end does not count.
    pub key_file: Option<PathBuf>,
}

/// Who is asked what texts mean: an endpoint that speaks as OpenAI's does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Embeddings {
    /// What `embeddings` is put behind.
    #[serde(deserialize_with = "address")]
    pub url: Url,
    pub model: String,
    /// How many dimensions the model is asked for; without it its own.
    pub dimensions: Option<u32>,
    /// `SecretString` shows nothing when printed.
    #[serde(default, deserialize_with = "secret")]
    pub api_key: Option<SecretString>,
    /// A file with the key; white space at its end does not count.
    pub api_key_file: Option<PathBuf>,
}

/// What is forgotten, and when.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retention {
    /// Newest events that each entity keeps.
    pub events: u64,
    #[serde(with = "humantime_serde")]
    pub events_age: Duration,
    /// Ended tasks, calls and runs. The receipts of webhooks are kept for seven days, whatever it says.
    #[serde(with = "humantime_serde")]
    pub archived: Duration,
    /// Answers kept for a repeated request; never under 15 minutes.
    #[serde(with = "humantime_serde")]
    pub replies: Duration,
    #[serde(with = "humantime_serde")]
    pub dead_letters: Duration,
    /// How often the node looks for something to forget.
    #[serde(with = "humantime_serde")]
    pub every: Duration,
}

const DAY: Duration = Duration::from_secs(86_400);

impl Default for Retention {
    fn default() -> Self {
        Self {
            events: 10_000,
            events_age: 30 * DAY,
            archived: 30 * DAY,
            replies: limits::REPLY_KEEP,
            dead_letters: 30 * DAY,
            every: Duration::from_secs(60),
        }
    }
}

/// The runner inside `skein up`.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Runner {
    pub enabled: bool,
    pub name: Name,
    /// Runners of one group share their work.
    pub group: Name,
    /// Instances that run at a time.
    pub slots: u32,
    /// Swarms that it serves; none means any.
    pub swarms: Vec<Name>,
    /// The folder with the agents' definitions; `agents` in the data directory if left out.
    pub agents: Option<PathBuf>,
    /// Where its agents work; beside the data directory if left out.
    pub work: Option<PathBuf>,
}

impl Default for Runner {
    fn default() -> Self {
        Self {
            enabled: true,
            name: name("local"),
            group: default_name(),
            slots: 4,
            swarms: Vec::new(),
            agents: None,
            work: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest body of a webhook, bytes.
    pub webhook_bytes: usize,
    /// Webhooks taken in at a time; more wait for their turn, and are told to come back after ten seconds.
    pub webhooks_in_flight: usize,
    /// The longest value of a call, bytes: from 256 KiB, which every value may have, to 16 MiB.
    pub result_bytes: u64,
    /// What the values longer than 256 KiB of one swarm's calls may take together, bytes.
    pub swarm_result_bytes: u64,
    /// What one agent may ask for in a second: changes, reads, and searches through texts.
    pub writes_per_second: u32,
    pub reads_per_second: u32,
    pub searches_per_second: u32,
    /// Requests of one instance, and of all, that may wait at a time.
    pub waits_per_instance: usize,
    pub waits: usize,
    /// Calls of one agent that may be under way at a time, those that wait apart.
    pub calls_per_agent: usize,
    /// `[limits.tools.NAME]`: less for single tools.
    pub tools: BTreeMap<String, ToolLimits>,
    /// How long requests in flight may take to finish once the node was told to stop.
    #[serde(with = "humantime_serde")]
    pub drain: Duration,
}

/// What one agent may ask of one tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolLimits {
    /// Calls in a second; 0.1 is one in ten seconds.
    pub per_second: Option<f64>,
    /// Calls under way at a time.
    pub at_a_time: Option<usize>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            webhook_bytes: limits::WEBHOOK,
            webhooks_in_flight: 256,
            result_bytes: limits::RESULT as u64,
            swarm_result_bytes: limits::SWARM_BLOBS,
            writes_per_second: 5000,
            reads_per_second: 20_000,
            searches_per_second: 1000,
            waits_per_instance: 4,
            waits: 10_000,
            calls_per_agent: 256,
            tools: BTreeMap::new(),
            drain: Duration::from_secs(20),
        }
    }
}

fn default_name() -> Name {
    name("default")
}

fn name(text: &str) -> Name {
    Name::parse(text).expect("a literal that follows the rule for names")
}

fn slack_api() -> Url {
    Url::parse("https://slack.com/api/").expect("a literal that is an address")
}

fn x_api() -> Url {
    Url::parse("https://api.x.com/").expect("a literal that is an address")
}

/// An address that ends in a slash, so that names can be put behind it.
fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let mut text = String::deserialize(deserializer)?;
    if !text.ends_with('/') {
        text.push('/');
    }
    // Without the text, which may have a password in it.
    Url::parse(&text).map_err(|error| serde::de::Error::custom(format!("this is no address: {error}")))
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<SecretString>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map(SecretString::from))
}
