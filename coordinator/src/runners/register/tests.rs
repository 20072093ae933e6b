use tokio::time::timeout;

use super::*;
use crate::entity::tests::{Node, node, poison};
use crate::store::memory::{Fault, Gate};

fn agent(name: &str) -> AgentDefinition {
    AgentDefinition {
        name: name.to_owned(),
        swarm: "default".to_owned(),
        instances: 1,
        timeout_ms: 60_000,
        wait_timeout_ms: 60_000,
        role: "worker".to_owned(),
        autostart: true,
        zone: "UTC".to_owned(),
        ..Default::default()
    }
}

fn registration(incarnation: u64, agents: Vec<AgentDefinition>) -> Register {
    let (name, group) = ("r1".to_owned(), "default".to_owned());
    Register { name, group, slots: 4, agents, incarnation, ..Default::default() }
}

async fn overview(node: &Node, name: &str) -> Box<agent::Overview> {
    let key = agent_key(&agent(name)).unwrap();
    match node.entities.ask::<Agent>(&key, Request::read(), agent::Command::List).await.unwrap() {
        agent::Reply::Overview(overview) => overview,
        other => panic!("{other:?}"),
    }
}

/// What of an agent runs or waits to.
async fn runs(node: &Node, name: &str) -> usize {
    overview(node, name).await.instances.len()
}

