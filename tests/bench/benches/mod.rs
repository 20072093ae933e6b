//! The benches, one file each.

mod call_rtt;
mod cluster_spread;
mod console_10k;
mod cpu_budget;
mod cycle_embedded;
mod cycle_http;
mod cycle_redis;
mod dispatch_push;
mod drain;
mod facade;
mod failover;
mod fairness;
mod first_request;
mod footprint;
mod idle_fleet;
mod inbox;
mod ingress;
mod lock_embedded;
mod lock_redis;
mod mcp_tool;
mod memory_search;
mod node_grpc;
mod pause_resume;
mod peers;
mod pool_1m;
mod power_cut;
mod recovery;
mod schedules_100k;
mod waits_100k;

use anyhow::Result;
use futures::future::BoxFuture;

use crate::harness::report::Report;
use crate::options::Options;

/// Something that can be measured by name.
pub(crate) struct Bench {
    pub name: &'static str,
    pub about: &'static str,
    pub run: fn(Options) -> BoxFuture<'static, Result<Report>>,
}

/// All of them, in the order of the goals.
pub(crate) const ALL: &[Bench] = &[
    cycle_embedded::BENCH,
    cycle_http::BENCH,
    cycle_redis::BENCH,
    lock_embedded::BENCH,
    lock_redis::BENCH,
    call_rtt::BENCH,
    inbox::BENCH,
    node_grpc::BENCH,
    cluster_spread::BENCH,
    dispatch_push::BENCH,
    fairness::BENCH,
    idle_fleet::BENCH,
    pool_1m::BENCH,
    waits_100k::BENCH,
    schedules_100k::BENCH,
    pause_resume::BENCH,
    mcp_tool::BENCH,
    memory_search::BENCH,
    facade::BENCH,
    ingress::BENCH,
    console_10k::BENCH,
    recovery::BENCH,
    failover::BENCH,
    drain::BENCH,
    footprint::BENCH,
    first_request::BENCH,
    power_cut::BENCH,
    cpu_budget::BENCH,
    peers::BENCH,
];
