//! Locks: taken, kept and given back by the caller's instance.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::lockspace::{Command, LockView, Lockspace, Reply, Settings};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, LIMIT, Query, Test};

/// How the locks of a swarm are to be; what is none stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWish {
    pub locks_per_holder: Option<usize>,
    pub default_ttl_ms: Option<u64>,
    pub max_ttl_ms: Option<u64>,
    pub normalize_keys: Option<bool>,
}

impl Service {
    /// How the locks of the caller's swarm are: how many an instance may hold, how long they last.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers.
    pub async fn lock_settings(&self, who: &Principal) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        self.settings_of_locks(who).await.map(|settings| shown(who, &settings))
    }

    /// Changes that.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `invalid_argument` for what is out of range; `wrong_state` while
    /// locks are held that it would not allow.
    pub async fn configure_locks(
        &self,
        who: &Principal,
        request: Uuid,
        wish: LockWish,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Administer)?;
        let now = self.settings_of_locks(who).await?;
        let settings = Settings {
            locks_per_holder: wish.locks_per_holder.unwrap_or(now.locks_per_holder),
            default_ttl_ms: wish.default_ttl_ms.unwrap_or(now.default_ttl_ms),
            max_ttl_ms: wish.max_ttl_ms.unwrap_or(now.max_ttl_ms),
            normalize_keys: wish.normalize_keys.unwrap_or(now.normalize_keys),
        };
        let configure = Command::Configure { settings: settings.clone() };
        self.change::<Lockspace>(&who.entity(Kind::Lockspace), request, configure).await?;
        Ok(shown(who, &settings))
    }

    async fn settings_of_locks(&self, who: &Principal) -> Result<Settings, Refusal> {
        match self.ask::<Lockspace>(&who.entity(Kind::Lockspace), Command::Settings).await? {
            Reply::Settings(settings) => Ok(settings),
            _ => Err(unexpected("the locks")),
        }
    }

    /// Takes a lock, or refreshes the caller's own. Never waits.
    ///
    /// # Errors
    /// `lock_held`, `deadlock`, `already_holding`, each with who and what; `invalid_argument` for a bad key;
    /// `unauthenticated` for an instance that has ended.
    pub async fn acquire(
        &self,
        who: &Principal,
        request: Uuid,
        key: String,
        ttl: Option<Duration>,
    ) -> Result<Reply, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Acquire {
            holder: who.instance.clone(),
            agent: who.agent_name.clone(),
            key,
            ttl_ms: ttl.map(millis),
        };
        let granted =
            self.change::<Lockspace>(&who.entity(Kind::Lockspace), request, command).await?.granted()?;
        // The instance may have ended on the way, and its locks with it: then this one came too late to be among
        // them. An end after this look finds the lock and releases it.
        match self.require_live(who).await {
            Ok(()) => Ok(granted),
            Err(ended) if ended.code == Code::Unauthenticated => {
                let reason = "its instance has ended".to_owned();
                let release = Command::ReleaseAll { holder: who.instance.clone(), reason };
                self.ask::<Lockspace>(&who.entity(Kind::Lockspace), release).await?;
                Err(ended)
            }
            // Nobody can say whether it has, and a run that lives keeps what it holds. This lock too: a repeat with the
            // same key is told that it was granted, and another call of the run may have been told so meanwhile.
            Err(unsure) => Err(taken_all_the_same(unsure)),
        }
    }

    /// Starts the time to live of the caller's own lock anew, with the lock's own time unless another is given.
    ///
    /// # Errors
    /// `not_holding`, naming the holder if there is one; `invalid_argument` for a bad key or time.
    pub async fn keep_lock(
        &self,
        who: &Principal,
        request: Uuid,
        key: String,
        ttl: Option<Duration>,
    ) -> Result<Reply, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Heartbeat { holder: who.instance.clone(), key, ttl_ms: ttl.map(millis) };
        self.change::<Lockspace>(&who.entity(Kind::Lockspace), request, command).await?.granted()
    }

    /// Gives a lock back. Returns its canonical key.
    ///
    /// # Errors
    /// `not_holding` and `lock_held`, naming the holder.
    pub async fn release(&self, who: &Principal, request: Uuid, key: String) -> Result<String, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Release { holder: who.instance.clone(), key: key.clone() };
        match self.change::<Lockspace>(&who.entity(Kind::Lockspace), request, command).await?.granted()? {
            Reply::Released { mut keys } => Ok(keys.pop().unwrap_or(key)),
            _ => Err(unexpected("the lockspace")),
        }
    }

    /// Every held lock of the swarm.
    pub async fn held_locks(&self, who: &Principal) -> Result<Vec<LockView>, Refusal> {
        policy::require(who, Right::Read)?;
        match self.ask::<Lockspace>(&who.entity(Kind::Lockspace), Command::List).await? {
            Reply::Locks(locks) => Ok(locks),
            _ => Err(unexpected("the lockspace")),
        }
    }

    /// How the instances that hold locks are, by one question for all of them: `waiting` for one in a wait, however
    /// deep it sleeps. Of one that is not known here, or whose node is away, nothing is said, and of the first 1,000
    /// alone.
    ///
    /// # Errors
    /// `unavailable` when the read side cannot answer.
    pub async fn holder_states(
        &self,
        who: &Principal,
        holders: BTreeSet<String>,
    ) -> Result<BTreeMap<String, String>, Refusal> {
        policy::require(who, Right::Read)?;
        if holders.is_empty() {
            return Ok(BTreeMap::new());
        }
        let mut query = Query::new(&who.swarm, Kind::Agent, "instance");
        query.live = Some(true);
        let named = holders.into_iter().take(LIMIT).map(Value::from).collect();
        query.filters.push(Filter::new("instance", Test::In(named))?);
        let (rows, _) = self.entities.list_everywhere(query).await?;
        let state = |row: Value| {
            let state = match row["state"].as_str()? {
                "freezing" | "frozen" | "spilled" | "resuming" => "waiting",
                other => other,
            };
            Some((row["instance"].as_str()?.to_owned(), state.to_owned()))
        };
        Ok(rows.into_iter().filter_map(state).collect())
    }

    /// Says in each row of a list of locks for how long it has been held, and how its holder is.
    pub(super) async fn add_holders(&self, who: &Principal, rows: &mut [Value]) -> Result<(), Refusal> {
        let holders = rows.iter().filter_map(|row| row["holder"].as_str().map(str::to_owned)).collect();
        let states = self.holder_states(who, holders).await?;
        let now = self.clock().wall();
        for row in rows {
            let since = row["heldSince"].as_str().and_then(Timestamp::parse_iso);
            let age = since.map(|since| now.since(since));
            row["ageMs"] = json!(age.map(millis));
            row["age"] = json!(age.map(spelt));
            row["holderState"] = json!(row["holder"].as_str().and_then(|holder| states.get(holder)));
        }
        Ok(())
    }

    /// Takes a lock away from whoever holds it.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_holding` when nobody holds it.
    pub async fn force_release(&self, who: &Principal, request: Uuid, key: String) -> Result<(), Refusal> {
        policy::require(who, Right::Administer)?;
        let command = Command::ForceRelease { key, by: who.agent_name.to_string() };
        match self.change::<Lockspace>(&who.entity(Kind::Lockspace), request, command).await?.granted()? {
            Reply::Released { .. } | Reply::Done => Ok(()),
            _ => {
                let problem = "nobody holds this lock any more; look at the list of locks again";
                Err(Refusal::new(Code::NotHolding, problem))
            }
        }
    }
}

