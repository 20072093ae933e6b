//! The one task that commits. It takes what has queued up, sends it as one pipeline on a connection of its own, and
//! answers: while Redis writes and flushes one group the next one forms.
//!
//! So that a batch which was given up cannot take effect behind its repeat, nothing may be under way that nobody waits
//! for any more: a connection that broke or was too slow is killed on the server before anything else is sent.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Pipeline, RedisError, Script, Value, cmd};
use skein_shared::fence::Epoch;
use skein_shared::mutation::{self, Mutation};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::batch::Prepared;
use super::connection::{at, read, sentence};
use super::door::Door;
use super::generation::{Generation, REPLACED, Reliance};
use super::options::Durability;
use super::server::Info;
use super::watch::Watch;
use crate::store::{CommitError, Fence, StoreError, Version};

/// Requests that may wait; beyond them callers wait for a place.
const QUEUE: usize = 1024;
/// Greatest group: batches, and bytes that they write.
const GROUP: usize = 256;
const GROUP_BYTES: usize = 2 * 1024 * 1024;

type Outcome = Result<Version, CommitError>;

struct Request {
    fence: Fence,
    batch: Prepared,
    answer: oneshot::Sender<Outcome>,
}

/// A handle to the task, which ends with the last handle.
pub(super) struct Writer {
    requests: mpsc::Sender<Request>,
}

/// What the task begins with.
pub(super) struct Start {
    pub(super) door: Door,
    pub(super) reliance: Arc<Reliance>,
    pub(super) acknowledgement: Acknowledgement,
}

/// What a group waits for after it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledgement {
    /// The answer itself: the server has flushed before it, as far as it is set up to.
    Answer,
    /// A replica has it, in its log too where the server can ask for that. With the time that it may take.
    Replica { flushed: bool, locally: bool, within: Duration },
}

impl Acknowledgement {
    pub(super) fn of(durability: Durability, info: &Info, within: Duration) -> Self {
        match durability {
            Durability::Always | Durability::Everysec => Self::Answer,
            Durability::Replicated => {
                Self::Replica { flushed: info.has_waitaof(), locally: info.has_log(), within }
            }
        }
    }
}

impl Writer {
    pub(super) fn start(start: Start) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let watch = start.door.watch("commits");
        let task = Task { start, watch, commit: script(), link: None, last: None };
        tokio::spawn(task.run(queue));
        Self { requests }
    }

    pub(super) async fn commit(&self, fence: Fence, batch: Prepared) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let stopped = || "the store's writer has stopped; restart the process".to_owned();
        if self.requests.send(Request { fence, batch, answer }).await.is_err() {
            return Err(CommitError::Failed(stopped()));
        }
        answered.await.unwrap_or_else(|_| Err(CommitError::Unknown(stopped())))
    }
}

struct Task {
    start: Start,
    watch: Watch,
    commit: Script,
    link: Option<Link>,
    /// The connection that was used last.
    last: Option<Used>,
}

/// A connection for this task alone.
struct Link {
    connection: MultiplexedConnection,
    /// To which life of the server.
    generation: Generation,
}

/// What is known of a connection after it broke.
struct Used {
    /// What the server calls it.
    id: i64,
    generation: Generation,
}

/// What the server said to a group.
struct Answers {
    values: Vec<Value>,
    /// Why what was written may still be lost.
    unconfirmed: Option<String>,
}

/// Why a group got no answers.
enum Silence {
    /// It was not sent.
    NotSent(String),
    /// Nobody knows what became of it.
    Unknown(String),
}

impl Task {
    async fn run(mut self, mut queue: mpsc::Receiver<Request>) {
        while let Some(first) = queue.recv().await {
            let mut bytes = first.batch.bytes();
            let mut group = vec![first];
            while group.len() < GROUP && bytes < GROUP_BYTES {
                let Ok(next) = queue.try_recv() else { break };
                bytes += next.batch.bytes();
                group.push(next);
            }
            self.write(group).await;
        }
    }

    async fn write(&mut self, group: Vec<Request>) {
        let outcomes = match self.send(&group).await {
            Ok(Answers { values, unconfirmed }) => {
                let answers = group.iter().zip(values);
                let outcomes = answers.map(|(request, answer)| self.outcome(request, answer));
                // A refusal needs nobody's confirmation.
                let confirmed =
                    |version| unconfirmed.clone().map_or(Ok(version), |why| Err(CommitError::Unknown(why)));
                outcomes.map(|outcome| outcome.and_then(confirmed)).collect()
            }
            Err(Silence::NotSent(problem)) => vec![Err(CommitError::Failed(problem)); group.len()],
            Err(Silence::Unknown(problem)) => {
                // Not used again: what it may still bring is nobody's answer any more.
                self.link = None;
                vec![Err(CommitError::Unknown(problem)); group.len()]
            }
        };
        for (request, outcome) in group.into_iter().zip(outcomes) {
            // The caller may have gone; what was committed stays.
            let _ = request.answer.send(outcome);
        }
    }

