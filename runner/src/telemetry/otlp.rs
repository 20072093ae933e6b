//! Traces over OTLP.

use std::io::Write;

use anyhow::Context;
use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::SpanExporter;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use skein_proto::trace::TRACES;
use tracing::{Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Layer;
use tracing_subscriber::registry::LookupSpan;

/// Sends the last spans when it is dropped.
pub(super) struct Exporter(SdkTracerProvider);

impl Drop for Exporter {
    fn drop(&mut self) {
        if let Err(error) = self.0.shutdown() {
            let _ = writeln!(std::io::stderr(), "the last traces were not sent: {error}");
        }
    }
}

/// `None` when no collector is named.
pub(super) fn start<S>(service: &'static str) -> anyhow::Result<Option<(impl Layer<S>, Exporter)>>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    if std::env::var_os("OTEL_EXPORTER_OTLP_ENDPOINT").is_none() {
        return Ok(None);
    }
    let exporter = SpanExporter::builder().with_tonic().build();
    let exporter =
        exporter.context("OTEL_EXPORTER_OTLP_ENDPOINT names no collector that can be spoken to by gRPC")?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(Resource::builder().with_service_name(service).build())
        .build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(service));
    let traces = layer.with_filter(Targets::new().with_target(TRACES, Level::DEBUG));
    Ok(Some((traces, Exporter(provider))))
}
