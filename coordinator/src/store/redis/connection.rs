//! Connections to Redis: how they are made, how long they wait, and what their errors say.
//!
//! A URL may hold a password, so nothing here prints one.

use std::fmt::Display;

use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisError, Script, Value,
};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use super::options::Options;
use super::watch::Watch;
use crate::alarms::Alarms;
use crate::store::StoreError;

/// Commands that one pipeline carries: more would make Redis hold all their answers.
const PIPELINE: usize = 256;
/// How a problem with a key is told.
const THE_KEY: &str = "the key ";
const IN_REDIS: &str = " in Redis: ";
/// What our keys begin with.
const OURS: &str = "skein:";

/// Knows where Redis is.
#[derive(Clone)]
pub(super) struct Door {
    client: Client,
    manager: ConnectionManagerConfig,
    single: AsyncConnectionConfig,
    alarms: Alarms,
}

impl Door {
    pub(super) fn new(options: &Options) -> Result<Self, StoreError> {
        let url = options.url.expose_secret();
        if url.starts_with("rediss:") {
            return Err(StoreError(
                "rediss: TLS to Redis is not built in; use redis:// or unix:// within a network you trust, or a tunnel"
                    .to_owned(),
            ));
        }
        let client = Client::open(url).map_err(|_| {
            StoreError(
                "the URL of Redis cannot be read; write redis://[user:password@]host[:port][/database] or unix:///path"
                    .to_owned(),
            )
        })?;
        let manager = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(options.connect))
            .set_response_timeout(Some(options.answer))
            .set_number_of_retries(1);
        let single = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(options.connect))
            .set_response_timeout(Some(options.answer));
        Ok(Self { client, manager, single, alarms: options.alarms.clone() })
    }

    /// What one part of the store sees of the server.
    pub(super) fn watch(&self, part: &'static str) -> Watch {
        Watch::new(self.alarms.clone(), part)
    }

    /// A connection that reconnects by itself, for a part of the store.
    pub(super) async fn connection(&self, part: &'static str) -> Result<Connection, StoreError> {
        let manager = ConnectionManager::new_with_config(self.client.clone(), self.manager.clone()).await;
        let manager = manager.map_err(|error| self.unreachable(&error))?;
        Ok(Connection { manager, watch: self.watch(part) })
    }

    /// A connection that ends when it breaks.
    pub(super) async fn single(&self) -> Result<MultiplexedConnection, StoreError> {
        let connected = self.client.get_multiplexed_async_connection_with_config(&self.single).await;
        connected.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &RedisError) -> StoreError {
        let address = self.client.get_connection_info().addr();
        StoreError(format!(
            "Redis at {address} does not take the connection: {}; start it, or correct the URL",
            sentence(error)
        ))
    }
}

/// A shared connection that reconnects by itself.
#[derive(Clone)]
pub(super) struct Connection {
    manager: ConnectionManager,
    pub(super) watch: Watch,
}

impl Connection {
    /// Asks for one key, or for something of the server that `key` names.
    pub(super) async fn ask<T: FromRedisValue>(&self, key: &str, command: &Cmd) -> Result<T, StoreError> {
        let asked = Instant::now();
        let answer = self.manager.clone().send_packed_command(command).await;
        self.watch.heard(asked, &answer);
        read(key, answer.map_err(|error| problem(key, &error))?)
    }

    /// Asks for many keys at once; the answers come in the order of the questions.
    pub(super) async fn ask_all<T: FromRedisValue>(
        &self,
        questions: &[(String, Cmd)],
    ) -> Result<Vec<T>, StoreError> {
        self.ask_each(questions).await?.into_iter().collect()
    }

    /// Like [`Connection::ask_all`], and what is wrong with one key is no matter of the others.
    pub(super) async fn ask_each<T: FromRedisValue>(
        &self,
        questions: &[(String, Cmd)],
    ) -> Result<Vec<Result<T, StoreError>>, StoreError> {
        let mut answers = Vec::with_capacity(questions.len());
        for part in questions.chunks(PIPELINE) {
            let mut pipeline = Pipeline::with_capacity(part.len());
            for (_, command) in part {
                pipeline.add_command(command.clone());
            }
            let asked = Instant::now();
            let values = self.manager.clone().send_packed_commands(&pipeline, 0, part.len()).await;
            self.watch.heard(asked, &values);
            let values = values.map_err(|error| problem("a pipeline", &error))?;
            for ((key, _), value) in part.iter().zip(values) {
                answers.push(read(key, value));
            }
        }
        Ok(answers)
    }

    /// Makes a script known to the server.
    pub(super) async fn load(&self, script: &Script) -> Result<(), StoreError> {
        let loaded = script.load_async(&mut self.manager.clone()).await;
        loaded.map(|_| ()).map_err(|error| StoreError(sentence(&error)))
    }

    /// Runs a script, whose first key is the one that an error names.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        script: &Script,
        keys: &[String],
        arguments: &[Vec<u8>],
    ) -> Result<T, RedisError> {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for argument in arguments {
            call.arg(argument.as_slice());
        }
        let asked = Instant::now();
        let answer = call.invoke_async(&mut self.manager.clone()).await;
        self.watch.heard(asked, &answer);
        answer
    }
}

/// What went wrong with a question. Only what the server said has to do with the key.
pub(super) fn problem(key: &str, error: &RedisError) -> StoreError {
    match is_an_answer(error) {
        true => at(key, &sentence(error)),
        false => StoreError(format!("Redis does not answer: {}", sentence(error))),
    }
}

/// Whether the server itself said so.
pub(super) fn is_an_answer(error: &RedisError) -> bool {
    matches!(error.kind(), ErrorKind::Server(_) | ErrorKind::Extension)
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

/// Which key a problem lies in, if it is one that [`at`] has told.
pub(super) fn key_of(problem: &str) -> Option<&str> {
    problem.strip_prefix(THE_KEY)?.split_once(IN_REDIS).map(|(key, _)| key)
}

/// What an error says, and for those that an operator can do something about, what that is.
pub(super) fn sentence(error: &RedisError) -> String {
    let advice = match error.code() {
        Some("OOM") => {
            "; Redis is full: give it more memory (maxmemory), or let Skein keep less ([retention])"
        }
        Some("MISCONF") => "; Redis cannot write to its disk: look at its log",
        Some("NOREPLICAS") => "; Redis has too few replicas at hand (min-replicas-to-write): bring them back",
        Some("READONLY") => "; this Redis is a replica: name the primary",
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
        let StoreError(told) = at("skein:{s1}:entity:pool/default", &"a word: no number");
        assert_eq!(key_of(&told), Some("skein:{s1}:entity:pool/default"));
        let StoreError(told) = at("INFO", &"not allowed");
        assert_eq!(key_of(&told), None);
    }
}
