//! Calls between agents.
//!
//! A call lives in the agent that is called, and the caller remembers whom it called: so a bare id is found.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde_json::json;
use skein_shared::agent::{self, Agent, CallView, Command, Reply};
use skein_shared::id::{EntityKey, Kind, Name, derived};
use skein_shared::{Code, Refusal};
use tracing::debug;
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Query, Test};

impl Service {
    /// Calls another agent. The answer comes by [`Service::check_call`]. A call that is refused is listed among the
    /// calls of the swarm, with the reason.
    ///
    /// # Errors
    /// `self_call`, `cycle`, `depth_exceeded`, `queue_full`, `disabled`, `not_found`.
    pub async fn call_agent(
        &self,
        who: &Principal,
        request: Uuid,
        target: &str,
        context: String,
    ) -> Result<CallView, Refusal> {
        policy::require(who, Right::Work)?;
        let target = Name::parse(target)?;
        let answer = self.place_call(who, request, &target, context).await;
        if let Err(refusal) = &answer
            && is_of_the_rules(refusal.code)
        {
            self.note_refused_call(who, request, target, refusal).await;
        }
        answer
    }

    async fn place_call(
        &self,
        who: &Principal,
        request: Uuid,
        target: &Name,
        context: String,
    ) -> Result<CallView, Refusal> {
        let Reply::Instance(instance) = self.ask_own(who, inspect(who)).await? else {
            return Err(unexpected("the agent"));
        };
        let (noted, fades) = (instance.callees.contains(target), instance.is_fading(self.clock().now()));
        let (chain, depth) = (instance.chain, instance.depth);
        let call = derived(request, "call");
        let (agent, instance) = (who.agent_name.clone(), who.instance.clone());
        let caller = agent::Caller { agent, instance, chain, depth };
        let key = EntityKey::agent(&who.swarm, target);
        let command = Command::Call { call, caller, context, noted };
        let Reply::Call(view) = self.change::<Agent>(&key, request, command).await? else {
            return Err(unexpected("the agent"));
        };
        if !noted || fades {
            // The target tells us as well, but later: a question that follows at once must find it. The call is made,
            // whether it could be noted or not.
            let note = Command::NoteCallee { instance: who.instance.clone(), target: target.clone() };
            if let Err(problem) = self.ask::<Agent>(&who.own_agent(), note).await {
                debug!(problem = %problem.message, "whom an agent has called is noted later");
            }
        }
        Ok(view)
    }

    /// It stands with the caller: one that many call, and that is too full to take more, has no work of those that it
    /// refuses. The refusal is the answer, whether it could be noted or not.
    async fn note_refused_call(&self, who: &Principal, request: Uuid, target: Name, refusal: &Refusal) {
        let command = Command::NoteRefusedCall {
            call: derived(request, "refused call"),
            instance: who.instance.clone(),
            target,
            reason: format!("{}: {refusal}", refusal.code.as_str()),
        };
        if let Err(problem) = self.ask::<Agent>(&who.own_agent(), command).await {
            debug!(problem = %problem.message, "a call that was refused is not listed");
        }
    }

