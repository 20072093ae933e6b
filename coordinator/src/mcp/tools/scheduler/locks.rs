//! Locks.

use std::time::Duration;

use serde::Deserialize;
use serde_json::json;
use skein_shared::lockspace::Reply;
use skein_shared::{Code, Refusal, limits};

use super::{granted, refused};
use crate::auth::Right;
use crate::mcp::catalogue::{Call, Outcome, Tool, Toolset};
use crate::mcp::schema::{Args, any_text, flag, text};

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("acquire_lock", "Acquire a lock", Toolset::Scheduler, acquire)
            .core()
            .writes(Right::Work)
            .additive()
            .about(
                "Take an exclusive lock on a resource, named by a URI.",
                "It never waits. One lock at a time; your own is refreshed and keeps its fencing_token, which guarded resources check. It ends after ttl_seconds (1800), or with your instance.",
            )
            .found_by("mutex lease exclusive claim resource hold")
            .known_as(&["rlock"])
            .args(
                Args::none()
                    .need("resource_key", text(limits::LOCK_KEY), "The resource as an absolute URI, such as github://org/repo/issues/7")
                    .take("ttl_seconds", seconds(), "How long it lasts (1800)"),
            )
            .output(json!({
                "ok": flag(), "resource_key": any_text(4096), "fencing_token": any_text(64),
                "expires_at": any_text(64), "refreshed": flag(), "holder": any_text(200),
                "reason": any_text(4000), "code": any_text(64),
            })),
        Tool::new("heartbeat_lock", "Keep a lock", Toolset::Scheduler, heartbeat)
            .writes(Right::Work)
            .idempotent()
            .about(
                "Start the time to live of a lock that you hold anew.",
                "It lasts as long as it was acquired for, or ttl_seconds from now. The fencing_token stays.",
            )
            .found_by("extend refresh renew mutex lease longer")
            .known_as(&["rlock-heartbeat"])
            .args(
                Args::none()
                    .need("resource_key", text(limits::LOCK_KEY), "The resource, as it was acquired")
                    .take("ttl_seconds", seconds(), "How long it lasts from now on"),
            )
            .output(json!({
                "ok": flag(), "resource_key": any_text(4096), "fencing_token": any_text(64),
                "expires_at": any_text(64), "reason": any_text(4000), "code": any_text(64),
            })),
        Tool::new("release_lock", "Release a lock", Toolset::Scheduler, release)
            .core()
            .writes(Right::Work)
            .additive()
            .about("Give back a lock that you hold.", "")
            .found_by("unlock free mutex lease")
            .known_as(&["runlock"])
            .args(Args::none().need("resource_key", text(limits::LOCK_KEY), "The resource, as it was acquired"))
            .output(json!({ "ok": flag(), "resource_key": any_text(4096), "reason": any_text(4000), "code": any_text(64) })),
    ]
}

/// Up to what any swarm may allow: the lockspace refuses what its own does not.
fn seconds() -> serde_json::Value {
    json!({ "type": "number", "exclusiveMinimum": 0, "maximum": limits::LOCK_TTL_ALLOWED.as_secs() })
}

#[derive(Deserialize)]
struct Acquire {
    resource_key: String,
    ttl_seconds: Option<f64>,
}

async fn acquire(call: Call, args: Acquire) -> Outcome {
    let ttl = match time_to_live(args.ttl_seconds) {
        Ok(ttl) => ttl,
        Err(refusal) => return refused("Lock not acquired:", refusal),
    };
    let asked = args.resource_key.clone();
    match call.service.acquire(&call.who, call.request, args.resource_key, ttl).await {
        Ok(Reply::Acquired { key, token, expires_at, refreshed, .. }) => {
            let token = token.to_string();
            let text = format!("Lock acquired on {asked}. fencing_token: {token}, expires at {expires_at}");
            Ok(granted(
                text,
                json!({
                    "resource_key": key, "fencing_token": token, "expires_at": expires_at.iso(),
                    "refreshed": refreshed, "holder": call.instance(),
                }),
            ))
        }
        Ok(_) => Err(unexpected()),
        Err(refusal) => refused("Lock not acquired:", refusal),
    }
}

async fn heartbeat(call: Call, args: Acquire) -> Outcome {
    let ttl = match time_to_live(args.ttl_seconds) {
        Ok(ttl) => ttl,
        Err(refusal) => return refused("Lock not kept:", refusal),
    };
    match call.service.keep_lock(&call.who, call.request, args.resource_key, ttl).await {
        Ok(Reply::Acquired { key, token, expires_at, .. }) => Ok(granted(
            format!("Lock kept on {key}. It expires at {expires_at}"),
            json!({ "resource_key": key, "fencing_token": token.to_string(), "expires_at": expires_at.iso() }),
        )),
        Ok(_) => Err(unexpected()),
        Err(refusal) => refused("Lock not kept:", refusal),
    }
}

fn time_to_live(seconds: Option<f64>) -> Result<Option<Duration>, Refusal> {
    seconds
        .map(Duration::try_from_secs_f64)
        .transpose()
        .map_err(|_| Refusal::new(Code::InvalidArgument, "ttl_seconds must be a number of seconds above 0"))
}

fn unexpected() -> Refusal {
    Refusal::new(Code::Internal, "the lockspace gave an answer of another kind; report this")
}

#[derive(Deserialize)]
struct Release {
    resource_key: String,
}

async fn release(call: Call, args: Release) -> Outcome {
    let asked = args.resource_key.clone();
    match call.service.release(&call.who, call.request, args.resource_key).await {
        Ok(key) => Ok(granted(format!("Lock released on {asked}"), json!({ "resource_key": key }))),
        Err(refusal) => refused("Could not release lock:", refusal),
    }
}
