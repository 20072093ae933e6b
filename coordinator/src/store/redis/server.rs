//! What the Redis server has to be like, looked at before anything is written, and whose store it holds.

use std::collections::HashMap;
use std::time::Duration;

use redis::cmd;
use skein_shared::time::Timestamp;
use tokio::time::Instant;
use tracing::{info, warn};
use uuid::Uuid;

use super::connection::{Connection, at};
use super::discovery::Discovery;
use super::generation::Generation;
use super::options::Durability;
use super::recent;
use super::shard::{CLUSTER, SHARDS};
use crate::store::StoreError;

/// How the keys are laid out; a later program may understand several.
const FORMAT: u32 = 6;
/// The field with the store's id.
const ID: &str = "id";
/// The field that is there while an import fills the store.
const IMPORTING: &str = "importing";
/// The epochs come from the clock of Redis, and a failover moves to another one, so it must not be far off.
pub(super) const SKEW_MS: u64 = 60_000;
/// How often to look for a store that another process is about to make.
const LOOK: Duration = Duration::from_millis(200);

/// What `INFO` says.
pub(super) struct Info(HashMap<String, String>);

impl Info {
    pub(super) async fn ask(connection: &Connection) -> Result<Self, StoreError> {
        let text: String = connection.ask("INFO", &cmd("INFO")).await?;
        Ok(Self::parse(&text))
    }

    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| line.split_once(':'));
        Self(pairs.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect())
    }

    pub(super) fn generation(&self) -> Generation {
        Generation { run: self.text("run_id").to_owned(), replication: self.text("master_replid").to_owned() }
    }

    pub(super) fn is_primary(&self) -> bool {
        self.text("role") == "master"
    }

    /// Whether replicas can be asked to have flushed, too.
    pub(super) fn has_waitaof(&self) -> bool {
        self.version() >= (7, 2)
    }

    pub(super) fn has_log(&self) -> bool {
        self.text("aof_enabled") == "1"
    }

    fn text(&self, name: &str) -> &str {
        self.0.get(name).map_or("", String::as_str)
    }

    fn version(&self) -> (u32, u32) {
        let mut parts = self.text("redis_version").split('.').map(|part| part.parse().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0))
    }

    fn is_of_a_cluster(&self) -> bool {
        self.text("cluster_enabled") == "1"
    }

    fn replicas(&self) -> u32 {
        self.text("connected_slaves").parse().unwrap_or(0)
    }
}

/// Refuses a server that would lose what it acknowledges, or forget what nobody told it to.
pub(super) async fn check(
    connection: &Connection,
    discovery: &Discovery,
    durability: Durability,
    wall: Timestamp,
) -> Result<Info, StoreError> {
    let info = Info::ask(connection).await?;
    check_info(&info, durability).map_err(StoreError)?;
    if info.is_of_a_cluster() && !discovery.follows_a_cluster() {
        return Err(StoreError(
            "this Redis is a node of a Redis Cluster, and another one may have its keys tomorrow; write \
             redis-cluster://host:port,host:port with a few of the nodes, who say where they are"
                .to_owned(),
        ));
    }
    check_flushing(&setting(connection, "appendfsync").await?, durability).map_err(StoreError)?;
    if info.replicas() > 0 || durability == Durability::Replicated || discovery.fails_over() {
        let replicas = setting(connection, "min-replicas-to-write").await?;
        let lag = setting(connection, "min-replicas-max-lag").await?;
        check_replicas(&replicas, &lag).map_err(StoreError)?;
    }
    check_clock(connection, wall).await?;
    Ok(info)
}

/// Warns, once a server is relied on, if nothing could take its place.
pub(super) fn warn_if_alone(info: &Info, discovery: &Discovery) {
    if info.replicas() == 0 && !discovery.fails_over() {
        warn!(
            "the store is one Redis without a replica: while it is away nothing works, and its disk is the only copy"
        );
    }
}

