//! How an agent ends: by the word of the runner that had it, or by an operator's where no runner is left to say it.

use serde_json::{Value, json};
use skein_shared::agent::{Agent, Class, Command, Instance, Overview, State};
use skein_shared::fleet::{self, Fleet};
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::schedules::{self, Schedules};
use skein_shared::triggers::{self, Triggers};
use skein_shared::{Code, Refusal};

use super::agents::no_agent;
use super::{Service, unexpected};
use crate::auth::Principal;
use crate::entity::{Entities, Request};

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
        let Some(group) = &overview.group else { return Err(no_agent(agent)) };
        let fleet = EntityKey::fleet(group);
        let fleet::Reply::Overview(fleet) = self.ask::<Fleet>(&fleet, fleet::Command::List).await? else {
            return Err(unexpected("the fleet"));
        };
        let has_it = |shown: &&fleet::RunnerView| shown.runner.offers(Some(&who.swarm), agent);
        let runners: Vec<_> = fleet.runners.iter().filter(has_it).map(|shown| &*shown.runner.name).collect();
        if !runners.is_empty() {
            return Err(still_offered(agent, &runners));
        }
        undefine(&self.entities, &who.swarm, agent).await?;
        Ok(ended_with(&overview))
    }
}

fn still_offered(agent: &Name, runners: &[&str]) -> Refusal {
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
    use std::collections::BTreeSet;

    use skein_shared::agent::{Definition, Reply};

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

        async fn fleet(&self, command: fleet::Command) {
            let key = EntityKey::fleet(&name("elsewhere"));
            self.node.entities.ask::<Fleet>(&key, Request::read(), command).await.unwrap();
        }

        /// As a runner of the group does it that has no room for any run.
        async fn define(&self, runner: &str) {
            self.agent(Command::Define { definition: Definition::default(), group: name("elsewhere") }).await;
            self.fleet(fleet::Command::Register(fleet::Registration {
                runner: runner.to_owned(),
                identity: String::new(),
                slots: 0,
                labels: BTreeSet::new(),
                engines: BTreeSet::new(),
                agents: BTreeSet::from([fleet::Offer::new(&name("default"), &name("worker"))]),
                swarms: BTreeSet::new(),
                held: Vec::new(),
            }))
            .await;
        }

        async fn steer(&self, order: &str) -> Result<Value, Refusal> {
            self.service.steer(&operator(), Uuid::now_v7(), &name("worker"), order.parse::<Steer>()?).await
        }
    }

    #[tokio::test]
    async fn an_agent_is_removed_once_no_runner_has_it_and_what_ends_with_it_is_told() {
        let bed = Bed::new();
        for runner in ["r1", "r2"] {
            bed.define(runner).await;
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

        for gone in ["r1", "r2"] {
            let refused = bed.steer("remove").await.unwrap_err();
            assert_eq!(refused.code, Code::WrongState);
            assert!(
                refused.message.contains(gone) && refused.message.contains("folder of agents"),
                "{refused}"
            );
            bed.fleet(fleet::Command::Leave { runner: gone.to_owned() }).await;
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
