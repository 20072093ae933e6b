//! Has X send what happens around the accounts that the settings name, as the node starts (spec: Action Llama 8.2), and
//! sees to it while the node runs that X goes on.
//!
//! It is done as well as it can be: what fails holds up nothing, is told, and is tried again ever more seldom.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use secrecy::{ExposeSecret, SecretString};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::lockspace::{Command, Lockspace, Reply};
use skein_shared::{Code, Refusal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};
use uuid::Uuid;

use crate::config::Source;
use crate::entity::Request;
use crate::service::Service;
use crate::x::{Api, Error};

/// Pause before the next try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// How often it looks whether X still sends. X checks an address once an hour, and of one that did not answer then it
/// would not find out by itself that it is there again.
const LOOK: Duration = Duration::from_secs(1800);
/// Between two tries to keep a token that only this process knows.
const KEEP_AGAIN: Duration = Duration::from_secs(1);
/// How long a node may take for its exchange; the next one waits as long for a node that is gone.
const TURN: Duration = Duration::from_secs(120);

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    X(#[from] Error),
    #[error("{0}")]
    Swarm(#[from] Refusal),
    #[error("another node exchanges its refresh token")]
    Taken,
    /// With what X says of the last one. It refuses them as well for an app that it does not know by this secret.
    #[error(
        "X takes none of the account's refresh tokens ({0}): see that `client_id` and `client_secret` are the app's; if they are, \
         authorise it anew, and set `refresh_token` to what comes of it"
    )]
    Unauthorised(String),
    #[error("the exchange of the refresh token broke off ({0}); report this")]
    Broken(String),
}

/// Subscribes the accounts of these sources, until `stop`. What X has been asked for a token is still heard out.
pub async fn subscribe(sources: Vec<Source>, service: Service, stop: CancellationToken) {
    let exchanges = TaskTracker::new();
    let accounts = sources.into_iter().filter_map(|source| {
        let Source { name, swarm, account, .. } = source;
        Some(keep_trying(name, swarm, *account?, service.clone(), &exchanges))
    });
    let _ = stop.run_until_cancelled(join_all(accounts)).await;
    stop.cancelled().await;
    exchanges.close();
    exchanges.wait().await;
}

