//! The code broken on purpose, a line at a time, in real processes: a checker of the histories notices each. The same
//! scenario without the broken line passes, so it is that line which is noticed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use skein_coordinator::store::redis::shard::Shard;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::mutation::Mutation;
use skein_tests::cluster::{Cluster, Status};
use skein_tests::history::{NOTHING, Outcome, claims, inbox, locks, schedules};
use skein_tests::link::Link;
use skein_tests::nemesis::Nemesis;
use skein_tests::redis::Server;
use skein_tests::up::Up;
use skein_tests::workload::client::Client;
use skein_tests::workload::evidence::{self, Clients};
use skein_tests::workload::swarm::{Swarm, look_at_agents};
use skein_tests::workload::{CAPACITY, Field, Map, agents, room};
use tokio::sync::watch;

/// The owner of the pool keeps it until it is frozen, also if its renewals are late on a busy machine.
const SETTINGS: &str = "lease = \"4s\"\nsettle = \"200ms\"";
/// How long a client waits for a node: it meets the node again that was frozen, however long others take to take over.
const PATIENCE: Duration = Duration::from_secs(60);
/// Of a lock: no test lasts as long.
const TTL: Duration = Duration::from_secs(600);
const CLOCKWORK: &str = "clockwork";

/// Nodes that are broken in the same ways, and clients of which each asks another node first.
struct Stand {
    nodes: Vec<Up>,
    cluster: Cluster,
    map: watch::Sender<Map>,
    field: Arc<Field>,
    clients: Vec<Client>,
}

impl Stand {
    /// The first of the nodes has the pool.
    async fn new(count: usize, mutations: &[Mutation]) -> Result<Self> {
        let (cluster, first) = Cluster::start_broken(SETTINGS, mutations).await?;
        let mut folders = vec![first.terminate().await?];
        for _ in 1..count {
            folders.push(cluster.folder("")?);
        }
        let mut nodes = Vec::new();
        for folder in folders {
            nodes.push(cluster.serve(folder).await?);
        }
        let owner = owner_of_the_pool(&nodes).await?;
        nodes.swap(0, owner);
        let map = watch::Sender::new(Map::default());
        let field = Field::new(map.subscribe(), PATIENCE);
        let mut stand = Self { nodes, cluster, map, field, clients: Vec::new() };
        stand.draw();
        for number in 0..2 {
            let token = stand.nodes[0].token("worker", &format!("worker-{number}")).await?;
            stand.clients.push(Client::join(Arc::clone(&stand.field), number, &token).await?);
        }
        Ok(stand)
    }

    /// From now on clients reach the first node over a link.
    async fn front(&self) -> Result<Link> {
        let front = Link::port().await?;
        front.leads_to(self.nodes[0].mcp.trim_start_matches("http://").trim_end_matches("/mcp"));
        let mut nodes: Vec<String> = self.nodes.iter().map(|node| node.mcp.clone()).collect();
        nodes[0] = format!("http://{}/mcp", front.address());
        self.map.send_replace(Map { nodes, ingress: String::new() });
        Ok(front)
    }

    fn draw(&self) {
        let nodes = self.nodes.iter().map(|node| node.mcp.clone()).collect();
        self.map.send_replace(Map { nodes, ingress: String::new() });
    }

    /// The last node, which nothing was done to.
    fn witness(&self) -> &Up {
        self.nodes.last().unwrap()
    }

    /// Waits until every shard is with the last node.
    async fn witness_has_all(&self) -> Result<()> {
        let witness = self.witness();
        let has_all = async || {
            let status = Status::of(witness).await?;
            Ok(status.is_shared_by(&[&status.address()?]).then_some(()))
        };
        witness.until("the last node has every shard", has_all).await
    }

    /// A task that the first client has made.
    async fn task(&self, text: &str) -> Result<String> {
        match self.clients[0].create(text, 50, &[]).await {
            Outcome::Ok(claims::Answer::Task(task)) => Ok(task),
            other => bail!("no task was made: {other:?}"),
        }
    }

    /// Ends the first node as a crash does and starts it again.
    async fn restart(&mut self) -> Result<()> {
        let folder = self.nodes.remove(0).kill().await?;
        self.nodes.insert(0, self.cluster.serve(folder).await?);
        self.draw();
        Ok(())
    }

    /// A schedule that fires quickly in a swarm of its own.
    async fn schedule(&self) -> Result<()> {
        let issue = ["token", "issue", "--swarm", CLOCKWORK, "--role", "worker", "--name", "keeper"];
        let printed = self.nodes[0].skein(&issue).await?;
        let token = printed.lines().last().context("no token was printed")?;
        let keeper = Client::join(Arc::clone(&self.field), 9, token).await?;
        keeper.schedule("tick", Duration::from_secs(1)).await
    }

