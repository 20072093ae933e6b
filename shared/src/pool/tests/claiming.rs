//! Claiming the next task of the pool, by priority and tag.

use proptest::prelude::*;

use super::*;

fn claim_next(agent: Uuid, tags: &[&str]) -> Command {
    let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    Command::ClaimNext { agent, instance: instance(agent), managed: false, tags }
}

impl Swarm {
    fn tagged(&mut self, priority: u8, tags: &[&str]) -> Uuid {
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        self.create(TaskSpec { priority, tags, ..TaskSpec::new("do it") }, Target::Pool)
    }

    /// What the agent gets, and ends at once.
    fn next(&mut self, agent: Uuid, tags: &[&str]) -> Option<Uuid> {
        let Reply::Claimed { task, redelivered } = self.run(claim_next(agent, tags)).unwrap() else {
            panic!("no claim");
        };
        assert!(!redelivered);
        let task = task?;
        assert_eq!((task.status, task.agent), (Status::InProgress, Some(agent)));
        self.finish(task.id, agent, completed("done")).unwrap();
        Some(task.id)
    }
}

#[test]
fn the_most_urgent_comes_first_and_of_equals_the_oldest() {
    let mut swarm = Swarm::new();
    let low = swarm.tagged(10, &[]);
    let old = swarm.tagged(50, &[]);
    swarm.0.now = swarm.0.now + std::time::Duration::from_millis(1);
    let young = swarm.tagged(50, &[]);
    let urgent = swarm.tagged(90, &["rust"]);
    let order: Vec<_> = std::iter::from_fn(|| swarm.next(ANN, &[])).collect();
    assert_eq!(order, [urgent, old, young, low]);
}

/// A batch of them has one time.
#[test]
fn of_those_that_came_within_a_millisecond_the_first_comes_first() {
    let mut swarm = Swarm::new();
    let mut came: Vec<_> = (0..20).map(|_| swarm.tagged(50, &["a"])).collect();
    swarm.0.restart();
    came.extend((0..20).map(|_| swarm.tagged(50, &["a"])));
    let mut distinct = came.clone();
    distinct.dedup();
    assert_eq!(distinct.len(), 40);
    assert!(came.iter().all(|id| id.get_version_num() == 7));
    // Who asks for no tag gets them in the same order.
    let order: Vec<_> = (0..40).filter_map(|turn| swarm.next(ANN, [&["a"][..], &[]][turn % 2])).collect();
    assert_eq!(order, came);
}

#[test]
fn an_id_has_its_place_behind_those_of_its_time() {
    let mut swarm = Swarm::new();
    let mut ctx = swarm.0.ctx();
    let (first, second) = (ctx.id_behind(None), ctx.id_behind(None));
    assert!(first < second, "{first} {second}");
    let behind = swarm.0.ctx().id_behind(Some(second));
    assert!(second < behind && behind.get_timestamp() == first.get_timestamp(), "{second} {behind}");
    // Where there is no place left they are still ids, each another.
    let full = Uuid::from_u128(behind.as_u128() | (0xfff << 64));
    let (one, other) = (swarm.0.ctx().id_behind(Some(full)), swarm.0.ctx().id_behind(Some(full)));
    assert!(one != other && one.get_version_num() == 7 && one.get_timestamp() == full.get_timestamp());
}

#[test]
fn any_of_the_tags_is_enough() {
    let mut swarm = Swarm::new();
    let docs = swarm.tagged(50, &["docs"]);
    let both = swarm.tagged(70, &["rust", "docs", "rust"]);
    let other = swarm.tagged(90, &["design"]);
    assert_eq!(swarm.next(ANN, &["unheard of"]), None);
    assert_eq!(swarm.next(ANN, &["rust"]), Some(both));
    assert_eq!(swarm.next(ANN, &["rust"]), None);
    assert_eq!(swarm.next(ANN, &["rust", "docs"]), Some(docs));
    assert_eq!(swarm.next(ANN, &[]), Some(other));
}

