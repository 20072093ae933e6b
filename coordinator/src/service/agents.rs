//! What operators see of the agents of a swarm, and how they steer them.

use std::num::NonZeroU32;
use std::str::FromStr;

use futures::stream::{self, StreamExt, TryStreamExt};
use serde_json::{Value, json};
use skein_shared::agent::{Agent, Class, Command, DeadLetter, Instance, Overview, Reply};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name, derived};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{self, Triggers};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Freshness, Order, Query, Test};

/// Agents that are asked at a time.
const AT_ONCE: usize = 16;

/// What an operator wants of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    /// It takes work and starts none.
    Pause,
    Resume,
    Enable,
    /// It takes no work; what waits is ended, what runs goes on.
    Disable,
    /// It is no agent any more, and all of its runs are ended.
    Remove,
}

impl Steer {
    /// Why an agent, as it is shown, does not go on all the same once this is done. `resume_all` says how all agents of
    /// the swarm are resumed, in the words of who is told.
    pub fn still_held(self, agent: &Value, resume_all: &str) -> Option<String> {
        match self {
            Self::Resume if agent["paused"] == true => {
                Some(format!("all agents of the swarm are paused, so it starts nothing before {resume_all}"))
            }
            Self::Enable if agent["scale"] == 0 => {
                let held = "its definition says `instances = 0`, so it takes no work before that is changed";
                Some(held.to_owned())
            }
            _ => None,
        }
    }
}

impl FromStr for Steer {
    type Err = Refusal;

    fn from_str(text: &str) -> Result<Self, Refusal> {
        match text {
            "pause" => Ok(Self::Pause),
            "resume" => Ok(Self::Resume),
            "enable" => Ok(Self::Enable),
            "disable" => Ok(Self::Disable),
            "remove" => Ok(Self::Remove),
            other => Err(Refusal::new(
                Code::InvalidArgument,
                format!("order: `{other}` is none; use pause, resume, enable, disable or remove"),
            )),
        }
    }
}

impl Service {
    /// The agents that runners have defined, by name, with how many of their runs do what.
    ///
    /// # Errors
    /// `unavailable` when not all of them can be asked.
    pub async fn agents(&self, who: &Principal) -> Result<Vec<Value>, Refusal> {
        let names = self.defined_agents(who).await?;
        let asked = stream::iter(names).map(|name| async move {
            let overview = self.agent_overview(who, &name).await?;
            Ok::<_, Refusal>(glance(&name, &overview))
        });
        asked.buffered(AT_ONCE).try_collect().await
    }

    /// Everything live of one agent: its definition, and for itself and those who administer its instances, queue and
    /// waits. These carry what it was asked, what came of it, and events whole.
    ///
    /// # Errors
    /// `not_found` when there is nothing of that name.
    pub async fn agent(&self, who: &Principal, agent: &Name) -> Result<Value, Refusal> {
        let overview = self.agent_overview(who, agent).await?;
        if overview.definition.is_none() && overview.instances.is_empty() {
            return Err(no_agent(agent));
        }
        let mut shown = glance(agent, &overview);
        shown["definition"] = json!(overview.definition);
        shown["standing"] = json!(overview.standing);
        if policy::may(who, Right::Administer) || who.agent_name == *agent {
            shown["instances"] = json!(overview.instances);
            shown["queue"] = json!(overview.queue);
            shown["waits"] = json!(overview.waits);
        }
        Ok(shown)
    }

    /// Steers one agent. Gives what more there is to say of it than that it was done: of one that is removed, what
    /// ended with it.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` when no runner has defined the agent; `wrong_state` for
    /// one that is to be removed while a runner has it.
    pub async fn steer(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        order: Steer,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let command = match order {
            Steer::Pause => Command::SetPaused { paused: true },
            Steer::Resume => Command::SetPaused { paused: false },
            Steer::Enable => Command::SetEnabled { enabled: true },
            Steer::Disable => Command::SetEnabled { enabled: false },
            Steer::Remove => return self.remove_agent(who, agent).await,
        };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await?;
        Ok(json!({}))
    }

