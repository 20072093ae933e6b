//! Which agents a runner has, and so which runs may go there.

use super::*;

fn is_offered(bench: &mut Bench<Fleet>, swarm: &str) -> bool {
    let asked = Command::IsOffered { swarm: Some(name(swarm)), agent: name("a") };
    bench.run(asked).unwrap() == Reply::Offered(true)
}

#[test]
fn an_agent_is_offered_as_long_as_some_runner_has_it() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    register(&mut bench, "s", 1);
    let mut without = registration("r", 1);
    without.agents.clear();
    bench.run(Command::Register(without.clone())).unwrap();
    assert!(is_offered(&mut bench, "s"));
    assert!(!is_offered(&mut bench, "other"), "one of its name in another swarm is another agent");
    bench.run(Command::Register(Registration { runner: "s".to_owned(), ..without })).unwrap();
    assert!(!is_offered(&mut bench, "s"));
}

#[test]
fn a_run_goes_to_no_runner_that_has_an_agent_of_its_name_in_another_swarm() {
    let mut bench = fleet();
    let mut other = registration("other", 9);
    other.agents = BTreeSet::from([Offer::new(&name("other"), &name("a"))]);
    bench.run(Command::Register(other)).unwrap();
    bench.run(bid(1, "i1", Class::Manual)).unwrap();
    assert!(grants(&bench).is_empty());
    register(&mut bench, "own", 1);
    assert_eq!(grants(&bench), [(1, "own".to_owned())]);
}

#[test]
fn what_one_runner_offers_is_known_as_long_as_it_is_registered() {
    let mut bench = fleet();
    register(&mut bench, "r", 1);
    let asked =
        |swarm: &str| Command::Offers { runner: "r".to_owned(), agent: Offer::new(&name(swarm), &name("a")) };
    assert_eq!(bench.run(asked("s")).unwrap(), Reply::Offered(true));
    assert_eq!(bench.run(asked("other")).unwrap(), Reply::Offered(false));
    bench.advance(limits::RUNNER_LEASE);
    assert_eq!(bench.run(asked("s")).unwrap_err().code, Code::NotFound);
}

/// Earlier releases wrote no swarm.
#[test]
fn an_agent_without_a_swarm_is_offered_in_any_until_its_runner_registers_again() {
    let mut bench = fleet();
    let mut before = serde_json::to_value(registration("r", 1)).unwrap();
    before["agents"] = serde_json::json!(["a"]);
    bench.run(Command::Register(serde_json::from_value(before).unwrap())).unwrap();
    assert!(bench.restored() == bench.entity, "it is written as it was read");
    assert!(is_offered(&mut bench, "s") && is_offered(&mut bench, "other"));
    register(&mut bench, "r", 1);
    assert!(is_offered(&mut bench, "s") && !is_offered(&mut bench, "other"));
    let asked_before = serde_json::from_value(serde_json::json!({"is_offered": {"agent": "a"}})).unwrap();
    assert_eq!(bench.run(asked_before).unwrap(), Reply::Offered(true));
}
