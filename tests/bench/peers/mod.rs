//! Other products that do the same work, at pinned versions, on loopback.

pub(crate) mod bullmq;
mod install;
pub(crate) mod nats;
pub(crate) mod nats_inbox;
pub(crate) mod nats_push;
pub(crate) mod postgres;
pub(crate) mod restate;

use anyhow::Result;
use futures::future::BoxFuture;

use crate::harness::contender::Contender;
use crate::harness::report::Report;
use crate::options::Options;

/// Starts a product in a folder of its own.
pub(crate) struct Peer {
    pub name: &'static str,
    pub start: fn(Options) -> Starting,
}

/// A product on its way up.
pub(crate) type Starting = BoxFuture<'static, Result<Box<dyn Contender>>>;

/// Adds the peers that can be had; the others leave a remark that nobody overlooks.
///
/// # Errors
/// Never: a missing peer is no failure of the bench.
pub(crate) async fn add(
    contenders: &mut Vec<Box<dyn Contender>>,
    report: &mut Report,
    options: &Options,
    peers: &[Peer],
) -> Result<()> {
    for peer in peers {
        if options.without_peers {
            report.remarks.push(format!("{} was left out, as asked", peer.name));
            continue;
        }
        match (peer.start)(options.clone()).await {
            Ok(contender) => contenders.push(contender),
            Err(error) => {
                let remark = format!("{} IS MISSING: {error:#}", peer.name);
                eprintln!("    {remark}");
                report.remarks.push(remark);
            }
        }
    }
    Ok(())
}