fn check_info(info: &Info, durability: Durability) -> Result<(), String> {
    if info.version() < (7, 0) {
        let version = info.text("redis_version");
        return Err(format!("Redis {version} is too old: 7.0 or a later one is needed"));
    }
    // Nothing else that it says of itself is true then: it has no log yet.
    if info.text("loading") == "1" {
        return Err(
            "Redis was started a moment ago and still reads what its disk has; try again once it has"
                .to_owned(),
        );
    }
    if info.text("role") != "master" {
        return Err("this Redis is a replica, which takes no writes; name the primary".to_owned());
    }
    let policy = info.text("maxmemory_policy");
    if policy != "noeviction" {
        return Err(format!(
            "Redis has `maxmemory-policy {policy}` and would throw tasks and locks away when it is full; set \
             `maxmemory-policy noeviction` in redis.conf"
        ));
    }
    if !info.has_log() && durability != Durability::Replicated {
        return Err(format!(
            "Redis writes no log, so a crash would lose everything since its last dump; set `appendonly yes` and \
             `appendfsync {durability}` in redis.conf"
        ));
    }
    if durability == Durability::Replicated && info.replicas() == 0 {
        return Err("the durability `replicated` needs a replica, and Redis has none connected; start one \
                    (`replicaof HOST PORT` in its redis.conf), or set `durability = \"always\"` in [store]"
            .to_owned());
    }
    Ok(())
}

/// Whether the log is flushed as often as the durability says.
fn check_flushing(flush: &str, durability: Durability) -> Result<(), String> {
    match durability {
        Durability::Always if flush != "always" => Err(format!(
            "Redis flushes its log `{flush}`, and the durability `always` needs each write on the disk before its answer; set \
             `appendfsync always` in redis.conf, or set `durability = \"everysec\"` in [store] and accept that a crash of \
             Redis loses about a second"
        )),
        Durability::Everysec if flush == "no" => Err(
            "Redis flushes its log when its system pleases (`appendfsync no`), and the durability `everysec` loses about a \
             second and no more; set `appendfsync everysec` in redis.conf"
                .to_owned(),
        ),
        _ => Ok(()),
    }
}

/// Whether a server that is cut off from its replicas stops to take writes before it has acknowledged more than a node
/// remembers. Either setting at 0 lets it go on.
fn check_replicas(replicas: &str, lag: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u64>().unwrap_or(0);
    if number(replicas) > 0 && (1..=recent::KEEP.as_secs()).contains(&number(lag)) {
        return Ok(());
    }
    Err(format!(
        "Redis has replicas, or others may take its place, with `min-replicas-to-write {replicas}` and `min-replicas-max-lag \
         {lag}`: cut off from them it would go on acknowledging what a failover throws away; set `min-replicas-to-write 1` \
         and `min-replicas-max-lag 10` (up to {}) in redis.conf",
        recent::KEEP.as_secs()
    ))
}

async fn setting(connection: &Connection, name: &str) -> Result<String, StoreError> {
    let asked =
        connection.ask::<HashMap<String, String>>("CONFIG GET", cmd("CONFIG").arg("GET").arg(name)).await;
    let found = asked.map_err(|StoreError(problem)| {
        StoreError(format!("whether Redis is set up as it has to be (`{name}`) cannot be seen: {problem}"))
    })?;
    Ok(found.get(name).cloned().unwrap_or_default())
}

async fn check_clock(connection: &Connection, wall: Timestamp) -> Result<(), StoreError> {
    let (seconds, micros): (u64, u64) = connection.ask("TIME", &cmd("TIME")).await?;
    compare_clocks(Timestamp(seconds * 1000 + micros / 1000), wall).map_err(StoreError)
}

/// Both as of this moment.
fn compare_clocks(theirs: Timestamp, wall: Timestamp) -> Result<(), String> {
    if theirs.0.abs_diff(wall.0) > SKEW_MS {
        return Err(format!(
            "the clock of Redis says {theirs} and this machine's says {wall}; set both by the same time server"
        ));
    }
    Ok(())
}

