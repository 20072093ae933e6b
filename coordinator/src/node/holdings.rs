//! What the shards of this node hold, for `/metrics`: a node tells of its own alone, so that sums over all nodes are
//! right.

use skein_shared::id::{EntityKey, Kind, Name};

use crate::entity::Entities;
use crate::projection::{Filter, LIMIT, Order, Query, Test};

/// Live documents of a type that are counted over all swarms.
struct Counted {
    metric: &'static str,
    kind: Kind,
    document: &'static str,
    /// Those alone that have one of these values in a field.
    with: Option<(&'static str, &'static [&'static str])>,
}

const COUNTED: [Counted; 4] = [
    // The document of a wait that is over lives until its instance waits again or ends.
    Counted {
        metric: "skein_waits_open",
        kind: Kind::Agent,
        document: "wait",
        with: Some(("state", &["waiting"])),
    },
    Counted {
        metric: "skein_work_queue_depth",
        kind: Kind::Agent,
        document: "instance",
        with: Some(("state", &["queued"])),
    },
    Counted {
        metric: "skein_calls_open",
        kind: Kind::Agent,
        document: "call",
        with: Some(("status", &["pending", "running"])),
    },
    Counted { metric: "skein_locks_held", kind: Kind::Lockspace, document: "lock", with: None },
];

/// Says what each number means.
pub(super) fn describe() {
    for (name, meaning) in [
        ("skein_waits_open", "Waits of instances that no event has ended yet."),
        ("skein_work_queue_depth", "Runs that wait in their agents' work queues for a slot."),
        ("skein_calls_open", "Calls between agents that have not come to an end."),
        ("skein_locks_held", "Locks that somebody holds."),
        ("skein_slots", "Slots of the runners that are registered."),
        ("skein_slots_used", "Slots that runs have."),
    ] {
        metrics::describe_gauge!(name, meaning);
    }
}

/// A read side that does not answer leaves the last numbers.
pub(super) async fn measure(entities: &Entities) {
    let Ok(swarms) = entities.swarms().await else { return };
    for counted in &COUNTED {
        if let Some(sum) = sum(entities, &swarms, counted).await {
            metrics::gauge!(counted.metric).set(sum as f64);
        }
    }
    if let Some((slots, used)) = slots(entities).await {
        metrics::gauge!("skein_slots").set(slots as f64);
        metrics::gauge!("skein_slots_used").set(used as f64);
    }
}

async fn sum(entities: &Entities, swarms: &[Name], counted: &Counted) -> Option<u64> {
    let mut sum = 0;
    for swarm in swarms {
        let mut query = live(swarm, counted.kind, counted.document);
        if let Some((field, values)) = counted.with {
            let values = values.iter().map(|value| (*value).into()).collect();
            query.filters.push(Filter::new(field, Test::In(values)).ok()?);
        }
        sum += entities.shared().projection.count(query).await.ok()?;
    }
    Some(sum)
}

/// All slots, and those that are used. Fleets stand beside the swarms, under one name.
async fn slots(entities: &Entities) -> Option<(u64, u64)> {
    let swarm = EntityKey::fleet(&Name::parse("default").ok()?).swarm;
    let projection = &entities.shared().projection;
    let mut used = live(&swarm, Kind::Fleet, "place");
    used.filters.push(Filter::new("slot", Test::Eq(true.into())).ok()?);
    let used = projection.count(used).await.ok()?;
    let mut runners = live(&swarm, Kind::Fleet, "runner");
    runners.order = vec![Order::ascending("runner").ok()?];
    let mut slots = 0;
    loop {
        let rows = projection.list(runners.clone()).await.ok()?;
        slots += rows.iter().filter_map(|runner| runner["slots"].as_u64()).sum::<u64>();
        match rows.last() {
            Some(last) if rows.len() >= LIMIT => runners.after = runners.place(last),
            _ => return Some((slots, used)),
        }
    }
}

fn live(swarm: &Name, kind: Kind, document: &str) -> Query {
    Query { live: Some(true), ..Query::new(swarm, kind, document) }
}