    /// Asks how a call stands. Calls of others are as unknown as those that never were.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn check_call(&self, who: &Principal, call: Uuid) -> Result<CallView, Refusal> {
        self.find_call(who, call).await.map(|(_, view)| view)
    }

    /// The same, with the agent that was called.
    pub(super) async fn find_call(
        &self,
        who: &Principal,
        call: Uuid,
    ) -> Result<(EntityKey, CallView), Refusal> {
        policy::require(who, Right::Work)?;
        let check = |key| async move {
            let command = Command::CheckCall { call, instance: who.instance.clone() };
            self.ask::<Agent>(&key, command).await
        };
        self.first_callee(who, call, check).await
    }

    /// Asks the agents that the caller has called, one after the other, until one of them has the call; at last the one
    /// whose call the lists have it for. One that cannot answer hides no call of another; whether the call is with it
    /// is not known, so its refusal is the answer if no other has it.
    async fn first_callee<F>(
        &self,
        who: &Principal,
        call: Uuid,
        ask: impl Fn(EntityKey) -> F,
    ) -> Result<(EntityKey, CallView), Refusal>
    where
        F: Future<Output = Result<Reply, Refusal>>,
    {
        let mut unanswered = None;
        for target in self.callees(who).await? {
            let key = EntityKey::agent(&who.swarm, &target);
            match had(ask(key.clone()).await) {
                Ok(Some(view)) => return Ok((key, view)),
                Ok(None) => {}
                Err(refusal) => unanswered = unanswered.or(Some(refusal)),
            }
        }
        if let Some(refusal) = unanswered {
            return Err(refusal);
        }
        let key = self.listed_callee(who, call).await?.ok_or_else(not_yours)?;
        let view = had(ask(key.clone()).await)?.ok_or_else(not_yours)?;
        Ok((key, view))
    }

    /// The agent at which the caller's instance has a call by the lists. One that was made by hand and silent for long
    /// is forgotten, with whom it has called, and its calls go on.
    async fn listed_callee(&self, who: &Principal, call: Uuid) -> Result<Option<EntityKey>, Refusal> {
        if who.managed {
            return Ok(None);
        }
        let mut query = Query::new(&who.swarm, Kind::Agent, "call");
        query.filters = vec![
            Filter::new("callId", Test::Eq(json!(call)))?,
            Filter::new("callerInstanceId", Test::Eq(json!(who.instance)))?,
        ];
        query.limit = 1;
        let Some(found) = self.entities.look_up(query).await?.pop() else { return Ok(None) };
        let target = Name::parse(found["targetAgent"].as_str().unwrap_or_default())?;
        Ok(Some(EntityKey::agent(&who.swarm, &target)))
    }

    /// Asks for the results of several calls, as soon as one of them is over, or all, or the patience ends.
    ///
    /// # Errors
    /// `not_found` when one of them is not the caller's.
    pub async fn wait_for_calls(
        &self,
        who: &Principal,
        calls: &[Uuid],
        all: bool,
        patience: Duration,
    ) -> Result<Vec<CallView>, Refusal> {
        let seen = Mutex::new(Vec::new());
        let look = || async {
            let views = self.check_calls(who, calls).await?;
            let over = views.iter().filter(|view| view.status.is_over()).count();
            let enough = if all { over == calls.len() } else { over > 0 };
            *seen.lock().unwrap_or_else(PoisonError::into_inner) = views;
            Ok(enough.then_some(()))
        };
        let topics = calls.iter().map(Uuid::to_string).collect();
        self.until(who, topics, patience, look).await?;
        Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    async fn check_calls(&self, who: &Principal, calls: &[Uuid]) -> Result<Vec<CallView>, Refusal> {
        let mut views = Vec::with_capacity(calls.len());
        for call in calls {
            views.push(self.check_call(who, *call).await?);
        }
        Ok(views)
    }

    /// Gives a call up. A run that was started for it alone is stopped.
    ///
    /// # Errors
    /// `not_found`, also for calls of others.
    pub async fn cancel_call(&self, who: &Principal, request: Uuid, call: Uuid) -> Result<CallView, Refusal> {
        policy::require(who, Right::Work)?;
        let cancel = |key| async move {
            let command = Command::CancelCall { call, instance: who.instance.clone() };
            self.change::<Agent>(&key, request, command).await
        };
        self.first_callee(who, call, cancel).await.map(|(_, view)| view)
    }

    /// Sets the line that people see beside the caller's instance.
    pub async fn set_status(&self, who: &Principal, request: Uuid, text: String) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::SetStatus { instance: who.instance.clone(), text };
        self.change_own(who, request, command).await.map(|_| ())
    }

    /// Has the caller's run followed by another once it is done. Gives the how-manieth of at most how many.
    ///
    /// # Errors
    /// `wrong_state` for a run that is never run again; `no_capacity` when it was often enough.
    pub async fn request_rerun(&self, who: &Principal, request: Uuid) -> Result<(u32, u32), Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::RequestRerun { instance: who.instance.clone() };
        match self.change_own(who, request, command).await? {
            Reply::WillRerun { number, most } => Ok((number, most)),
            _ => Err(unexpected("the agent")),
        }
    }

    /// Ends the caller's run with an exit status, whatever its process would have ended with.
    pub async fn finish(&self, who: &Principal, request: Uuid, code: u8) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Finish { instance: who.instance.clone(), code };
        self.change_own(who, request, command).await.map(|_| ())
    }

    /// Kills the caller's run.
    pub async fn shut_down(&self, who: &Principal, request: Uuid, reason: String) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Kill { instance: who.instance.clone(), reason };
        self.change_own(who, request, command).await.map(|_| ())
    }

    /// Asks the caller's own agent about its instance.
    pub(super) async fn ask_own(&self, who: &Principal, command: Command) -> Result<Reply, Refusal> {
        let key = who.own_agent();
        self.known(who, command, |command| self.ask::<Agent>(&key, command)).await
    }

    /// Asks the caller's own agent for a change of its instance that must happen once.
    pub(super) async fn change_own(
        &self,
        who: &Principal,
        request: Uuid,
        command: Command,
    ) -> Result<Reply, Refusal> {
        let key = who.own_agent();
        self.known(who, command, |command| self.change::<Agent>(&key, request, command)).await
    }

    /// Runs of runners are known to their agent before they start; a hand-made token is made known to it when it
    /// turns out that it is not, unless it may only read. To ask again for the same change is safe: what is refused
    /// decided nothing, and no refusal is kept as an answer.
    async fn known<F>(
        &self,
        who: &Principal,
        command: Command,
        ask: impl Fn(Command) -> F,
    ) -> Result<Reply, Refusal>
    where
        F: Future<Output = Result<Reply, Refusal>>,
    {
        if who.managed || policy::require_writable(who).is_err() {
            return ask(command).await;
        }
        match ask(command.clone()).await {
            Err(refusal) if refusal.code == Code::NotFound => {}
            answer => return answer,
        }
        let attach = Command::Attach { instance: who.instance.clone(), agent_id: who.agent };
        self.ask::<Agent>(&who.own_agent(), attach).await?;
        ask(command).await
    }

    /// The agents that the caller's instance has called.
    async fn callees(&self, who: &Principal) -> Result<Vec<Name>, Refusal> {
        match self.ask_own(who, inspect(who)).await? {
            Reply::Instance(instance) => Ok(instance.callees.into_iter().collect()),
            _ => Err(unexpected("the agent")),
        }
    }
}

