//! What members say of themselves, and what they said before.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use similar::TextDiff;
use skein_shared::id::Kind;
use skein_shared::pool::{Command, Pool, Profile, Reply};
use skein_shared::profiles::{self, Edit, Field, Latest, Profiles};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::lists::List;
use super::read::id_of;
use super::swarm::member_json;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Order, Query, Test};

/// Lines around each change of a difference.
const CONTEXT: usize = 3;

/// How long a change waits for its versions. They are a moment away, unless their owner has just been lost.
const FOLLOWS: Duration = Duration::from_secs(2);

type Versions = BTreeMap<Field, Latest>;

/// What a version of a text changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub field: String,
    /// The version that it is held against; 0 is an empty text before the first one.
    pub from: u64,
    pub to: u64,
    /// A unified diff; `None` when both say the same.
    pub diff: Option<String>,
    pub source: String,
    pub created_at: String,
}

impl Service {
    /// Changes what the caller says of itself.
    ///
    /// # Errors
    /// `not_joined`, `already_exists` for a taken name, `too_large`.
    pub async fn describe(&self, who: &Principal, request: Uuid, profile: Profile) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.described(who, request, who.agent, None, profile).await
    }

    /// Changes what is said of a member, with who has changed it and why. It does so itself, or the lead or an operator
    /// does.
    ///
    /// # Errors
    /// `forbidden` for another one unless the caller leads or administers; those of [`Self::describe`].
    pub async fn describe_member(
        &self,
        who: &Principal,
        request: Uuid,
        (agent, edit): (Uuid, Edit),
        profile: Profile,
    ) -> Result<Value, Refusal> {
        match who.as_agent() == Some(agent) {
            true => policy::require(who, Right::Work)?,
            false => self.require_lead(who).await?,
        }
        self.described(who, request, agent, Some(Box::new(edit)), profile).await
    }

    async fn described(
        &self,
        who: &Principal,
        request: Uuid,
        agent: Uuid,
        edit: Option<Box<Edit>>,
        profile: Profile,
    ) -> Result<Value, Refusal> {
        let pool = who.entity(Kind::Pool);
        let texts = self.body(&pool, &format!("profile/{agent}")).await?;
        let before = Box::new(texts.map(|texts| texts_of(&texts)).unwrap_or_default());
        let known = self.latest_versions(who, agent).await?;
        let command = Command::Describe { agent, profile: profile.clone(), before, edit };
        match self.change::<Pool>(&pool, request, command).await? {
            Reply::Member(member) => {
                // It is said, whether its versions and the whole of it can be looked at or not.
                let _ = self.versions_follow(who, agent, &profile, &known).await;
                let shown = self.member_with_profile(who, member.id).await.unwrap_or_default();
                Ok(shown.unwrap_or_else(|| member_json(&member)))
            }
            _ => Err(unexpected("the pool")),
        }
    }

    /// Waits until what was said of a member is kept as versions: they come after, by an effect of the pool, and who
    /// looks for them next is to see them.
    async fn versions_follow(
        &self,
        who: &Principal,
        agent: Uuid,
        said: &Profile,
        known: &Versions,
    ) -> Result<(), Refusal> {
        let followed = |versions: &Versions| {
            said.texts().into_iter().filter_map(|(field, text)| Some((field, text?))).all(|(field, text)| {
                let now = versions.get(&field);
                // Or another change has come on top of it.
                now.is_some_and(|now| now.says(text))
                    || now.map(|now| now.id) != known.get(&field).map(|was| was.id)
            })
        };
        let topic = BTreeSet::from([who.entity(Kind::Profiles).to_string()]);
        let ask = || async { Ok(followed(&self.latest_versions(who, agent).await?).then_some(())) };
        self.until(who, topic, FOLLOWS, ask).await.map(|_| ())
    }

    async fn latest_versions(&self, who: &Principal, agent: Uuid) -> Result<Versions, Refusal> {
        let command = profiles::Command::Latest { agent };
        match self.ask::<Profiles>(&who.entity(Kind::Profiles), command).await? {
            profiles::Reply::Latest(versions) => Ok(versions),
            profiles::Reply::Done => Err(unexpected("the profiles")),
        }
    }

    /// The versions of a member's texts, without the texts: of one field the newest first, else by time.
    ///
    /// # Errors
    /// `forbidden` for another member's, unless the caller leads; `not_found` for a stranger.
    pub async fn profile_history(
        &self,
        who: &Principal,
        agent: Option<Uuid>,
        field: Option<Field>,
        limit: usize,
    ) -> Result<List, Refusal> {
        let agent = agent.unwrap_or(who.agent);
        self.may_see_profile(who, agent).await?;
        if self.member(who, agent).await?.is_none() {
            let sentence = format!("no agent {agent} is in this swarm; get-swarm lists those that are");
            return Err(Refusal::new(Code::NotFound, sentence));
        }
        let mut query = Query::new(&who.swarm, Kind::Profiles, "version");
        query.filters = vec![Filter::new("agentId", Test::Eq(json!(agent)))?];
        if let Some(field) = field {
            query.filters.push(Filter::new("field", Test::Eq(json!(field)))?);
        }
        // A first change makes two versions in one moment: what the text was until then, and what it is now.
        let newest = [field.is_none().then_some("createdAt"), Some("version")];
        query.order = newest.into_iter().flatten().map(Order::descending).collect::<Result<_, _>>()?;
        query.limit = limit;
        self.list(&who.entity(Kind::Profiles), query).await
    }

    /// What a version changed, compared with another one of the same text or with the one before it.
    ///
    /// # Errors
    /// `not_found` for versions that are not kept (any more); `forbidden` for another member's, unless the caller
    /// leads; `invalid_argument` for versions of different texts.
    pub async fn profile_diff(
        &self,
        who: &Principal,
        version: Uuid,
        compare_to: Option<Uuid>,
    ) -> Result<Difference, Refusal> {
        let new = self.profile_version(who, version).await?;
        let agent = id_of(&new, "agentId").unwrap_or_default();
        self.may_see_profile(who, agent).await?;
        let old = match compare_to.or_else(|| id_of(&new, "previousVersionId")) {
            Some(old) => Some((self.profile_version(who, old).await?, self.version_text(who, old).await?)),
            None => None,
        };
        if let Some((old, _)) = &old
            && (old["agentId"] != new["agentId"] || old["field"] != new["field"])
        {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "both versions must be of the same agent and field; context-history lists those that are",
            ));
        }
        let to = self.version_text(who, version).await?;
        let from = old.as_ref().map(|(_, text)| text.as_str()).unwrap_or_default();
        let text = |field: &str| new[field].as_str().unwrap_or_default().to_owned();
        Ok(Difference {
            field: text("field"),
            from: old.as_ref().and_then(|(old, _)| old["version"].as_u64()).unwrap_or_default(),
            to: new["version"].as_u64().unwrap_or_default(),
            diff: unified(from, &to),
            source: text("changeSource"),
            created_at: text("createdAt"),
        })
    }

    async fn may_see_profile(&self, who: &Principal, agent: Uuid) -> Result<(), Refusal> {
        policy::require(who, Right::Read)?;
        if agent == who.agent || self.caller(who).await?.lead {
            return Ok(());
        }
        Err(Refusal::new(Code::Forbidden, "only the lead may look at another agent's texts; ask it to"))
    }

    async fn profile_version(&self, who: &Principal, id: Uuid) -> Result<Value, Refusal> {
        let version = self.body(&who.entity(Kind::Profiles), &format!("version/{id}")).await?;
        version.ok_or_else(|| not_kept(id))
    }

    async fn version_text(&self, who: &Principal, id: Uuid) -> Result<String, Refusal> {
        let text = self.body(&who.entity(Kind::Profiles), &format!("text/{id}")).await?;
        Ok(text.ok_or_else(|| not_kept(id))?["content"].as_str().unwrap_or_default().to_owned())
    }
}

fn not_kept(version: Uuid) -> Refusal {
    let sentence = format!("no version {version} is kept; context-history lists those that are");
    Refusal::new(Code::NotFound, sentence)
}

/// The texts of a stored profile.
fn texts_of(body: &Value) -> Profile {
    let text = |field: &str| body[field].as_str().map(str::to_owned);
    Profile {
        claude_md: text("claudeMd"),
        soul_md: text("soulMd"),
        identity_md: text("identityMd"),
        setup_script: text("setupScript"),
        tools_md: text("toolsMd"),
        ..Profile::default()
    }
}

fn unified(from: &str, to: &str) -> Option<String> {
    if from == to {
        return None;
    }
    let diff = TextDiff::from_lines(from, to);
    Some(diff.unified_diff().context_radius(CONTEXT).header("old", "new").to_string())
}
