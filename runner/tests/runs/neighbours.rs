//! Runners that share a machine.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_runner_ends_is_nothing_of_anothers() {
    let coordinators = [Coordinator::open(MCP, 3000).await, Coordinator::open(MCP, 3000).await];
    let mut beds = [Bed::new("id -u > user; exec sleep 1000"), Bed::new("id -u > user; exec sleep 1000")];
    let mut users = Vec::new();
    for (coordinator, (bed, instance)) in coordinators.iter().zip(beds.iter_mut().zip([id(0x11), id(0x12)])) {
        bed.run(coordinator, TOKEN);
        coordinator.until("registration", |state| state.registrations.len() == 1).await;
        coordinator.say(start(instance, 1)).await;
        coordinator.reported(instance, |what| matches!(what, What::Started(_))).await;
        users.push(bed.written("user").await);
    }
    if skein_runner::isolation() == Isolation::Users {
        assert_ne!(users[0], users[1], "whatever has the user of an instance is ended with it");
    }
    coordinators[0].say(stop(id(0x11), 2)).await;
    coordinators[0].reported(id(0x11), |what| matches!(what, What::Exited(_))).await;
    assert!(tree::marked(id(0x11)).is_empty());
    assert!(!tree::marked(id(0x12)).is_empty(), "the neighbour's instance was ended too");
    for bed in &mut beds {
        bed.leave().await.unwrap();
    }
}
