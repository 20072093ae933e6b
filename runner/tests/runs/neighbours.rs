//! Runners that share a machine.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_one_runner_ends_is_nothing_of_anothers() {
    let coordinators = [Coordinator::open(MCP, LEASE).await, Coordinator::open(MCP, LEASE).await];
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
    assert!(marked(id(0x11)).is_empty());
    assert!(!marked(id(0x12)).is_empty(), "the neighbour's instance was ended too");
    for bed in &mut beds {
        bed.leave().await.unwrap();
    }
}

/// What starts by itself is named after its agent and its runner alone: at two nodes of a machine alike.
#[tokio::test(flavor = "multi_thread")]
async fn an_instance_of_the_same_name_is_nothing_of_anothers() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let begun = async |runner: &str| {
        let engine = ProcessEngine::with_cgroups(runner, launcher(), None);
        let mut spec = spec(folder.path(), &format!("twins-1-{own}"), "setsid sleep 1000 & sleep 1000");
        spec.env.insert("SKEIN_RUNNER".to_owned(), runner.to_owned());
        let handle = engine.start(&spec).await.unwrap();
        until(|| (tree::members(&handle).unwrap().len() >= 4).then_some(())).await;
        (engine, handle)
    };
    let (first, one) = begun(&format!("first-{own}")).await;
    let (second, other) = begun(&format!("second-{own}")).await;
    let stopped = || tree::members(&other).unwrap().iter().filter(|process| process.is_stopped()).count();
    first.freeze(&one).await.unwrap();
    assert_eq!(stopped(), 0, "the neighbour's was frozen too");
    first.kill(&one).await.unwrap();
    first.sweep(&one.instance).await.unwrap();
    assert!(tree::members(&one).unwrap().is_empty());
    assert_eq!(tree::members(&other).unwrap().len(), 4, "the neighbour's was ended too");
    second.kill(&other).await.unwrap();
    assert!(tree::members(&other).unwrap().is_empty());
}

/// The data folder is the same, and with it the runner.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_runner_has_left_by_an_earlier_name_is_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let own = std::process::id();
    let mark = |name: &str, other: u64| format!("{name}-{:014x}", u64::from(own) << 4 | other);
    let begun = async |runner: String, instance: String| {
        let engine = ProcessEngine::with_cgroups(&runner, launcher(), None);
        let mut spec = spec(folder.path(), &instance, "sleep 1000 & sleep 1000");
        spec.env.insert("SKEIN_RUNNER".to_owned(), runner);
        let handle = engine.start(&spec).await.unwrap();
        until(|| (tree::members(&handle).unwrap().len() >= 4).then_some(())).await;
        (engine, handle)
    };
    let (_former, left) = begun(mark("old", 0), format!("renamed-1-{own}")).await;
    let (neighbour, other) = begun(mark("new", 1), format!("renamed-2-{own}")).await;

    let groups = tempfile::tempdir().unwrap();
    let root = |mark: &str| groups.path().join(format!("skein-{mark}"));
    for (mark, instance) in [(mark("old", 0), "grouped-1"), (mark("new", 1), "grouped-2")] {
        fs::create_dir_all(root(&mark).join(instance)).unwrap();
    }
    let engine = |groups| ProcessEngine::with_cgroups(&mark("new", 0), launcher(), groups);
    let grouped = engine(Some(root(&mark("new", 0))));
    let group = root(&mark("old", 0)).join(&left.instance);
    fs::create_dir_all(&group).unwrap();
    let found = grouped.find(&left.instance, None).await.unwrap();
    assert_eq!(found.and_then(|found| found.cgroup), Some(group), "it is frozen and ended by that");
    assert_eq!(grouped.list().await, ["grouped-1".to_owned(), left.instance.clone()]);

    let renamed = engine(None);
    let found = renamed.find(&left.instance, left.user).await.unwrap();
    assert_eq!(found.map(|found| (found.pid, found.born)), Some((left.pid, left.born)));
    assert_eq!(renamed.find(&other.instance, other.user).await.unwrap(), None);
    renamed.sweep(&left.instance).await.unwrap();
    renamed.sweep(&other.instance).await.unwrap();
    assert!(tree::members(&left).unwrap().is_empty());
    assert_eq!(tree::members(&other).unwrap().len(), 4, "the neighbour's was ended too");
    neighbour.kill(&other).await.unwrap();
}
