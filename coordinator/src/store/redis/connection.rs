//! A connection to Redis that many share: how long it waits, when it is made anew, and what its errors say.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::{Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Script, Value, cmd};
use tokio::time::Instant;

use super::discovery::Discovery;
use super::generation::{Generation, REPLACED};
use super::server::Info;
use super::shard::OURS;
use super::watch::Watch;
use crate::store::StoreError;

/// Commands that one pipeline carries: more would make Redis hold all their answers.
const PIPELINE: usize = 256;
/// How a problem with a key is told.
const THE_KEY: &str = "the key ";
const IN_REDIS: &str = " in Redis: ";
/// What is said while the slot of the store is on its way from one node of a Redis Cluster to another: a commit needs
/// keys of both, and neither runs it.
pub(super) const MOVING: &str = "the slot of the Redis Cluster that has the store is being moved to another node, and \
                                 nothing can be written until all of it is there; let the move end, or mend one that \
                                 broke off (`redis-cli --cluster check`, then `--cluster fix`): this process goes \
                                 there by itself";
/// What a script is told that has begun, of a key that is not there any more.
const NOT_LOCAL: &str = "access a non local key in a cluster node";

/// A shared connection. Whoever finds it broken makes the next one use another.
#[derive(Clone)]
pub(super) struct Connection {
    discovery: Discovery,
    link: Arc<Mutex<Link>>,
    pub(super) watch: Watch,
}

/// A connection and its number, once it is made. Everybody who needs it waits for the same one.
type Connecting = Shared<BoxFuture<'static, Result<(u64, MultiplexedConnection), StoreError>>>;

/// The connection in use, and how many were begun before it.
#[derive(Default)]
struct Link {
    number: u64,
    connection: Option<MultiplexedConnection>,
    /// One that is being made.
    connecting: Option<Connecting>,
    /// To which life of the server it leads, once somebody has asked.
    life: Option<Generation>,
}

impl Link {
    /// Whether this is the connection of that number, and known to lead to that life of the server.
    fn leads_to(&self, number: u64, life: &Generation) -> bool {
        self.number == number && self.life.as_ref() == Some(life)
    }
}

impl Connection {
    /// A connection for a part of the store.
    ///
    /// # Errors
    /// When Redis cannot be reached.
    pub(super) async fn open(discovery: &Discovery, part: &'static str) -> Result<Self, StoreError> {
        let link = Link { number: 1, connection: Some(discovery.connect().await?), ..Link::default() };
        Ok(Self {
            discovery: discovery.clone(),
            link: Arc::new(Mutex::new(link)),
            watch: discovery.watch(part),
        })
    }

    /// Asks for one key, or for something of the server that `key` names.
    pub(super) async fn ask<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, StoreError> {
        let (number, mut link) = self.link().await?;
        let asked = Instant::now();
        // What the server refuses comes as a value.
        let answer = link.req_packed_command(command).await.and_then(Value::extract_error);
        let answer = self.seen(number, asked, answer);
        read(key, answer.map_err(|error| problem(key, &error))?)
    }

    /// Asks for many keys at once; the answers come in the order of the questions.
    pub(super) async fn ask_all<T: FromRedisValue>(
        &self,
        questions: &[(String, Cmd)],
    ) -> Result<Vec<T>, StoreError> {
        self.ask_sound(questions).await?.into_iter().collect()
    }

    /// Like [`Connection::ask_all`], and what is wrong with one key is no matter of the others: an error that stands
    /// for one key says that the key holds garbage. A server that refuses to answer for another reason has told
    /// nothing, and who reads on would take that for an empty key.
    pub(super) async fn ask_sound<T: FromRedisValue>(
        &self,
        questions: &[(String, Cmd)],
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let values = self.values(questions).await?;
        let answers = questions.iter().zip(values);
        answers.map(|((key, _), value)| sound(key, value).map_err(|error| problem(key, &error))).collect()
    }

    /// Like [`Connection::ask_sound`], for what writes: a server that takes no writes is an alarm.
    pub(super) async fn write_sound<T: FromRedisValue>(
        &self,
        questions: &[(String, Cmd)],
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let values = self.values(questions).await?;
        let answers = questions.iter().zip(values);
        let read = |((key, _), value): (&(String, Cmd), Value)| {
            let answer = sound(key, value).inspect_err(|error| self.watch.refused(error));
            answer.map_err(|error| problem(key, &error))
        };
        answers.map(read).collect()
    }

