//! What belongs together in the settings, and the secrets that they name files of.

use std::collections::HashSet;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret, SecretString};
use skein_shared::limits::{self, REPLY_KEEP};
use skein_shared::memory;
use url::Url;

use super::load::ConfigError;
use super::people;
use super::provider::Provider;
use super::schema::{
    Account, Cluster, Config, Embeddings, Limits, Listen, Retention, Runner, Source, Workspace,
};
use crate::auth::Role;
use crate::auth::issuer::Trust;
use crate::https::is_private;
use crate::store::{StoreError, redis};

/// The shortest and the longest that a lease may be.
const SHORTEST_LEASE: Duration = Duration::from_secs(2);
const LONGEST_LEASE: Duration = Duration::from_secs(3600);

/// Looks whether what is set fits together, and takes secrets from their files, which are named from `folder` on.
///
/// # Errors
/// For the first thing that is wrong.
pub(super) fn check(config: &mut Config, folder: &Path) -> Result<(), ConfigError> {
    check_compat(config)?;
    check_addresses(&config.listen)?;
    check_domain(&config.listen.services_domain)?;
    check_sources(&mut config.ingress.source, folder)?;
    check_workspaces(&mut config.slack.workspace, folder)?;
    let secrets = &mut config.secrets;
    read_secret("key", &mut secrets.key, secrets.key_file.as_deref(), folder)
        .map_err(|problem| ConfigError(format!("`secrets` {problem}")))?;
    if let Some(embeddings) = &mut config.embeddings {
        take_key(embeddings, folder).map_err(|problem| ConfigError(format!("`embeddings` {problem}")))?;
    }
    check_store(config, folder)?;
    check_cluster(&mut config.cluster)?;
    check_issuers(&config.auth.issuer)?;
    check_rates(&config.limits)?;
    check_limits(&config.limits)?;
    check_retention(&config.retention)?;
    check_runner(&mut config.runner, folder)
}

/// One is put before paths, and agents are sent there; runners, who speak plain text, are sent to the other as it is.
fn check_addresses(listen: &Listen) -> Result<(), ConfigError> {
    if let Some(url) = listen.public_url.as_deref().filter(|url| base(url).is_none()) {
        return Err(ConfigError(format!(
            "`listen.public_url` is `{url}`, which is no address of a server; write it with its scheme, such as \
             https://skein.example.com"
        )));
    }
    match listen.runner_url.as_deref().filter(|url| !is_door(url)) {
        None => Ok(()),
        Some(url) => Err(ConfigError(format!(
            "`listen.runner_url` is `{url}`, to which no runner can connect; write it with its scheme, which is http, and \
             without a path, such as http://10.0.0.5:7701"
        ))),
    }
}

/// Agents' ids are put before it, and others are sent there.
fn check_domain(name: &str) -> Result<(), ConfigError> {
    let is_letter = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'-';
    let is_plain = name.split('.').all(|part| !part.is_empty() && part.bytes().all(is_letter));
    // A name that ends as an address does is none.
    if is_plain && Url::parse(&format!("https://agent.{name}")).is_ok() {
        return Ok(());
    }
    Err(ConfigError(format!(
        "`listen.services_domain` (SWARM_URL) is `{name}`, below which no agent can have a name; write the name of a host \
         alone, such as swarm.example.com"
    )))
}

fn is_door(url: &str) -> bool {
    base(url).is_some_and(|url| url.scheme() == "http" && url.path() == "/")
}

/// An address that something can be put behind and that others can call.
fn base(url: &str) -> Option<Url> {
    let url = Url::parse(url).ok()?;
    let is_somewhere = match url.host() {
        Some(url::Host::Ipv4(ip)) => !ip.is_unspecified(),
        Some(url::Host::Ipv6(ip)) => !ip.is_unspecified(),
        Some(url::Host::Domain(_)) => true,
        None => false,
    };
    let is_bare = url.query().is_none() && url.fragment().is_none();
    (matches!(url.scheme(), "http" | "https") && is_somewhere && is_bare).then_some(url)
}

fn check_sources(sources: &mut [Source], folder: &Path) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    for source in sources {
        if !names.insert(source.name.clone()) {
            return Err(ConfigError(format!(
                "ingress.source: `{}` is there twice; give each source a name of its own",
                source.name
            )));
        }
        take_secret(source, folder)?;
    }
    Ok(())
}

