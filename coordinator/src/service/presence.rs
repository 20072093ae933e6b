//! Who keeps a wait open. Its agent counts as alive all the while, and one task tells the pools so for all of
//! them: ten thousand sleepers that each gave a sign by itself would keep a processor busy.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_shared::entity::Signal;
use skein_shared::id::{EntityKey, InstanceId, Kind};
use skein_shared::limits;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Service;
use crate::auth::{Principal, policy};
use crate::entity::Entities;

/// A third of the shortest lease, so that one sign may come late.
const SIGN: Duration = limits::TASK_LEASE_RUNNER.checked_div(3).expect("three is not zero");
/// Agents in one signal: a pool that hears of all at once would let its callers wait.
const SOME: usize = 500;

/// The open waits by pool, counted for each instance. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence {
    waiting: Arc<Mutex<Waiting>>,
}

type Waiting = HashMap<EntityKey, HashMap<(Uuid, InstanceId), usize>>;

/// One open wait. It ends when this is dropped.
pub struct Present {
    presence: Presence,
    pool: EntityKey,
    who: (Uuid, InstanceId),
}

impl Presence {
    pub(super) fn enter(&self, who: &Principal) -> Present {
        let (pool, who) = (who.entity(Kind::Pool), (who.agent, who.instance.clone()));
        *self.lock().entry(pool.clone()).or_default().entry(who.clone()).or_default() += 1;
        Present { presence: self.clone(), pool, who }
    }

    /// Tells each pool who of its agents waits.
    fn tell(&self, entities: &Entities) {
        let signals: Vec<(EntityKey, Signal)> = {
            let waiting = self.lock();
            let pools = waiting.iter().flat_map(|(pool, agents)| {
                let agents: Vec<_> = agents.keys().map(|(agent, i)| (*agent, i.to_string())).collect();
                let some: Vec<_> = agents.chunks(SOME).map(<[_]>::to_vec).collect();
                some.into_iter().map(|agents| (pool.clone(), Signal::AgentsAlive { agents }))
            });
            pools.collect()
        };
        for (pool, signal) in signals {
            entities.observe(&pool, signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        let mut waiting = self.presence.lock();
        let Some(agents) = waiting.get_mut(&self.pool) else { return };
        if let Some(open) = agents.get_mut(&self.who) {
            *open -= 1;
            if *open == 0 {
                agents.remove(&self.who);
            }
        }
        if agents.is_empty() {
            waiting.remove(&self.pool);
        }
    }
}

impl Service {
    /// Counts a caller as alive until what this gives is dropped. Who may only read counts as little as with
    /// [`Service::seen`], and gets nothing to hold.
    #[must_use]
    pub fn present(&self, who: &Principal) -> Option<Present> {
        policy::may_work(who).then(|| {
            self.seen(who);
            self.presence.enter(who)
        })
    }
}

/// Gives a sign of life for all who wait, again and again, until `stop`.
pub async fn watch(service: Service, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(SIGN) => service.presence.tell(&service.entities),
        }
    }
}

#[cfg(test)]
mod tests {
    use skein_shared::pool::{self, Pool};
    use tokio_util::sync::DropGuard;

    use super::*;
    use crate::auth::{Role, View};
    use crate::entity::{Clock, Hub, Request};
    use crate::projection::Projection;
    use crate::service::resources::Resource;
    use crate::store::Store;
    use crate::store::memory::Memory;

    struct Bench {
        service: Service,
        store: Arc<Memory>,
        _stops: DropGuard,
        _folder: tempfile::TempDir,
    }

