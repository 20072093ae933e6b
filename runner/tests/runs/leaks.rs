//! What runs leave behind: nothing.

use std::fs;
use std::path::PathBuf;

use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::report::What;
use skein_proto::v1::{Forget, Report};

use crate::bed::{Bed, MCP, comes_about, freeze, id, marked, start, stop, thaw, token};
use crate::coordinator::{Coordinator, LEASE, TOKEN};

/// Rounds of start, freeze, thaw and end; `SKEIN_ROUNDS` asks for more.
const ROUNDS: u32 = 50;
/// After so many everything that is made once has been made.
const WARM: u32 = 10;
/// Growth of the resident memory that is no leak: what the allocator keeps, and the test's own record of each report.
const MEMORY: u64 = 16 * 1024 * 1024;

/// What a process has of the machine.
#[derive(Debug)]
struct Held {
    descriptors: usize,
    threads: usize,
    /// Bytes.
    resident: u64,
}

impl Held {
    fn now() -> Self {
        let entries = |folder: &str| fs::read_dir(folder).unwrap().count();
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        let kilobytes: u64 = resident.trim_end_matches("kB").trim().parse().unwrap();
        let (descriptors, threads) = (entries("/proc/self/fd"), entries("/proc/self/task"));
        Self { descriptors, threads, resident: kilobytes * 1024 }
    }
}

/// The control group of an instance, where the machine has them.
fn group(instance: &str) -> Option<PathBuf> {
    let process = marked(instance).pop()?;
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
    mounts.into_iter().map(|mount| PathBuf::from(mount).join(group)).find(|path| path.ends_with(instance))
}

async fn round(coordinator: &Coordinator, number: u32) {
    let instance = id(number).to_owned();
    let told = async |kind: fn(&What) -> bool| -> Report { coordinator.reported(&instance, kind).await };
    coordinator.say(start(&instance, 1)).await;
    told(|what| matches!(what, What::Started(_))).await;
    let group = group(&instance);
    coordinator.say(freeze(&instance, 2)).await;
    told(|what| matches!(what, What::Frozen(_))).await;
    coordinator.say(thaw(&instance, 3)).await;
    told(|what| matches!(what, What::Thawed(_))).await;
    coordinator.say(stop(&instance, 4)).await;
    told(|what| matches!(what, What::Exited(_))).await;
    assert!(marked(&instance).is_empty(), "{instance} has left processes behind");
    assert!(group.as_ref().is_none_or(|group| !group.exists()), "{instance} has left {group:?} behind");
    coordinator.say(Message::Forget(Forget { instance, token: token(5) })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_of_start_freeze_thaw_and_end_leave_nothing_behind() {
    let asked = std::env::var("SKEIN_ROUNDS").ok().map(|rounds| rounds.parse().expect("a number of rounds"));
    let rounds: u32 = asked.unwrap_or(ROUNDS).max(WARM + 1);
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let mut bed = Bed::new("setsid sh -c 'sleep 1000' & sleep 1000");
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    for number in 0..WARM {
        round(&coordinator, number).await;
    }
    let before = Held::now();
    for number in WARM..rounds {
        round(&coordinator, number).await;
    }
    // The last instance's endpoint and its watcher may be about to close.
    let after = comes_about(|| {
        let now = Held::now();
        (now.descriptors <= before.descriptors && now.threads <= before.threads + 2).then_some(now)
    });
    let after = after.await.unwrap_or_else(|| panic!("{before:?} has become {:?}", Held::now()));
    assert!(after.resident < before.resident + MEMORY, "{before:?} has become {after:?}");
    bed.leave().await.unwrap();
}
