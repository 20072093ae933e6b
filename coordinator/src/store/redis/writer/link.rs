//! The connection of the task that commits: how it gets one, and what a group that was written on it waits for.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{RedisError, Script, cmd};
use tokio::time::Instant;

use super::Start;
use crate::store::StoreError;
use crate::store::redis::connection::sentence;
use crate::store::redis::generation::{Generation, REPLACED};
use crate::store::redis::options::Durability;
use crate::store::redis::server::Info;

/// Between two tries to get a connection.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A connection for the task that commits alone.
#[derive(Clone)]
pub(super) struct Link {
    pub(super) connection: MultiplexedConnection,
    pub(super) acknowledgement: Acknowledgement,
    /// What the server calls it.
    id: i64,
    /// To which life of the server.
    pub(super) generation: Generation,
}

impl Link {
    /// Ids begin anew with the server.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.generation == other.generation
    }

    pub(super) fn used(&self) -> Used {
        Used { id: self.id, generation: self.generation.clone() }
    }
}

/// What is known of a connection after it broke.
#[derive(Clone)]
pub(super) struct Used {
    id: i64,
    generation: Generation,
}

/// How to get the next connection.
pub(super) struct Way {
    pub(super) start: Start,
    pub(super) commit: Script,
    /// The connection that was used last.
    pub(super) last: Option<Used>,
}

/// Why there is no connection.
enum Unreached {
    /// It may be there in a moment.
    Away(StoreError),
    /// Another life of the server has begun. What waits was decided in the former one.
    Replaced,
}

impl From<RedisError> for Unreached {
    fn from(error: RedisError) -> Self {
        Self::Away(StoreError(sentence(&error)))
    }
}

impl Way {
    /// Tries once at least, and again until then.
    pub(super) async fn reach(self, until: Instant) -> Result<Link, StoreError> {
        let mut pause = FIRST_PAUSE;
        loop {
            let problem = match self.connect().await {
                Ok(link) => return Ok(link),
                Err(Unreached::Away(problem)) => problem,
                Err(Unreached::Replaced) => {
                    return Err(StoreError(format!(
                        "{REPLACED}; everything is loaded anew, so try again in some seconds"
                    )));
                }
            };
            if Instant::now() + pause >= until {
                return Err(problem);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Makes a new connection once the last one can do nothing any more.
    async fn connect(&self) -> Result<Link, Unreached> {
        let generation = self.start.reliance.generation();
        let mut link = self.start.discovery.connect().await.map_err(Unreached::Away)?;
        let info: String = cmd("INFO").query_async(&mut link).await?;
        let info = Info::parse(&info);
        if info.generation() != generation {
            self.start.reliance.doubt();
            return Err(Unreached::Replaced);
        }
        // A connection to another life of the server ended with it, and its id may be somebody else's.
        if let Some(last) = self.last.as_ref().filter(|last| last.generation == generation) {
            let kill = cmd("CLIENT").arg("KILL").arg("ID").arg(last.id).to_owned();
            kill.query_async::<i64>(&mut link).await?;
        }
        let id = cmd("CLIENT").arg("ID").query_async(&mut link).await?;
        self.commit.load_async(&mut link).await?;
        let acknowledgement = Acknowledgement::of(self.start.durability, &info, self.start.within);
        Ok(Link { connection: link, acknowledgement, id, generation })
    }
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
    /// As the server can do it: the next life may be another program's.
    fn of(durability: Durability, info: &Info, within: Duration) -> Self {
        match durability {
            Durability::Always | Durability::Everysec => Self::Answer,
            Durability::Replicated => {
                Self::Replica { flushed: info.has_waitaof(), locally: info.has_log(), within }
            }
        }
    }

    /// Waits until a replica has what was written on this connection, if it is to. Says why it is not certain.
    pub(super) async fn confirm(
        self,
        link: &mut MultiplexedConnection,
    ) -> Result<Option<String>, RedisError> {
        let Self::Replica { flushed, locally, within } = self else {
            return Ok(None);
        };
        let limit = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let replicas: i64 = if flushed {
            let ask = cmd("WAITAOF").arg(i32::from(locally)).arg(1).arg(limit).to_owned();
            let (_, replicas): (i64, i64) = ask.query_async(link).await?;
            replicas
        } else {
            cmd("WAIT").arg(1).arg(limit).query_async(link).await?
        };
        let problem = if flushed {
            "no replica of Redis has confirmed in time that the write is in its log; see that the replicas run and follow \
             (INFO replication), and have `appendonly yes`"
        } else {
            "no replica of Redis has confirmed the write in time; see that the replicas run and follow (INFO replication)"
        };
        Ok((replicas < 1).then(|| problem.to_owned()))
    }
}
