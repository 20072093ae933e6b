//! The repositories of a swarm: coordinators only know of them.

use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::id::Kind;
use skein_shared::settings::{Command, Reply, RepoSpec, Settings};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

impl Service {
    /// All of them, by name.
    ///
    /// # Errors
    /// When the settings cannot be asked.
    pub async fn repos(&self, who: &Principal) -> Result<Vec<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        match self.ask::<Settings>(&who.entity(Kind::Settings), Command::Repos).await? {
            Reply::Repos(repos) => Ok(repos),
            _ => Err(unexpected("the settings")),
        }
    }

    /// Adds one.
    ///
    /// # Errors
    /// `forbidden` unless the caller leads; `already_exists` for a name, an address or a place that another one has;
    /// `invalid_argument`, also for an address with credentials in it; `queue_full`.
    pub async fn add_repo(&self, who: &Principal, request: Uuid, repo: RepoSpec) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        self.on_repo(who, request, Command::AddRepo { by, repo }).await
    }

    /// Changes what is given.
    ///
    /// # Errors
    /// `not_found`; those of [`Self::add_repo`].
    pub async fn change_repo(
        &self,
        who: &Principal,
        request: Uuid,
        id: Uuid,
        repo: RepoSpec,
    ) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        self.on_repo(who, request, Command::ChangeRepo { by, id, repo }).await
    }

    /// Takes one out, and gives it as it was. What agents have cloned stays with them.
    ///
    /// # Errors
    /// `not_found`; `forbidden` unless the caller leads.
    pub async fn remove_repo(&self, who: &Principal, request: Uuid, id: Uuid) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        self.on_repo(who, request, Command::RemoveRepo { by, id }).await
    }

    async fn on_repo(&self, who: &Principal, request: Uuid, command: Command) -> Result<Value, Refusal> {
        match self.change::<Settings>(&who.entity(Kind::Settings), request, command).await? {
            Reply::Repo(repo) => Ok(repo),
            _ => Err(unexpected("the settings")),
        }
    }
}
