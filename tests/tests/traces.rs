//! One trace leads from the call of a tool over the commit to the runner, and arrives at a collector.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use anyhow::Result;
use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::trace::v1::Span;
use skein_tests::stage::Stage;
use tokio::net::TcpListener;
use tonic::transport::server::{Server, TcpIncoming};
use tonic::{Request, Response, Status};

const CALL: &str = r#"call_agent={"target_agent":"other","context":"a question"}"#;

/// Keeps what it is sent.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Vec<Span>>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let resources = request.into_inner().resource_spans.into_iter();
        let spans = resources.flat_map(|resource| resource.scope_spans).flat_map(|scope| scope.spans);
        self.0.lock().unwrap().extend(spans);
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

impl Collector {
    async fn start() -> Result<(Self, String)> {
        let (collector, listener) = (Self::default(), TcpListener::bind("127.0.0.1:0").await?);
        let url = format!("http://{}", listener.local_addr()?);
        let serving = Server::builder().add_service(TraceServiceServer::new(collector.clone()));
        tokio::spawn(serving.serve_with_incoming(TcpIncoming::from(listener)));
        Ok((collector, url))
    }

    /// The spans of each trace in which a tool was called.
    fn calls_of(&self, tool: &str) -> BTreeMap<Vec<u8>, Vec<Span>> {
        let spans = self.0.lock().unwrap();
        let calls =
            |span: &&Span| span.name == "tools/call" && format!("{:?}", span.attributes).contains(tool);
        let traces: BTreeSet<&Vec<u8>> = spans.iter().filter(calls).map(|span| &span.trace_id).collect();
        let all = |trace: &Vec<u8>| spans.iter().filter(|span| span.trace_id == *trace).cloned().collect();
        traces.into_iter().map(|trace| (trace.clone(), all(trace))).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_trace_leads_from_a_tool_over_the_commit_to_the_runner() -> Result<()> {
    let (collector, url) = Collector::start().await?;
    let stage = Stage::new(2)?.agent("caller", "", &[CALL])?.agent("other", "", &[])?;
    let stage = stage.with_variable("OTEL_EXPORTER_OTLP_ENDPOINT", &url);
    let stage = stage.with_variable("OTEL_BSP_SCHEDULE_DELAY", "200").start().await?;
    stage.run("caller").await?;
    stage.answer("other", "end").await?;
    let whole = async || {
        let traces = collector.calls_of("call_agent");
        Ok(traces.into_values().find(|spans| is_whole(spans)))
    };
    stage.up().until("the trace is whole", whole).await?;
    Ok(())
}

/// It leads to the runner over two commits, that of the agent that was called and that of the fleet that gave it a
/// runner, and only the call itself has no parent.
fn is_whole(spans: &[Span]) -> bool {
    let named = |name: &str| spans.iter().filter(|span| span.name == name).count();
    let ids: BTreeSet<&Vec<u8>> = spans.iter().map(|span| &span.span_id).collect();
    let orphans = spans.iter().filter(|span| !ids.contains(&span.parent_span_id)).count();
    named("runner command") > 0 && named("commit") >= 2 && orphans == 1
}