#[test]
fn what_cannot_start_is_not_given() {
    let mut swarm = Swarm::new();
    let first = swarm.tagged(10, &["a"]);
    let spec =
        TaskSpec { priority: 90, depends_on: vec![first], tags: vec!["a".to_owned()], ..TaskSpec::new("x") };
    let later = swarm.create(spec, Target::Pool);
    swarm.create(TaskSpec { tags: vec!["a".to_owned()], ..TaskSpec::new("x") }, Target::Backlog);
    assert_eq!(swarm.next(ANN, &["a"]), Some(first));
    assert_eq!(swarm.next(BOB, &["a"]), Some(later));
    assert_eq!(swarm.next(BOB, &["a"]), None);
}

#[test]
fn a_full_agent_is_refused_and_a_lost_answer_is_given_again() {
    let mut swarm = Swarm::new();
    let first = swarm.tagged(50, &["a"]);
    swarm.tagged(50, &["a"]);
    assert!(matches!(swarm.run(claim_next(ANN, &["a"])), Ok(Reply::Claimed { redelivered: false, .. })));
    let Ok(Reply::Claimed { task: Some(again), redelivered: true }) = swarm.run(claim_next(ANN, &["a"]))
    else {
        panic!("the answer was lost");
    };
    assert_eq!(again.id, first);
    swarm.say(first, ANN, "half of it").unwrap();
    assert_eq!(swarm.refused(claim_next(ANN, &["a"])), Code::NoCapacity);
    assert_eq!(swarm.refused(claim_next(Uuid::from_u128(9), &[])), Code::NotJoined);
}

#[test]
fn those_who_wait_for_a_tag_are_woken_by_what_brings_it() {
    let mut swarm = Swarm::new();
    let default = Name::parse("default").unwrap();
    let first = swarm.tagged(50, &["a"]);
    let spec = TaskSpec { tags: vec!["b".to_owned()], depends_on: vec![first], ..TaskSpec::new("x") };
    swarm.create(spec, Target::Pool);
    let topics = |swarm: &Swarm, event: &Event| swarm.0.entity.topics(event);
    let at = swarm.0.now;
    let ended = Event::Finished {
        task: first,
        outcome: Outcome::Completed,
        output: None,
        reason: None,
        cost: None,
        at,
    };
    let woken = topics(&swarm, &ended);
    assert!(woken.contains(&claimable(&default, Some("b"))) && woken.contains(&claimable(&default, None)));
    assert!(!woken.contains(&claimable(&default, Some("a"))));
    swarm.run(claim_next(ANN, &[])).unwrap();
    let released = Event::Released { task: first, at };
    assert!(topics(&swarm, &released).contains(&claimable(&default, Some("a"))));
}

proptest! {
    /// The best by the index is the best by looking at all.
    #[test]
    fn the_index_finds_what_a_search_would(
        tasks in prop::collection::vec((0..3u8, prop::collection::btree_set(0..4usize, 0..3)), 1..30),
        asks in prop::collection::vec(prop::collection::btree_set(0..5usize, 0..3), 1..40),
    ) {
        const TAGS: [&str; 5] = ["a", "b", "c", "d", "e"];
        let mut swarm = Swarm::new();
        let mut open = Vec::new();
        for (age, (priority, tags)) in tasks.into_iter().enumerate() {
            // Some of them come within one millisecond.
            swarm.0.now = swarm.0.now + std::time::Duration::from_millis(age as u64 % 2);
            let named: Vec<&str> = tags.iter().map(|&tag| TAGS[tag]).collect();
            open.push((std::cmp::Reverse(priority), age, swarm.tagged(priority, &named), tags));
        }
        for ask in asks {
            let fits = |(_, _, _, tags): &&(_, _, _, std::collections::BTreeSet<usize>)| {
                ask.is_empty() || !ask.is_disjoint(tags)
            };
            let wanted = open.iter().filter(fits).min().map(|(_, _, id, _)| *id);
            let named: Vec<&str> = ask.iter().map(|&tag| TAGS[tag]).collect();
            prop_assert_eq!(swarm.next(ANN, &named), wanted);
            open.retain(|(_, _, id, _)| Some(*id) != wanted);
        }
    }
}
