//! Whether the node lives, whether it should be asked, and how it fares.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics::Counter;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tikv_jemalloc_ctl::{epoch, stats};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::holdings;
use crate::alarms::Kind;
use crate::cluster::Cluster;
use crate::console::{Trends, trends};
use crate::entity::Entities;

/// How long a scrape waits for what the store has to say.
const STORE: Duration = Duration::from_secs(1);

/// Seconds; a commit takes 1 ms on a disk that flushes well.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 30.0];

/// The recorder of this process. Nodes that share one, as tests do, share its numbers.
fn recorder() -> &'static PrometheusHandle {
    static RECORDER: OnceLock<PrometheusHandle> = OnceLock::new();
    RECORDER.get_or_init(|| {
        let builder = PrometheusBuilder::new();
        let builder = builder
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            .unwrap_or_else(|_| PrometheusBuilder::new());
        let recorder = builder.build_recorder();
        let handle = recorder.handle();
        // Another recorder is in place only when the program that embeds us has put it there.
        let _ = metrics::set_global_recorder(recorder);
        describe();
        handle
    })
}

/// Says what each number means. Counters that nothing has moved yet are there all the same: a rate needs a zero.
fn describe() {
    for (name, meaning) in [
        ("skein_entity_commits_total", "Batches committed to the store."),
        ("skein_entity_commands_total", "Commands answered after a commit."),
        ("skein_entity_deaths_total", "Entities that failed or could not be loaded, and are loaded anew."),
        ("skein_store_flushes_total", "Groups of batches that went to the store at once."),
        ("skein_store_generations_total", "Lives of Redis that this coordinator went on with."),
        ("skein_store_lost_writes_total", "Acknowledged commits that Redis did not have any more."),
        ("skein_http_requests_total", "Requests answered, by listener and status."),
        ("skein_webhooks_total", "Webhooks, by source and what became of them."),
    ] {
        metrics::describe_counter!(name, meaning);
    }
    for (name, meaning) in [
        ("skein_entities_in_memory", "Entities that are loaded."),
        ("skein_commands_in_flight", "Commands that wait for their commit."),
        ("skein_projection_lag", "Commits that the lists do not show yet."),
        ("skein_outbox_effects", "Effects that wait for their delivery; no more than 1000 are counted."),
        ("skein_outbox_lag_seconds", "Age of the oldest effect that waits for its delivery."),
        ("skein_cluster_nodes", "Coordinators that share the store, as this one sees them."),
        ("skein_cluster_shards", "Shards that this coordinator holds."),
        ("skein_cluster_shards_unowned", "Shards that nobody holds, as this coordinator sees it."),
        (
            "skein_cluster_epoch",
            "The highest epoch under which this coordinator holds a shard; 0 if it holds none.",
        ),
        ("skein_cluster_generation", "The number of the life of Redis on which this coordinator relies."),
        ("skein_cluster_draining", "1 while this coordinator gives its shards away or has done so, else 0."),
        ("skein_alarms", "What is wrong, by kind, as this coordinator sees it; `skein status` says more."),
        (
            "skein_cluster_certificate_expires_seconds",
            "Seconds until the certificate of this coordinator ends; below zero, the others refuse it.",
        ),
        ("skein_memory_allocated_bytes", "Memory that this process uses."),
        ("skein_memory_resident_bytes", "Memory that its allocator has from the system."),
    ] {
        metrics::describe_gauge!(name, meaning);
    }
    holdings::describe();
    metrics::describe_histogram!("skein_entity_commit_seconds", "How long the store took for a batch.");
    metrics::describe_histogram!(
        "skein_webhook_seconds",
        "How long senders waited until a webhook was acknowledged."
    );
    for name in [
        "skein_entity_commits_total",
        "skein_entity_commands_total",
        "skein_entity_deaths_total",
        "skein_store_flushes_total",
        "skein_store_generations_total",
        "skein_store_lost_writes_total",
    ] {
        metrics::counter!(name).increment(0);
    }
}

/// Counts the requests that a listener answers.
#[derive(Clone)]
pub(super) struct Answers {
    listener: &'static str,
    /// By status, from [`LOWEST`] on. To look a counter up by its labels costs more than to count.
    counters: Arc<[OnceLock<Counter>]>,
}

/// The status codes that there may be.
const LOWEST: u16 = 100;
const HIGHEST: u16 = 999;

impl Answers {
    pub(super) fn of(listener: &'static str) -> Self {
        Self { listener, counters: (LOWEST..=HIGHEST).map(|_| OnceLock::new()).collect() }
    }

    pub(super) fn count(&self, status: StatusCode) {
        let counter = || {
            let status = status.as_u16().to_string();
            metrics::counter!("skein_http_requests_total", "listener" => self.listener, "status" => status)
        };
        if let Some(place) = self.counters.get(usize::from(status.as_u16() - LOWEST)) {
            place.get_or_init(counter).increment(1);
        }
    }
}

/// What a node says that can do nothing before an export or an import has ended.
const ALONE: &str = "waiting: skein export or skein import has the store for itself\n";

/// The cluster of a node that starts, as soon as it takes part in one.
pub(super) type Joined = Arc<OnceLock<Arc<Cluster>>>;