    /// Waits until the schedules' log has so many entries.
    async fn fires(&self, times: usize) -> Result<()> {
        let fired = async || {
            let (log, made) = evidence::schedules(&self.cluster.server, CLOCKWORK).await?;
            Ok((log.len() > times && !made.is_empty()).then_some(()))
        };
        self.witness().until("the schedule fires", fired).await
    }

    /// What all checkers find.
    async fn judge(&self) -> Result<Vec<String>> {
        let of = |client: &Client| (client.agent.clone(), client.number);
        let clients: Clients = self.clients.iter().map(of).collect();
        let history = self.field.claims.history();
        let tasks = evidence::tasks(self.witness(), &clients).await?;
        let log = evidence::claims(&self.cluster.server, &clients).await?;
        let evidence =
            claims::Evidence { history: &history, tasks: &tasks, log: Some(&log), capacity: CAPACITY };
        let mut broken = claims::check(&evidence);
        broken.extend(locks::check(&self.field.locks.history(), &self.field.writes()));
        let messages = self.field.inbox.history();
        if !messages.is_empty() {
            broken.extend(inbox::check(&messages, &self.clients[0].rooms().await?));
        }
        let (log, made) = evidence::schedules(&self.cluster.server, CLOCKWORK).await?;
        // What has fired last may be on its way.
        broken
            .extend(schedules::check(&log, &made).into_iter().filter(|problem| !problem.starts_with("lost")));
        Ok(broken)
    }
}

async fn owner_of_the_pool(nodes: &[Up]) -> Result<usize> {
    let shard = Shard::of(&EntityKey::of(Kind::Pool, &Name::parse("default").unwrap())).number();
    // It may still be on its way to the node that is to have it in the end.
    let mut addresses = Vec::new();
    for node in nodes {
        addresses.push(Status::of(node).await?.address()?);
    }
    let all: Vec<&str> = addresses.iter().map(String::as_str).collect();
    let shared = async || {
        let status = Status::of(&nodes[0]).await?;
        let owner = status.owner(shard).filter(|_| status.is_shared_by(&all));
        Ok(owner.and_then(|owner| all.iter().position(|address| *address == owner)))
    };
    nodes[0].until("the shards are shared", shared).await
}

/// Runs a scenario whole, and broken. What a checker is to notice may still be on its way when the scenario ends.
async fn is_noticed(
    count: usize,
    harmless: &[Mutation],
    broken: &[Mutation],
    rule: &str,
    scenario: impl AsyncFn(&mut Stand) -> Result<()>,
) -> Result<()> {
    let mut whole = Stand::new(count, harmless).await?;
    scenario(&mut whole).await?;
    let found = whole.judge().await?;
    ensure!(found.is_empty(), "with {harmless:?}: {found:#?}");
    drop(whole);

    let mut stand = Stand::new(count, broken).await?;
    scenario(&mut stand).await?;
    let noticed = async || {
        let found = stand.judge().await?;
        Ok(found.iter().any(|problem| problem.starts_with(rule)).then_some(()))
    };
    let waited = stand.witness().until("a checker notices", noticed).await;
    match waited {
        Ok(()) => Ok(()),
        Err(error) => Err(error.context(format!("{broken:?} shows as {:#?}", stand.judge().await?))),
    }
}

