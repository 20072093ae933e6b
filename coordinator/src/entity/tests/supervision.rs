//! Entities that die, and how they come back.

use std::cell::Cell;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use skein_shared::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use skein_shared::time::Timestamp;
use tokio::time::Instant;

use super::*;
use crate::store::Version;

thread_local! {
    /// How often one was loaded by this thread, which runs one test.
    static LOADS: Cell<usize> = const { Cell::new(0) };
}

/// Counts, and has two ways to panic.
pub(super) struct Fragile {
    total: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) enum Touch {
    Add,
    PanicInDecide,
    PanicInApply,
}

impl Entity for Fragile {
    const KIND: Kind = Kind::Memory;
    type Command = Touch;
    type Event = Touch;
    type Reply = u64;

    fn empty(_: &EntityKey) -> Self {
        LOADS.set(LOADS.get() + 1);
        Self { total: 0 }
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        self.total = document.read()?;
        Ok(())
    }

    fn decide(&self, command: &Touch, _: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        assert_ne!(*command, Touch::PanicInDecide, "on purpose");
        Ok(Decision::new(self.total + 1, vec![*command]))
    }

    fn apply(&mut self, event: &Touch, changes: &mut Changes) {
        self.total += 1;
        assert_ne!(*event, Touch::PanicInApply, "on purpose");
        changes.put("count/only", &self.total, None);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Touch {
        Touch::Add
    }

    fn subject(_: &Touch) -> Option<String> {
        None
    }

    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

pub(super) async fn touch(entities: Entities, touch: Touch) -> Result<u64, Refusal> {
    let key = EntityKey::of(Kind::Memory, &swarm());
    entities.ask::<Fragile>(&key, Request::once(Uuid::now_v7()), touch).await
}

pub(super) fn in_work(node: &Node) -> usize {
    node.entities.in_memory().iter().map(|(_, waiting)| waiting).sum()
}

#[tokio::test(start_paused = true)]
async fn a_panic_answers_everyone_and_takes_nobody_along() {
    for bomb in [Touch::PanicInDecide, Touch::PanicInApply] {
        let node = node();
        take(&node, Uuid::from_u128(1), "file:///a").await.unwrap();
        assert_eq!(touch(node.entities.clone(), Touch::Add).await, Ok(1));

        let gate = Gate::default();
        node.store.contents().faults().push(Fault::Slow(gate.clone()));
        let first = tokio::spawn(touch(node.entities.clone(), Touch::Add));
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
        let batch =
            [Touch::Add, bomb, Touch::Add].map(|each| tokio::spawn(touch(node.entities.clone(), each)));
        while in_work(&node) < 4 {
            tokio::task::yield_now().await;
        }
        gate.open();
        assert_eq!(first.await.unwrap(), Ok(2), "what was under way before is committed");
        let mut codes = Vec::new();
        for answer in batch {
            codes.push(answer.await.unwrap().unwrap_err().code);
        }
        assert_eq!(codes, [Code::Unavailable, Code::Internal, Code::Unavailable]);

        assert_eq!(touch(node.entities.clone(), Touch::Add).await, Ok(3), "nothing of the batch was kept");
        let other =
            node.entities.ask::<Lockspace>(&locks(), Request::read(), acquire("b", "file:///b")).await;
        assert!(matches!(other, Ok(lockspace::Reply::Acquired { .. })), "others live on");
    }
}

#[tokio::test(start_paused = true)]
async fn an_entity_that_keeps_dying_comes_back_ever_later_and_then_turns_callers_away() {
    let node = node();
    let die = async || {
        node.store.contents().faults().push(Fault::Refused);
        let before = Instant::now();
        let refusal = touch(node.entities.clone(), Touch::Add).await.unwrap_err();
        assert_eq!(refusal.code, Code::Unavailable);
        (u64::try_from(before.elapsed().as_millis()).unwrap(), refusal)
    };
    let mut pauses = Vec::new();
    for _ in 0..6 {
        pauses.push(die().await.0);
    }
    assert!(
        pauses.iter().zip([0, 50, 100, 200, 400, 800]).all(|(took, due)| (due..due + 10).contains(took)),
        "{pauses:?}"
    );

    let before = node.store.load(&EntityKey::of(Kind::Memory, &swarm())).await.unwrap().version;
    let refusal = touch(node.entities.clone(), Touch::Add).await.unwrap_err();
    let mut after = refusal.retry_after_ms.unwrap();
    assert!(refusal.code == Code::Unavailable && (1_500..=1_600).contains(&after), "{refusal:?}");
    assert_eq!(before, Version(0));

    for most in [3_200, 5_000, 5_000] {
        tokio::time::sleep(Duration::from_millis(after)).await;
        die().await;
        let refusal = touch(node.entities.clone(), Touch::Add).await.unwrap_err();
        after = refusal.retry_after_ms.unwrap();
        assert!((most - 100..=most).contains(&after), "{refusal:?}");
    }
    tokio::time::sleep(Duration::from_millis(after)).await;
    assert_eq!(touch(node.entities.clone(), Touch::Add).await, Ok(1));

    tokio::time::sleep(Duration::from_secs(61)).await;
    die().await;
    let (took, _) = die().await;
    assert!((50..60).contains(&took), "after a quiet minute it begins anew: {took}");
}

#[tokio::test(start_paused = true)]
async fn a_document_that_cannot_be_read_stops_its_entity_alone() {
    let node = node();
    poison(&node, EntityKey::of(Kind::Memory, &swarm())).await;

    let asked: Vec<_> = (0..100).map(|_| tokio::spawn(touch(node.entities.clone(), Touch::Add))).collect();
    let mut loads = 0;
    for answer in asked {
        let refusal = answer.await.unwrap().unwrap_err();
        match refusal.code {
            Code::Internal => loads += 1,
            code => assert!(code == Code::Unavailable && refusal.retry_after_ms.is_some(), "{refusal:?}"),
        }
    }
    assert_eq!(loads, 6, "a hundred callers, few loads");
    take(&node, Uuid::from_u128(1), "file:///a").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_an_entity_and_who_asks_once_its_shard_is_back_load_it_once() {
    let node = node();
    for _ in 0..3 {
        node.store.contents().faults().push(Fault::Refused);
        touch(node.entities.clone(), Touch::Add).await.unwrap_err();
    }
    let waits = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    let before = LOADS.get();
    node.entities.shared().wards.forget(|_| true);
    let key = EntityKey::of(Kind::Memory, &swarm());
    assert!(!node.entities.shared().wards.of(&key).has_died_lately(), "nothing is held against it any more");
    let asks = tokio::spawn(touch(node.entities.clone(), Touch::Add));
    let mut totals = [waits.await.unwrap().unwrap(), asks.await.unwrap().unwrap()];
    totals.sort_unstable();
    assert_eq!((totals, LOADS.get() - before), ([1, 2], 1));
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_told_and_its_repeat_finds_the_stored_reply() {
    let node = node();
    node.store.contents().faults().push(Fault::AnswerLost);
    for _ in 0..11 {
        node.store.contents().faults().push(Fault::RequestLost);
    }
    let id = Uuid::from_u128(1);
    let (effects, timers) =
        (node.entities.shared().outbox.subscribe(), node.entities.shared().timers.subscribe());
    let waits = tokio::spawn({
        let entities = node.entities.clone();
        async move { entities.ask::<Lockspace>(&locks(), Request::once(id), acquire("a", "file:///a")).await }
    });
    assert_eq!(waits.await.unwrap().unwrap_err().code, Code::Unknown);
    assert_eq!(node.store.load(&locks()).await.unwrap().version, Version(1), "it was written all the same");
    let looks = effects.has_changed().unwrap() && timers.has_changed().unwrap();
    assert!(looks, "nobody looks for what it left in the store");

    let stored = take(&node, id, "file:///a").await.unwrap();
    assert_eq!(take(&node, id, "file:///a").await.unwrap(), stored);
    assert_eq!(node.store.load(&locks()).await.unwrap().version, Version(1), "the repeat wrote nothing");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_that_was_no_write_is_made_good_by_its_repeat() {
    let node = node();
    for _ in 0..12 {
        node.store.contents().faults().push(Fault::RequestLost);
    }
    let id = Uuid::from_u128(1);
    assert_eq!(take(&node, id, "file:///a").await.unwrap_err().code, Code::Unknown);
    take(&node, id, "file:///a").await.unwrap();
    assert_eq!(node.store.load(&locks()).await.unwrap().version, Version(1));
}