/// Waits until a coordinator has made a store of this database.
///
/// # Errors
/// When none has within `limit`, or Redis cannot be asked.
pub(super) async fn is_made(connection: &Connection, limit: Duration) -> Result<(), StoreError> {
    let until = Instant::now() + limit;
    let mut said = false;
    while store_id(connection).await?.is_none() {
        if Instant::now() >= until {
            return Err(no_store());
        }
        if !said {
            info!("no coordinator has set up a store in this Redis yet; one is waited for");
            said = true;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

/// Marks an empty database as a store if `makes`, and refuses one that another program, or another number of shards,
/// made, or that an import has filled in part. Gives the store's id.
pub(super) async fn claim(connection: &Connection, makes: bool) -> Result<String, StoreError> {
    let fixed = async |name: &str, value: &str| match makes {
        true => put_once(connection, name, value).await,
        false => field(connection, name).await?.ok_or_else(no_store),
    };
    for (name, ours) in [("format", FORMAT), ("shards", u32::from(SHARDS))] {
        let found = fixed(name, &ours.to_string()).await?;
        if found != ours.to_string() {
            return Err(at(
                CLUSTER,
                &format!(
                    "this store has {name} {found} and this program {ours}; use the program that made it (its `skein export` \
                     writes a file that `skein import` of this one reads), or another database of Redis"
                ),
            ));
        }
    }
    if field(connection, IMPORTING).await?.is_some() {
        return Err(half_filled());
    }
    fixed(ID, &Uuid::now_v7().to_string()).await
}

/// Lets nobody open the store, or take a shard of it, from now on while an import is under way.
pub(super) async fn mark_import(connection: &Connection, under_way: bool) -> Result<(), StoreError> {
    let mut order = cmd(if under_way { "HSET" } else { "HDEL" });
    order.arg(CLUSTER).arg(IMPORTING);
    if under_way {
        order.arg(1);
    }
    let _: i64 = connection.ask(CLUSTER, &order).await?;
    Ok(())
}

/// What is said of a store that an import is filling, or of which it has left a part.
pub(super) fn half_filled() -> StoreError {
    at(
        CLUSTER,
        &"an import into this store is under way, or broke off and left a part of it; wait for its end, or empty this \
          database of Redis (FLUSHDB) and import again",
    )
}

/// The id of the store that this database holds.
pub(super) async fn store_id(connection: &Connection) -> Result<Option<String>, StoreError> {
    field(connection, ID).await
}

/// The same, and whether an import is filling that store, or has left a part of it.
pub(super) async fn store_there(connection: &Connection) -> Result<(Option<String>, bool), StoreError> {
    let fields = [ID, IMPORTING];
    let (id, importing): (Option<String>, Option<String>) =
        connection.ask(CLUSTER, cmd("HMGET").arg(CLUSTER).arg(&fields)).await?;
    Ok((id, importing.is_some()))
}

async fn field(connection: &Connection, name: &str) -> Result<Option<String>, StoreError> {
    connection.ask(CLUSTER, cmd("HGET").arg(CLUSTER).arg(name)).await
}

fn no_store() -> StoreError {
    StoreError(
        "no coordinator has set up a store in this Redis yet; start a coordinator first; if there was a store, Redis has \
         lost it: stop the coordinators and restore Redis from a copy"
            .to_owned(),
    )
}

/// Refuses a database without the store that this process has to do with.
pub(super) fn recognize(found: Option<&str>, store: &str) -> Result<(), StoreError> {
    match found {
        Some(found) if found == store => Ok(()),
        Some(found) => Err(StoreError(format!(
            "this database of Redis holds the store {found}, and this node belongs to the store {store}; correct the \
             URL, restore Redis from a copy of that store, or remove store.id from the data directory to join the other one"
        ))),
        None => Err(StoreError(format!(
            "Redis has lost the store {store}: nothing of it is there; stop the coordinators and restore Redis from a copy, \
             or remove store.id from their data directories to begin with nothing"
        ))),
    }
}

/// Writes a field of what says whose database this is, unless there is one. Gives what is there then.
async fn put_once(connection: &Connection, name: &str, value: &str) -> Result<String, StoreError> {
    // A server that is full refuses also what would write nothing.
    if let Some(found) = field(connection, name).await? {
        return Ok(found);
    }
    let _: i64 = connection.ask(CLUSTER, cmd("HSETNX").arg(CLUSTER).arg(name).arg(value)).await?;
    connection.ask(CLUSTER, cmd("HGET").arg(CLUSTER).arg(name)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "redis_version:7.0.15\r\nrole:master\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n\
                        connected_slaves:0\r\ncluster_enabled:0\r\nrun_id:abc\r\nmaster_replid:def\r\n";

    fn refusal(from: &str, to: &str, durability: Durability) -> String {
        check_info(&Info::parse(&GOOD.replace(from, to)), durability).unwrap_err()
    }

    #[test]
    fn a_server_that_would_lose_or_forget_is_refused_with_what_to_do() {
        check_info(&Info::parse(GOOD), Durability::Always).unwrap();
        check_info(&Info::parse(&GOOD.replace("slaves:0", "slaves:1")), Durability::Replicated).unwrap();
        for (from, to, durability, advice) in [
            ("noeviction", "allkeys-lru", Durability::Always, "maxmemory-policy noeviction"),
            ("aof_enabled:1", "aof_enabled:0", Durability::Everysec, "appendfsync everysec"),
            ("role:master", "role:slave", Durability::Always, "name the primary"),
            ("aof_enabled:1", "loading:1\r\naof_enabled:0", Durability::Always, "try again once it has"),
            ("7.0.15", "6.2.1", Durability::Always, "7.0"),
            ("x", "x", Durability::Replicated, "replicaof"),
        ] {
            let said = refusal(from, to, durability);
            assert!(said.contains(advice), "{said}");
        }
    }

    #[test]
    fn a_log_that_is_flushed_more_seldom_than_promised_is_refused() {
        for (flush, durability) in [
            ("always", Durability::Always),
            ("everysec", Durability::Everysec),
            ("always", Durability::Everysec),
        ] {
            check_flushing(flush, durability).unwrap();
        }
        // A replica has what is told.
        check_flushing("no", Durability::Replicated).unwrap();
        for (flush, durability) in
            [("everysec", Durability::Always), ("no", Durability::Always), ("no", Durability::Everysec)]
        {
            let said = check_flushing(flush, durability).unwrap_err();
            assert!(said.contains(&format!("set `appendfsync {durability}`")), "{said}");
        }
    }

    #[test]
    fn a_server_that_goes_on_without_its_replicas_is_refused() {
        for lag in ["1", "10", "30"] {
            check_replicas("1", lag).unwrap();
        }
        for (replicas, lag) in [("0", "10"), ("1", "0"), ("1", "31"), ("", "")] {
            let said = check_replicas(replicas, lag).unwrap_err();
            assert!(said.contains("set `min-replicas-to-write 1` and `min-replicas-max-lag 10`"), "{said}");
        }
    }

    #[test]
    fn clocks_are_compared_as_they_are_now() {
        let began = Timestamp(1_790_000_000_000);
        let after_an_hour = Timestamp(began.0 + 3_600_000);
        compare_clocks(after_an_hour, Timestamp(after_an_hour.0 + SKEW_MS)).unwrap();
        for wall in [began, Timestamp(after_an_hour.0 + SKEW_MS + 1)] {
            let said = compare_clocks(after_an_hour, wall).unwrap_err();
            assert!(said.contains("time server"), "{said}");
        }
    }

    #[test]
    fn another_life_of_the_server_is_another_generation() {
        let of = |info: &str| {
            let generation = Info::parse(info).generation();
            (generation.number(), generation)
        };
        let first = of(GOOD);
        assert_eq!(first, of(GOOD));
        for (known, changed) in [("abc", "abd"), ("def", "deg")] {
            let other = of(&GOOD.replace(known, changed));
            assert!(other.0 != first.0 && other.1 != first.1, "{other:?}");
        }
    }
}
