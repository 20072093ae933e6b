//! How an agent ends: by the word of the runner that had it, or by an operator's where no runner is left to say it.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::agent::{Agent, Class, Command, Instance, Overview, State};
use skein_shared::fleet::Offer;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::schedules::{self, Schedules};
use skein_shared::triggers::{self, Triggers};
use skein_shared::{Code, Refusal};

use super::Service;
use super::agents::no_agent;
use super::lists::incomplete;
use crate::auth::Principal;
use crate::entity::{Entities, Request};
use crate::projection::{Freshness, Order, Query};

/// Undefines an agent: its runs end, its queue becomes dead letters, and nothing starts it. Done once more it changes
/// nothing.
///
/// # Errors
/// When not all that starts it can be told. It is still defined then, and the removal can be repeated.
pub async fn undefine(entities: &Entities, swarm: &Name, agent: &Name) -> Result<(), Refusal> {
    // First what would start it.
    let command = triggers::Command::Subscribe { agent: agent.clone(), filters: Vec::new() };
    entities.ask::<Triggers>(&EntityKey::of(Kind::Triggers, swarm), Request::read(), command).await?;
    let command = schedules::Command::Follow { agent: agent.clone(), cron: None, zone: String::new() };
    entities.ask::<Schedules>(&EntityKey::of(Kind::Schedules, swarm), Request::read(), command).await?;
    let key = EntityKey::agent(swarm, agent);
    entities.ask::<Agent>(&key, Request::read(), Command::Undefine).await.map(|_| ())
}

impl Service {
    /// Undefines an agent that no runner has. Gives what ends with it.
    ///
    /// # Errors
    /// `not_found` when it is not defined; `wrong_state` while a runner has it, which would define it again.
    pub(super) async fn remove_agent(&self, who: &Principal, agent: &Name) -> Result<Value, Refusal> {
        let overview = self.agent_overview(who, agent).await?;
        if overview.group.is_none() {
            return Err(no_agent(agent));
        }
        let runners = self.runners_with(&who.swarm, agent).await?;
        if !runners.is_empty() {
            return Err(still_offered(agent, &runners));
        }
        undefine(&self.entities, &who.swarm, agent).await?;
        Ok(ended_with(&overview))
    }

    /// The runners that have an agent, of whatever group: the agent is in the one whose runner has spoken last, and any
    /// of them would define it again.
    ///
    /// # Errors
    /// `unavailable` while not all runners can be listed.
    async fn runners_with(&self, swarm: &Name, agent: &Name) -> Result<Vec<String>, Refusal> {
        let mut query = Query::new(&EntityKey::fleet(swarm).swarm, Kind::Fleet, "runner");
        query.live = Some(true);
        // Two groups may have runners of one name.
        query.order = vec![Order::ascending("runner")?, Order::ascending("registeredAt")?];
        let mut found = Vec::new();
        loop {
            let (rows, freshness) = self.entities.list_everywhere(query.clone()).await?;
            if freshness != Freshness::Fresh {
                return Err(incomplete());
            }
            let has_it = rows.iter().filter(|runner| has(runner, swarm, agent));
            found.extend(has_it.filter_map(|runner| runner["runner"].as_str().map(str::to_owned)));
            match rows.last().filter(|_| rows.len() >= query.limit) {
                Some(last) => query.after = query.place(last),
                None => return Ok(found),
            }
        }
    }
}

/// Whether a runner's document names an agent among those that it has. One that cannot be read may have any.
fn has(runner: &Value, swarm: &Name, agent: &Name) -> bool {
    let offers = BTreeSet::<Offer>::deserialize(&runner["agents"]);
    offers.map_or(true, |offers| offers.iter().any(|offer| offer.is_of(Some(swarm), agent)))
}

fn still_offered(agent: &Name, runners: &[String]) -> Refusal {
    let runners = runners.join(", ");
    let problem = format!(
        "`{agent}` has a definition on {runners} and would be defined again as soon as that registers; take it out of the \
         folder of agents there, which removes it here too, or stop the runner first; one that has gone without a word \
         counts as there until it is declared lost, so try again in half a minute then"
    );
    Refusal::new(Code::WrongState, problem)
}

