//! What is written beside commits: chunks of blobs, and taking out what is over, such as delivered effects, dead
//! letters and what is old.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use redis::Script;
use skein_shared::fence::Epoch;
use skein_shared::time::Timestamp;

use super::batch::nonce;
use super::connection::{Connection, Unrun, at, garbled, is_said, key_of, lies_in_a_key, sentence};
use super::generation::{Generation, Reliance};
use super::scan::{digits, outbox_id};
use super::shard::{Keys, Shard};
use super::surplus::Surplus;
use crate::store::{Chunk, CommitError, Fence, OutboxPlace, StoreError, TrimPlan, Trimmed};

/// Effects that one script takes out.
const EFFECTS: usize = 500;

/// Runs the scripts of upkeep.
pub(super) struct Upkeep {
    connection: Connection,
    reliance: Arc<Reliance>,
    delivered: Script,
    bury: Script,
    trim: Script,
    chunk: Script,
    shards: Mutex<HashMap<Shard, Looked>>,
}

/// How far a shard was looked through.
struct Looked {
    passed: Passed,
    /// Of a plan that goes on.
    surplus: Option<Surplus>,
}

/// Up to where nothing is left in a shard that is old, so that no step looks again at what a clock that was ahead has
/// dated later than now. A fence is lost with its life of the server: in the next one something else may lie there.
#[derive(Clone)]
struct Passed {
    fence: Fence,
    /// The last record that was passed.
    last: String,
    /// The earliest time of those that were passed and wait to be forgotten.
    earliest: Option<Timestamp>,
}

impl Passed {
    fn nothing(fence: Fence) -> Self {
        Self { fence, last: "0-0".to_owned(), earliest: None }
    }
}

/// What is left of a plan's limits.
struct Limits {
    old: usize,
    surplus: usize,
    replies: usize,
    marks: usize,
    documents: usize,
    letters: usize,
    loose: usize,
}

/// What makes room runs also when there is none.
macro_rules! checked {
    ($flags:literal, $script:literal) => {
        Script::new(concat!("#!lua", $flags, "\n", include_str!("scripts/check.lua"), include_str!($script)))
    };
}

impl Upkeep {
    pub(super) fn new(connection: Connection, reliance: Arc<Reliance>) -> Self {
        Self {
            connection,
            reliance,
            delivered: checked!(" flags=allow-oom", "scripts/delivered.lua"),
            bury: checked!("", "scripts/bury.lua"),
            trim: checked!(" flags=allow-oom", "scripts/trim.lua"),
            chunk: checked!("", "scripts/chunk.lua"),
            shards: Mutex::default(),
        }
    }

    /// Those of shards that this process has no more, or has anew, stay: whoever has them delivers them again, and the
    /// marks tell whether they had arrived.
    pub(super) async fn delivered(
        &self,
        fence: impl Fn(&OutboxPlace) -> Fence,
        effects: &[OutboxPlace],
    ) -> Result<(), CommitError> {
        // Before the fences, which are lost before another life is relied on.
        let life = self.reliance.generation();
        let mut shards: BTreeMap<(Shard, Epoch, u64), Vec<Vec<u8>>> = BTreeMap::new();
        for effect in effects {
            let Fence { epoch, nonce } = fence(effect);
            let reign = (Shard::of(&effect.source), epoch, nonce);
            shards.entry(reign).or_default().push(outbox_id(effect.position).into());
        }
        let mut fenced = Ok(());
        // What is spoilt in one shard stays there, and is gone when it is mended, or comes again.
        for ((shard, epoch, nonce), ids) in shards {
            for part in ids.chunks(EFFECTS) {
                let keys = [shard.lease(), shard.outbox()];
                match self
                    .run(&life, &self.delivered, Fence { epoch, nonce }, "-x", &keys, part.to_vec())
                    .await
                {
                    Ok(_) => {}
                    Err(problem) if is_garbage(&problem) => {}
                    Err(CommitError::Fenced(epoch)) => fenced = Err(CommitError::Fenced(epoch)),
                    Err(problem) => return Err(problem),
                }
            }
        }
        fenced
    }