    async fn values(&self, questions: &[(String, Cmd)]) -> Result<Vec<Value>, StoreError> {
        let mut answers = Vec::with_capacity(questions.len());
        for part in questions.chunks(PIPELINE) {
            let mut pipeline = Pipeline::with_capacity(part.len());
            for (_, command) in part {
                pipeline.add_command(command.clone());
            }
            let (number, mut link) = self.link().await?;
            let asked = Instant::now();
            let values = link.req_packed_commands(&pipeline, 0, part.len()).await;
            let values = self.seen(number, asked, values).map_err(|error| problem("a pipeline", &error))?;
            for value in &values {
                if let Value::ServerError(error) = value {
                    let error = error.clone().into();
                    self.watch.redirected(&error);
                    self.leave_if_over(number, &error);
                }
            }
            answers.extend(values);
        }
        Ok(answers)
    }

    /// Makes a script known to the server.
    pub(super) async fn load(&self, script: &Script) -> Result<(), StoreError> {
        let (number, mut link) = self.link().await?;
        let asked = Instant::now();
        let loaded = self.seen(number, asked, script.load_async(&mut link).await);
        loaded.map(|_| ()).map_err(|error| StoreError(sentence(&error)))
    }

    /// Runs a script, whose first key is the one that an error names.
    ///
    /// # Errors
    /// [`Unrun`].
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<T, Unrun> {
        let link = self.link().await.map_err(|StoreError(problem)| Unrun::NotSent(problem))?;
        self.invoke(link, script, keys, arguments).await
    }

    /// Like [`Connection::run`], in this life of the server and in no other. A fence alone does not say that: a replica
    /// that takes over has those of the primary.
    ///
    /// # Errors
    /// [`Unrun`].
    pub(super) async fn run_in<T: FromRedisValue>(
        &self,
        life: &Generation,
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<T, Unrun> {
        let link = self.link_to(life).await.map_err(|StoreError(problem)| Unrun::NotSent(problem))?;
        self.invoke(link, script, keys, arguments).await
    }

    async fn invoke<T: FromRedisValue>(
        &self,
        (number, mut link): (u64, MultiplexedConnection),
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<T, Unrun> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument.as_slice());
        }
        let asked = Instant::now();
        let answer = self.seen(number, asked, call.invoke_async::<Value>(&mut link).await);
        // Scripts write, and what writes is refused for the state that the server is in.
        let answer = answer.inspect_err(|error| self.watch.refused(error)).map_err(Unrun::Answered)?;
        let first = keys.first().map_or("", String::as_str);
        redis::from_redis_value(answer).map_err(|error| Unrun::Garbled(at(first, &error)))
    }

    /// Lets the next one who asks make another connection.
    pub(super) fn renew(&self) {
        let mut link = self.lock();
        *link = Link { number: link.number, ..Link::default() };
    }

    async fn link(&self) -> Result<(u64, MultiplexedConnection), StoreError> {
        let connecting = {
            let mut link = self.lock();
            if let Some(connection) = &link.connection {
                return Ok((link.number, connection.clone()));
            }
            match link.connecting.clone() {
                Some(connecting) => connecting,
                None => self.connect(&mut link),
            }
        };
        connecting.await
    }

    /// Makes a connection in a task of its own. Whoever waits for it may be left alone for a while, or for ever, by
    /// those who are to poll it (a set of futures whose owner waits for something else), and would take all others with
    /// it if it were the one that connects, or held the place in a queue.
    fn connect(&self, link: &mut Link) -> Connecting {
        let (number, this) = (link.number + 1, self.clone());
        let connecting = tokio::spawn(async move {
            let connected = this.discovery.connect().await;
            let mut link = this.lock();
            // Nobody wants it any more if it was renewed meanwhile.
            let is_wanted = link.number == number && link.connecting.take().is_some();
            let connection = connected.inspect_err(|StoreError(problem)| this.watch.is_away(problem))?;
            if is_wanted {
                link.connection = Some(connection.clone());
            }
            Ok((number, connection))
        });
        let ended = |_| Err(StoreError("the process is shutting down".to_owned()));
        let connecting = connecting.map(move |made| made.unwrap_or_else(ended)).boxed().shared();
        *link = Link { number, connecting: Some(connecting.clone()), ..Link::default() };
        connecting
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection to this life of the server: it ends with it, so each is asked once.
    async fn link_to(&self, life: &Generation) -> Result<(u64, MultiplexedConnection), StoreError> {
        let (number, mut connection) = self.link().await?;
        if self.lock().leads_to(number, life) {
            return Ok((number, connection));
        }
        let asked = Instant::now();
        let info = self.seen(number, asked, cmd("INFO").query_async(&mut connection).await);
        let info: String = info.map_err(|error| StoreError(sentence(&error)))?;
        let found = Info::parse(&info).generation();
        if found != *life {
            return Err(StoreError(REPLACED.to_owned()));
        }
        let mut link = self.lock();
        if link.number == number {
            link.life = Some(found);
        }
        Ok((number, connection))
    }

    /// Whether the server is in this life.
    ///
    /// # Errors
    /// When it is in another, or cannot be asked.
    pub(super) async fn is_in(&self, life: &Generation) -> Result<(), StoreError> {
        self.link_to(life).await.map(drop)
    }

    /// Looks whether a connection is still of use after what it answered.
    fn seen<T>(&self, number: u64, asked: Instant, answer: Result<T, RedisError>) -> Result<T, RedisError> {
        self.watch.heard(asked, &answer);
        answer.inspect_err(|error| self.leave_if_over(number, error))
    }

    /// Uses a connection no more that has said this, if it is over with it.
    fn leave_if_over(&self, number: u64, error: &RedisError) {
        if !is_over(error) {
            return;
        }
        let mut link = self.lock();
        // Others may have found the same, and one of them made a new one.
        if link.number == number {
            link.connection = None;
        }
    }
}