fn check_workspaces(workspaces: &mut [Workspace], folder: &Path) -> Result<(), ConfigError> {
    let mut swarms = HashSet::new();
    for workspace in workspaces {
        if !swarms.insert(workspace.swarm.clone()) {
            return Err(ConfigError(format!(
                "slack.workspace: the swarm `{}` has two; give each swarm one",
                workspace.swarm
            )));
        }
        take_tokens(workspace, folder).and_then(|()| people::check_workspace(workspace)).map_err(
            |problem| ConfigError(format!("slack.workspace of the swarm `{}`: {problem}", workspace.swarm)),
        )?;
    }
    Ok(())
}

fn check_store(config: &mut Config, folder: &Path) -> Result<(), ConfigError> {
    let store = &mut config.store;
    for path in
        [&mut config.cluster.tls, &mut store.redis_ca, &mut store.redis_certificate, &mut store.redis_key]
    {
        *path = path.take().map(|path| folder.join(path));
    }
    if let Some(url) = &store.redis {
        redis::check_url(url)
            .map_err(|StoreError(problem)| ConfigError(format!("`store.redis` (--redis): {problem}")))?;
    }
    if store.redis_certificate.is_some() == store.redis_key.is_some() {
        return Ok(());
    }
    Err(ConfigError(
        "`store.redis_certificate` and `store.redis_key` belong together: name both, or neither".to_owned(),
    ))
}

/// What is renewed, handed over and answered within a lease takes its time on a slow day too; and nobody has what a
/// coordinator that died had until its lease has ended.
fn check_cluster(cluster: &mut Cluster) -> Result<(), ConfigError> {
    for (setting, address) in [("node", Some(&mut cluster.node)), ("advertise", cluster.advertise.as_mut())] {
        if let Some(address) = address {
            *address = in_brackets_if_need_be(address)
                .map_err(|problem| ConfigError(format!("`cluster.{setting}` {problem}")))?;
        }
    }
    if cluster.lease < SHORTEST_LEASE {
        return Err(ConfigError(format!(
            "`cluster.lease` must be {} s at least: a coordinator that pauses for a moment would lose all its shards",
            SHORTEST_LEASE.as_secs()
        )));
    }
    if cluster.lease > LONGEST_LEASE {
        return Err(ConfigError(format!(
            "`cluster.lease` must be {} h at most: the shards of a coordinator that dies have no owner for as long; 10s \
             does for most",
            LONGEST_LEASE.as_secs() / 3600
        )));
    }
    if cluster.settle.is_zero() {
        return Err(ConfigError(
            "`cluster.settle` must be more than nothing: shards would go back and forth while nodes come and go; 20s does \
             for most"
                .to_owned(),
        ));
    }
    Ok(())
}

/// `HOST:PORT` as it is used. Brackets belong around an address of IPv6; who does not know beforehand of which kind an
/// address will be, as of a pod, puts them around any.
fn in_brackets_if_need_be(address: &str) -> Result<String, String> {
    let bracketed = address.strip_prefix('[').and_then(|rest| rest.split_once("]:"));
    match (bracketed, address.rsplit_once(':')) {
        (Some((host, port)), _) if host.parse::<Ipv4Addr>().is_ok() => Ok(format!("{host}:{port}")),
        (None, Some((host, _))) if host.contains(':') && !host.starts_with('[') => Err(format!(
            "is `{address}`; write an address of IPv6 in brackets before its port, such as [fd00::1]:7703"
        )),
        _ => Ok(address.to_owned()),
    }
}

/// None at all is no limit but a door that stays shut, and whoever knocks is told to come back later.
fn check_rates(config: &Limits) -> Result<(), ConfigError> {
    for (setting, is_none, refused) in [
        ("webhooks_in_flight", config.webhooks_in_flight == 0, "webhook"),
        ("writes_per_second", config.writes_per_second == 0, "change"),
        ("reads_per_second", config.reads_per_second == 0, "read"),
        ("searches_per_second", config.searches_per_second == 0, "search"),
        ("calls_per_agent", config.calls_per_agent == 0, "call"),
        ("waits_per_instance", config.waits_per_instance == 0, "wait"),
        ("waits", config.waits == 0, "wait"),
    ] {
        if is_none {
            return Err(ConfigError(format!(
                "`limits.{setting}` must be 1 at least: with 0 every {refused} would be refused for ever; leave it out for the usual limit"
            )));
        }
    }
    Ok(())
}