    pub(super) async fn bury(
        &self,
        fence: impl Fn(&OutboxPlace) -> Fence,
        effect: &OutboxPlace,
        reason: String,
        at: Timestamp,
    ) -> Result<(), CommitError> {
        // Before the fence, as above.
        let life = self.reliance.generation();
        let fence = fence(effect);
        let shard = Shard::of(&effect.source);
        let keys = [shard.lease(), shard.outbox(), shard.dead(), shard.dead_order(), shard.dead_ages()];
        let what = [outbox_id(effect.position), digits(effect.position), reason, at.0.to_string()];
        let what = what.into_iter().map(String::into_bytes).collect();
        self.run(&life, &self.bury, fence, "-xhzz", &keys, what).await.map(|_| ())
    }

    pub(super) async fn write_chunk(
        &self,
        fence: impl Fn(Shard) -> Fence,
        chunk: Chunk,
    ) -> Result<(), CommitError> {
        let names = Keys::new(&chunk.key);
        // Before the fence, as above.
        let life = self.reliance.generation();
        let fence = fence(names.shard);
        let keys = [names.shard.lease(), names.chunks(chunk.blob), names.blobs(), names.shard.loose()];
        let (place, at) = (chunk.place.to_string(), chunk.at.0.to_string());
        let what = [chunk.blob.to_string(), names.name, place, at].into_iter().map(String::into_bytes);
        let what = what.chain([chunk.bytes]).collect();
        self.run(&life, &self.chunk, fence, "-hhz", &keys, what).await.map(|_| ())
    }

    pub(super) async fn trim(
        &self,
        fence: impl Fn(Shard) -> Fence,
        shards: &[Shard],
        plan: &TrimPlan,
    ) -> Result<Trimmed, CommitError> {
        let limit = plan.limit;
        let mut left = Limits {
            old: limit,
            surplus: limit,
            replies: limit,
            marks: limit,
            documents: limit,
            letters: limit,
            loose: limit,
        };
        let (mut all, mut fenced) = (Trimmed::default(), None);
        // Before the fences, as above.
        let life = self.reliance.generation();
        for shard in shards {
            let step = match self.trim_shard((&life, fence(*shard)), *shard, plan, &mut left).await {
                // What is spoilt in one shard stays there, and what is another's by now that one forgets.
                Err(problem) if is_garbage(&problem) => continue,
                Err(CommitError::Fenced(epoch)) => {
                    fenced = Some(epoch);
                    continue;
                }
                step => step?,
            };
            all.records += step.records;
            all.replies += step.replies;
            all.marks += step.marks;
            all.documents += step.documents;
            all.dead_letters += step.dead_letters;
            all.loose += step.loose;
        }
        if all.is_nothing() {
            // The plan is at its end, and whatever comes next finds what was committed since.
            self.lock().values_mut().for_each(|looked| looked.surplus = None);
        }
        match fenced {
            // Not before the others have nothing more to forget, for whoever hears it goes on no longer.
            Some(epoch) if all.is_nothing() => Err(CommitError::Fenced(epoch)),
            _ => Ok(all),
        }
    }

    async fn trim_shard(
        &self,
        (life, fence): (&Generation, Fence),
        shard: Shard,
        plan: &TrimPlan,
        left: &mut Limits,
    ) -> Result<Trimmed, CommitError> {
        let keys = [
            shard.lease(),
            shard.events(),
            shard.reply_ages(),
            shard.mark_ages(),
            shard.archived(),
            shard.dead_order(),
            shard.dead_ages(),
            shard.dead(),
            shard.loose(),
        ];
        let passed = self.passed(shard, fence, plan.events_before);
        let mut surplus = self.surplus(shard, fence, plan);
        let looked = surplus.look(&self.connection, shard, left.surplus).await;
        looked.map_err(|StoreError(problem)| CommitError::Failed(problem))?;
        let mut arguments = vec![shard.prefix(), plan.now.0.to_string(), passed.last];
        for (before, limit) in [
            (plan.events_before, left.old),
            (plan.replies_before, left.replies),
            (plan.marks_before, left.marks),
            (plan.archived_before, left.documents),
            (plan.dead_letters_before, left.letters),
            (plan.loose_before, left.loose),
        ] {
            arguments.extend([before.0.to_string(), limit.to_string()]);
        }
        arguments.push(left.surplus.to_string());
        for (name, last) in surplus.first(left.surplus) {
            arguments.extend([name.clone(), last.0.to_string()]);
        }
        let arguments = arguments.into_iter().map(String::into_bytes).collect();
        let answer = self.run(life, &self.trim, fence, "-xzzzzzhz", &keys, arguments).await?;
        let number = |place: usize| answer.get(place).and_then(|text| text.parse::<u64>().ok());
        let earliest = passed.earliest.into_iter().chain(number(9).map(Timestamp)).min();
        let last = answer.get(8).cloned().unwrap_or_default();
        let count = |place: usize| number(place).unwrap_or(0);
        let [old, beyond, replies, marks, documents, dead_letters, loose] = [1, 2, 3, 4, 5, 6, 7].map(count);
        surplus.done(usize::try_from(count(10)).unwrap_or(usize::MAX));
        let looked = Looked { passed: Passed { fence, last, earliest }, surplus: Some(surplus) };
        self.lock().insert(shard, looked);
        for (left, spent) in [
            (&mut left.old, old),
            (&mut left.surplus, beyond),
            (&mut left.replies, replies),
            (&mut left.marks, marks),
            (&mut left.documents, documents),
            (&mut left.letters, dead_letters),
            (&mut left.loose, loose),
        ] {
            *left = left.saturating_sub(usize::try_from(spent).unwrap_or(usize::MAX));
        }
        Ok(Trimmed { records: old + beyond, replies, marks, documents, dead_letters, loose })
    }

