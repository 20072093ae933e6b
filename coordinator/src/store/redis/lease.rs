//! Leases: which process owns a shard, and under which fence it writes.
//!
//! The lease decides who tries; the fence in each write decides who may. What an owner has under way when its
//! lease ends may still be written until another one takes the shard, which harms nobody.
//!
//! That a lease has ended is for whoever wants the shard to see, by its own clock: it was not renewed for as long as it
//! lasts ([`vigil`](super::vigil)). The script that takes it looks whether it is still the one that was seen.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::{Cmd, Script, cmd};
use skein_shared::fence::Epoch;
use tokio::time::Instant;
use tracing::{info, warn};

use super::batch::nonce;
use super::connection::{Connection, at};
use super::options::Options;
use super::server;
use super::shard::{CLUSTER, INHABITED, SHARDS, Shard};
use super::vigil::{Vigil, Word};
use crate::store::{Fence, StoreError};

/// How far clocks may be ahead, in milliseconds: an epoch beyond that is garbage, here as in the scripts.
pub const AHEAD: u64 = 600_000;
/// How often to look whether a shard that somebody else has is free.
const LOOK: Duration = Duration::from_millis(250);

/// What became of the wish for a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acquired {
    Taken(Fence),
    /// Somebody else has it.
    Held {
        owner: String,
        address: String,
        /// How long its lease lasts if it is not renewed.
        ends_in: Duration,
    },
    /// The store is not the one that this process belongs to: it was emptied meanwhile.
    Foreign,
    /// An import fills the store, or has left a part of one.
    Importing,
}

/// Who has a shard, and how long its lease lasts if it is not renewed.
struct Holder {
    owner: String,
    address: String,
    ends_in: Duration,
}

/// What became of a lease that was to be kept or given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Done,
    /// Another owner has taken the shard, under this epoch.
    Fenced(Epoch),
}

/// A lease as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub epoch: Epoch,
    /// Nobody's if empty.
    pub owner: String,
    /// Whether its owner has neither given it up nor let it end.
    pub held: bool,
    /// The key holds something else, so nobody can take the shard until it is mended.
    pub unreadable: bool,
    /// Its owner is reached nowhere: it exports or imports, and has the store for itself until it has done so.
    pub alone: bool,
}

/// A lease as it is written down, where it is held until it is given up.
#[derive(Clone, Debug)]
pub struct Written {
    pub lease: Lease,
    pub word: Word,
}

impl Vigil<Shard> {
    /// How the leases stand for whoever has watched them. `clock` is what that of the store said just before.
    pub fn standing(&mut self, written: Vec<Written>, clock: u64, now: Instant) -> Vec<Lease> {
        let held = Shard::all().zip(&written).filter(|(_, written)| written.lease.held);
        self.look(held.map(|(shard, written)| (shard, written.word)), clock, now);
        let standing = Shard::all().zip(written).map(|(shard, Written { lease, .. })| {
            let held = lease.held && self.over(&shard, now).is_none();
            Lease { held, ..lease }
        });
        standing.collect()
    }
}

/// Takes, keeps and gives up shards for one owner.
#[derive(Clone)]
pub struct Leases {
    connection: Connection,
    /// Of the store.
    id: String,
    owner: String,
    address: String,
    ttl: Duration,
    vigil: Arc<Mutex<Vigil<Shard>>>,
    /// The highest epoch of each lease that this process has seen, over all lives of the server.
    seen: Arc<[AtomicU64]>,
    acquire: Script,
    renew: Script,
    release: Script,
    pass: Script,
}