fn check_limits(config: &Limits) -> Result<(), ConfigError> {
    for (tool, limits) in &config.tools {
        let rate_is_none = limits.per_second.is_some_and(|rate| !(rate > 0.0 && rate.is_finite()));
        if rate_is_none || limits.at_a_time == Some(0) {
            return Err(ConfigError(format!(
                "limits.tools.{tool}: `per_second` and `at_a_time` are more than nothing; to keep a tool from agents, give them a view without it"
            )));
        }
    }
    if !(1..=limits::WEBHOOK).contains(&config.webhook_bytes) {
        return Err(ConfigError(format!(
            "`limits.webhook_bytes` must lie between 1 and {}; more does not fit into the input of a run",
            limits::WEBHOOK
        )));
    }
    let (least, most) = (limits::TEXT as u64, limits::RESULT as u64);
    if (least..=most).contains(&config.result_bytes) {
        return Ok(());
    }
    Err(ConfigError(format!(
        "`limits.result_bytes` must lie between {least} and {most}; more does not fit into one request of an agent"
    )))
}

fn check_retention(retention: &Retention) -> Result<(), ConfigError> {
    if retention.replies < REPLY_KEEP {
        return Err(ConfigError(
            "`retention.replies` is too short: a repeated request must find its answer for 15m at least"
                .to_owned(),
        ));
    }
    if retention.every < Duration::from_secs(1) {
        return Err(ConfigError("`retention.every` must be 1s at least".to_owned()));
    }
    Ok(())
}

fn check_runner(runner: &mut Runner, folder: &Path) -> Result<(), ConfigError> {
    for path in [&mut runner.agents, &mut runner.work] {
        *path = path.take().map(|path| folder.join(path));
    }
    if runner.slots > 0 {
        return Ok(());
    }
    Err(ConfigError(
        "`runner.slots` must be 1 at least; to run no agents here, set `runner.enabled = false`".to_owned(),
    ))
}

/// One key for all is as good as none where others listen, so that takes a word of its own.
fn check_compat(config: &Config) -> Result<(), ConfigError> {
    let compat = &config.compat;
    if compat.mode.is_none() {
        return Ok(());
    }
    if compat.key.as_ref().is_none_or(|key| key.expose_secret().is_empty()) {
        return Err(ConfigError(
            "`compat.key`: give the key that those programs share (their API_KEY), best as SKEIN_COMPAT__KEY"
                .to_owned(),
        ));
    }
    let http = config.listen.http;
    if http.ip().is_loopback() || compat.beyond_loopback {
        return Ok(());
    }
    Err(ConfigError(format!(
        "`compat.mode`: whoever has its one key can act as any agent, and {http} is reached from other machines; listen on \
         127.0.0.1, or say --compat-beyond-loopback (`compat.beyond_loopback = true`) as well"
    )))
}

/// Gives the source its secret. A source without one lets anybody in, which has to be said.
fn take_secret(source: &mut Source, folder: &Path) -> Result<(), ConfigError> {
    let taken = read_secret("secret", &mut source.secret, source.secret_file.as_deref(), folder);
    taken
        .and_then(|()| check_kind(source).and_then(|()| check_secret(source)).map_err(str::to_owned))
        .and_then(|()| people::check_mail(source))
        .and_then(|()| source.account.as_deref_mut().map_or(Ok(()), |account| take_account(account, folder)))
        .map_err(|problem| ConfigError(format!("ingress.source `{}` {problem}", source.name)))
}

/// Takes the secret from its file, if one is named.
fn read_secret(
    name: &str,
    secret: &mut Option<SecretString>,
    file: Option<&Path>,
    folder: &Path,
) -> Result<(), String> {
    let Some(file) = file else { return Ok(()) };
    if secret.is_some() {
        return Err(format!("has both `{name}` and `{name}_file`; keep one"));
    }
    let text = std::fs::read_to_string(folder.join(file))
        .map_err(|error| format!("has a {name}_file, {}, that cannot be read: {error}", file.display()))?;
    *secret = Some(SecretString::from(text.trim_end().to_owned()));
    Ok(())
}