    /// Starts a run by hand, with what it is to do if that is said. Gives its instance.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` when no runner has defined the agent; `wrong_state` when
    /// it takes no work, with the reason.
    pub async fn run_agent(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        prompt: Option<&str>,
    ) -> Result<InstanceId, Refusal> {
        policy::require(who, Right::Administer)?;
        let mut input = json!({"type": "manual", "source": "operator"});
        if let Some(prompt) = prompt {
            input["prompt"] = json!(prompt);
        }
        let source = "operator".to_owned();
        let command = Command::Enqueue { class: Class::Manual, source, receipt: None, input };
        match self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await? {
            Reply::Queued { instance } | Reply::Coalesced { instance } => Ok(instance),
            Reply::DeadLettered { reason, .. } => {
                let problem = format!(
                    "`{agent}` has no room for this run ({reason}); it is kept, and `skein dead-letters replay` queues it later"
                );
                Err(Refusal::new(Code::WrongState, problem))
            }
            _ => Err(unexpected("the agent")),
        }
    }

    /// Ends an instance.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found`.
    pub async fn kill(
        &self,
        who: &Principal,
        request: Uuid,
        agent: &Name,
        instance: InstanceId,
        reason: String,
    ) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::Kill { instance, reason };
        self.change::<Agent>(&EntityKey::agent(&who.swarm, agent), request, command).await.map(|_| ())
    }

    /// Ends the runs of an agent that have started. Gives how many there were. What was made by hand no runner can end:
    /// it would go on without its locks.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` when no runner has defined the agent.
    pub async fn kill_runs(&self, who: &Principal, request: Uuid, agent: &Name) -> Result<usize, Refusal> {
        policy::require(who, Right::Administer)?;
        let overview = self.agent_overview(who, agent).await?;
        if overview.definition.is_none() {
            return Err(no_agent(agent));
        }
        let started = |run: &Instance| !run.external && (run.slot || run.state.is_waiting());
        let mut killed = 0;
        for run in overview.instances.into_iter().filter(started) {
            let request = derived(request, run.id.as_str());
            match self.kill(who, request, agent, run.id, "killed by the operator".to_owned()).await {
                Ok(()) => killed += 1,
                // It has ended by itself meanwhile.
                Err(refusal) if refusal.code == Code::NotFound => {}
                Err(refusal) => return Err(refusal),
            }
        }
        Ok(killed)
    }

    /// Pauses all agents of the swarm, those that are not defined yet too, or ends that. Gives how many were told.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `unavailable` when not all agents could be told: repeat it then.
    pub async fn pause_swarm(&self, who: &Principal, request: Uuid, paused: bool) -> Result<usize, Refusal> {
        policy::require(who, Right::Administer)?;
        let pause = triggers::Command::Pause { paused };
        let said = self.change::<Triggers>(&who.entity(Kind::Triggers), request, pause).await?;
        let triggers::Reply::Pause { paused, word } = said else {
            return Err(unexpected("the triggers"));
        };
        // Who is defined from here on asks by itself.
        let names = self.defined_agents(who).await?;
        let count = names.len();
        let told = stream::iter(names).map(|name| async move {
            let command = Command::SetSwarmPaused { paused, word };
            self.ask::<Agent>(&EntityKey::agent(&who.swarm, &name), command).await.map(|_| ())
        });
        told.buffered(AT_ONCE).try_collect::<()>().await?;
        Ok(count)
    }

    /// A dead letter with all that it holds.
    ///
    /// # Errors
    /// `not_found`; `unavailable` while not all nodes can be asked for it.
    pub async fn dead_letter(&self, who: &Principal, letter: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let mut query = Query::new(&who.swarm, Kind::Agent, "dead");
        query.filters.push(Filter::new("id", Test::Eq(json!(letter)))?);
        self.entities.look_up(query).await?.pop().ok_or_else(|| {
            let problem = format!(
                "there is no dead letter {letter} in this swarm; `skein dead-letters list` names them"
            );
            Refusal::new(Code::NotFound, problem)
        })
    }

    /// Queues what a dead letter holds, once. Gives the instance that it becomes.
    ///
    /// # Errors
    /// `wrong_state` when it was replayed before or is too old, and why its agent takes no work.
    pub async fn replay(&self, who: &Principal, request: Uuid, letter: Uuid) -> Result<Value, Refusal> {
        let body = self.dead_letter(who, letter).await?;
        if let Some(instance) = body["replayedAs"].as_str() {
            let problem = format!(
                "dead letter {letter} was replayed already, as {instance}; `skein agent logs {instance}` shows what \
                 came of it"
            );
            return Err(Refusal::new(Code::WrongState, problem));
        }
        let (Some(agent), Some(contents)) = (body["agent"].as_str(), contents(&body)) else {
            let problem =
                format!("dead letter {letter} was written by an older version; it can only be read");
            return Err(Refusal::new(Code::WrongState, problem));
        };
        let key = EntityKey::agent(&who.swarm, &Name::parse(agent)?);
        let command = Command::Replay { letter: Box::new(contents) };
        match self.change::<Agent>(&key, request, command).await? {
            Reply::Queued { instance } | Reply::Coalesced { instance } => {
                Ok(json!({ "letter": letter, "agent": agent, "instance": instance }))
            }
            _ => Err(unexpected("the agent")),
        }
    }

    pub(super) async fn agent_overview(&self, who: &Principal, agent: &Name) -> Result<Overview, Refusal> {
        policy::require(who, Right::Read)?;
        match self.ask::<Agent>(&EntityKey::agent(&who.swarm, agent), Command::List).await? {
            Reply::Overview(overview) => Ok(*overview),
            _ => Err(unexpected("the agent")),
        }
    }

    /// The names of all agents that runners have defined.
    ///
    /// # Errors
    /// `unavailable` while some of them cannot be listed.
    pub async fn defined_agents(&self, who: &Principal) -> Result<Vec<Name>, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = Query::new(&who.swarm, Kind::Agent, "definition");
        query.live = Some(true);
        query.order = vec![Order::ascending("agent")?];
        let mut names = Vec::new();
        loop {
            let (rows, freshness) = self.entities.list_everywhere(query.clone()).await?;
            if freshness != Freshness::Fresh {
                return Err(Refusal::new(
                    Code::Unavailable,
                    "not all agents can be listed yet, since a node is away or has just started; try again in a moment",
                )
                .retry_after(1000));
            }
            for row in &rows {
                names.push(Name::parse(row["agent"].as_str().unwrap_or_default())?);
            }
            match rows.last().filter(|_| rows.len() >= query.limit) {
                Some(last) => query.after = query.place(last),
                None => return Ok(names),
            }
        }
    }
}

