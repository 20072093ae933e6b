//! What a trim costs, and what it passes on its way.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;
use crate::store::sqlite::trim::{self, Passed};

const DAY: Duration = Duration::from_secs(86_400);

/// Forgets the events and replies from before a moment.
fn old(now: Timestamp, before: Timestamp) -> TrimPlan {
    TrimPlan {
        now,
        events_before: before,
        events_per_entity: u64::MAX >> 1,
        replies_before: before,
        marks_before: Timestamp::ZERO,
        archived_before: Timestamp::ZERO,
        dead_letters_before: Timestamp::ZERO,
        loose_before: Timestamp::ZERO,
        limit: 16,
    }
}

fn answered(batch: Batch) -> Batch {
    let (at, reply) = (batch.at, skein_shared::json::Json::of(&1));
    Batch { replies: vec![StoredReply { request: batch.id, digest: 1, at, reply }], ..batch }
}

/// One entity: first so many records of which the replies are left, then a thousand with events.
fn with_replies_alone(records: u64) -> Connection {
    let mut connection = Connection::open_in_memory().unwrap();
    migrate::migrate(&mut connection).unwrap();
    connection
        .execute(
            "WITH RECURSIVE counted(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?1 + 1000)
             INSERT INTO record SELECT n, 'pool/default', n, n, iif(n > ?1, '[]', NULL), '[]' FROM counted",
            [signed(records)],
        )
        .unwrap();
    connection
        .execute_batch(
            "INSERT INTO place SELECT entity, version, position FROM record;
             INSERT INTO entity SELECT entity, max(version), x'', max(at), 0 FROM record GROUP BY entity",
        )
        .unwrap();
    connection
}

/// The most instructions that SQLite runs in one step, of all that it takes.
fn dearest_step(records: u64) -> u64 {
    let mut connection = with_replies_alone(records);
    let instructions = Arc::<AtomicU64>::default();
    let count = Arc::clone(&instructions);
    let counts = move || {
        count.fetch_add(1, Ordering::Relaxed);
        false
    };
    connection.progress_handler(1, Some(counts)).unwrap();
    // Some events are too old, and more are too many.
    let plan = TrimPlan {
        events_per_entity: 500,
        replies_before: Timestamp::ZERO,
        ..old(Timestamp(1 << 40), Timestamp(records + 301))
    };
    let (mut passed, mut dearest, mut forgotten) = (Passed::default(), 0, 0);
    for _ in 0..records {
        let before = instructions.load(Ordering::Relaxed);
        let step = trim::trim(&connection, &plan, &mut passed).unwrap();
        dearest = dearest.max(instructions.load(Ordering::Relaxed) - before);
        forgotten += step.trimmed.records;
        if !step.more && step.trimmed.is_nothing() {
            break;
        }
    }
    assert_eq!(forgotten, 500, "steps look at the same records again and again");
    dearest
}

/// A record without events stays for its replies, and there may be a million.
#[test]
fn a_step_of_a_trim_costs_the_same_however_much_it_has_passed() {
    let (few, many) = (dearest_step(1000), dearest_step(20_000));
    assert!(many < few + few / 10, "{many} instructions instead of {few}");
}

#[tokio::test]
async fn a_trim_goes_past_what_has_nothing_to_forget() {
    let file = File::new();
    let store = Sqlite::open_with(&file.path(), START, Durability::Disposable).unwrap();
    for expected in 0..200 {
        let events = if expected < 196 { Vec::new() } else { batch(expected, "event").events };
        store.commit(store.fence, answered(Batch { events, ..batch(expected, "") }).into()).await.unwrap();
    }
    let all = START + Duration::from_secs(1);
    let plan = TrimPlan { replies_before: START, limit: 3, ..old(all, all) };
    for forgotten in [3, 1, 0] {
        assert_eq!(store.trim(plan.clone()).await.unwrap().records, forgotten);
    }
}

#[tokio::test]
async fn a_store_of_a_clock_that_was_ahead_opens_and_says_until_when() {
    let file = File::new();
    let store = Sqlite::open(&file.path(), START + DAY).unwrap();
    assert_eq!(store.ahead(), None);
    let other = EntityKey::of(Kind::Channels, &Name::parse("default").unwrap());
    for ahead in [Batch { at: START + DAY, ..batch(0, "ahead") }, Batch { key: other, ..batch(0, "sound") }] {
        store.commit(store.fence, ahead.into()).await.unwrap();
    }
    let ahead = Some(Ahead { entities: 1, until: START + DAY });
    assert_eq!(Sqlite::open(&file.path(), START).unwrap().ahead(), ahead, "what waits counts");
    assert_eq!(Sqlite::open(&file.path(), START).unwrap().ahead(), ahead);
    let soon = START + DAY - Duration::from_secs(59);
    assert_eq!(Sqlite::open(&file.path(), soon).unwrap().ahead(), None);
}