/// Two want a task, both say that they have done it.
async fn both_do_it(stand: &mut Stand) -> Result<()> {
    let task = stand.task("wanted").await?;
    for client in &stand.clients {
        client.claim(&task).await;
    }
    stand.clients[1].complete(&task, "by the second").await;
    stand.clients[0].complete(&task, "by the first").await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_what_another_has_is_noticed() -> Result<()> {
    is_noticed(1, &[], &[Mutation::ClaimTaken], "C1", both_do_it).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_of_who_does_not_have_the_task_is_noticed() -> Result<()> {
    is_noticed(1, &[], &[Mutation::ResultFromAnyone], "C2", both_do_it).await
}

/// Two want a lock, one after the other gets it.
async fn both_lock_it(stand: &mut Stand) -> Result<()> {
    let key = "file:///shelf/0";
    for client in [0, 1, 1].map(|number| &stand.clients[number]) {
        if let Some(token) = client.acquire(key, TTL).await {
            client.write(key, token);
        }
        if client.number == 1 {
            stand.clients[0].give_back(key).await;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_that_two_have_is_noticed() -> Result<()> {
    is_noticed(1, &[], &[Mutation::LockHeld], "L3", both_lock_it).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_does_not_rise_is_noticed() -> Result<()> {
    is_noticed(1, &[], &[Mutation::TokenStays], "L1", both_lock_it).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_stays_unread_is_noticed() -> Result<()> {
    let scenario = async |stand: &mut Stand| {
        stand.clients[0].furnish().await?;
        stand.clients[0].post(room(0), "once".to_owned()).await;
        stand.clients[1].read_all().await;
        stand.clients[1].read_all().await;
        Ok(())
    };
    is_noticed(1, &[], &[Mutation::ReadAgain], "doubled", scenario).await
}

/// Lets agents work among broken nodes until a checker says what is wrong. Whole ones pass the same in the suite of the
/// nemesis.
async fn agents_show(broken: Mutation, rule: &str) -> Result<()> {
    let (server, lease) = (Server::in_memory().await?, Duration::from_secs(3));
    let nemesis = Nemesis::start_broken(server, lease, 1, agents::define, &[broken]).await?;
    let swarm = Swarm::gather(&nemesis.sites[0].up, nemesis.map(), 1).await?;
    let field = Arc::clone(&swarm.field);
    let working = swarm.begin();
    let noticed = async || {
        let found = look_at_agents(&nemesis, &field, &NOTHING).await?;
        Ok(found.iter().any(|problem| problem.starts_with("doubled") && problem.contains(rule)).then_some(()))
    };
    nemesis.sites[0].up.until("a checker notices", noticed).await?;
    drop(working);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_used_twice_is_noticed() -> Result<()> {
    agents_show(Mutation::StartBeside, "Used").await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_ends_twice_is_noticed() -> Result<()> {
    agents_show(Mutation::EndCallTwice, "after its end").await
}

async fn fire(stand: &mut Stand) -> Result<()> {
    stand.schedule().await?;
    stand.fires(3).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_occurrence_that_fires_again_is_noticed() -> Result<()> {
    is_noticed(1, &[], &[Mutation::FireAgain], "doubled", fire).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_taken_in_again_is_noticed() -> Result<()> {
    let twice = Mutation::DeliverTwice;
    is_noticed(1, &[twice], &[twice, Mutation::IgnoreMarks], "doubled", fire).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mark_that_is_not_written_down_is_noticed() -> Result<()> {
    let kept = Mutation::KeepOutbox;
    let scenario = async |stand: &mut Stand| {
        fire(stand).await?;
        stand.restart().await?;
        let (before, _) = evidence::schedules(&stand.cluster.server, CLOCKWORK).await?;
        let delivered_again = async || {
            let (log, _) = evidence::schedules(&stand.cluster.server, CLOCKWORK).await?;
            let refused = log.iter().any(|logged| matches!(logged, schedules::Logged::Refused { .. }));
            Ok((refused || log.len() > before.len() + 5).then_some(()))
        };
        stand.witness().until("what was delivered comes again", delivered_again).await
    };
    is_noticed(1, &[kept], &[kept, Mutation::DropMarks], "doubled", scenario).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_that_is_taken_for_a_new_request_is_noticed() -> Result<()> {
    let scenario = async |stand: &mut Stand| {
        let front = stand.front().await?;
        front.lose_answers();
        let made = async || {
            let log = evidence::claims(&stand.cluster.server, &Clients::new()).await?;
            Ok((!log.is_empty()).then_some(()))
        };
        let heal = async {
            stand.witness().until("the task is made", made).await?;
            // The answer that said so is lost by then, or was before: the client has to ask again.
            front.loses_an_answer().await;
            front.heal();
            Ok::<_, anyhow::Error>(())
        };
        tokio::try_join!(heal, async { Ok(stand.clients[0].create("once", 50, &[]).await) })?;
        stand.draw();
        Ok(())
    };
    is_noticed(1, &[], &[Mutation::ForgetReplies], "C", scenario).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_never_ends_is_noticed() -> Result<()> {
    let scenario = async |stand: &mut Stand| {
        let task = stand.task("moved").await?;
        stand.clients[1].claim(&task).await;
        // Has the first node load what it needs for an answer: what is loaded is looked at by the store.
        stand.clients[0].look_at(&task).await;
        stand.nodes[0].freeze().await?;
        // What was asked of the first node before would be decided when it wakes, and tell it that its shard is gone.
        stand.witness_has_all().await?;
        let done = stand.clients[1].complete(&task, "by the second").await;
        stand.nodes[0].thaw()?;
        ensure!(matches!(done, Outcome::Ok(_)), "the second node did not take over: {done:?}");
        // Asks the first node first, which has the task in memory as it was.
        stand.clients[0].look_at(&task).await;
        Ok(())
    };
    is_noticed(2, &[], &[Mutation::EternalLease], "C3", scenario).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_checks_nothing_is_noticed() -> Result<()> {
    let scenario = async |stand: &mut Stand| {
        let task = stand.task("contested").await?;
        let front = stand.front().await?;
        stand.nodes[0].freeze().await?;
        let taken = async {
            front.asked().await;
            let taken = stand.clients[1].claim(&task).await;
            stand.nodes[0].thaw()?;
            Ok::<_, anyhow::Error>(taken)
        };
        // It lies at the first node until that wakes, and is decided from what it has in memory.
        let (taken, _) = tokio::join!(taken, stand.clients[0].claim(&task));
        let taken = taken?;
        ensure!(matches!(taken, Outcome::Ok(_)), "the second node did not take over: {taken:?}");
        Ok(())
    };
    let broken = [Mutation::EternalLease, Mutation::UncheckedCommit];
    is_noticed(2, &[], &broken, "C1", scenario).await
}
