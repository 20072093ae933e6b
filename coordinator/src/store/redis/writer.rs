//! The one task that commits. It takes what has queued up, sends it as one pipeline on a connection of its own, and
//! answers: while Redis writes one group the next one is on its way to it, or forms.
//!
//! So that a batch which was given up cannot take effect behind its repeat, nothing may be under way that nobody waits
//! for any more: a connection that broke or was too slow is killed on the server before anything else is sent. What was
//! not sent yet waits for the next one, in its order, and is refused if its fence was lost meanwhile.

mod link;

use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, Fuse, FusedFuture};
use futures::stream::FuturesOrdered;
use futures::{FutureExt, StreamExt};
use redis::aio::ConnectionLike;
use redis::{Pipeline, RedisError, Script, Value};
use skein_shared::fence::Epoch;
use skein_shared::mutation::{self, Mutation};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::batch::Prepared;
use super::connection::{garbled, read, sentence};
use super::discovery::Discovery;
use super::generation::{Generation, REPLACED, Reliance};
use super::held::Held;
use super::options::Durability;
use super::watch::Watch;
use crate::store::{CommitError, Fence, Receipt, StoreError, Version};
use link::{Link, Used, Way};

/// Greatest group: batches, and bytes that they write.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 2 * 1024 * 1024;
/// Groups that may be under way at once: Redis has the next one at hand when it is done with one. More gain nothing
/// (measured).
const UNDER_WAY: usize = 2;

type Outcome = Result<Version, CommitError>;
/// A group that waits for a connection.
type Waiting = Fuse<BoxFuture<'static, (Vec<Request>, Result<Link, StoreError>)>>;

struct Request {
    fence: Fence,
    batch: Prepared,
    receipt: Receipt,
}

/// A handle to the task, which ends with the last handle.
pub(super) struct Writer {
    /// No entity has more than some batches under way, so there are few that wait.
    requests: mpsc::UnboundedSender<Request>,
}

/// What the task begins with.
#[derive(Clone)]
pub(super) struct Start {
    pub(super) discovery: Discovery,
    pub(super) reliance: Arc<Reliance>,
    pub(super) held: Arc<Held>,
    pub(super) durability: Durability,
    /// How long a replica may take to confirm.
    pub(super) within: Duration,
    /// For how long it keeps what could not be sent to a server that is away.
    pub(super) keeps: Duration,
}

impl Writer {
    pub(super) fn start(start: Start) -> Self {
        let (requests, queue) = mpsc::unbounded_channel();
        let watch = start.discovery.watch("commits");
        let task =
            Task { start, watch, commit: script(), link: None, last: None, tries: None, repeated: None };
        tokio::spawn(task.run(queue));
        Self { requests }
    }

    pub(super) fn commit(&self, fence: Fence, batch: Prepared, receipt: Receipt) {
        if let Err(mpsc::error::SendError(request)) = self.requests.send(Request { fence, batch, receipt }) {
            request.receipt.not_taken();
        }
    }
}

struct Task {
    start: Start,
    watch: Watch,
    commit: Script,
    link: Option<Link>,
    /// The connection that was used last.
    last: Option<Used>,
    /// How it is tried to get a connection; none while there is one.
    tries: Option<Tries>,
    /// When something was last sent once more.
    repeated: Option<Instant>,
}

/// How many groups may be under way at once. The server reads nothing more while it waits for a replica.
fn under_way(durability: Durability) -> usize {
    match durability {
        Durability::Always | Durability::Everysec => UNDER_WAY,
        Durability::Replicated => 1,
    }
}

/// It is tried again and again to reach a life of the server, until then.
struct Tries {
    of: Generation,
    until: Instant,
}

impl Tries {
    /// Those that were begun before, unless another life is relied on since: it has all the time that the former had.
    fn go_on(begun: Option<Self>, of: Generation, keeps: Duration) -> Self {
        let begun = begun.filter(|tries| tries.of == of);
        begun.unwrap_or_else(|| Self { of, until: Instant::now() + keeps })
    }
}