async fn keep_trying(
    source: Name,
    swarm: Name,
    account: crate::config::Account,
    service: Service,
    exchanges: &TaskTracker,
) {
    let given = account.refresh_token();
    let api = match Api::new(account) {
        Ok(api) => api,
        Err(problem) => return warn!(%source, %problem, "the account at X is not subscribed"),
    };
    let subscriber = Arc::new(Subscriber::new(&source, api, given, swarm, service));
    let mut pause = FIRST_PAUSE;
    loop {
        match subscriber.subscribe(exchanges).await {
            Ok((webhook, is_new)) => {
                let since = if is_new { "from now on " } else { "" };
                info!(%source, "X sends {since}what happens around its account");
                subscriber.keep_sending(&webhook, LOOK).await;
                warn!(%source, "X has the webhook of its account no more; it is made anew");
                pause = FIRST_PAUSE;
                continue;
            }
            Err(problem @ Trouble::Taken) => info!(%source, %problem, "trying again in {pause:?}"),
            Err(problem) => {
                warn!(%source, %problem, "the account at X is not subscribed; trying again in {pause:?}");
            }
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

struct Subscriber {
    api: Api,
    source: Name,
    /// The refresh token of the settings, which is good once.
    given: SecretString,
    /// Under which the newest one is kept, among the secrets of the swarm.
    key: String,
    /// And under which the one of the settings, once it is used.
    key_of_used: String,
    swarm: Name,
    service: Service,
    /// As whom it takes its turn.
    me: InstanceId,
}

impl Subscriber {
    fn new(source: &Name, api: Api, given: SecretString, swarm: Name, service: Service) -> Self {
        let (key, key_of_used) =
            (format!("x_refresh_token.{source}"), format!("x_refresh_token_used.{source}"));
        let me = InstanceId(format!("{source}-{}", Uuid::now_v7()));
        Self { api, source: source.clone(), given, key, key_of_used, swarm, service, me }
    }

    /// Gives the webhook, and whether the subscription is new.
    async fn subscribe(self: &Arc<Self>, exchanges: &TaskTracker) -> Result<(String, bool), Trouble> {
        let webhook = self.api.webhook().await?;
        // In a task of its own: X's answer has the only token that it takes from now on, also while the node ends.
        let this = Arc::clone(self);
        let exchange = exchanges.spawn(async move { this.access_token().await });
        let access = exchange.await.map_err(|panic| Trouble::Broken(panic.to_string()))??;
        let is_new = self.api.subscribe(&webhook, &access).await?;
        Ok((webhook, is_new))
    }

    /// Looks every so often whether X still sends by this webhook, and has it checked again where it does not. Returns
    /// once X has it no more: what is sent by another one has to be subscribed anew.
    async fn keep_sending(&self, webhook: &str, every: Duration) {
        let mut pause = every;
        loop {
            tokio::time::sleep(pause).await;
            match self.api.keep(webhook).await {
                Ok(true) => pause = every,
                Ok(false) => return,
                Err(problem) => {
                    pause = if pause == every { FIRST_PAUSE } else { (pause * 2).min(LONGEST_PAUSE) };
                    warn!(source = %self.source, %problem, "X may have ended to send; looking again in {pause:?}");
                }
            }
        }
    }

    /// Exchanges the newest refresh token, as the only one of the nodes that have the account: to X a token that is
    /// shown twice is a stolen one.
    async fn access_token(&self) -> Result<SecretString, Trouble> {
        self.take_turn().await?;
        let exchanged = self.exchange().await;
        let release = Command::Release { holder: self.me.clone(), key: self.turn() };
        if let Err(refusal) = self.ask(Request::once(Uuid::now_v7()), release).await {
            warn!(source = %self.source, %refusal, "the turn with the refresh token for X ends by its time");
        }
        exchanged
    }

    /// Uses the newest refresh token, and keeps the next. Whoever has authorised the app anew has set another one.
    async fn exchange(&self) -> Result<SecretString, Trouble> {
        let kept = self.service.kept_secret(&self.swarm, &self.key).await?;
        let used = self.service.kept_secret(&self.swarm, &self.key_of_used).await?;
        let is_used = used.is_some_and(|used| used.expose_secret() == self.given.expose_secret());
        let mut reason = "that of the settings was used before".to_owned();
        if let Some(kept) = kept {
            match self.api.refresh(&kept).await {
                Ok(tokens) => {
                    self.keep(&self.key, &tokens.refresh).await;
                    return Ok(tokens.access);
                }
                Err(problem) if problem.is_final() => reason = problem.to_string(),
                Err(problem) => return Err(problem.into()),
            }
        }
        if is_used {
            return Err(Trouble::Unauthorised(reason));
        }
        match self.api.refresh(&self.given).await {
            Ok(tokens) => {
                self.keep(&self.key, &tokens.refresh).await;
                self.keep(&self.key_of_used, &self.given).await;
                Ok(tokens.access)
            }
            Err(problem) if problem.is_final() => Err(Trouble::Unauthorised(problem.to_string())),
            Err(problem) => Err(problem.into()),
        }
    }

    /// Only this process knows the token, and X takes no older one: so it goes on until it is kept.
    async fn keep(&self, key: &str, token: &SecretString) {
        while let Err(refusal) = self.service.keep_secret(&self.swarm, key, token).await {
            warn!(key, %refusal, "a refresh token for X is not kept yet; trying again");
            tokio::time::sleep(KEEP_AGAIN).await;
        }
    }

    /// The lock that stands for the account's refresh token.
    fn turn(&self) -> String {
        format!("x://refresh-token/{}", self.source)
    }

    /// Does not wait for it.
    async fn take_turn(&self) -> Result<(), Trouble> {
        let longest = match self.ask(Request::read(), Command::Settings).await? {
            Reply::Settings(settings) => settings.max_ttl_ms,
            _ => u64::MAX,
        };
        let ttl = u64::try_from(TURN.as_millis()).unwrap_or(u64::MAX).min(longest);
        let (holder, agent, key) = (self.me.clone(), self.source.clone(), self.turn());
        let acquire = Command::Acquire { holder, agent, key, ttl_ms: Some(ttl) };
        match self.ask(Request::once(Uuid::now_v7()), acquire).await {
            Ok(_) => Ok(()),
            Err(refusal) if refusal.code == Code::LockHeld => Err(Trouble::Taken),
            Err(refusal) => Err(refusal.into()),
        }
    }

    async fn ask(&self, request: Request, command: Command) -> Result<Reply, Refusal> {
        let locks = EntityKey::of(Kind::Lockspace, &self.swarm);
        self.service.entities().ask::<Lockspace>(&locks, request, command).await?.granted()
    }
}

#[cfg(test)]
mod tests;