/// What a node answers before it takes requests: that it lives, and why it is not ready.
pub(super) fn lobby(joined: Joined) -> Router {
    // What is counted before there is one is counted for nobody.
    recorder();
    let waiting = move || async move {
        let is_alone = joined.get().is_some_and(|cluster| cluster.sole_owner().is_some());
        (StatusCode::SERVICE_UNAVAILABLE, if is_alone { ALONE } else { "starting\n" })
    };
    Router::new().route("/healthz", get(|| async { "ok\n" })).route("/readyz", get(waiting))
}

/// `/healthz` says that the process lives, `/readyz` that requests should come to it, `/metrics` how it fares. Whoever
/// leaves or drains answers what comes all the same: `/readyz` is what keeps more from coming.
pub(super) fn router(entities: Entities, leaving: CancellationToken) -> Router {
    let handle = recorder();
    let asked = entities.clone();
    let ready = move || async move {
        if leaving.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        // Without others it has everything, until somebody comes.
        if asked.cluster().is_some_and(|cluster| cluster.is_draining() && cluster.has_successors()) {
            return (StatusCode::SERVICE_UNAVAILABLE, "draining\n");
        }
        if asked.cluster().is_some_and(|cluster| cluster.sole_owner().is_some()) {
            return (StatusCode::SERVICE_UNAVAILABLE, ALONE);
        }
        (StatusCode::OK, "ready\n")
    };
    let numbers = move || async move {
        measure(&entities);
        measure_alarms(&entities);
        measure_cluster(&entities);
        let from_the_store = async {
            measure_outbox(&entities).await;
            holdings::measure(&entities).await;
        };
        // Whoever looks because the store stands still wants the other numbers all the same.
        let _ = tokio::time::timeout(STORE, from_the_store).await;
        handle.run_upkeep();
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], handle.render()).into_response()
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(numbers))
}

/// Takes a sample of the numbers every so often, until `stop`.
pub(super) async fn sample(entities: Entities, trends: Trends, stop: CancellationToken) {
    let handle = recorder();
    let mut ticks = tokio::time::interval(trends::EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        measure(&entities);
        let _ = tokio::time::timeout(STORE, measure_outbox(&entities)).await;
        handle.run_upkeep();
        trends.keep(&handle.render());
    }
}

/// What is known without asking the store.
fn measure(entities: &Entities) {
    let in_memory = entities.in_memory();
    let waiting: usize = in_memory.iter().map(|(_, waiting)| waiting).sum();
    metrics::gauge!("skein_entities_in_memory").set(count(in_memory.len()));
    metrics::gauge!("skein_commands_in_flight").set(count(waiting));
    metrics::gauge!("skein_projection_lag").set(entities.shared().projection.lag() as f64);
    measure_memory();
}

/// The allocator is asked, so that what is used can be told from what is kept for later.
fn measure_memory() {
    if epoch::advance().is_err() {
        return;
    }
    if let (Ok(allocated), Ok(resident)) = (stats::allocated::read(), stats::resident::read()) {
        metrics::gauge!("skein_memory_allocated_bytes").set(count(allocated));
        metrics::gauge!("skein_memory_resident_bytes").set(count(resident));
    }
}

fn measure_alarms(entities: &Entities) {
    let alarms = entities.shared().alarms.all();
    for kind in Kind::ALL {
        let raised = alarms.iter().filter(|alarm| alarm.kind == kind).count();
        metrics::gauge!("skein_alarms", "kind" => kind.as_str()).set(count(raised));
    }
}

fn measure_cluster(entities: &Entities) {
    let Some(cluster) = entities.cluster() else { return };
    let survey = cluster.survey();
    let owned: usize = survey.iter().map(|(_, shards)| shards.len()).sum();
    metrics::gauge!("skein_cluster_nodes").set(count(survey.len()));
    metrics::gauge!("skein_cluster_shards").set(count(cluster.shards_held()));
    metrics::gauge!("skein_cluster_shards_unowned").set(count(cluster.shards().saturating_sub(owned)));
    let highest = cluster.held().into_iter().map(|(_, fence)| fence.epoch.0).max().unwrap_or_default();
    metrics::gauge!("skein_cluster_epoch").set(highest as f64);
    // So many bits a gauge keeps.
    metrics::gauge!("skein_cluster_generation")
        .set((cluster.life() >> (u64::BITS - f64::MANTISSA_DIGITS)) as f64);
    metrics::gauge!("skein_cluster_draining").set(f64::from(u8::from(cluster.is_draining())));
    if let Some(identity) = cluster.identity() {
        let (ends, now) = (identity.expires(), entities.clock().wall());
        let left = ends.since(now).as_secs_f64() - now.since(ends).as_secs_f64();
        metrics::gauge!("skein_cluster_certificate_expires_seconds").set(left);
    }
}

/// A store that cannot be read leaves the last numbers: other endpoints say what is wrong with it.
async fn measure_outbox(entities: &Entities) {
    let Ok(lag) = entities.lag().await else { return };
    metrics::gauge!("skein_outbox_effects").set(count(lag.effects));
    metrics::gauge!("skein_outbox_lag_seconds").set(lag.oldest_effect_ms as f64 / 1000.0);
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
