//! Two commits of one entity under way.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;

use super::supervision::{Touch, in_work, touch};
use super::*;
use crate::cluster::Tenants;
use crate::entity::admission::PER_ENTITY;
use crate::store::redis::shard::Shard;

/// Lets everybody go as far as they can.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

async fn version(node: &Node) -> Version {
    let key = EntityKey::of(Kind::Memory, &swarm());
    node.store.load(&key).await.unwrap().version
}

/// So many ask at one time. Gives what each was answered.
async fn together(node: &Node, count: usize) -> Vec<u64> {
    let asked: Vec<_> = (0..count).map(|_| tokio::spawn(touch(node.entities.clone(), Touch::Add))).collect();
    let mut totals = Vec::new();
    for asked in asked {
        totals.push(asked.await.unwrap().unwrap());
    }
    totals
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_is_on_its_way_while_the_last_is_flushed_and_nobody_is_answered_early() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let first = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    settle().await;
    let second: Vec<_> = (0..4).map(|_| tokio::spawn(touch(node.entities.clone(), Touch::Add))).collect();
    settle().await;
    let third = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    settle().await;
    assert!(!first.is_finished() && second.iter().all(|asked| !asked.is_finished()));

    gate.open();
    assert_eq!(first.await.unwrap(), Ok(1));
    for (asked, total) in second.into_iter().zip(2..) {
        assert_eq!(asked.await.unwrap(), Ok(total));
    }
    assert_eq!(third.await.unwrap(), Ok(6));
    assert_eq!(version(&node).await, Version(3), "one, four, and one");
}

#[tokio::test(start_paused = true)]
async fn what_comes_behind_a_batch_is_divided_so_that_two_alike_are_under_way() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let ask = || tokio::spawn(touch(node.entities.clone(), Touch::Add));
    let first = ask();
    settle().await;
    let rest: Vec<_> = (0..20).map(|_| ask()).collect();
    settle().await;
    gate.open();
    for (asked, total) in [first].into_iter().chain(rest).zip(1..) {
        assert_eq!(asked.await.unwrap(), Ok(total));
    }
    assert_eq!(version(&node).await, Version(3), "one, eleven, and nine");
}

#[tokio::test(start_paused = true)]
async fn many_who_come_together_are_divided_so_that_the_store_has_some_while_the_rest_are_decided_for() {
    let node = node();
    together(&node, 4).await;
    let before = version(&node).await;
    assert_eq!(together(&node, 15).await, (5..=19).collect::<Vec<_>>());
    assert_eq!(version(&node).await, Version(before.0 + 1), "few were divided");
    assert_eq!(together(&node, 20).await, (20..=39).collect::<Vec<_>>());
    assert_eq!(version(&node).await, Version(before.0 + 3), "ten and ten");
}

/// What is sent behind few stands behind them, so whoever comes meanwhile goes with it rather than after it.
#[tokio::test(start_paused = true)]
async fn where_there_are_few_a_second_batch_is_as_large_as_the_first() {
    let node = node();
    together(&node, 4).await;
    together(&node, 4).await;
    let before = version(&node).await;
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let mut asked = Vec::new();
    for wave in [4, 3, 1] {
        asked.extend((0..wave).map(|_| tokio::spawn(touch(node.entities.clone(), Touch::Add))));
        settle().await;
    }
    gate.open();
    for (asked, total) in asked.into_iter().zip(9..) {
        assert_eq!(asked.await.unwrap(), Ok(total));
    }
    assert_eq!(version(&node).await, Version(before.0 + 2), "four and four");
}

/// Whoever is alone waits for nobody; those who come together are decided for together.
#[tokio::test(start_paused = true)]
async fn who_asks_alone_is_decided_for_at_once_and_who_comes_among_others_with_them() {
    let node = node();
    touch(node.entities.clone(), Touch::Add).await.unwrap();
    together(&node, 4).await;
    let first = version(&node).await;
    assert_eq!(first, Version(3), "the first of them was taken to be alone, as the one before was");
    together(&node, 4).await;
    assert_eq!(version(&node).await, Version(4), "those who were there together were torn apart");
}

/// A shard was lost and taken again at once, and the news of the loss comes late. What the entity has under way would
/// be taken under the same fence, behind the back of whoever loads it again.
#[tokio::test(start_paused = true)]
async fn what_is_written_under_the_present_fence_stays_in_memory() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let first = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    settle().await;
    let shards = [Shard::of(&EntityKey::of(Kind::Memory, &swarm()))];
    Tenants::forget(&node.entities, &shards);
    let second = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    settle().await;
    gate.open();
    assert_eq!((first.await.unwrap(), second.await.unwrap()), (Ok(1), Ok(2)));
}

/// Somebody has asked for it meanwhile, and found out first that its shard is about to go.
#[tokio::test(start_paused = true)]
async fn a_shard_is_given_away_once_all_that_is_under_way_in_it_is_told() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let first = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    settle().await;
    node.store.contents().close();
    let late = touch(node.entities.clone(), Touch::Add).await;
    assert_eq!(late.unwrap_err().code, Code::NotOwner);
    let mut leaving = std::pin::pin!(Tenants::leave(&node.entities));
    assert!(timeout(Duration::from_secs(5), &mut leaving).await.is_err(), "the commit is still under way");
    gate.open();
    leaving.await;
    assert_eq!(first.await.unwrap(), Ok(1));
}

