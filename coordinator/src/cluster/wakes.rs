//! Wakes those who wait on this node for something that happens on another.
//!
//! Every node tells every other whom its commits wake, whether somebody waits there or not: so a wait has nothing to
//! announce, and no wake-up can fall between its announcement and its question. When a stream begins or ends, all look
//! again.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::member::Member;
use super::{Cluster, Silence, Tenants, Wake, peers};
use crate::alarms::Kind;

const AGAIN: Duration = Duration::from_millis(200);

/// Listens to all others, until `stop`.
pub(super) async fn follow(cluster: Arc<Cluster>, tenants: Arc<dyn Tenants>, stop: CancellationToken) {
    let mut changes = cluster.changes();
    let mut listeners: HashMap<Uuid, CancellationToken> = HashMap::new();
    loop {
        changes.mark_unchanged();
        let others = cluster.others();
        cluster.peers.keep_only(&others);
        for kind in [Kind::Unreachable, Kind::Distrusted] {
            let alarms = cluster.alarms();
            alarms.keep_only(kind, |address| others.iter().any(|member| member.address == address));
        }
        listeners.retain(|incarnation, listener| {
            let lives = others.iter().any(|member| member.incarnation == *incarnation);
            if !lives {
                listener.cancel();
            }
            lives
        });
        for member in others {
            listeners.entry(member.incarnation).or_insert_with(|| {
                let end = stop.child_token();
                tokio::spawn(listen(Arc::clone(&cluster), Arc::clone(&tenants), member, end.clone()));
                end
            });
        }
        tokio::select! {
            () = stop.cancelled() => return,
            _ = changes.changed() => {}
        }
    }
}

/// Listens to one node for as long as it lives.
async fn listen(cluster: Arc<Cluster>, tenants: Arc<dyn Tenants>, member: Member, end: CancellationToken) {
    while !end.is_cancelled() {
        tokio::select! {
            () = end.cancelled() => {}
            () = hear(&cluster, tenants.as_ref(), &member) => {
                tokio::select! {
                    () = end.cancelled() => {}
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }
    // What it had still to say is told by nobody.
    tenants.wake(&Wake::All);
}

async fn hear(cluster: &Cluster, tenants: &dyn Tenants, member: &Member) {
    if let Some(stranger) = Silence::of_a_stranger(&cluster.me(), member) {
        return cluster.is_silent(member, &stranger);
    }
    let mut stream = match cluster.peers.wakes(member).await {
        Ok(stream) => stream,
        Err(silence) => {
            let silence = cluster.peers.look_into(member, silence).await;
            return cluster.is_silent(member, &silence);
        }
    };
    cluster.is_reached(member);
    loop {
        let wake = match stream.message().await {
            Ok(Some(wake)) => wake,
            Ok(None) => break,
            Err(status) => {
                cluster.is_silent(member, &peers::refused(member, &status));
                break;
            }
        };
        if wake.leases {
            cluster.told.notify_one();
        }
        if wake.all {
            tenants.wake(&Wake::All);
        }
        for topic in wake.topics {
            tenants.wake(&Wake::Topic(topic.into()));
        }
    }
    tenants.wake(&Wake::All);
}
