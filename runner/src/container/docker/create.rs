//! What a container is made of: closed in every respect that the definition does not open.

use std::collections::HashMap;

use bollard::models::{ContainerCreateBody, ContainerSummary, HostConfig, HostConfigLogConfig};

use super::Id;
use super::program::{Program, read_only, writable};
use super::settings::Container;
use crate::container::{Joined, Kept, Spec, User, mark};

/// Labels by which a runner finds its own containers, and a person those of an agent.
pub(super) const RUNNER: &str = "skein.runner";
pub(super) const INSTANCE: &str = "skein.instance";
/// Where in the instance's log its output begins, for the runner may crash before it has written that down.
const LOG_BEGIN: &str = "skein.log";
const SWARM: &str = "skein.swarm";
const AGENT: &str = "skein.agent";
/// Where the agent finds its definition.
pub const STATIC: &str = "/app/static";
/// Where it finds what it is lent.
pub const CREDENTIALS: &str = "/credentials";
/// Where a long input is.
pub const INPUT: &str = "/app/input.json";
/// Where the commands for shell scripts are.
pub const AGENT_COMMANDS: &str = "/app/bin";
/// Where its programs may keep settings.
pub const HOME: &str = "/home/node";
const TMP: &str = "/tmp";
/// All that it may write into.
pub const WRITABLE: [&str; 2] = [TMP, HOME];
const TMP_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=1777,size=2147483648";
const HOME_OPTIONS: &str = "rw,exec,nosuid,nodev,mode=0700,size=67108864";

/// What the daemon keeps of the output until the runner has read it.
const LOG: &str = "16m";
const LOGS: &str = "2";

pub(super) fn name(runner: &str, instance: &str) -> String {
    format!("skein-{runner}-{instance}")
}

/// Whether these are the labels of something that the runner has made, by whatever name.
pub(super) fn is_of(runner: &str, labels: Option<&HashMap<String, String>>) -> bool {
    labels.and_then(|labels| labels.get(RUNNER)).is_some_and(|mark| mark::is_same(mark, runner))
}

/// The instance that lives in a container.
pub(super) fn instance(found: &ContainerSummary) -> Option<String> {
    found.labels.as_ref()?.get(INSTANCE).cloned()
}

/// How a container is found again, by its labels.
pub(super) fn id(found: ContainerSummary) -> Option<Id> {
    let log = found.labels?.get(LOG_BEGIN)?.parse().ok()?;
    Some(Id { id: found.id?, log })
}

pub(super) fn body(
    runner: &str,
    program: &Program,
    network: String,
    spec: &Spec,
    container: &Container,
    path: &str,
    log: u64,
) -> ContainerCreateBody {
    let mut env: Vec<String> = spec.env.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if spec.agent_commands.is_some() {
        // What the agent or its image brings along is found first.
        let path = spec.env.get("PATH").map_or(path, String::as_str);
        env.retain(|variable| !variable.starts_with("PATH="));
        env.push(format!("PATH={path}:{AGENT_COMMANDS}"));
    }
    // The init process passes a request to end on to the whole group of the agent, not to its first process alone.
    env.push("TINI_KILL_PROCESS_GROUP=1".to_owned());
    let value = |name: &str| spec.env.get(name).cloned().unwrap_or_default();
    let labels = HashMap::from([
        (RUNNER.to_owned(), runner.to_owned()),
        (INSTANCE.to_owned(), spec.instance.clone()),
        (LOG_BEGIN.to_owned(), log.to_string()),
        (SWARM.to_owned(), value("SKEIN_SWARM")),
        (AGENT.to_owned(), value("SKEIN_AGENT")),
    ]);
    ContainerCreateBody {
        image: Some(container.image.clone()),
        // The whole command, whatever the image puts before its own.
        entrypoint: (!spec.command.is_empty()).then(|| spec.command.clone()),
        env: Some(env),
        labels: Some(labels),
        user: Some(format!("{}:{}", container.user.uid, container.user.gid)),
        working_dir: Some(STATIC.to_owned()),
        host_config: Some(host(program, network, spec, container)),
        ..ContainerCreateBody::default()
    }
}

fn host(program: &Program, network: String, spec: &Spec, container: &Container) -> HostConfig {
    let memory = i64::try_from(container.memory).unwrap_or(i64::MAX);
    let mut mounts = program.mounts();
    let tmpfs = match &spec.kept {
        Some(Kept { tmp, home }) => {
            mounts.extend([writable(tmp, TMP), writable(home, HOME)]);
            None
        }
        None => Some(in_memory(container.user)),
    };
    match &spec.joined {
        Some(Joined { folder, mounts: inside }) => {
            mounts.push(read_only(folder, STATIC));
            let inside = inside.iter().map(|(name, source)| read_only(source, &format!("{STATIC}/{name}")));
            mounts.extend(inside);
        }
        None => mounts.push(read_only(&spec.definition, STATIC)),
    }
    mounts.extend(spec.credentials.as_deref().map(|lent| read_only(lent, CREDENTIALS)));
    mounts.extend(spec.input.as_deref().map(|input| read_only(input, INPUT)));
    mounts.extend(spec.agent_commands.as_deref().map(|commands| read_only(commands, AGENT_COMMANDS)));
    let log =
        HashMap::from([("max-size".to_owned(), LOG.to_owned()), ("max-file".to_owned(), LOGS.to_owned())]);
    HostConfig {
        network_mode: Some(network),
        readonly_rootfs: Some(true),
        tmpfs,
        mounts: Some(mounts),
        cap_drop: Some(vec!["ALL".to_owned()]),
        security_opt: Some(vec!["no-new-privileges:true".to_owned()]),
        memory: Some(memory),
        // With the memory itself: nothing is swapped.
        memory_swap: Some(memory),
        nano_cpus: Some(container.nano_cpus),
        pids_limit: Some(i64::from(container.pids)),
        init: Some(true),
        log_config: Some(HostConfigLogConfig { typ: Some("local".to_owned()), config: Some(log) }),
        ..HostConfig::default()
    }
}

/// The writable folders, as file systems that end with the container.
fn in_memory(user: User) -> HashMap<String, String> {
    let home = format!("{HOME_OPTIONS},uid={},gid={}", user.uid, user.gid);
    HashMap::from([(TMP.to_owned(), TMP_OPTIONS.to_owned()), (HOME.to_owned(), home)])
}