impl Leases {
    pub(super) fn new(connection: Connection, id: String, options: &Options) -> Self {
        Self {
            connection,
            id,
            owner: options.owner.clone(),
            address: options.address.clone(),
            ttl: options.lease,
            vigil: Arc::new(Mutex::new(Vigil::over_leases())),
            seen: Shard::all().map(|_| AtomicU64::new(0)).collect(),
            acquire: Script::new(include_str!("scripts/acquire.lua")),
            renew: Script::new(include_str!("scripts/renew.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            pass: Script::new(include_str!("scripts/pass.lua")),
        }
    }

    /// Takes the shards that are free, that this owner has had before, or whose lease has ended, both as was seen by
    /// [`all`], which is to be asked again and again for that. The answers come in the order of the shards, with an
    /// error for each lease that holds something else.
    ///
    /// [`all`]: Leases::all
    ///
    /// # Errors
    /// When Redis cannot be asked, or takes no writes.
    pub async fn acquire(&self, shards: &[Shard]) -> Result<Vec<Result<Acquired, StoreError>>, StoreError> {
        let mut nonces = vec![0_u8; shards.len() * 8];
        getrandom::fill(&mut nonces)
            .map_err(|error| StoreError(format!("the system gives no randomness: {error}")))?;
        let nonces: Vec<u64> = nonces
            .chunks_exact(8)
            .filter_map(|bytes| bytes.try_into().ok())
            .map(u64::from_ne_bytes)
            .collect();
        // Of all leases: an old one may have come back that this process knows nothing of.
        let latest = self.now().await? + AHEAD;
        let seen = self.seen.iter().map(|seen| seen.load(Ordering::Relaxed));
        let highest = seen.filter(|epoch| *epoch <= latest).max().unwrap_or_default();
        let calls = shards.iter().zip(&nonces).map(|(shard, number)| {
            let fence = Fence { epoch: Epoch(0), nonce: *number };
            let mut call = script(&self.acquire, &[&shard.lease(), CLUSTER, &shard.entities(), INHABITED]);
            call.arg(&self.owner).arg(&self.address).arg(nonce(fence)).arg(self.ttl.as_millis().to_string());
            call.arg(&self.id).arg(highest).arg(shard.number()).arg(self.over(*shard));
            call
        });
        let answers = self.ask(&self.acquire, shards, calls.collect()).await?;
        let outcomes = shards.iter().zip(answers).zip(nonces);
        let read = |((shard, answer), number): ((&Shard, Result<Vec<String>, _>), u64)| {
            let outcome = self.seen(answer.and_then(|answer| self.acquired(*shard, &answer, number)));
            outcome.inspect(|outcome| {
                if let Acquired::Taken(fence) = outcome {
                    self.sees(*shard, fence.epoch);
                }
            })
        };
        Ok(outcomes.map(read).collect())
    }

    /// Takes all shards, and waits for those that somebody else has until its lease must have ended: as long as that of
    /// one who has died may last, which need not be as long as those of this process.
    ///
    /// # Errors
    /// When Redis cannot be asked, was emptied, has been filled in part, or somebody keeps renewing.
    pub(super) async fn take_all(&self, ttl: Duration) -> Result<Vec<Fence>, StoreError> {
        // When the leases were first looked at, and for how long they are waited for from then on.
        let mut begun: Option<(Instant, Duration)> = None;
        loop {
            // Before it was asked: this process may stand still once it is answered.
            let is_in_vain = begun.is_some_and(|(begun, limit)| begun.elapsed() > limit);
            let mut taken = Vec::with_capacity(usize::from(SHARDS));
            let Some(holder) = self.take_free(&mut taken).await.transpose() else {
                return Ok(taken.into_iter().map(|(_, fence)| fence).collect());
            };
            // Whoever has the others can serve these meanwhile. They may be those of a coordinator that has died and
            // goes by this name.
            self.give_back(&taken).await;
            let Holder { owner, address, ends_in } = holder?;
            if is_in_vain {
                return Err(StoreError(format!(
                    "another coordinator ({owner}{}{address}) has this store and keeps renewing its leases; stop it, or use \
                     another database of Redis",
                    if address.is_empty() { "" } else { " at " }
                )));
            }
            if begun.is_none() {
                info!(
                    owner,
                    address,
                    ?ends_in,
                    "another coordinator has the store; waiting for the end of its leases"
                );
                let now = Instant::now();
                begun = Some((now, (ttl * 2).max(self.all_end_in(now) + LOOK * 2)));
            }
            tokio::time::sleep(ends_in.min(LOOK)).await;
        }
    }

    /// Takes what can be had of all shards, and says who has one of the others.
    async fn take_free(&self, taken: &mut Vec<(Shard, Fence)>) -> Result<Option<Holder>, StoreError> {
        self.all().await?;
        let all: Vec<Shard> = Shard::all().collect();
        // The first decides: two that begin at one time must not get half of the shards each.
        let (first, others) = all.split_at(1);
        for shards in [first, others] {
            let answers = self.acquire(shards).await?;
            taken.extend(shards.iter().zip(&answers).filter_map(|(shard, answer)| match answer {
                Ok(Acquired::Taken(fence)) => Some((*shard, *fence)),
                _ => None,
            }));
            let mut holder = None;
            for answer in answers {
                match answer? {
                    Acquired::Taken(_) => {}
                    Acquired::Held { owner, address, ends_in } => {
                        holder = Some(Holder { owner, address, ends_in });
                    }
                    Acquired::Foreign => {
                        return Err(StoreError(
                            "somebody has emptied this Redis just now; look who".to_owned(),
                        ));
                    }
                    Acquired::Importing => return Err(server::half_filled()),
                }
            }
            if holder.is_some() {
                return Ok(holder);
            }
        }
        Ok(None)
    }

    async fn give_back(&self, taken: &[(Shard, Fence)]) {
        if taken.is_empty() {
            return;
        }
        if let Err(problem) = self.release(taken).await {
            warn!(%problem, "shards that are not needed could not be given up; their leases end by themselves");
        }
    }

    /// Keeps shards for another period, with an error for each lease that holds something else.
    ///
    /// # Errors
    /// When Redis cannot be asked, or takes no writes: then it is not known which were kept, and they end by their
    /// time.
    pub async fn renew(&self, held: &[(Shard, Fence)]) -> Result<Vec<Result<Kept, StoreError>>, StoreError> {
        self.keep(&self.renew, held, Some(self.ttl.as_millis())).await
    }

    /// Gives shards up, so that another owner need not wait for the end of the lease.
    ///
    /// # Errors
    /// When Redis cannot be asked: the leases end by themselves then.
    pub async fn release(
        &self,
        held: &[(Shard, Fence)],
    ) -> Result<Vec<Result<Kept, StoreError>>, StoreError> {
        self.keep(&self.release, held, None).await
    }

    /// How all leases stand, by the number of the shard. One that was not renewed for as long as it lasts, since it was
    /// seen here, has ended. One that holds something else is nobody's, and nobody can take it. One that stands below
    /// an epoch that this process has seen of it is ended first.
    ///
    /// # Errors
    /// When Redis cannot be asked.
    pub async fn all(&self) -> Result<Vec<Lease>, StoreError> {
        let clock = self.now().await?;
        let shards: Vec<Shard> = Shard::all().collect();
        let ask = |shard: &Shard| {
            let fields = ["epoch", "owner", "until", "state", "lasts", "address"];
            (shard.lease(), cmd("HMGET").arg(shard.lease()).arg(&fields).to_owned())
        };
        let questions: Vec<_> = shards.iter().map(ask).collect();
        let found: Vec<Result<Vec<Option<String>>, _>> = self.connection.ask_sound(&questions).await?;
        let read = |(shard, fields): (&Shard, Result<Vec<_>, _>)| {
            let found = self.seen(fields.and_then(|fields| written(*shard, &fields, self.ttl)));
            if let Ok(Written { lease: Lease { epoch, .. }, .. }) = &found
                && epoch.0 <= clock + AHEAD
            {
                self.sees(*shard, *epoch);
            }
            found.unwrap_or_else(|_| Written {
                lease: Lease { unreadable: true, ..Lease::default() },
                word: Word { epoch: 0, until: 0, lasts: self.ttl },
            })
        };
        let written: Vec<Written> = shards.iter().zip(found).map(read).collect();
        let mut leases = self.vigil().standing(written, clock, Instant::now());
        self.pass_by(&mut leases).await?;
        Ok(leases)
    }

    /// What time it is by the clock from which the epochs come, in milliseconds.
    async fn now(&self) -> Result<u64, StoreError> {
        let (seconds, micros): (u64, u64) = self.connection.ask("TIME", &cmd("TIME")).await?;
        Ok(seconds * 1000 + micros / 1000)
    }

    /// Ends the leases that were passed in another life of the server, or by a server beside it.
    async fn pass_by(&self, leases: &mut [Lease]) -> Result<(), StoreError> {
        let below = |(shard, lease): (Shard, &Lease)| {
            let seen = self.of(shard).load(Ordering::Relaxed);
            (!lease.unreadable && lease.epoch.0 < seen).then_some((shard, seen))
        };
        let passed: Vec<(Shard, u64)> = Shard::all().zip(&*leases).filter_map(below).collect();
        if passed.is_empty() {
            return Ok(());
        }
        let shards: Vec<Shard> = passed.iter().map(|(shard, _)| *shard).collect();
        let calls = passed.iter().map(|(shard, seen)| {
            let mut call = script(&self.pass, &[&shard.lease(), CLUSTER]);
            call.arg(seen).arg(&self.id);
            call
        });
        let answers = self.ask(&self.pass, &shards, calls.collect()).await?;
        for ((shard, seen), answer) in passed.into_iter().zip(answers) {
            // Otherwise it was taken above that meanwhile.
            if self.seen(answer).is_ok_and(|answer| answer == ["PASSED"]) {
                leases[usize::from(shard.number())] = Lease { epoch: Epoch(seen), ..Lease::default() };
                warn!(
                    shard = shard.number(),
                    epoch = seen,
                    "the lease of a shard was below an epoch that another Redis has given it; it is taken anew"
                );
            }
        }
        Ok(())
    }

    async fn keep(
        &self,
        with: &Script,
        held: &[(Shard, Fence)],
        ttl_ms: Option<u128>,
    ) -> Result<Vec<Result<Kept, StoreError>>, StoreError> {
        let calls = held.iter().map(|(shard, fence)| {
            let mut call = script(with, &[&shard.lease()]);
            call.arg(fence.epoch.0).arg(nonce(*fence)).arg(ttl_ms.map(|ttl| ttl.to_string()));
            call
        });
        let shards: Vec<Shard> = held.iter().map(|(shard, _)| *shard).collect();
        let answers = self.ask(with, &shards, calls.collect()).await?;
        let outcomes = shards.iter().zip(answers);
        let read = |(shard, answer): (&Shard, Result<Vec<String>, _>)| {
            let kept = self.seen(answer.and_then(|answer| kept(*shard, &answer)));
            kept.inspect(|kept| match kept {
                Kept::Done => self.connection.watch.taken(),
                Kept::Fenced(epoch) => self.sees(*shard, *epoch),
            })
        };
        Ok(outcomes.map(read).collect())
    }

    fn vigil(&self) -> MutexGuard<'_, Vigil<Shard>> {
        self.vigil.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells the script which lease has ended; nothing where none was seen to have.
    fn over(&self, shard: Shard) -> String {
        let over = self.vigil().over(&shard, Instant::now());
        over.map(|word| format!("{} {}", word.epoch, word.until)).unwrap_or_default()
    }

    /// In what time the last of all leases runs out, if none is renewed.
    fn all_end_in(&self, now: Instant) -> Duration {
        let vigil = self.vigil();
        Shard::all().filter_map(|shard| vigil.ends_in(&shard, now)).max().unwrap_or_default()
    }

    fn acquired(&self, shard: Shard, answer: &[String], nonce: u64) -> Result<Acquired, StoreError> {
        let text = |place: usize| answer.get(place).cloned().unwrap_or_default();
        match answer.first().map(String::as_str) {
            Some("TAKEN") => Ok(Acquired::Taken(Fence { epoch: Epoch(number(shard, answer, 1)?), nonce })),
            Some("HELD") => Ok(Acquired::Held {
                owner: text(1),
                address: text(2),
                ends_in: self.vigil().ends_in(&shard, Instant::now()).unwrap_or(self.ttl),
            }),
            Some("FOREIGN") => Ok(Acquired::Foreign),
            Some("IMPORTING") => Ok(Acquired::Importing),
            Some("GARBAGE") => Err(at(&text(1), &text(2))),
            _ => Err(unreadable(shard)),
        }
    }

    /// Takes note of an epoch that somebody has of a shard: whatever is taken from now on has a higher one.
    pub fn sees(&self, shard: Shard, epoch: Epoch) {
        self.of(shard).fetch_max(epoch.0, Ordering::Relaxed);
    }

    /// The highest epoch of a shard's lease that was seen.
    fn of(&self, shard: Shard) -> &AtomicU64 {
        &self.seen[usize::from(shard.number())]
    }

    fn seen<T>(&self, read: Result<T, StoreError>) -> Result<T, StoreError> {
        read.inspect_err(|StoreError(problem)| self.connection.watch.failed(problem))
    }

    /// Loads the script each time: it is short, and a restarted server has forgotten it.
    async fn ask(
        &self,
        script: &Script,
        shards: &[Shard],
        calls: Vec<Cmd>,
    ) -> Result<Vec<Result<Vec<String>, StoreError>>, StoreError> {
        self.connection.load(script).await?;
        let keys = shards.iter().map(|shard| shard.lease());
        self.connection.write_sound(&keys.zip(calls).collect::<Vec<_>>()).await
    }
}

fn script(script: &Script, keys: &[&str]) -> Cmd {
    let mut call = cmd("EVALSHA");
    call.arg(script.get_hash()).arg(keys.len()).arg(keys);
    call
}

fn kept(shard: Shard, answer: &[String]) -> Result<Kept, StoreError> {
    match answer.first().map(String::as_str) {
        Some("OK") => Ok(Kept::Done),
        Some("FENCED") => Ok(Kept::Fenced(Epoch(number(shard, answer, 1)?))),
        _ => Err(unreadable(shard)),
    }
}

/// A lease of which nothing was ever written is nobody's. An older program does not write for how long it lasts, and
/// leaves what stands there of an earlier epoch.
fn written(shard: Shard, fields: &[Option<String>], usual: Duration) -> Result<Written, StoreError> {
    let text = |place: usize| fields.get(place).and_then(Option::as_deref);
    let number = |place: usize| match text(place) {
        None => Ok(0),
        Some(text) => text.parse::<u64>().map_err(|_| unreadable(shard)),
    };
    let (epoch, until) = (number(0)?, number(2)?);
    let lasts = match text(4).and_then(|text| text.split_once(' ')) {
        Some((of, lasts)) if Some(of) == text(0) => {
            Duration::from_millis(lasts.parse().map_err(|_| unreadable(shard))?)
        }
        _ => usual,
    };
    let (owner, held) = (text(1).unwrap_or_default().to_owned(), text(3) == Some("held"));
    let alone = held && text(5).unwrap_or_default().is_empty();
    Ok(Written {
        lease: Lease { epoch: Epoch(epoch), owner, held, unreadable: false, alone },
        word: Word { epoch, until, lasts },
    })
}

fn number(shard: Shard, answer: &[String], place: usize) -> Result<u64, StoreError> {
    answer.get(place).and_then(|text| text.parse().ok()).ok_or_else(|| unreadable(shard))
}

fn unreadable(shard: Shard) -> StoreError {
    at(&shard.lease(), &"it holds no lease that this program understands")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that knows nothing of it took the shard from one that does.
    #[test]
    fn how_long_a_lease_lasts_is_not_read_of_an_earlier_epoch() {
        let shard = Shard::all().next().unwrap();
        let usual = Duration::from_secs(10);
        for (said, lasts) in
            [(Some("7 2000"), Duration::from_secs(2)), (Some("6 2000"), usual), (None, usual)]
        {
            let fields = [Some("7"), Some("owner"), Some("100"), Some("held"), said];
            let written = written(shard, &fields.map(|field| field.map(str::to_owned)), usual).unwrap();
            assert_eq!(written.word, Word { epoch: 7, until: 100, lasts }, "{said:?}");
        }
    }
}
