//! What a runner may do by its lease, from its first registration to its last word.

use serde_json::json;
use skein_proto::v1::{AgentName, AgentProblem, Refused, Register};
use skein_runner::instance::Instances;
use skein_runner::instance::ledger;
use skein_shared::entity::RunnerCommand;

use super::*;
use crate::stubborn::{begin, has_exited, instances, nth, reign, stubborn, told};

fn started(what: &What) -> bool {
    matches!(what, What::Started(_))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runner_says_that_it_leaves_before_it_ends_anything_and_again_when_all_is_over() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("exec sleep 1000");
    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("registration", |state| state.registrations.len() == 1).await;
    assert_eq!(state.registrations[0].identity.len(), 14, "{:?}", state.registrations[0].identity);
    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), started).await;
    bed.leave().await.unwrap();
    let state = coordinator.until("its words", |state| state.leaving.len() == 2).await;
    assert_eq!(state.leaving, [(false, 1), (true, 2)], "its end came between the two");
    assert!(marked(id(1)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_comes_after_its_stop_is_none() {
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("echo begun >> begun; exec sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    let failed = |what: &What| matches!(what, What::StartFailed(_));
    coordinator.say(stop(id(1), 5)).await;
    let told = coordinator.reported(id(1), failed).await;
    assert_eq!((told.agent.as_str(), told.token), ("worker", token(5)));
    coordinator.say(start(id(1), 4)).await;
    let twice = |state: &coordinator::State| state.reports.len() == 2;
    let state = coordinator.until("the same again", twice).await;
    assert!(state.reports[1].what.as_ref().is_some_and(failed), "{:?}", state.reports);
    // A later one is another attempt.
    coordinator.say(start(id(1), 6)).await;
    coordinator.reported(id(1), started).await;
    assert_eq!(bed.written("begun").await, "begun\n");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_starts_while_the_runner_has_no_lease() {
    let coordinator = Coordinator::open(MCP, 1000).await;
    let mut bed = Bed::new("exec sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), started).await;
    coordinator.behave(|behaviour| behaviour.renew = false);
    until(|| is_frozen(id(1)).then_some(())).await;

    coordinator.say(start(id(2), 1)).await;
    coordinator.say(start(id(3), 1)).await;
    coordinator.say(stop(id(3), 2)).await;
    coordinator.reported(id(3), |what| matches!(what, What::StartFailed(_))).await;
    let waits = coordinator.until("nothing of it", |_| true).await;
    assert!(!waits.reports.iter().any(|report| report.instance == id(2)), "{:?}", waits.reports);
    assert!(marked(id(2)).is_empty());
    coordinator.behave(|behaviour| behaviour.renew = true);
    coordinator.reported(id(2), started).await;
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passes_is_waited_for_at_the_first_registration_and_for_single_agents() {
    let coordinator = Coordinator::open(MCP, 600).await;
    let refused = Refused { code: "unavailable".into(), message: "the fleet is being loaded".into() };
    coordinator.behave(|behaviour| behaviour.refuses = Some(refused));
    let mut bed = Bed::new("exec sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("a second try", |state| state.registrations.len() >= 2).await;
    coordinator.behave(|behaviour| {
        behaviour.refuses = None;
        behaviour.problems = vec![passing("worker")];
    });
    let welcomed = coordinator.until("a sign of life", |state| state.heartbeats > 0).await;
    let more = welcomed.registrations.len() + 1;
    coordinator.until("its agents again", |state| state.registrations.len() >= more).await;
    coordinator.behave(|behaviour| behaviour.problems.clear());
    bed.leave().await.unwrap();
}

fn named(name: &str) -> AgentName {
    AgentName { swarm: "default".into(), name: name.into() }
}

/// What a coordinator says of an agent that it cannot ask just now.
fn passing(name: &str) -> AgentProblem {
    AgentProblem { agent: Some(named(name)), problem: "it is being loaded".into(), again: true }
}

/// Has the coordinator take in what the runner says next as it is, and gives that once the runner knows.
async fn taken_in(coordinator: &Coordinator) -> Register {
    coordinator.behave(|behaviour| behaviour.hesitates = true);
    let waits = coordinator.until("its agents again", |state| state.unanswered > 0).await;
    let before = waits.registrations.len();
    coordinator.behave(|behaviour| {
        behaviour.hesitates = false;
        behaviour.problems.clear();
    });
    let mut answered =
        coordinator.until("its agents again", |state| state.registrations.len() > before).await;
    // It hears one thing after another, and answers this one.
    coordinator.say(stop(id(9), 1)).await;
    coordinator.reported(id(9), |what| matches!(what, What::StartFailed(_))).await;
    answered.registrations.remove(before)
}

/// What the runner says when an agent has come that it did not have before.
async fn said_of_one_more(coordinator: &Coordinator, bed: &Bed) -> Register {
    bed.define("newcomer", "command = ['true']");
    let is_new = |register: &Register| register.agents.iter().any(|agent| agent.name == "newcomer");
    let mut state = coordinator.until("one more", |state| state.registrations.iter().any(is_new)).await;
    state.registrations.pop().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_removal_could_not_be_done_is_removed_again_until_it_is() {
    let coordinator = Coordinator::open(MCP, 600).await;
    let mut bed = Bed::new("exec sleep 1000");
    bed.define("gone", "command = ['true']");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.behave(|behaviour| behaviour.problems = vec![passing("gone")]);
    fs::remove_dir_all(bed.folder.path().join("agents/gone")).unwrap();
    let removes = |register: &&Register| register.removed == [named("gone")];
    let thrice = |state: &coordinator::State| state.registrations.iter().filter(removes).count() >= 3;
    coordinator.until("its removal again", thrice).await;
    assert_eq!(taken_in(&coordinator).await.removed, [named("gone")]);
    assert!(said_of_one_more(&coordinator, &bed).await.removed.is_empty(), "it was gone already");
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_is_taken_in_late_is_started_with_its_runner_all_the_same() {
    let coordinator = Coordinator::open(MCP, 600).await;
    coordinator.behave(|behaviour| behaviour.problems = vec![passing("worker")]);
    let mut bed = Bed::with("exec sleep 1000", "autostart = true");
    bed.run(&coordinator, TOKEN);
    let state = coordinator.until("its agents again", |state| state.registrations.len() >= 3).await;
    let starts = |register: &Register| register.agents.iter().any(|agent| agent.autostart);
    assert!(state.registrations.iter().all(starts), "{:?}", state.registrations);
    assert!(starts(&taken_in(&coordinator).await));
    assert!(!starts(&said_of_one_more(&coordinator, &bed).await), "it would be started twice");
    bed.leave().await.unwrap();
}

/// Has an instance sleep without a process.
async fn spilled(instances: &Arc<Instances>, number: u32) {
    begin(instances, number).await;
    let instance = id(number).to_owned();
    let freeze = RunnerCommand::Freeze { instance: instance.clone(), token: nth(2) };
    for command in [freeze, RunnerCommand::Spill { instance, token: nth(3) }] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    told(instances, |report| report.instance == id(number) && report.what == ledger::What::Spilled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_started_again_while_the_runner_has_no_lease() {
    let bed = Bed::new("exec sleep 1000");
    let (instances, ledger, _lock) = instances(&bed, "woken", stubborn("woken", 0, false));
    for number in [1, 2, 3] {
        spilled(&instances, number).await;
    }
    instances.silence();
    let (token, instance) = (nth(4), |number| id(number).to_owned());
    let input = json!({"type": "resumed"});
    let restore = |number| RunnerCommand::Restore { instance: instance(number), token, input: input.clone() };
    let thaw = RunnerCommand::Thaw { instance: instance(3), token };
    let (token, reason) = (nth(5), "not wanted".to_owned());
    let stop = RunnerCommand::Stop { instance: instance(1), token, reason, grace_ms: 0 };
    let freeze = RunnerCommand::Freeze { instance: instance(2), token };
    for command in [restore(1), restore(2), thaw, stop, freeze] {
        instances.command(command, "", &reign()).await.unwrap();
    }
    told(&instances, has_exited).await;
    told(&instances, |report| report.instance == id(2) && report.token == nth(5)).await;
    assert!([1, 2, 3].iter().all(|number| marked(id(*number)).is_empty()));

    instances.verdict([]);
    let is_restored = |report: &ledger::Report| matches!(report.what, ledger::What::Restored { .. });
    told(&instances, is_restored).await;
    for _ in 0..2 {
        let asleep = instances.tool(id(2), "ls", json!({})).await.unwrap_err();
        assert!(asleep.message.contains("sleeps"), "{asleep:?}");
    }
    instances.leave().await;
    let reports = ledger.reports(0, 100).await.unwrap();
    let restored: Vec<_> = reports.iter().filter(|(_, report)| is_restored(report)).collect();
    assert!(matches!(restored[..], [(_, report)] if report.instance == id(3)), "{restored:?}");
}