/// Gives the workspace its tokens, and looks whether each is where it belongs.
fn take_tokens(workspace: &mut Workspace, folder: &Path) -> Result<(), String> {
    let Workspace { bot_token: bot, bot_token_file, app_token: app, app_token_file, api, .. } = workspace;
    read_secret("bot_token", bot, bot_token_file.as_deref(), folder)?;
    read_secret("app_token", app, app_token_file.as_deref(), folder)?;
    let begins = |token: &Option<SecretString>, with: &str| {
        token.as_ref().is_some_and(|token| token.expose_secret().starts_with(with))
    };
    if bot.as_ref().is_none_or(|token| token.expose_secret().is_empty()) {
        return Err(
            "has no bot token; set `bot_token` or `bot_token_file` to the one that begins with xoxb-"
                .to_owned(),
        );
    }
    if begins(bot, "xapp-") || begins(app, "xoxb-") {
        return Err(
            "has its tokens mixed up: `bot_token` begins with xoxb-, `app_token` with xapp-".to_owned()
        );
    }
    let here = match api.host() {
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        Some(url::Host::Domain(name)) => name == "localhost",
        None => false,
    };
    if api.scheme() == "https" || (api.scheme() == "http" && here) {
        return Ok(());
    }
    Err(format!("has the `api` {api}, to which tokens would go in plain text; use https"))
}

/// Gives the endpoint its key, which leaves this machine only where nobody reads it on the way.
fn take_key(embeddings: &mut Embeddings, folder: &Path) -> Result<(), String> {
    let Embeddings { url, model, dimensions, api_key, api_key_file } = embeddings;
    read_secret("api_key", api_key, api_key_file.as_deref(), folder)?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(format!("has the `url` {url}; it begins with https:// and names a host"));
    }
    if model.trim().is_empty() {
        return Err("has no model; set `model` to the name of one that the endpoint has".to_owned());
    }
    let most = memory::DIMENSIONS;
    if dimensions.is_some_and(|wanted| wanted == 0 || wanted as usize > most) {
        return Err(format!("wants vectors of no use; `dimensions` lies between 1 and {most}"));
    }
    if api_key.is_some() && !is_private(url) {
        return Err(format!("has the `url` {url}, to which the key would go in plain text; use https"));
    }
    Ok(())
}

/// Gives an account at X its tokens, and looks whether all is there that X asks for.
fn take_account(account: &mut Account, folder: &Path) -> Result<(), String> {
    let Account { bearer_token, client_secret, refresh_token, .. } = account;
    read_secret("account.bearer_token", bearer_token, account.bearer_token_file.as_deref(), folder)?;
    read_secret("account.client_secret", client_secret, account.client_secret_file.as_deref(), folder)?;
    read_secret("account.refresh_token", refresh_token, account.refresh_token_file.as_deref(), folder)?;
    let is_missing =
        |token: &Option<SecretString>| token.as_ref().is_none_or(|token| token.expose_secret().is_empty());
    for (name, token) in [("bearer_token", bearer_token), ("refresh_token", refresh_token)] {
        if is_missing(token) {
            return Err(format!(
                "has an account without `{name}`; set it, or `{name}_file`, to the one that X has shown"
            ));
        }
    }
    for (name, address) in [("url", &account.url), ("api", &account.api)] {
        if !is_private(address) {
            return Err(format!("has an account whose `{name}` is {address}; it begins with https://"));
        }
    }
    Ok(())
}