/// What there was of it just before: its removal makes an end of all that.
fn ended_with(last: &Overview) -> Value {
    let is_queued = |run: &&Instance| run.state == State::Queued;
    let queued = |call: bool| {
        let runs = last.instances.iter().filter(is_queued);
        runs.filter(|run| !run.external && (run.class == Class::Call) == call).count()
    };
    let started = last.instances.iter().filter(|run| !run.external && !is_queued(run));
    let usual = last.definition.as_ref().is_some_and(|definition| definition.cancel_children);
    let with_children = |run: &&Instance| run.terms.map_or(usual, |terms| terms.cancel_children);
    json!({
        "runsEnded": started.clone().count(), "runsEndedWithTheirChildren": started.filter(with_children).count(),
        "callsFailed": queued(true), "newDeadLetters": queued(false),
    })
}

#[cfg(test)]
mod tests {
    use skein_shared::agent::{Definition, Reply};
    use skein_shared::fleet::{self, Fleet};
    use uuid::Uuid;

    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{Node, node};
    use crate::service::agents::Steer;

    fn name(text: &str) -> Name {
        Name::parse(text).unwrap()
    }

    fn operator() -> Principal {
        Principal::named("operator", Role::Operator)
    }

    struct Bed {
        node: Node,
        service: Service,
    }

    impl Bed {
        fn new() -> Self {
            let node = node();
            let service = Service::new(node.entities.clone());
            Self { node, service }
        }

        async fn agent(&self, command: Command) -> Reply {
            let key = EntityKey::agent(&name("default"), &name("worker"));
            self.node.entities.ask::<Agent>(&key, Request::read(), command).await.unwrap()
        }

        async fn fleet(&self, group: &str, command: fleet::Command) {
            let key = EntityKey::fleet(&name(group));
            self.node.entities.ask::<Fleet>(&key, Request::read(), command).await.unwrap();
        }

        /// As a runner of the group does it that has no room for any run.
        async fn define(&self, group: &str, runner: &str) {
            self.agent(Command::Define { definition: Definition::default(), group: name(group) }).await;
            let registration = fleet::Registration {
                runner: runner.to_owned(),
                identity: String::new(),
                slots: 0,
                labels: BTreeSet::new(),
                engines: BTreeSet::new(),
                agents: BTreeSet::from([Offer::new(&name("default"), &name("worker"))]),
                swarms: BTreeSet::new(),
                held: Vec::new(),
            };
            self.fleet(group, fleet::Command::Register(registration)).await;
        }

        async fn steer(&self, order: &str) -> Result<Value, Refusal> {
            self.service.steer(&operator(), Uuid::now_v7(), &name("worker"), order.parse::<Steer>()?).await
        }
    }

    #[tokio::test]
    async fn an_agent_is_removed_once_no_runner_has_it_and_what_ends_with_it_is_told() {
        let bed = Bed::new();
        // The agent is in the group of the one that was the last to speak.
        let runners = [("elsewhere", "r1"), ("elsewhere", "r2"), ("default", "r3")];
        for (group, runner) in runners {
            bed.define(group, runner).await;
        }
        for number in 0..3 {
            let input = json!({ "number": number });
            let source = "test".to_owned();
            bed.agent(Command::Enqueue { class: Class::Manual, source, receipt: None, input }).await;
        }
        let cron = Some("0 9 * * *".to_owned());
        let follow = schedules::Command::Follow { agent: name("worker"), cron, zone: "UTC".to_owned() };
        let schedules = EntityKey::of(Kind::Schedules, &name("default"));
        bed.node.entities.ask::<Schedules>(&schedules, Request::read(), follow).await.unwrap();

        for (group, gone) in runners.into_iter().rev() {
            let refused = bed.steer("remove").await.unwrap_err();
            assert_eq!(refused.code, Code::WrongState);
            assert!(
                refused.message.contains(gone) && refused.message.contains("folder of agents"),
                "{refused}"
            );
            bed.fleet(group, fleet::Command::Leave { runner: gone.to_owned() }).await;
        }
        let removed = bed.steer("remove").await.unwrap();
        let ended = json!({
            "runsEnded": 0, "runsEndedWithTheirChildren": 0, "callsFailed": 0, "newDeadLetters": 3,
        });
        assert_eq!(removed, ended);
        let Reply::Overview(left) = bed.agent(Command::List).await else { panic!("no overview") };
        assert_eq!((left.definition, left.instances.len(), left.letters), (None, 0, 3));
        let (enabled, name, one_time, hide_completed, soonest) = (None, None, None, false, false);
        let after = String::new();
        let listed = schedules::Command::List { enabled, name, one_time, hide_completed, soonest, after };
        let listed = bed.node.entities.ask::<Schedules>(&schedules, Request::read(), listed).await.unwrap();
        assert!(!format!("{listed:?}").contains("worker"), "{listed:?}");
        assert_eq!(bed.steer("remove").await.unwrap_err().code, Code::NotFound);
    }
}