pub(super) fn no_agent(agent: &Name) -> Refusal {
    Refusal::new(Code::NotFound, format!("there is no agent `{agent}`; `skein agent list` names them"))
}

/// An agent in one line.
fn glance(agent: &Name, all: &Overview) -> Value {
    let count = |wanted: fn(&Instance) -> bool| all.instances.iter().filter(|run| wanted(run)).count();
    let waiting = count(|run| run.state.is_waiting());
    let queued =
        all.queue.iter().filter(|item| !all.instances.iter().any(|run| run.id == item.instance && run.slot));
    let running = count(|run| run.slot && !run.state.is_waiting());
    let state = match () {
        () if !all.enabled => "disabled",
        () if all.standing.is_paused() => "paused",
        () if running > 0 => "running",
        () if waiting > 0 => "waiting",
        () => "idle",
    };
    let scale = all.definition.as_ref().map(|usual| all.standing.scale.map_or(usual.scale, NonZeroU32::get));
    json!({
        "agent": agent, "state": state, "group": all.group, "queued": queued.count(), "running": running,
        "waiting": waiting, "scale": scale, "scaleOverride": all.standing.scale,
        "deadLetters": all.letters, "enabled": all.enabled, "paused": all.standing.is_paused(),
    })
}

/// What a letter's document holds, for the agent that is to queue it.
fn contents(body: &Value) -> Option<DeadLetter> {
    let field = |name: &str| body[name].clone();
    let at = Timestamp::parse_iso(body["at"].as_str()?)?;
    let letter = json!({
        "id": field("id"), "class": field("class"), "source": field("source"), "receipt": field("receipt"),
        "input": field("input"), "rerun": body["rerun"].as_u64().unwrap_or_default(),
        "reason": field("reason"), "at": at,
    });
    serde_json::from_value(letter).ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use skein_shared::agent::Definition;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::node;
    use crate::entity::{Clock, Entities, Hub};
    use crate::projection::Projection;
    use crate::service::waits::{Waited, Wish};
    use crate::store::memory::Memory;

    fn principal(role: Role) -> Principal {
        Principal::named("somebody", role)
    }

    #[test]
    fn who_lets_an_agent_go_on_that_something_else_holds_is_told_what() {
        let agent = |paused: bool, scale: u32| json!({ "paused": paused, "scale": scale });
        let held = |steer: Steer, agent: &Value| steer.still_held(agent, "you resume all");
        assert!(
            held(Steer::Resume, &agent(true, 1)).is_some_and(|said| said.ends_with("before you resume all"))
        );
        assert!(held(Steer::Enable, &agent(false, 0)).is_some_and(|said| said.contains("instances = 0")));
        for steer in [Steer::Resume, Steer::Enable] {
            assert_eq!(held(steer, &agent(false, 1)), None, "{steer:?}");
        }
        for steer in [Steer::Pause, Steer::Disable, Steer::Remove] {
            assert_eq!(held(steer, &agent(true, 0)), None, "{steer:?}");
        }
    }

    #[tokio::test]
    async fn who_ends_the_runs_of_an_agent_ends_no_hand_made_instance() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let (hand, operator) = (Principal::named("worker", Role::Worker), principal(Role::Operator));
        let define =
            Command::Define { definition: Definition::default(), group: Name::parse("default").unwrap() };
        service.ask::<Agent>(&hand.own_agent(), define).await.unwrap();
        let filter = serde_json::from_value(json!({ "kind": "agent_trigger" })).unwrap();
        let wish = Wish { filter, timeout: None, broadcast: false, look_back: false };
        let waits = service.wait_for_trigger(&hand, Uuid::now_v7(), wish, Duration::ZERO).await;
        assert!(matches!(waits, Ok(Waited::Pending { .. })), "{waits:?}");

        let killed = service.kill_runs(&operator, Uuid::now_v7(), &hand.agent_name).await.unwrap();
        let left = service.agent_overview(&operator, &hand.agent_name).await.unwrap().instances;
        let states: Vec<_> = left.iter().map(|known| (known.external, known.state.as_str())).collect();
        assert_eq!((killed, states), (0, vec![(true, "waiting")]));
    }

    #[tokio::test]
    async fn operators_alone_steer_agents() {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Memory::new(clock.wall()));
        let projection = Projection::open(&folder.path().join("read.db"), store.clone()).unwrap();
        let service = Service::new(Entities::new(store, projection, clock, Hub::default()));
        let (agent, id) = (Name::parse("worker").unwrap(), Uuid::from_u128(1));
        for (role, code) in [
            (Role::Observer, Code::Forbidden),
            (Role::Worker, Code::Forbidden),
            (Role::Lead, Code::Forbidden),
            (Role::Runner, Code::Forbidden),
            // There is no such agent: the right was there.
            (Role::Operator, Code::NotFound),
        ] {
            let who = principal(role);
            let instance = InstanceId("worker-00000001".to_owned());
            let refused = [
                service.run_agent(&who, id, &agent, None).await.err(),
                service.steer(&who, id, &agent, Steer::Disable).await.err(),
                service.steer(&who, id, &agent, Steer::Remove).await.err(),
                service.scale_agent(&who, id, &agent, None).await.err(),
                service.kill(&who, id, &agent, instance, String::new()).await.err(),
                service.replay(&who, id, id).await.err(),
            ];
            let codes = refused.map(|refusal| refusal.map(|refusal| refusal.code));
            assert_eq!(codes, [Some(code); 6], "{role:?}");
        }
    }
}