/// Why a script gave nothing.
pub(super) enum Unrun {
    NotSent(String),
    /// What Redis said, or that it said nothing.
    Answered(RedisError),
    /// It ran, and what it gave is nothing that it gives of what belongs in its keys.
    Garbled(StoreError),
}

impl Unrun {
    /// What to say of it, when the script was about a key.
    pub(super) fn problem(&self, key: &str) -> StoreError {
        match self {
            Unrun::NotSent(problem) => StoreError(problem.clone()),
            Unrun::Answered(error) => problem(key, error),
            Unrun::Garbled(problem) => problem.clone(),
        }
    }
}

/// Whether a connection that said this is better made anew. One that is late may lead to a server that is gone; one
/// that refuses writes, has the keys no more, or is cut off from its cluster, leads to what was the primary.
fn is_over(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || matches!(error.code(), Some("READONLY" | "MOVED" | "CLUSTERDOWN"))
}

/// What went wrong with a question. Only what lies in the key is said of it.
fn problem(key: &str, error: &RedisError) -> StoreError {
    if lies_in_a_key(error) {
        return at(key, &sentence(error));
    }
    let what = if is_said(error) { "Redis refuses this" } else { "Redis does not answer" };
    StoreError(format!("{what}: {}", sentence(error)))
}

/// The answer for one key, or why the server answers for none.
fn sound<T: FromRedisValue>(key: &str, value: Value) -> Result<Result<T, StoreError>, RedisError> {
    match value.extract_error() {
        Ok(value) => Ok(read(key, value)),
        Err(error) if lies_in_a_key(&error) => Ok(Err(problem(key, &error))),
        Err(error) => Err(error),
    }
}

/// Whether an error is about what a key holds. All others of the server have a code of their own, and are about its
/// state (it loads, is full, has no replica) or about who asks.
pub(super) fn lies_in_a_key(error: &RedisError) -> bool {
    is_said(error) && !is_moving(error) && matches!(error.code(), None | Some("WRONGTYPE" | "ERR"))
}

/// Whether the server refuses something because its keys are on their way to another node of the Redis Cluster. Once
/// all of them are there it says where that is, and is left.
pub(super) fn is_moving(error: &RedisError) -> bool {
    let is_not_local = || error.detail().is_some_and(|detail| detail.contains(NOT_LOCAL));
    is_said(error) && (matches!(error.code(), Some("ASK" | "TRYAGAIN")) || is_not_local())
}

/// Whether the server itself said it. Otherwise nobody knows what became of the request.
pub(super) fn is_said(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
}

/// Whether a key was found to hold something else than belongs there.
pub(super) fn is_garbage(error: &RedisError) -> bool {
    error.code() == Some("WRONGTYPE")
}

/// Reads an answer.
pub(super) fn read<T: FromRedisValue>(key: &str, answer: Value) -> Result<T, StoreError> {
    let answer = answer.extract_error().map_err(|error| problem(key, &error))?;
    redis::from_redis_value(answer).map_err(|error| at(key, &error))
}

/// A problem with what one key holds.
pub(super) fn at(key: &str, problem: &impl Display) -> StoreError {
    let what = if key.starts_with(OURS) { THE_KEY } else { "" };
    StoreError(format!("{what}{key}{IN_REDIS}{problem}"))
}

