//! The cluster with its runners, and how this node has fared.

use serde_json::{Value, json};
use skein_shared::pool::Status;
use skein_shared::{Code, Refusal};

use super::super::{Console, chart};
use super::overview::throughput;
use super::{Look, rows};
use crate::auth::{Principal, Right, policy};
use crate::service::lists::warning;

pub(super) async fn cluster(console: &Console, who: &Principal, look: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let (node, (runners, pager)) =
        tokio::try_join!(service.node(who), rows(service, who, "runners", None, look))?;
    let cluster = match service.cluster(who).await {
        Ok(mut cluster) => {
            for node in cluster["nodes"].as_array_mut().into_iter().flatten() {
                // Their number says enough on a page.
                let shards = node["shards"].as_object().map_or(0, serde_json::Map::len);
                node["shards"] = json!(shards);
            }
            cluster
        }
        // It has its store for itself.
        Err(refusal) if refusal.code == Code::WrongState => Value::Null,
        Err(refusal) => return Err(refusal),
    };
    Ok(json!({ "node": node, "cluster": cluster, "runners": runners.rows, "pager": pager }))
}

pub(super) async fn trends(console: &Console, who: &Principal, _: &Look) -> Result<Value, Refusal> {
    let service = &console.service;
    let ((counts, so_far), (throughput, freshness)) =
        tokio::try_join!(service.count_tasks(who, None), throughput(service, who))?;
    let depths: Vec<Value> = Status::ALL
        .into_iter()
        .filter_map(|status| Some(json!({ "status": status, "count": counts.get(status.as_str())? })))
        .collect();
    // What a node as a whole does is not one swarm's to see.
    let lines = match policy::require(who, Right::Administer) {
        Ok(()) => node_lines(console),
        Err(_) => Vec::new(),
    };
    let most = counts.values().max().copied().unwrap_or_default();
    Ok(json!({
        "throughput": throughput, "depths": depths, "most": most, "lines": lines,
        "warning": warning(so_far.and(freshness)),
    }))
}

fn node_lines(console: &Console) -> Vec<Value> {
    let lines = console.trends.lines();
    [
        ("Commits", "a second", lines.commits),
        ("Commands", "a second", lines.commands),
        ("HTTP requests", "a second", lines.requests),
        ("A commit takes, half of them less", "ms", lines.median),
        ("A commit takes, 99 of 100 less", "ms", lines.slowest),
        ("Commands that wait", "", lines.waiting),
        ("Commits that lists do not show yet", "", lines.unlisted),
        ("Effects to deliver", "", lines.effects),
        ("Memory", "MiB", lines.memory),
    ]
    .into_iter()
    .map(|(title, unit, values)| json!({ "title": title, "unit": unit, "line": chart::line(&values) }))
    .collect()
}
