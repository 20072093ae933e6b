//! Has X send what happens around the accounts that the settings name, as the node starts (spec: Action Llama 8.2).
//!
//! It is done as well as it can be: what fails holds up nothing, is told, and is tried again ever more seldom.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use secrecy::{ExposeSecret, SecretString};
use skein_shared::Refusal;
use skein_shared::id::Name;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::config::Source;
use crate::service::Service;
use crate::x::{Api, Error};

/// Pause before the next try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);
/// Between two tries to keep a token that only this process knows.
const KEEP_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    X(#[from] Error),
    #[error("{0}")]
    Secret(#[from] Refusal),
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
    let subscriber = Subscriber { api, given, key: format!("x_refresh_token.{source}"), swarm, service };
    let subscriber = Arc::new(subscriber);
    let mut pause = FIRST_PAUSE;
    loop {
        match subscriber.subscribe(exchanges).await {
            Ok(true) => return info!(%source, "X sends from now on what happens around its account"),
            Ok(false) => return info!(%source, "X sends what happens around its account"),
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
    /// The refresh token of the settings, which is good once.
    given: SecretString,
    /// Under which the newest one is kept, among the secrets of the swarm.
    key: String,
    swarm: Name,
    service: Service,
}

impl Subscriber {
    /// Says whether the subscription is new.
    async fn subscribe(self: &Arc<Self>, exchanges: &TaskTracker) -> Result<bool, Trouble> {
        let webhook = self.api.webhook().await?;
        // In a task of its own: X's answer has the only token that it takes from now on, also while the node ends.
        let this = Arc::clone(self);
        let exchange = exchanges.spawn(async move { this.access_token().await });
        let access = exchange.await.map_err(|panic| Trouble::Broken(panic.to_string()))??;
        Ok(self.api.subscribe(&webhook, &access).await?)
    }

    /// Uses the newest refresh token, and keeps the next. Another coordinator may have used it a moment ago, and whoever
    /// has authorised the app anew has set another one.
    async fn access_token(&self) -> Result<SecretString, Trouble> {
        let mut used: Vec<SecretString> = Vec::new();
        let mut reason = String::new();
        loop {
            let kept = self.service.kept_secret(&self.swarm, &self.key).await?;
            let candidates = kept.into_iter().chain([self.given.clone()]);
            let is_new = |token: &SecretString| {
                used.iter().all(|other| other.expose_secret() != token.expose_secret())
            };
            let Some(token) = candidates.into_iter().find(is_new) else {
                return Err(Trouble::Unauthorised(reason));
            };
            match self.api.refresh(&token).await {
                Ok(tokens) => {
                    self.keep(&tokens.refresh).await;
                    return Ok(tokens.access);
                }
                Err(problem) if problem.is_final() => {
                    reason = problem.to_string();
                    used.push(token);
                }
                Err(problem) => return Err(problem.into()),
            }
        }
    }

    /// Only this process knows the token, and X takes no older one: so it goes on until it is kept.
    async fn keep(&self, token: &SecretString) {
        while let Err(refusal) = self.service.keep_secret(&self.swarm, &self.key, token).await {
            warn!(key = self.key, %refusal, "the next refresh token for X is not kept yet; trying again");
            tokio::time::sleep(KEEP_AGAIN).await;
        }
    }
}