#[tokio::test]
async fn an_agent_that_is_refused_keeps_no_other_from_running_and_is_told_of() {
    let node = node();
    let spoilt = AgentDefinition { schedule: "every other day".to_owned(), ..agent("spoilt") };
    let mistyped = AgentDefinition {
        subscriptions: vec![r#"{"source":"github","repo":["a/b"]}"#.to_owned()],
        ..agent("mistyped")
    };
    let all = registration(1, vec![spoilt, mistyped, agent("good")]);
    let registered = register(&node.entities, &all).await.unwrap();
    let told: Vec<_> = registered.problems.iter().map(|one| one.agent.clone().unwrap().name).collect();
    assert_eq!(told, ["spoilt", "mistyped"]);
    assert!(registered.problems.iter().all(|one| !one.again), "{:?}", registered.problems);
    autostart(&node.entities, &all).await;
    assert_eq!(runs(&node, "good").await, 1);
    assert_eq!(runs(&node, "mistyped").await, 1, "all of it but its subscriptions");
    assert_eq!(runs(&node, "spoilt").await, 0);
}

#[tokio::test]
async fn an_agent_that_somebody_has_disabled_turns_no_runner_away() {
    let node = node();
    let both = || vec![agent("idle"), agent("good")];
    register(&node.entities, &registration(1, both())).await.unwrap();
    let key = agent_key(&agent("idle")).unwrap();
    let disable = agent::Command::SetEnabled { enabled: false };
    node.entities.ask::<Agent>(&key, Request::read(), disable).await.unwrap();
    let anew = registration(2, both());
    register(&node.entities, &anew).await.unwrap();
    autostart(&node.entities, &anew).await;
    assert_eq!((runs(&node, "idle").await, runs(&node, "good").await), (0, 1));
}

#[tokio::test]
async fn an_agent_of_no_instances_is_taken_in_and_takes_no_work() {
    let node = node();
    let none = AgentDefinition { instances: 0, ..agent("idle") };
    let all = registration(1, vec![none, agent("good")]);
    let registered = register(&node.entities, &all).await.unwrap();
    assert_eq!(registered.problems, []);
    autostart(&node.entities, &all).await;
    assert_eq!((runs(&node, "idle").await, runs(&node, "good").await), (0, 1));
    let idle = overview(&node, "idle").await;
    assert_eq!(idle.definition.map(|definition| definition.scale), Some(0));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_cannot_be_loaded_is_tried_again_and_keeps_no_other_from_starting() {
    let node = node();
    poison(&node, agent_key(&agent("broken")).unwrap()).await;
    let all = registration(1, vec![agent("broken"), agent("good")]);
    let registered = register(&node.entities, &all).await.unwrap();
    let [problem] = registered.problems.as_slice() else { panic!("{:?}", registered.problems) };
    assert!(problem.again && problem.agent.as_ref().is_some_and(|agent| agent.name == "broken"));
    let starting = timeout(PAUSE * 3, autostart(&node.entities, &all)).await;
    assert!(starting.is_err(), "it was given up");
    assert_eq!(runs(&node, "good").await, 1);
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_answer_keeps_its_runner_waiting_for_no_longer_than_that_bears() {
    let (node, gate) = (node(), Gate::default());
    register(&node.entities, &registration(1, Vec::new())).await.unwrap();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let all = registration(2, vec![agent("slow"), agent("good")]);
    let registered = timeout(PATIENCE * 2, register(&node.entities, &all)).await.unwrap().unwrap();
    let [problem] = registered.problems.as_slice() else { panic!("{:?}", registered.problems) };
    assert!(problem.again && problem.problem.contains("has not answered in time"), "{problem:?}");
    gate.open();
    let again = register(&node.entities, &all).await.unwrap();
    assert_eq!(again.problems, []);
}

#[tokio::test]
async fn an_agent_that_has_moved_to_another_group_stays_when_its_former_runner_has_it_no_more() {
    let node = node();
    let says = |name: &str, group: &str, agents: Vec<AgentDefinition>| {
        let removed = if agents.is_empty() { vec![named(&agent("good"))] } else { Vec::new() };
        let (name, group) = (name.to_owned(), group.to_owned());
        Register { name, group, removed, ..registration(1, agents) }
    };
    register(&node.entities, &says("r1", "a", vec![agent("good")])).await.unwrap();
    register(&node.entities, &says("r2", "b", vec![agent("good")])).await.unwrap();
    register(&node.entities, &says("r1", "a", Vec::new())).await.unwrap();
    let moved = overview(&node, "good").await;
    assert!(moved.definition.is_some() && moved.group == Some(Name::parse("b").unwrap()), "{moved:?}");
    register(&node.entities, &says("r2", "b", Vec::new())).await.unwrap();
    assert_eq!(overview(&node, "good").await.definition, None, "nobody has it any more");
}

#[tokio::test]
async fn a_runner_that_is_refused_for_its_name_changes_no_agent() {
    let node = node();
    let says = |identity: &str, instances: u32| {
        let good = AgentDefinition { instances, ..agent("good") };
        Register { identity: identity.to_owned(), ..registration(1, vec![good]) }
    };
    register(&node.entities, &says("one", 1)).await.unwrap();
    let Err(refused) = register(&node.entities, &says("two", 2)).await else {
        panic!("a second runner of the name was taken in")
    };
    assert_eq!(refused.code, Code::AlreadyExists, "{refused}");
    assert_eq!(overview(&node, "good").await.definition.unwrap().scale, 1);
    register(&node.entities, &says("one", 3)).await.unwrap();
    assert_eq!(overview(&node, "good").await.definition.unwrap().scale, 3);
}

#[test]
fn subscriptions_are_read_as_definitions_spell_them() {
    let wire = |text: &str| AgentDefinition { subscriptions: vec![text.to_owned()], ..Default::default() };
    let read = filters(&wire(r#"{"source":"github","event":"push","match":{"branch":"main"}}"#)).unwrap();
    let [filter] = read.as_slice() else { panic!("one filter") };
    assert_eq!((filter.kind, filter.source.as_deref()), (triggers::FilterKind::Webhook, Some("github")));
    assert_eq!(filter.matches["branch"], "main");
    let mistyped = filters(&wire(r#"{"source":"github","repo":["a/b"]}"#)).unwrap_err();
    assert!(mistyped.message.contains("did you mean `repos`"), "{mistyped}");
}