    /// Where the walk for events from before a moment goes on.
    fn passed(&self, shard: Shard, fence: Fence, before: Timestamp) -> Passed {
        let known = self.lock().get(&shard).map(|looked| looked.passed.clone());
        let is_good = |known: &Passed| known.fence == fence && known.earliest.is_none_or(|at| at >= before);
        known.filter(is_good).unwrap_or_else(|| Passed::nothing(fence))
    }

    /// What a former step of the plan has found. Where a step fails the next one looks anew.
    fn surplus(&self, shard: Shard, fence: Fence, plan: &TrimPlan) -> Surplus {
        let found = self.lock().get_mut(&shard).and_then(|looked| looked.surplus.take());
        found.filter(|found| found.is_for(fence, plan)).unwrap_or_else(|| Surplus::new(fence, plan))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Shard, Looked>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn run(
        &self,
        life: &Generation,
        script: &Script,
        fence: Fence,
        types: &str,
        keys: &[String],
        what: Vec<Vec<u8>>,
    ) -> Result<Vec<String>, CommitError> {
        let mut arguments = vec![types.into(), fence.epoch.0.to_string().into(), nonce(fence).into()];
        arguments.extend(what);
        let answer = self.connection.run_in(life, script, keys, &arguments).await;
        let answer: Vec<String> = answer.map_err(|unrun| self.failed(unrun, keys))?;
        let text = |place: usize| answer.get(place).map_or("", String::as_str);
        match text(0) {
            "OK" => {
                self.connection.watch.taken();
                Ok(answer)
            }
            "FENCED" => Err(CommitError::Fenced(Epoch(text(1).parse().unwrap_or_default()))),
            _ => Err(self.garbage(garbled(&answer))),
        }
    }

    fn garbage(&self, StoreError(problem): StoreError) -> CommitError {
        self.connection.watch.failed(&problem);
        CommitError::Failed(problem)
    }

    /// A server that answers has refused; everything else leaves the outcome open.
    fn failed(&self, unrun: Unrun, keys: &[String]) -> CommitError {
        match unrun {
            Unrun::NotSent(problem) => CommitError::Failed(problem),
            Unrun::Answered(error) if lies_in_a_key(&error) => {
                // It is one that the script has found the name of, in the same shard, or it failed at what it found.
                let first = keys.get(1).map_or("", String::as_str);
                self.garbage(at(
                    first,
                    &format!("it, or a key that it leads to, holds garbage: {}", sentence(&error)),
                ))
            }
            Unrun::Answered(error) if is_said(&error) => CommitError::Failed(sentence(&error)),
            Unrun::Answered(error) => CommitError::Unknown(sentence(&error)),
            Unrun::Garbled(problem) => self.garbage(problem),
        }
    }
}

/// Whether a key was found that holds garbage.
fn is_garbage(problem: &CommitError) -> bool {
    matches!(problem, CommitError::Failed(problem) if key_of(problem).is_some())
}