    fn bench() -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let store = Arc::new(Memory::new(clock.wall()));
        let projection = Projection::open(&folder.path().join("read.db"), store.clone()).unwrap();
        let entities = Entities::new(store.clone(), projection, clock, Hub::default());
        let service = Service::new(entities.clone());
        let stop = CancellationToken::new();
        tokio::spawn(watch(service.clone(), stop.clone()));
        tokio::spawn(crate::entity::timers::pump(entities, stop.clone()));
        Bench { service, store, _stops: stop.drop_guard(), _folder: folder }
    }

    fn worker() -> Principal {
        Principal::named("worker", Role::Worker)
    }

    async fn pool(service: &Service, command: pool::Command) -> pool::Reply {
        let key = worker().entity(Kind::Pool);
        service.entities.ask::<Pool>(&key, Request::once(Uuid::now_v7()), command).await.unwrap()
    }

    /// Joins, and starts a task.
    async fn begin(service: &Service) -> Uuid {
        let who = worker();
        let join = pool::Join {
            agent: who.agent,
            name: "worker".to_owned(),
            lead: false,
            role: None,
            capabilities: Vec::new(),
            description: None,
            max_tasks: None,
            managed: false,
            texts: None,
        };
        pool(service, pool::Command::Join(join)).await;
        let create = pool::Create {
            by: None,
            spec: pool::TaskSpec::new("a long one".to_owned()),
            target: pool::Target::Pool,
            rules: pool::Rules::Plain,
            facts: Vec::new(),
        };
        let pool::Reply::Created { task, .. } = pool(service, pool::Command::Create(Box::new(create))).await
        else {
            panic!("no task")
        };
        let Principal { agent, instance, .. } = who;
        pool(service, pool::Command::Claim { agent, instance, managed: false, task: task.id }).await;
        task.id
    }

    async fn status(service: &Service, task: Uuid) -> serde_json::Value {
        service.get_task(&worker(), task).await.unwrap()["status"].clone()
    }

    #[tokio::test(start_paused = true)]
    async fn an_open_wait_keeps_the_lease_for_as_long_as_it_is_open() {
        let bench = bench();
        let (service, store) = (&bench.service, &bench.store);
        let task = begin(service).await;
        let commits = store.load(&worker().entity(Kind::Pool)).await.unwrap().version;
        let present = service.presence.enter(&worker());
        let second = service.presence.enter(&worker());
        drop(second);
        tokio::time::sleep(3 * limits::TASK_LEASE_AGENT).await;
        assert_eq!(status(service, task).await, "in_progress");
        let since = store.load(&worker().entity(Kind::Pool)).await.unwrap().version;
        assert!(since.0 - commits.0 <= 3, "{} commits in three lease times", since.0 - commits.0);
        drop(present);
        assert!(service.presence.lock().is_empty());
        tokio::time::sleep(limits::TASK_LEASE_AGENT + 2 * SIGN).await;
        assert_ne!(status(service, task).await, "in_progress");
    }

    /// A dashboard waits with a token of the agent, and goes on when that has died.
    #[tokio::test(start_paused = true)]
    async fn who_waits_and_may_only_read_keeps_no_lease() {
        let left_to_read = Principal { rights: "swarm:read".parse().unwrap(), ..worker() };
        let at_a_readonly_address = worker().at(&View::parse("readonly").unwrap());
        for onlooker in [left_to_read, at_a_readonly_address] {
            let bench = bench();
            let task = begin(&bench.service).await;
            let _present = bench.service.present(&onlooker);
            tokio::time::sleep(limits::TASK_LEASE_AGENT + 2 * SIGN).await;
            assert_ne!(status(&bench.service, task).await, "in_progress", "{onlooker:?}");
        }
        let bench = bench();
        let task = begin(&bench.service).await;
        let _present = bench.service.present(&worker());
        tokio::time::sleep(limits::TASK_LEASE_AGENT + 2 * SIGN).await;
        assert_eq!(status(&bench.service, task).await, "in_progress");
    }

    /// What a session watches is looked at in its name for as long as the session is there, and nobody may be.
    #[tokio::test(start_paused = true)]
    async fn what_is_watched_keeps_no_lease() {
        const MONTH: Duration = Duration::from_secs(30 * 24 * 3600);
        let bench = bench();
        let task = begin(&bench.service).await;
        let (service, who, resource) = (bench.service.clone(), worker(), Resource::Task(task));
        // The read side has what was begun only after a moment.
        while service.outline(&who).await.is_err() {
            tokio::time::sleep(SIGN).await;
        }
        let watching = tokio::spawn(async move {
            let shown = service.shown_anew(&who, &resource, |_| false, MONTH);
            let listed = async {
                let seen = service.outline(&who).await.unwrap();
                service.lines_anew(&who, &seen, MONTH).await
            };
            tokio::join!(shown, listed)
        });
        tokio::time::sleep(limits::TASK_LEASE_AGENT + 2 * SIGN).await;
        assert!(bench.service.presence.lock().is_empty());
        assert_ne!(status(&bench.service, task).await, "in_progress");
        assert!(!watching.is_finished(), "it watches still");
    }
}