    /// Sends a group, and once more if the server has forgotten the script: then it has written nothing of it.
    async fn send(&mut self, group: &[Request]) -> Result<Answers, Silence> {
        let answers = self.send_once(group).await?;
        let forgotten = |answer: &Value| matches!(answer, Value::ServerError(error) if error.kind() == Some(redis::ServerErrorKind::NoScript));
        if !answers.values.iter().any(forgotten) {
            return Ok(answers);
        }
        self.link = None;
        self.send_once(group).await
    }

    async fn send_once(&mut self, group: &[Request]) -> Result<Answers, Silence> {
        let generation = self.start.reliance.generation();
        let mut link = match self.link.take() {
            Some(link) if link.generation == generation => link,
            _ => self.connect(generation).await.map_err(|StoreError(problem)| Silence::NotSent(problem))?,
        };
        let mut pipeline = Pipeline::with_capacity(group.len());
        for request in group {
            pipeline.add_command(request.batch.call(self.commit.get_hash(), request.fence));
        }
        let lost = |error: RedisError| Silence::Unknown(sentence(&error));
        let asked = Instant::now();
        let values = link.connection.req_packed_commands(&pipeline, 0, group.len()).await;
        self.watch.heard(asked, &values);
        let values = values.map_err(lost)?;
        let unconfirmed = self.confirm(&mut link.connection).await?;
        metrics::counter!("skein_store_flushes_total").increment(1);
        self.link = Some(link);
        Ok(Answers { values, unconfirmed })
    }

    /// Waits until a replica has what was written on this connection, if it is to. Says why it is not certain.
    async fn confirm(&self, link: &mut MultiplexedConnection) -> Result<Option<String>, Silence> {
        let Acknowledgement::Replica { flushed, locally, within } = self.start.acknowledgement else {
            return Ok(None);
        };
        let limit = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let lost = |error: RedisError| Silence::Unknown(sentence(&error));
        let replicas: i64 = if flushed {
            let ask = cmd("WAITAOF").arg(i32::from(locally)).arg(1).arg(limit).to_owned();
            let (_, replicas): (i64, i64) = ask.query_async(link).await.map_err(lost)?;
            replicas
        } else {
            cmd("WAIT").arg(1).arg(limit).query_async(link).await.map_err(lost)?
        };
        let problem = "no replica of Redis has confirmed the write in time; look after the replicas";
        Ok((replicas < 1).then(|| problem.to_owned()))
    }

    /// Makes a new connection once the last one can do nothing any more.
    async fn connect(&mut self, generation: Generation) -> Result<Link, StoreError> {
        let mut link = self.start.door.connect().await?;
        let failed = |error: RedisError| StoreError(sentence(&error));
        let info: String = cmd("INFO").query_async(&mut link).await.map_err(failed)?;
        if Info::parse(&info).generation() != generation {
            self.start.reliance.doubt();
            return Err(StoreError(format!(
                "{REPLACED}; everything is loaded anew, so try again in some seconds"
            )));
        }
        // A connection to another life of the server ended with it, and its id may be somebody else's.
        if let Some(last) = self.last.take_if(|last| last.generation == generation) {
            let kill = cmd("CLIENT").arg("KILL").arg("ID").arg(last.id).to_owned();
            let killed = kill.query_async::<i64>(&mut link).await;
            if let Err(error) = killed {
                self.last = Some(last);
                return Err(failed(error));
            }
        }
        let id = cmd("CLIENT").arg("ID").query_async(&mut link).await.map_err(failed)?;
        self.last = Some(Used { id, generation: generation.clone() });
        self.commit.load_async(&mut link).await.map_err(failed)?;
        Ok(Link { connection: link, generation })
    }

    fn outcome(&self, request: &Request, answer: Value) -> Outcome {
        if let Value::ServerError(error) = &answer {
            let error = error.clone().into();
            self.watch.refused(&error);
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
                let StoreError(problem) = at(text(1), &format!("{}; restore it from a copy", text(2)));
                self.watch.failed(&problem);
                Err(CommitError::Failed(problem))
            }
            other => Err(CommitError::Unknown(format!("the commit script answered `{other}`; report this"))),
        }
    }
}

/// With this first line the server refuses a script before it begins, where it would refuse a write: when it is full,
/// cannot flush, or has too few replicas.
fn script() -> Script {
    let (check, commit) = (include_str!("scripts/check.lua"), include_str!("scripts/commit.lua"));
    if mutation::is_on(Mutation::UncheckedCommit) {
        let (fence, version) = ("lease[1] ~= ARGV[2] or lease[2] ~= ARGV[3]", "version ~= expected");
        return Script::new(&format!(
            "#!lua\n{}{}",
            check.replace(fence, "false"),
            commit.replace(version, "false")
        ));
    }
    Script::new(&format!("#!lua\n{check}{commit}"))
}