/// What a script has found: `GARBAGE`, the key that holds it, what is wrong with that, and what helps if a copy is not
/// all that does.
pub(super) fn garbled(answer: &[String]) -> StoreError {
    let text = |place: usize| answer.get(place).map_or("", String::as_str);
    let advice = Some(text(3)).filter(|advice| !advice.is_empty()).unwrap_or("restore it from a copy");
    at(text(1), &format!("{}; {advice}", text(2)))
}

/// Which key a problem lies in, if it is one that [`at`] has told.
pub(super) fn key_of(problem: &str) -> Option<&str> {
    problem.strip_prefix(THE_KEY)?.split_once(IN_REDIS).map(|(key, _)| key)
}

/// What an error says, and for those that an operator can do something about, what that is.
pub(super) fn sentence(error: &RedisError) -> String {
    if is_moving(error) {
        return format!("{error}; {MOVING}");
    }
    let advice = match error.code() {
        Some("OOM") => {
            "; Redis is full: give it more memory (maxmemory), or let Skein keep less ([retention])"
        }
        Some("MISCONF") => "; Redis cannot write to its disk: look at its log",
        Some("LOADING") => "; it was started a moment ago: this process waits for it",
        Some("NOREPLICAS") => "; Redis has too few replicas at hand (min-replicas-to-write): bring them back",
        Some("READONLY") => "; this Redis is a replica: name the primary",
        Some("MOVED") => {
            "; another node of the Redis Cluster has the keys: this process goes there, so try again in some seconds"
        }
        Some("CLUSTERDOWN") => "; the Redis Cluster takes nothing: look after its nodes",
        Some("NOAUTH" | "WRONGPASS") => "; the URL needs the right user and password",
        Some("NOPERM") => "; the user of the URL needs more rights (ACL SETUSER)",
        Some("WRONGTYPE") => {
            "; another program has written there: look at the key, and restore it from a copy"
        }
        _ => "",
    };
    format!("{error}{advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_problem_is_found_again() {
        let StoreError(told) = at("{skein}:s1:entity:pool/default", &"a word: no number");
        assert_eq!(key_of(&told), Some("{skein}:s1:entity:pool/default"));
        let StoreError(told) = at("INFO", &"not allowed");
        assert_eq!(key_of(&told), None);
    }

    #[test]
    fn who_may_be_the_primary_no_more_is_left_and_who_lacks_something_is_not() {
        let is_left = |code: &str| is_over(&redis::make_extension_error(code.to_owned(), None));
        assert!(["READONLY", "MOVED", "CLUSTERDOWN"].into_iter().all(is_left));
        assert!(!["OOM", "NOREPLICAS", "LOADING", "WRONGTYPE"].into_iter().any(is_left));
    }

    #[test]
    fn only_what_is_about_its_content_is_said_of_a_key() {
        let key = "{skein}:s1:lease";
        let told = |code: &str| {
            let StoreError(told) = problem(key, &redis::make_extension_error(code.to_owned(), None));
            told
        };
        assert_eq!(key_of(&told("WRONGTYPE")), Some(key));
        for state in ["NOREPLICAS", "MISCONF", "LOADING", "OOM", "READONLY", "CLUSTERDOWN", "MOVED", "NOPERM"]
        {
            assert_eq!(key_of(&told(state)), None, "{state}");
            assert!(told(state).starts_with("Redis refuses this: "), "{}", told(state));
        }
    }

    /// A key that is on its way to another node holds no garbage, whatever the server calls that.
    #[test]
    fn what_is_being_moved_is_told_with_what_to_do_and_is_no_fault_of_a_key() {
        let not_local =
            "Script attempted to access a non local key in a cluster node script: 7b, on @user_script:9.";
        for (code, detail) in [("ASK", "42 10.0.0.2:6379"), ("TRYAGAIN", "Multiple keys"), ("ERR", not_local)]
        {
            let error = redis::make_extension_error(code.to_owned(), Some(detail.to_owned()));
            let StoreError(told) = problem("{skein}:s1:lease", &error);
            assert!(told.starts_with("Redis refuses this: ") && told.contains("--cluster fix"), "{told}");
            assert!(!lies_in_a_key(&error) && !is_over(&error), "{code}");
        }
        let other = redis::make_extension_error("ERR".to_owned(), Some("no such thing".to_owned()));
        assert!(lies_in_a_key(&other) && !is_moving(&other));
    }
}
