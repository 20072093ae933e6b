//! How many slots an agent and a swarm may have.

use super::*;

#[test]
fn the_scale_of_an_agent_caps_its_slots_and_holds_up_nobody_else() {
    let mut bench = fleet();
    register(&mut bench, "r", 4);
    let scaled = |number: u128, agent: &str| match bid(number, &format!("i{number}"), Class::Call) {
        Command::Bid { bid, swarm, instance, class, needs, affinity, prefers, .. } => Command::Bid {
            bid,
            swarm,
            agent: name(agent),
            instance,
            class,
            scale: 1,
            needs,
            affinity,
            prefers,
        },
        other => other,
    };
    for (number, agent) in [(1, "a"), (2, "a"), (3, "b")] {
        bench.run(scaled(number, agent)).unwrap();
    }
    assert_eq!(numbers(&bench), [1, 3]);
    freed(&mut bench, "i1", false);
    assert_eq!(numbers(&bench), [1, 3, 2]);
}

#[test]
fn a_bid_under_other_terms_has_waited_as_long_and_a_granted_one_stays_granted() {
    let mut bench = fleet();
    register(&mut bench, "r", 4);
    let scaled = |command: Command, new: u32| match command {
        Command::Bid { bid, swarm, agent, instance, class, needs, affinity, prefers, .. } => {
            Command::Bid { bid, swarm, agent, instance, class, scale: new, needs, affinity, prefers }
        }
        other => other,
    };
    for number in [1, 2] {
        bench.run(bid(number, &format!("i{number}"), Class::Call)).unwrap();
    }
    freed(&mut bench, "i2", true);
    let began = bench.now;
    bench.run(scaled(resume(3, "i2"), 1)).unwrap();
    bench.now = bench.now + Duration::from_secs(10);
    bench.run(scaled(resume(3, "i2"), 0)).unwrap();
    assert_eq!(numbers(&bench), [1, 2]);
    let waiting = bench.entity.bids.get(&Uuid::from_u128(3)).cloned().unwrap();
    assert_eq!((waiting.scale, waiting.at), (0, began));
    bench.run(scaled(resume(3, "i2"), 2)).unwrap();
    assert_eq!(numbers(&bench), [1, 2, 3]);
    let events = bench.events.len();
    bench.run(scaled(resume(3, "i2"), 1)).unwrap();
    assert_eq!(bench.events.len(), events, "the grant is on its way");
}

fn of_swarm(swarm: &str, number: u128) -> Command {
    match bid(number, &format!("i{number}"), Class::Call) {
        Command::Bid { bid, agent, instance, class, scale, needs, affinity, prefers, .. } => {
            Command::Bid { bid, swarm: name(swarm), agent, instance, class, scale, needs, affinity, prefers }
        }
        other => other,
    }
}

#[test]
fn the_scale_of_a_swarm_caps_its_slots_and_holds_up_no_other() {
    let mut bench = fleet();
    let mut both = registration("r", 9);
    both.agents.insert(Offer::new(&name("t"), &name("a")));
    bench.run(Command::Register(both)).unwrap();
    scale(&mut bench, "s", Some(2));
    for (number, swarm) in [(1, "s"), (2, "s"), (3, "s"), (4, "t"), (5, "s")] {
        bench.run(of_swarm(swarm, number)).unwrap();
    }
    assert_eq!(numbers(&bench), [1, 2, 4]);
    // A frozen run takes no slot, and comes back when there is one for its swarm.
    freed(&mut bench, "i1", true);
    assert_eq!(numbers(&bench), [1, 2, 4, 3]);
    bench.run(resume(6, "i1")).unwrap();
    assert_eq!(numbers(&bench), [1, 2, 4, 3]);
    // What runs goes on when the limit falls.
    scale(&mut bench, "s", Some(1));
    assert_eq!(bench.entity.slots.of_swarm(&name("s")), 2);
    freed(&mut bench, "i2", false);
    assert_eq!(numbers(&bench), [1, 2, 4, 3]);
    freed(&mut bench, "i3", false);
    assert_eq!(numbers(&bench), [1, 2, 4, 3, 6]);
    bench.restart();
    bench.run(of_swarm("s", 7)).unwrap();
    assert_eq!(numbers(&bench), [1, 2, 4, 3, 6], "the limit outlives the node");
    scale(&mut bench, "s", None);
    assert_eq!(numbers(&bench), [1, 2, 4, 3, 6, 5, 7]);
    let before = bench.events.len();
    scale(&mut bench, "s", None);
    assert_eq!(bench.events.len(), before, "a repeat changes nothing");
}