/// A group that was sent, and what came of it.
struct Sent {
    group: Vec<Request>,
    link: Link,
    asked: Instant,
    /// An error leaves open what became of the group.
    answers: Result<Answers, RedisError>,
}

/// What the server said to a group.
struct Answers {
    values: Vec<Value>,
    /// Why what was written may still be lost.
    unconfirmed: Option<String>,
}

impl Task {
    async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Request>) {
        let (mut under_way, most) = (FuturesOrdered::new(), under_way(self.start.durability));
        // Nothing is taken from the queue meanwhile: what comes later may build on what waits.
        let mut waiting: Waiting = Fuse::terminated();
        loop {
            tokio::select! {
                biased;
                Some(sent) = under_way.next(), if !under_way.is_empty() => self.hear(sent).await,
                (group, link) = &mut waiting, if !waiting.is_terminated() => match link {
                    Ok(link) => {
                        self.reached(&link);
                        under_way.extend(self.send(group, link));
                    }
                    Err(StoreError(problem)) => answer(group, &Err(CommitError::Failed(problem))),
                },
                first = queue.recv(), if waiting.is_terminated() && under_way.len() < most => {
                    let Some(first) = first else { break };
                    let group = gather(first, &mut queue);
                    match self.link() {
                        Some(link) => under_way.extend(self.send(group, link)),
                        None => waiting = self.reach(group),
                    }
                }
            }
        }
        while let Some(sent) = under_way.next().await {
            self.hear(sent).await;
        }
    }

    /// Refuses what was decided under a fence that this process has lost since. The next life of the server may have
    /// the same one, for its leases are those of the replica that it was, and lack what led to the decision: what
    /// another entity had told that is gone, or a grant with the same token. Asked once the life is known, for the
    /// shards are lost before another one is relied on.
    fn ours(&self, group: Vec<Request>) -> Vec<Request> {
        let held = &self.start.held;
        let (ours, lost): (Vec<_>, Vec<_>) =
            group.into_iter().partition(|request| held.has(request.batch.shard, request.fence));
        for request in lost {
            let fenced = CommitError::Fenced(held.fence(request.batch.shard).epoch.max(request.fence.epoch));
            request.receipt.give(Err(fenced));
        }
        ours
    }

    /// Answers a group.
    async fn hear(&mut self, mut sent: Sent) {
        self.repeat(&mut sent).await;
        let Sent { group, link, answers, .. } = sent;
        // What another life has answered since may be lost.
        let is_the_same = link.generation == self.start.reliance.generation();
        let Answers { values, unconfirmed } = match answers {
            Ok(answers) if is_the_same => answers,
            Ok(_) => return answer(group, &Err(CommitError::Unknown(REPLACED.to_owned()))),
            Err(error) => {
                // Not used again: what it may still bring is nobody's answer any more.
                self.link.take_if(|current| current.is(&link));
                return answer(group, &Err(CommitError::Unknown(sentence(&error))));
            }
        };
        metrics::counter!("skein_store_flushes_total").increment(1);
        for (request, value) in group.into_iter().zip(values) {
            let outcome = self.outcome(&request, value);
            // A refusal needs nobody's confirmation.
            let confirmed =
                |version| unconfirmed.clone().map_or(Ok(version), |why| Err(CommitError::Unknown(why)));
            request.receipt.give(outcome.and_then(confirmed));
        }
    }

    /// Sends once more what the server had forgotten the script for, of which it has written nothing. Another process
    /// may tell it the script meanwhile, and what was under way then came before what it builds on: its conflicts,
    /// which wrote nothing either, may be none any more.
    async fn repeat(&mut self, sent: &mut Sent) {
        let Ok(answers) = &mut sent.answers else { return };
        let overtook = self.repeated.is_some_and(|repeated| sent.asked < repeated);
        let places = unsettled(&answers.values, overtook);
        let is_the_same = sent.link.generation == self.start.reliance.generation();
        if places.is_empty()
            || !is_the_same
            || self.commit.load_async(&mut sent.link.connection).await.is_err()
        {
            return;
        }
        let repeated = self.ask(places.iter().map(|at| &sent.group[*at]), &sent.link).await;
        self.repeated = Some(Instant::now());
        match repeated {
            Ok(repeated) => {
                places.into_iter().zip(repeated.values).for_each(|(at, value)| answers.values[at] = value);
                answers.unconfirmed = answers.unconfirmed.take().or(repeated.unconfirmed);
            }
            Err(error) => sent.answers = Err(error),
        }
    }

    /// Sends on its way what of a group may still be written, if anything.
    fn send(&self, group: Vec<Request>, link: Link) -> Option<BoxFuture<'static, Sent>> {
        let group = self.ours(group);
        if group.is_empty() {
            return None;
        }
        let (asked, ask) = (Instant::now(), self.ask(group.iter(), &link));
        let sent = async move {
            let answers = ask.await;
            Sent { group, link, asked, answers }
        };
        Some(sent.boxed())
    }

    /// Sends requests in one pipeline.
    fn ask<'a>(
        &self,
        requests: impl ExactSizeIterator<Item = &'a Request>,
        link: &Link,
    ) -> BoxFuture<'static, Result<Answers, RedisError>> {
        let mut pipeline = Pipeline::with_capacity(requests.len());
        for request in requests {
            pipeline.add_command(request.batch.call(self.commit.get_hash(), request.fence));
        }
        let (acknowledgement, watch) = (link.acknowledgement, self.watch.clone());
        let mut connection = link.connection.clone();
        async move {
            let asked = Instant::now();
            let values = connection.req_packed_commands(&pipeline, 0, pipeline.len()).await;
            watch.heard(asked, &values);
            let values = values?;
            let unconfirmed = acknowledgement.confirm(&mut connection).await;
            if let Err(error) = &unconfirmed {
                watch.confirmed(Some(&format!(
                    "Redis does not say whether a replica has the write: {}; look at its replicas and at its log",
                    sentence(error)
                )));
            }
            let unconfirmed = unconfirmed?;
            watch.confirmed(unconfirmed.as_deref());
            Ok(Answers { values, unconfirmed })
        }
        .boxed()
    }

    /// The connection in use.
    fn link(&mut self) -> Option<Link> {
        let generation = self.start.reliance.generation();
        self.link.take_if(|link| link.generation != generation);
        self.link.clone()
    }

    /// Gets a connection for a group. While the server is away that is tried for a while: nothing of the group was
    /// sent, so it need not be refused. Once that was in vain one try has to do for each group, until there is a
    /// connection again.
    fn reach(&mut self, group: Vec<Request>) -> Waiting {
        let generation = self.start.reliance.generation();
        let tries = Tries::go_on(self.tries.take(), generation, self.start.keeps);
        let until = tries.until;
        self.tries = Some(tries);
        let way = Way { start: self.start.clone(), commit: self.commit.clone(), last: self.last.clone() };
        async move { (group, way.reach(until).await) }.boxed().fuse()
    }

    fn reached(&mut self, link: &Link) {
        (self.link, self.last, self.tries) = (Some(link.clone()), Some(link.used()), None);
    }

    fn outcome(&self, request: &Request, answer: Value) -> Outcome {
        if let Value::ServerError(error) = &answer {
            let error: RedisError = error.clone().into();
            self.watch.refused(&error);
            if error.code() == Some("MOVED") {
                // Where the keys are now is another life of the server. Until the leases are looked after nobody else
                // may notice.
                self.start.reliance.doubt();
            }
            return Err(CommitError::Failed(sentence(&error)));
        }
        let answer: Vec<String> =
            read("(commit)", answer).map_err(|StoreError(problem)| CommitError::Unknown(problem))?;
        let text = |place: usize| answer.get(place).map_or("", String::as_str);
        let number = || text(1).parse().unwrap_or_default();
        match text(0) {
            "OK" => {
                self.watch.taken();
                Ok(request.batch.version)
            }
            "FENCED" => Err(CommitError::Fenced(Epoch(number()))),
            "CONFLICT" => Err(CommitError::Conflict { actual: Version(number()) }),
            "INCOMPLETE" => Err(CommitError::incomplete(text(1))),
            "GARBAGE" => {
                let StoreError(problem) = garbled(&answer);
                self.watch.failed(&problem);
                Err(CommitError::Failed(problem))
            }
            other => Err(CommitError::Unknown(format!("the commit script answered `{other}`; report this"))),
        }
    }
}

