//! Whether the node lives, whether it should be asked, and how it fares.

use std::sync::OnceLock;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tokio_util::sync::CancellationToken;

use crate::entity::Entities;

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
        handle
    })
}

/// `/healthz` says that the process lives, `/readyz` that it takes requests, `/metrics` how it fares.
pub(super) fn router(entities: Entities, stop: CancellationToken) -> Router {
    let handle = recorder();
    let ready = move || async move {
        if stop.is_cancelled() {
            return (StatusCode::SERVICE_UNAVAILABLE, "stopping\n");
        }
        (StatusCode::OK, "ready\n")
    };
    let numbers = move || async move {
        let in_memory = entities.in_memory();
        let waiting: usize = in_memory.iter().map(|(_, waiting)| waiting).sum();
        metrics::gauge!("skein_entities_in_memory").set(count(in_memory.len()));
        metrics::gauge!("skein_commands_in_flight").set(count(waiting));
        metrics::gauge!("skein_projection_lag").set(entities.shared().projection.lag() as f64);
        handle.run_upkeep();
        ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], handle.render()).into_response()
    };
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(numbers))
}

fn count(number: usize) -> f64 {
    f64::from(u32::try_from(number).unwrap_or(u32::MAX))
}