/// The lock was granted, and whether the run lives that was to have it could not be found out.
fn taken_all_the_same(unsure: Refusal) -> Refusal {
    let message = format!(
        "the lock was granted, but whether your run goes on could not be looked at: {}; acquire it again, which \
         refreshes it if it is yours, or release it",
        unsure.message
    );
    Refusal { message, ..unsure }
}

/// As people read it: whole seconds are enough.
fn spelt(age: Duration) -> String {
    humantime::format_duration(Duration::from_secs(age.as_secs())).to_string()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn shown(who: &Principal, settings: &Settings) -> Value {
    json!({
        "swarm": who.swarm, "perInstance": settings.locks_per_holder, "ttlMs": settings.default_ttl_ms,
        "maxTtlMs": settings.max_ttl_ms, "normalize": settings.normalize_keys,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Role;
    use crate::entity::tests::{node, poison};

    #[tokio::test]
    async fn a_run_that_cannot_be_looked_at_keeps_all_its_locks() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let operator = Principal::named("boss", Role::Operator);
        let wish = LockWish { locks_per_holder: Some(2), ..LockWish::default() };
        service.configure_locks(&operator, Uuid::now_v7(), wish).await.unwrap();
        let by_hand = Principal::named("worker", Role::Worker);
        let take = async |who: &Principal, key: &str| {
            service.acquire(who, Uuid::now_v7(), format!("file:///{key}"), None).await
        };
        take(&by_hand, "first").await.unwrap();

        // Its agent cannot be asked whether the run lives.
        poison(&node, by_hand.own_agent()).await;
        let run = Principal { managed: true, ..by_hand.clone() };
        for key in ["second", "first"] {
            let unsure = take(&run, key).await.unwrap_err();
            assert_ne!(unsure.code, Code::Unauthenticated, "{unsure}");
            assert!(unsure.message.starts_with("the lock was granted, but"), "{unsure}");
        }
        let held = service.held_locks(&operator).await.unwrap();
        let keys: Vec<_> = held.iter().map(|lock| lock.key.as_str()).collect();
        assert_eq!(keys, ["file:///first", "file:///second"]);
        assert!(held.iter().all(|lock| lock.holder == run.instance), "{held:?}");
    }
}