/// Takes what has queued up behind a request.
fn gather(first: Request, queue: &mut mpsc::UnboundedReceiver<Request>) -> Vec<Request> {
    let mut bytes = first.batch.bytes();
    let mut group = vec![first];
    while group.len() < GROUP && bytes < GROUP_BYTES {
        let Ok(next) = queue.try_recv() else { break };
        bytes += next.batch.bytes();
        group.push(next);
    }
    group
}

/// Whether the server did not know the script, and has done nothing.
fn is_forgotten(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript))
}

/// Whether the script refused the batch for the version that it builds on.
fn is_conflict(answer: &Value) -> bool {
    let Value::Array(parts) = answer else { return false };
    matches!(parts.first(), Some(Value::BulkString(word)) if word == b"CONFLICT")
}

/// Which answers to a group do not settle anything. It may have overtaken others; and a part of it has overtaken the
/// rest, if the server was told the script between two of its batches.
fn unsettled(values: &[Value], mut overtook: bool) -> Vec<usize> {
    let mut places = Vec::new();
    for (place, value) in values.iter().enumerate() {
        overtook |= is_forgotten(value);
        if is_forgotten(value) || (overtook && is_conflict(value)) {
            places.push(place);
        }
    }
    places
}

/// Answers all of a group alike.
fn answer(group: Vec<Request>, outcome: &Outcome) {
    for request in group {
        request.receipt.give(outcome.clone());
    }
}

