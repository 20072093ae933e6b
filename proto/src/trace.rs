//! Traces that lead from one process to the next, as a W3C `traceparent`. Without the feature `otlp` nothing is traced,
//! and the texts are empty.

use tracing::Span;

/// What spans for traces are told by. No log shows them.
pub const TRACES: &str = "skein::traces";

/// The `traceparent` for what follows from a span; empty when it is not traced.
pub fn traceparent(of: &Span) -> String {
    #[cfg(feature = "otlp")]
    return context::of(of);
    #[cfg(not(feature = "otlp"))]
    {
        let _ = of;
        String::new()
    }
}

/// Makes a span follow from what another process has begun. It must not have been entered.
pub fn follow(span: &Span, traceparent: &str) {
    #[cfg(feature = "otlp")]
    context::set(span, traceparent);
    #[cfg(not(feature = "otlp"))]
    let _ = (span, traceparent);
}

#[cfg(feature = "otlp")]
mod context {
    use std::collections::HashMap;

    use opentelemetry::propagation::TextMapPropagator;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use tracing::Span;
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    const PARENT: &str = "traceparent";

    pub(super) fn of(span: &Span) -> String {
        let mut carrier = HashMap::new();
        TraceContextPropagator::new().inject_context(&span.context(), &mut carrier);
        carrier.remove(PARENT).unwrap_or_default()
    }

    pub(super) fn set(span: &Span, traceparent: &str) {
        if traceparent.is_empty() {
            return;
        }
        let carrier = HashMap::from([(PARENT.to_owned(), traceparent.to_owned())]);
        // A span that nobody records has no place for a parent.
        let _ = span.set_parent(TraceContextPropagator::new().extract(&carrier));
    }
}
