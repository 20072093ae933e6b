//! Keeps the freezer and the daemon of one mind.
//!
//! A container that stands still by its control group runs as far as the daemon knows, and anybody may pause or
//! unpause it by hand. So once a second it is looked whether each still is as the runner wants it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::ListContainersOptionsBuilder;
use tokio::time::MissedTickBehavior;

use super::{Instance, Instances, create, freezer, lock, set_frozen};

const LOOK: Duration = Duration::from_secs(1);

/// Never returns.
pub(super) async fn keep(docker: Docker, instances: Arc<Instances>) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        look.tick().await;
        let all: Vec<Arc<Instance>> = lock(&instances).values().cloned().collect();
        if all.is_empty() {
            continue;
        }
        // A daemon that does not answer is asked again.
        let Some(paused) = paused(&docker).await else { continue };
        for instance in all {
            put_right(&docker, &instance, paused.contains(&instance.container)).await;
        }
    }
}

/// Of whatever runner: each container is known by its id.
async fn paused(docker: &Docker) -> Option<Vec<String>> {
    let filters = HashMap::from([
        ("label".to_owned(), vec![create::RUNNER.to_owned()]),
        ("status".to_owned(), vec!["paused".to_owned()]),
    ]);
    let options = ListContainersOptionsBuilder::new().filters(&filters).build();
    let found = docker.list_containers(Some(options)).await.ok()?;
    Some(found.into_iter().filter_map(|one| one.id).collect())
}

async fn put_right(docker: &Docker, instance: &Instance, paused: bool) {
    // One that is being frozen or thawed this moment is looked at the next time.
    let Ok(wanted) = instance.frozen.try_lock() else { return };
    if instance.ending.borrow().is_some() {
        return;
    }
    let name = &instance.handle.instance;
    let stands = instance.handle.cgroup.as_deref().map_or(paused, freezer::is_frozen);
    if *wanted && !stands {
        tracing::warn!(instance = name, "somebody let a frozen container go on; it is frozen again");
        if let Err(problem) = set_frozen(docker, instance, true).await {
            tracing::error!(instance = name, %problem, "a frozen container runs");
        }
    }
    if !*wanted && paused {
        tracing::warn!(instance = name, "somebody paused a container; it goes on");
        if let Err(error) = docker.unpause_container(&instance.container).await {
            tracing::error!(instance = name, %error, "a container stays paused");
        }
    }
}