/// With this first line the server refuses a script before it begins, where it would refuse a write: when it is full,
/// cannot flush, or has too few replicas.
fn script() -> Script {
    let (check, commit) = (include_str!("scripts/check.lua"), include_str!("scripts/commit.lua"));
    if mutation::is_on(Mutation::UncheckedCommit) {
        let (fence, version) =
            ("lease[1] ~= ARGV[2] or lease[2] ~= ARGV[3]", "version ~= expected or last ~= ARGV[5]");
        return Script::new(&format!(
            "#!lua\n{}{}",
            check.replace(fence, "false"),
            commit.replace(version, "false")
        ));
    }
    Script::new(&format!("#!lua\n{check}{commit}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn another_life_of_the_server_is_tried_for_as_long_as_the_former() {
        let life = |run: &str| Generation { run: run.to_owned(), replication: "1".to_owned() };
        let (begun, keeps) = (Instant::now(), Duration::from_secs(5));
        let first = Tries::go_on(None, life("a"), keeps);
        assert_eq!(first.until, begun + keeps);
        tokio::time::advance(keeps * 2).await;
        let same = Tries::go_on(Some(first), life("a"), keeps);
        assert_eq!(same.until, begun + keeps, "in vain for one is in vain for the next");
        let next = Tries::go_on(Some(same), life("b"), keeps);
        assert_eq!(next.until, begun + keeps * 3);
    }

    #[test]
    fn a_conflict_behind_what_was_not_written_for_want_of_the_script_is_no_answer_yet() {
        let told = |text: &str| redis::parse_redis_value(text.as_bytes()).unwrap();
        let forgotten = || told("-NOSCRIPT No matching script. Please use EVAL.\r\n");
        let conflict = || told("*2\r\n$8\r\nCONFLICT\r\n$1\r\n3\r\n");
        let taken = || told("*1\r\n$2\r\nOK\r\n");
        let group = [conflict(), forgotten(), taken(), conflict(), forgotten()];
        assert_eq!(unsettled(&group, false), [1, 3, 4]);
        assert_eq!(unsettled(&group, true), [0, 1, 3, 4]);
        assert!(unsettled(&[taken(), conflict()], false).is_empty());
    }
}
