//! Membership: joining, and who there is.

use serde_json::Value;
use skein_shared::id::Kind;
use skein_shared::pool::{Command, Join, MemberView, Pool, Reply};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, Role, policy};

/// What somebody says of itself on joining.
#[derive(Clone, Debug, Default)]
pub struct Introduction {
    pub name: String,
    pub lead: bool,
    pub role: Option<String>,
    pub capabilities: Vec<String>,
    pub description: Option<String>,
    /// Tasks at a time; 1 when nothing is said.
    pub max_tasks: Option<u32>,
}

impl Service {
    /// Makes the caller a member. Joining again under the same name changes nothing and succeeds.
    ///
    /// # Errors
    /// `forbidden` for a lead without the right to lead, `lead_exists`, `already_exists` for a taken name.
    pub async fn join(
        &self,
        who: &Principal,
        request: Uuid,
        introduction: Introduction,
    ) -> Result<(Value, bool), Refusal> {
        policy::require(who, Right::Work)?;
        if introduction.lead && who.role != Role::Lead {
            return Err(Refusal::new(
                Code::Forbidden,
                "your token is a worker's; join with lead: false, or ask the operator for a lead's token",
            ));
        }
        let join = Join {
            agent: who.agent,
            name: introduction.name,
            lead: introduction.lead,
            role: introduction.role,
            capabilities: introduction.capabilities,
            description: introduction.description,
            max_tasks: introduction.max_tasks,
            managed: who.managed,
        };
        let reply = self.change::<Pool>(&who.entity(Kind::Pool), request, Command::Join(join)).await?;
        let Reply::Joined { member, existing } = reply else { return Err(unexpected("the pool")) };
        let shown = self.member_with_profile(who, member.id).await?;
        Ok((shown.unwrap_or_else(|| member_json(&member)), existing))
    }

    /// The caller's own member record, if it has joined.
    pub async fn me(&self, who: &Principal) -> Result<Option<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        self.member_with_profile(who, who.agent).await
    }

    /// The member of this name.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn agent_named(&self, who: &Principal, name: &str) -> Result<Uuid, Refusal> {
        policy::require(who, Right::Read)?;
        let command = Command::Find { name: name.to_owned() };
        match self.ask::<Pool>(&who.entity(Kind::Pool), command).await? {
            Reply::Member(member) => Ok(member.id),
            _ => Err(unexpected("the pool")),
        }
    }

    /// The caller works (again).
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn come_back(&self, who: &Principal, request: Uuid) -> Result<MemberView, Refusal> {
        self.note_presence(who, request, Command::Ping { agent: who.agent, managed: who.managed }).await
    }

    /// The caller stops working. It stays a member, and what was offered to it goes to others.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn go_offline(&self, who: &Principal, request: Uuid) -> Result<MemberView, Refusal> {
        self.note_presence(who, request, Command::Offline { agent: who.agent }).await
    }

    async fn note_presence(
        &self,
        who: &Principal,
        request: Uuid,
        command: Command,
    ) -> Result<MemberView, Refusal> {
        policy::require(who, Right::Work)?;
        match self.change::<Pool>(&who.entity(Kind::Pool), request, command).await? {
            Reply::Member(member) => Ok(member),
            _ => Err(unexpected("the pool")),
        }
    }

    /// How many offers the caller has, and how many tasks are in the pool.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn open_work(&self, who: &Principal) -> Result<(usize, usize), Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Peek { agent: who.agent, instance: who.instance.clone() };
        match self.ask::<Pool>(&who.entity(Kind::Pool), command).await? {
            Reply::Peeked { offers, pool, .. } => Ok((offers, pool)),
            _ => Err(unexpected("the pool")),
        }
    }

    /// Sets how many tasks the caller takes at a time.
    pub async fn set_capacity(
        &self,
        who: &Principal,
        request: Uuid,
        max_tasks: u32,
    ) -> Result<MemberView, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::SetCapacity { agent: who.agent, max_tasks };
        match self.change::<Pool>(&who.entity(Kind::Pool), request, command).await? {
            Reply::Member(member) => Ok(member),
            _ => Err(unexpected("the pool")),
        }
    }
}

pub(super) fn member_json(member: &MemberView) -> Value {
    let status = match (member.offline, member.current) {
        (true, _) => "offline",
        (false, 0) => "idle",
        (false, _) => "busy",
    };
    serde_json::json!({
        "id": member.id, "name": member.name, "isLead": member.lead, "status": status,
        "maxTasks": member.max_tasks, "emptyPollCount": member.empty_polls, "capabilities": [],
    })
}