/// Whether the agent that was called did not take it, where other refusals say that the question was wrong or came to
/// nobody.
fn is_of_the_rules(code: Code) -> bool {
    use Code::{Cycle, DepthExceeded, Disabled, NotFound, QueueFull, SelfCall};
    matches!(code, SelfCall | Cycle | DepthExceeded | QueueFull | Disabled | NotFound)
}

/// The call, if the agent that was asked has it.
fn had(answer: Result<Reply, Refusal>) -> Result<Option<CallView>, Refusal> {
    match answer {
        Ok(Reply::Call(view)) => Ok(Some(view)),
        Ok(_) => Err(unexpected("the agent")),
        Err(refusal) if refusal.code == Code::NotFound => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

fn not_yours() -> Refusal {
    Refusal::new(
        Code::NotFound,
        "this call is not found or not owned by you; use the call_id that call_agent gave to this instance",
    )
}

pub(super) fn inspect(who: &Principal) -> Command {
    Command::Inspect { instance: who.instance.clone() }
}

#[cfg(test)]
mod tests {
    use skein_shared::id::InstanceId;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{Node, node, poison};
    use crate::store::memory::{Fault, Gate};

    fn agent(name: &str) -> Principal {
        Principal::named(name, Role::Worker)
    }

    /// Two agents that are there, the second of which can be called.
    async fn pair(node: &Node) -> (Service, Principal) {
        let service = Service::new(node.entities.clone());
        for name in ["boss", "smith"] {
            service.set_status(&agent(name), Uuid::now_v7(), "here".to_owned()).await.unwrap();
        }
        (service, agent("boss"))
    }

    #[tokio::test]
    async fn a_call_that_was_made_is_made_though_its_caller_cannot_note_it() {
        let node = node();
        let (service, boss) = pair(&node).await;
        let passes = Gate::default();
        passes.open();
        node.store.contents().faults().push(Fault::Slow(passes));
        node.store.contents().faults().push(Fault::Refused);
        let made = service.call_agent(&boss, Uuid::now_v7(), "smith", "go on".to_owned()).await;
        assert!(made.as_ref().is_ok_and(|view| !view.status.is_over()), "{made:?}");
        let noted = service.callees(&boss).await;
        assert!(!noted.as_ref().is_ok_and(|callees| !callees.is_empty()), "the note was to fail: {noted:?}");
    }

    #[tokio::test]
    async fn who_was_forgotten_with_whom_it_called_finds_its_call() {
        let node = node();
        let (service, boss) = pair(&node).await;
        let boss = Principal { instance: InstanceId("token-1".to_owned()), ..boss };
        let (agent_name, instance) = (boss.agent_name.clone(), boss.instance.clone());
        let caller = agent::Caller { agent: agent_name, instance, chain: Vec::new(), depth: None };
        let call = Uuid::now_v7();
        let made = Command::Call { call, caller, context: "go on".to_owned(), noted: true };
        let smith = EntityKey::agent(&boss.swarm, &Name::parse("smith").unwrap());
        service.change::<Agent>(&smith, Uuid::now_v7(), made).await.unwrap();
        assert!(service.callees(&boss).await.unwrap().is_empty(), "nobody has told it");
        assert_eq!(service.check_call(&boss, call).await.unwrap().call_id, call);
        let stranger = service.check_call(&agent("boss"), call).await.unwrap_err();
        assert_eq!(stranger.code, Code::NotFound, "{stranger:?}");
        assert!(service.cancel_call(&boss, Uuid::now_v7(), call).await.unwrap().status.is_over());
    }

    #[tokio::test]
    async fn an_agent_that_cannot_answer_hides_no_call_of_another() {
        let node = node();
        let (service, boss) = pair(&node).await;
        let broken = Name::parse("broken").unwrap();
        let note = Command::NoteCallee { instance: boss.instance.clone(), target: broken.clone() };
        service.ask::<Agent>(&boss.own_agent(), note).await.unwrap();
        poison(&node, EntityKey::agent(&boss.swarm, &broken)).await;
        let made = service.call_agent(&boss, Uuid::now_v7(), "smith", "go on".to_owned()).await.unwrap();
        let callees = service.callees(&boss).await.unwrap();
        assert!(callees.iter().map(Name::as_str).eq(["broken", "smith"]), "{callees:?}");
        assert_eq!(service.check_call(&boss, made.call_id).await.unwrap(), made);
        let cancelled = service.cancel_call(&boss, Uuid::now_v7(), made.call_id).await.unwrap();
        assert!(cancelled.status.is_over(), "{cancelled:?}");
        // Nobody can say that there is no such call.
        let unknown = service.check_call(&boss, Uuid::now_v7()).await.unwrap_err();
        assert_eq!(unknown.code, Code::Internal, "{unknown:?}");
    }
}
