//! Membership: joining, leaving, and who there is.

use serde_json::{Value, json};
use skein_shared::id::{Kind, derived};
use skein_shared::inboxes::{self, Inboxes};
use skein_shared::pool::{Command, Join, MemberView, Pool, Reply, Survey};
use skein_shared::services::{self, Services};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use tracing::debug;
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
    /// Makes the caller a member. Joining again under the same name succeeds, and changes nothing but that a worker may
    /// become the lead of a swarm that has none, and that whoever leads gets what a former lead has left.
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
            texts: None,
        };
        let reply = self.change::<Pool>(&who.entity(Kind::Pool), request, Command::Join(join)).await?;
        let Reply::Joined { member, existing } = reply else { return Err(unexpected("the pool")) };
        let shown = self.member_with_profile(who, member.id).await?;
        Ok((shown.unwrap_or_else(|| member_json(&member)), existing))
    }

    /// Takes a member out of the swarm for good. Its tasks and the offers to it go back to the pool, its name is free,
    /// and so is the lead's place if it led, whose news wait for whoever takes it; its service is not listed any more,
    /// what it has asked is withdrawn, what it has read of the channels is forgotten, and its inboxes at AgentMail are
    /// nobody's. A run of it goes on and has nothing to report on any more; its locks are that run's, and end with it
    /// or by their time. Gives who it was, the tasks that went back, and how many messages of its inbox it leaves
    /// unread: whoever leads next gets those.
    ///
    /// # Errors
    /// `not_found` for who is no member; `forbidden` unless the caller leads or administers, or is the member itself.
    pub async fn remove_member(
        &self,
        who: &Principal,
        request: Uuid,
        which: &Which,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        let agent = match which {
            Which::Id(id) => *id,
            Which::Name(name) => {
                let named = self.agent_named(who, name).await;
                named.map_err(|refusal| no_member(refusal, Code::NotFound, which))?
            }
        };
        let is_own = agent == who.agent && policy::may(who, Right::Work);
        if !is_own {
            self.require_lead(who).await?;
        }
        // Afterwards nothing says any more who it was.
        let known = self.member(who, agent).await?.unwrap_or_default();
        let left = self.change::<Pool>(&who.entity(Kind::Pool), request, Command::Leave { agent }).await;
        match left.map_err(|refusal| no_member(refusal, Code::NotJoined, which))? {
            Reply::Left { returned } => {
                self.drop_service(who, request, agent).await;
                self.withdraw_all_questions(who, derived(request, "questions"), agent).await;
                self.forget_reader(who, request, agent).await;
                self.give_up_inboxes(who, request, agent).await;
                Ok(json!({
                    "id": agent, "name": known["name"], "isLead": known["isLead"], "returnedTasks": returned,
                    "unreadMessages": self.unread_in_inbox(who, agent).await,
                }))
            }
            _ => Err(unexpected("the pool")),
        }
    }

    /// Takes out of the list what an agent that left kept for the others. While the services cannot be asked it stays
    /// there, for the lead to take it out.
    async fn drop_service(&self, who: &Principal, request: Uuid, agent: Uuid) {
        let which = Which::Name(agent.to_string());
        let command = services::Command::Unregister { by: agent, which, lead: false };
        let request = derived(request, "service");
        if let Err(refusal) = self.change::<Services>(&who.entity(Kind::Services), request, command).await
            && refusal.code != Code::NotFound
        {
            debug!(problem = %refusal.message, "the service of an agent that left stays in the list");
        }
    }

    /// None while the inboxes cannot be asked: that undoes nothing of what the answer is about.
    async fn unread_in_inbox(&self, who: &Principal, agent: Uuid) -> Option<u64> {
        let count = inboxes::Command::Count { agent };
        match self.ask::<Inboxes>(&who.entity(Kind::Inboxes), count).await {
            Ok(inboxes::Reply::Count { unread }) => Some(unread),
            _ => None,
        }
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
        Ok(self.member_named(who, name).await?.id)
    }

    /// The same as the pool knows it, whatever lists may show.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn member_named(&self, who: &Principal, name: &str) -> Result<MemberView, Refusal> {
        policy::require(who, Right::Read)?;
        let command = Command::Find { name: name.to_owned() };
        match self.ask::<Pool>(&who.entity(Kind::Pool), command).await? {
            Reply::Member(member) => Ok(member),
            _ => Err(unexpected("the pool")),
        }
    }

    /// How the swarm stands, as the pool knows it, whatever lists may show.
    pub(super) async fn survey(&self, who: &Principal) -> Result<Survey, Refusal> {
        match self.ask::<Pool>(&who.entity(Kind::Pool), Command::Survey).await? {
            Reply::Surveyed(survey) => Ok(survey),
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

    /// The caller as it was: whoever asks for work is at work again. That is noted once for a question, and under an id
    /// of its own: there is no answer to the question yet, and who stops while it stands open has stopped.
    pub(super) async fn awake(&self, who: &Principal, request: Uuid) -> Result<Value, Refusal> {
        let member = self.own_member(who).await?;
        if member["status"] == "offline" {
            self.come_back(who, derived(request, "awake")).await?;
        }
        Ok(member)
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

/// The refusal, unless it has the code by which the pool says that it does not know the member: that is then said in
/// the words of those who remove one.
fn no_member(refusal: Refusal, unknown: Code, which: &Which) -> Refusal {
    if refusal.code != unknown {
        return refusal;
    }
    let problem = format!(
        "`{which}` is no member of this swarm, and nothing was changed; `skein agents list` shows who is"
    );
    Refusal::new(Code::NotFound, problem)
}

pub(super) fn member_json(member: &MemberView) -> Value {
    let status = match (member.offline, member.current) {
        (true, _) => "offline",
        (false, 0) => "idle",
        (false, _) => "busy",
    };
    json!({
        "id": member.id, "name": member.name, "isLead": member.lead, "status": status,
        "maxTasks": member.max_tasks, "emptyPollCount": member.empty_polls, "capabilities": [],
    })
}

#[cfg(test)]
mod tests {
    use skein_shared::channels::Read;
    use skein_shared::pool::{Rules, Target, TaskSpec};

    use super::*;
    use crate::entity::tests::node;
    use crate::service::lists::Page;
    use crate::service::messages::Draft;
    use crate::service::questions;
    use crate::service::tasks::Wanted;

    fn named(name: &str) -> Which {
        Which::Name(name.to_owned())
    }

    async fn joined(service: &Service, name: &str, role: Role) -> Principal {
        let who = Principal::named(name, role);
        let lead = role == Role::Lead;
        let introduction = Introduction { name: name.to_owned(), lead, ..Introduction::default() };
        service.join(&who, Uuid::now_v7(), introduction).await.unwrap();
        who
    }

    #[tokio::test]
    async fn a_member_that_is_removed_gives_its_tasks_and_its_place_back() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = joined(&service, "lead", Role::Lead).await;
        let ann = joined(&service, "ann", Role::Worker).await;
        let bob = joined(&service, "bob", Role::Worker).await;
        let target = Target::Assign { agent: Some(ann.agent) };
        let wanted = Wanted { spec: TaskSpec::new("count"), target, rules: Rules::Plain };
        let sent = service.send_task(&lead, Uuid::now_v7(), wanted).await.unwrap().task;
        let site = services::Register::new(ann.agent, "serve", "http://ann");
        service.register_service(&ann, Uuid::now_v7(), site).await.unwrap();
        let task = Uuid::try_parse(sent["id"].as_str().unwrap()).unwrap();
        let remove =
            async |who: &Principal, which: Which| service.remove_member(who, Uuid::now_v7(), &which).await;

        let removed = remove(&lead, named("ann")).await.unwrap();
        let told = json!({
            "id": ann.agent, "name": "ann", "isLead": false, "returnedTasks": [task], "unreadMessages": 0,
        });
        assert_eq!(removed, told);
        let back = service.get_task(&bob, task).await.unwrap();
        assert_eq!((&back["status"], &back["agentId"]), (&json!("unassigned"), &Value::Null));
        assert!(service.me(&ann).await.unwrap().is_none(), "it still counts as a member");
        let listed = service.list_services(&lead, services::Wanted::default()).await.unwrap().0;
        assert!(listed.is_empty(), "nobody keeps it any more: {listed:?}");
        for which in [named("ann"), Which::Id(ann.agent)] {
            let again = remove(&lead, which).await.unwrap_err();
            assert_eq!(again.code, Code::NotFound);
            assert!(again.message.contains("`skein agents list`"), "{again}");
        }

        let operator = Principal::named("boss", Role::Operator);
        assert_eq!(remove(&operator, named("lead")).await.unwrap()["isLead"], true);
        assert_eq!(service.require_lead(&lead).await.unwrap_err().code, Code::Forbidden);
        joined(&service, "next", Role::Lead).await;
    }

    #[tokio::test]
    async fn the_texts_of_a_worker_that_comes_to_lead_say_so() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = joined(&service, "lead", Role::Lead).await;
        let ann = joined(&service, "ann", Role::Worker).await;
        service.remove_member(&lead, Uuid::now_v7(), &named("lead")).await.unwrap();
        let ann = Principal { role: Role::Lead, ..ann };
        let introduction = Introduction { name: "ann".to_owned(), lead: true, ..Introduction::default() };
        let (shown, existing) = service.join(&ann, Uuid::now_v7(), introduction).await.unwrap();
        assert!(existing && shown["isLead"] == true, "{shown}");
        for (field, says) in [("claudeMd", "You lead this swarm."), ("identityMd", "- Position: lead\n")] {
            assert!(shown[field].as_str().is_some_and(|text| text.contains(says)), "{shown}");
        }
    }

    #[tokio::test]
    async fn what_a_member_that_is_removed_has_asked_is_withdrawn() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = joined(&service, "lead", Role::Lead).await;
        for name in ["ann", "bob"] {
            let asker = joined(&service, name, Role::Worker).await;
            let draft = questions::Draft { question: "Blue?".to_owned(), ..questions::Draft::default() };
            Box::pin(service.ask_question(&asker, Uuid::now_v7(), draft)).await.unwrap();
        }
        service.remove_member(&lead, Uuid::now_v7(), &named("ann")).await.unwrap();
        let listed = async |open: bool| {
            let wanted = questions::Wanted { open, mine: false, page: Page::default() };
            let rows = service.list_questions(&lead, wanted).await.unwrap().rows;
            let row = |question: &Value| (question["agentName"].clone(), question["status"].clone());
            rows.iter().map(row).collect::<Vec<_>>()
        };
        assert_eq!(listed(true).await, [(json!("bob"), json!("open"))]);
        assert_eq!(listed(false).await, [(json!("ann"), json!("withdrawn"))]);
    }

    #[tokio::test]
    async fn what_a_member_that_is_removed_has_read_is_forgotten() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = joined(&service, "lead", Role::Lead).await;
        let ann = joined(&service, "ann", Role::Worker).await;
        for agent in [ann.agent, lead.agent] {
            let draft = Draft { content: "Look.".to_owned(), mentions: vec![agent], ..Draft::default() };
            service.post_message(&lead, Uuid::now_v7(), draft).await.unwrap();
        }
        let read = Read { mentions_only: true, ..Read::new(ann.agent) };
        service.read_messages(&ann, Uuid::now_v7(), read).await.unwrap();
        assert_eq!(service.unread(&ann).await.unwrap(), (1, 0));
        service.remove_member(&lead, Uuid::now_v7(), &named("ann")).await.unwrap();
        joined(&service, "ann", Role::Worker).await;
        assert_eq!(service.unread(&ann).await.unwrap(), (2, 0), "to her all is new, and nothing is for her");
        assert_eq!(service.unread(&lead).await.unwrap(), (0, 0));
    }

    #[tokio::test]
    async fn an_inbox_of_a_member_that_is_removed_is_free_for_others() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let lead = joined(&service, "lead", Role::Lead).await;
        let ann = joined(&service, "ann", Role::Worker).await;
        let bob = joined(&service, "bob", Role::Worker).await;
        let register = async |who: &Principal, inbox: &str| {
            service.register_inbox(who, Uuid::now_v7(), inbox.to_owned(), None).await
        };
        for inbox in ["a@agentmail.to", "b@agentmail.to"] {
            register(&ann, inbox).await.unwrap();
        }
        assert_eq!(register(&bob, "a@agentmail.to").await.unwrap_err().code, Code::Forbidden);
        service.remove_member(&lead, Uuid::now_v7(), &named("ann")).await.unwrap();
        assert_eq!(register(&bob, "A@agentmail.to").await.unwrap().len(), 1);
        joined(&service, "ann", Role::Worker).await;
        assert!(service.inboxes(&ann).await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn the_lead_operators_and_a_member_itself_remove_it_and_nobody_else() {
        let node = node();
        let service = Service::new(node.entities.clone());
        for (name, role) in [("lead", Role::Lead), ("ann", Role::Worker), ("bob", Role::Worker)] {
            joined(&service, name, role).await;
        }
        let ann = Which::Id(Principal::named("ann", Role::Worker).agent);
        for (name, role, refused) in [
            ("bob", Role::Worker, Some(Code::Forbidden)),
            // A lead's token alone makes no lead.
            ("eve", Role::Lead, Some(Code::Forbidden)),
            ("eve", Role::Observer, Some(Code::Forbidden)),
            ("eve", Role::Runner, Some(Code::Forbidden)),
            ("ann", Role::Observer, Some(Code::Forbidden)),
            ("ann", Role::Worker, None),
            // By now she is no member: the right was there.
            ("lead", Role::Lead, Some(Code::NotFound)),
            ("eve", Role::Operator, Some(Code::NotFound)),
        ] {
            let who = Principal::named(name, role);
            let removed = service.remove_member(&who, Uuid::now_v7(), &ann).await;
            assert_eq!(removed.err().map(|refusal| refusal.code), refused, "{name}, {role:?}");
        }
    }
}