/// What is set at the source and is of no use to a sender of its kind, if anything.
fn check_kind(source: &Source) -> Result<(), &'static str> {
    let filters = [&source.inbox_domains, &source.sender_domains];
    if source.provider != Provider::Agentmail && filters.iter().any(|domains| !domains.is_empty()) {
        return Err("is not of the provider `agentmail`, so it has no inboxes: take its domains out");
    }
    if source.account.is_some() && (source.provider != Provider::Twitter || source.allow_unsigned) {
        return Err("has an account, which is for the provider `twitter` with a secret: take it out");
    }
    let is_forge = matches!(source.provider, Provider::Github | Provider::Gitlab);
    if !is_forge && source.bot.is_some() {
        return Err("is of neither `github` nor `gitlab`, so nobody asks its `bot`: take that out");
    }
    let is_account = |name: &String| {
        !name.is_empty() && !name.contains(|letter: char| letter.is_whitespace() || "@[]".contains(letter))
    };
    if !source.bot.iter().chain(&source.allowed_users).all(is_account) {
        return Err(
            "has a `bot` or `allowed_users` that are no names of accounts; write them without @ and [bot]",
        );
    }
    if source.bot.is_none() && !source.allowed_users.is_empty() {
        return Err("has `allowed_users` and no `bot` that they could ask; set it");
    }
    if source.bot.is_some() && source.allow_unsigned {
        return Err("has a `bot` that anybody could ask, by `allow_unsigned`; set a secret in its place");
    }
    Ok(())
}

/// What is wrong with the source's secret, if anything.
fn check_secret(source: &Source) -> Result<(), &'static str> {
    if source.allow_unsigned {
        let alone = source.secret.is_none();
        return if alone { Ok(()) } else { Err("has a secret and `allow_unsigned`; keep one") };
    }
    if source.provider == Provider::Test {
        return Err(
            "is of the provider `test`, which signs nothing: set `allow_unsigned = true` if anybody may send",
        );
    }
    let secret = source.secret.as_ref().map(ExposeSecret::expose_secret).unwrap_or_default();
    if secret.is_empty() {
        return Err("has no secret; set `secret` or `secret_file` to what the sender signs with");
    }
    let is_key = secret.len() == 64 && secret.bytes().all(|letter| letter.is_ascii_hexdigit());
    if source.provider == Provider::Discord && !is_key {
        return Err("needs the application's public key from Discord as its secret: 64 hexadecimal digits");
    }
    if !can_sign(source.provider, secret) {
        return Err(
            "has a secret that signs nothing: what follows `whsec_` is to be base64 as the sender shows it, with its `=`",
        );
    }
    Ok(())
}

/// Whether there is a key in the signing token of a provider that goes by Standard Webhooks.
fn can_sign(provider: Provider, secret: &str) -> bool {
    let key = match (provider, secret.strip_prefix("whsec_")) {
        (Provider::Agentmail, key) => key.unwrap_or(secret),
        (Provider::Generic | Provider::Gitlab, Some(key)) => key,
        _ => return true,
    };
    STANDARD.decode(key).is_ok_and(|key| !key.is_empty())
}

fn check_issuers(issuers: &[Trust]) -> Result<(), ConfigError> {
    let mut names = HashSet::new();
    for issuer in issuers {
        // Its tokens name no section, so the second one would never be looked at.
        let checked = match names.insert(&issuer.issuer) {
            true => check_issuer(issuer),
            false => Err(
                "it is there twice; give each issuer one section, and tell its people apart by `swarm_claim` and `role_claim`",
            ),
        };
        checked.map_err(|problem| ConfigError(format!("auth.issuer `{}`: {problem}", issuer.issuer)))?;
    }
    Ok(())
}

/// Whoever could change what an issuer says could be anybody here, so it is asked by TLS.
fn check_issuer(issuer: &Trust) -> Result<(), &'static str> {
    let named = Url::parse(&issuer.issuer).ok();
    if named.is_none_or(|named| !is_private(&named))
        || issuer.jwks.as_ref().is_some_and(|jwks| !is_private(jwks))
    {
        return Err("an issuer and its keys have an address with https (or http on this machine)");
    }
    if issuer.audience.is_empty() {
        return Err("`audience` is empty; name what its tokens for Skein are for");
    }
    if issuer.swarm.is_none() && issuer.swarm_claim.is_none() {
        return Err("name the `swarm` of its tokens, or the `swarm_claim` that does");
    }
    if issuer.role.is_none() && (issuer.role_claim.is_none() || issuer.roles.is_empty()) {
        return Err("name the `role` of its tokens, or the `role_claim` and what its values mean in `roles`");
    }
    if issuer.role.iter().chain(issuer.roles.values()).any(|role| *role == Role::Runner) {
        return Err("a runner has a token of Skein's own: `skein token issue --role runner`");
    }
    Ok(())
}