/// Whoever gave up asks again, or does not want it any more.
#[tokio::test(start_paused = true)]
async fn what_nobody_waits_for_any_more_is_not_decided_and_what_was_decided_before_stays() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let mut asked = Vec::new();
    for count in 1..=4 {
        asked.push(tokio::spawn(touch(node.entities.clone(), Touch::Add)));
        while in_work(&node) < count {
            tokio::task::yield_now().await;
        }
        settle().await;
    }
    // The first two are on their way to the store, where there is no room for the others.
    let patient = asked.pop().unwrap();
    for given_up in &asked {
        given_up.abort();
    }
    settle().await;

    gate.open();
    assert_eq!(patient.await.unwrap(), Ok(3), "two were decided for before");
    assert_eq!(version(&node).await, Version(3), "the last one was decided for nobody");
    assert_eq!(in_work(&node), 0);
}

#[tokio::test(start_paused = true)]
async fn who_has_gone_keeps_nobody_out_while_the_store_stands_still() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let ask = || tokio::spawn(touch(node.entities.clone(), Touch::Add));
    let first = ask();
    while in_work(&node) < 1 {
        tokio::task::yield_now().await;
    }
    let crowd: Vec<_> = (1..PER_ENTITY).map(|_| ask()).collect();
    while in_work(&node) < PER_ENTITY {
        tokio::task::yield_now().await;
    }
    // By then the host has taken all of them in, and stands still with the store.
    let a_while = Duration::from_secs(1);
    tokio::time::sleep(a_while).await;
    for given_up in &crowd {
        given_up.abort();
    }
    tokio::time::sleep(a_while).await;

    let refused = ask().await.unwrap().unwrap_err();
    assert_eq!(refused.code, Code::Overloaded, "whoever finds no room has it looked for");
    settle().await;
    let late = ask();
    settle().await;
    assert!(!late.is_finished(), "the place is taken by those who have gone");
    gate.open();
    assert_eq!(first.await.unwrap(), Ok(1));
    let total = late.await.unwrap().unwrap();
    assert!(total <= 2 + 256, "{total} happened, for more than one batch of those who have gone");
}

#[tokio::test(start_paused = true)]
async fn more_questions_than_a_batch_may_have_are_all_answered() {
    let node = node();
    let ask = |request, command| {
        let entities = node.entities.clone();
        tokio::spawn(async move { entities.ask::<Lockspace>(&locks(), request, command).await })
    };
    ask(Request::once(Uuid::from_u128(1)), acquire("a", "file:///1")).await.unwrap().unwrap();
    let all = (0..1_000).map(|_| ask(Request::read(), lockspace::Command::List));
    let all = futures::future::join_all(all.collect::<Vec<_>>());
    let all = timeout(Duration::from_secs(60), all).await.expect("some wait for ever");
    for answer in all {
        let lockspace::Reply::Locks(held) = answer.unwrap().unwrap() else { panic!("no list") };
        assert_eq!(held.len(), 1);
    }
}

/// Every script of four faults, for the commits of ten commands that come in waves.
#[tokio::test(start_paused = true)]
async fn whatever_the_store_does_an_answer_holds_and_nothing_happens_twice() {
    for script in 0..4_u32.pow(4) {
        let node = node();
        for place in 0..4 {
            node.store.contents().faults().push(fault(script / 4_u32.pow(place) % 4));
        }
        let mut asked = Vec::new();
        for wave in [1, 4, 2, 3] {
            asked.extend((0..wave).map(|_| tokio::spawn(touch(node.entities.clone(), Touch::Add))));
            settle().await;
        }
        let (mut told, mut unknown) = (BTreeSet::new(), 0);
        for answer in asked {
            match answer.await.unwrap() {
                Ok(total) => assert!(told.insert(total), "script {script}: {total} was told twice"),
                Err(refusal) if refusal.code == Code::Unknown => unknown += 1,
                Err(refusal) => assert_eq!(refusal.code, Code::Unavailable, "script {script}"),
            }
        }
        tokio::time::sleep(Duration::from_secs(60)).await;
        let stored = node.store.load(&EntityKey::of(Kind::Memory, &swarm())).await.unwrap();
        let total: u64 = stored.live.first().map_or(0, |count| count.read().unwrap());
        let told_count = told.len() as u64;
        assert!(
            (told_count..=told_count + unknown).contains(&total),
            "script {script}: {told_count} were told, {unknown} unknown, {total} happened"
        );
        assert!(told.last().is_none_or(|&last| last <= total), "script {script}: {told:?} of {total}");
    }
}

fn fault(number: u32) -> Fault {
    match number {
        0 => Fault::AnswerLost,
        1 => Fault::RequestLost,
        2 => Fault::Refused,
        _ => {
            let open = Gate::default();
            open.open();
            Fault::Slow(open)
        }
    }
}
