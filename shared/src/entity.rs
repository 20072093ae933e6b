//! What an entity is: a deterministic state machine whose decisions become events and documents.
//!
//! The host (in the coordinator) carries messages and commits; everything that can be decided is decided
//! here, from the entity's state, the command and the [`Ctx`], and from nothing else.

mod effect;

use std::fmt::Display;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::code::Refusal;
use crate::fence::{Epoch, Token};
use crate::id::{EntityKey, InstanceId, Kind};
use crate::json::Json;
use crate::time::Timestamp;

pub use effect::Effect;

/// A deterministic state machine.
///
/// Laws, tested for each entity with random commands (`testbed`):
/// - `decide` changes nothing; `apply` cannot fail;
/// - restoring from the documents gives the same state as applying the events;
/// - the invariants of [`Entity::check`] hold after every event.
pub trait Entity: Sized + Send + 'static {
    const KIND: Kind;
    type Command: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static;
    type Event: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static;
    type Reply: Serialize + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static;

    /// The state before any event.
    fn empty(key: &EntityKey) -> Self;

    /// Takes back one document that [`Entity::apply`] put as live. Called for each of them, in key order.
    ///
    /// # Errors
    /// When the document cannot be read; the entity then does not start.
    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt>;

    /// Called once after the last of them: orders that follow from all documents are made faster, and smaller in
    /// memory, from all at once.
    fn restored(&mut self) {}

    /// Called once after that, with the time of the reading: what is written nowhere it knows from then on.
    fn loaded(&mut self, _at: Timestamp) {}

    /// Documents into whose bodies it looks once more before it serves: a cache is made of them again that no head
    /// has room for. Asked after [`Entity::restored`].
    fn recalls(&self, _now: Timestamp) -> Vec<String> {
        Vec::new()
    }

    /// The body of one of them.
    fn recall(&mut self, _document: &str, _body: &Map<String, Value>) {}

    /// The document whose words a command wants to know, which no head has room for: it is looked up where the entity
    /// lives.
    fn consults(_command: &Self::Command) -> Option<String> {
        None
    }

    /// Gives the command the body of that document.
    fn consulted(_command: &mut Self::Command, _body: &Json) {}

    /// Answers a command, or refuses it. A refusal commits nothing.
    fn decide(&self, command: &Self::Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal>;

    /// The command without what the service looked up for it, if there is any: a repeat of a request may find
    /// other facts and is the same request all the same.
    fn asked(_command: &Self::Command) -> Option<Self::Command> {
        None
    }

    /// The document that whoever asked is shown with an answer.
    fn shows(_reply: &Self::Reply) -> Option<String> {
        None
    }

    /// Follows an event, and says which documents change by it.
    fn apply(&mut self, event: &Self::Event, changes: &mut Changes);

    /// The next moment at which [`Entity::tick`] has something to do; the store keeps it as a timer.
    fn next_wake(&self) -> Option<Timestamp>;

    /// Whether it watches over somebody's life just now, by signs that are written nowhere. It stays in memory then.
    fn watches(&self) -> bool {
        false
    }

    /// The command that the host sends when the timer is due, a variant of its own. It must decide everything that is
    /// due at `ctx.now`, or move [`Entity::next_wake`] on.
    fn tick() -> Self::Command;

    /// Names what an event is about (a task's, lock's, call's … id), so that logs can be read by subject.
    fn subject(event: &Self::Event) -> Option<String>;

    /// Whom to wake after this event is committed. Asked before it is applied, so that those whom it takes
    /// something from are still known.
    fn topics(&self, event: &Self::Event) -> Vec<String> {
        Self::subject(event).into_iter().collect()
    }

    /// What this entity wants to be told when `target` refused a command that it had sent.
    fn refused(_target: &EntityKey, _command: &Json, _refusal: &Refusal) -> Option<Self::Command> {
        None
    }

    /// What an operator has to look after, for as long as it is so.
    fn alarm(&self) -> Option<String> {
        None
    }

    /// The first invariant that does not hold, by name.
    fn check(&self) -> Result<(), String>;

    /// Notes a sign of life that is worth no commit (a heartbeat, an open wait). It must not change any
    /// document; after a restart it is forgotten, and `ctx.serving_since` stands in for it.
    fn observe(&mut self, _signal: &Signal, _now: Timestamp) {}
}

/// A sign of life: these instances and agents were alive just now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// The runner's lease covers these instances. They are `InstanceId`s.
    RunnerAlive { runner: String, instances: Vec<String> },
    /// These agents made a call or keep a wait open, each with the `InstanceId` that does.
    AgentsAlive { agents: Vec<(Uuid, String)> },
    /// An agent found nothing to do and keeps its poll open.
    AgentPolls(Poller),
    /// An open poll has ended.
    AgentWent { agent: Uuid, poll: Uuid },
}

/// An agent's open poll. `poll` is the id of its request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Poller {
    pub agent: Uuid,
    pub instance: InstanceId,
    pub managed: bool,
    pub poll: Uuid,
}

/// What `decide` may know besides the state. Two runs with equal contexts give equal results.
#[derive(Clone, Debug)]
pub struct Ctx {
    /// Never goes back, over restarts too.
    pub now: Timestamp,
    /// Wall time, for schedules and for what is compared with dates from outside: it may jump.
    pub wall: Timestamp,
    /// When this owner began to serve the entity. Nothing expires before one full period after it.
    pub serving_since: Timestamp,
    pub epoch: Epoch,
    /// The request's id: the ids of created things derive from it, so that a repeat makes no second thing.
    pub request: Uuid,
    drawn: u64,
    /// The place of the last id that was to come behind others.
    placed: Option<u128>,
}

/// Twelve bits of an id, behind those of its time: the places of ids of one millisecond (RFC 9562, 6.2, method 1).
const PLACES: u128 = 0xfff;

impl Ctx {
    pub fn new(
        now: Timestamp,
        wall: Timestamp,
        serving_since: Timestamp,
        epoch: Epoch,
        request: Uuid,
    ) -> Self {
        Self { now, wall, serving_since, epoch, request, drawn: 0, placed: None }
    }

    /// The next id derived from the request: a UUID version 7, whose first 48 bits are the time. Things that
    /// are made together lie together in every index, so that a commit touches few pages of the store.
    pub fn id(&mut self) -> Uuid {
        let drawn = self.draw();
        let mut random = [0; 10];
        random.copy_from_slice(&drawn[..10]);
        uuid::Builder::from_unix_timestamp_millis(self.now.0, &random).into_uuid()
    }

    /// The same, and greater than `newest`, which has the same time, and than those that this gave before. There is room
    /// for 4,096 in a millisecond; what comes after those stands in no order among its like.
    pub fn id_behind(&mut self, newest: Option<Uuid>) -> Uuid {
        let before = newest.map(|newest| (newest.as_u128() >> 64) & PLACES).max(self.placed);
        let place = before.map_or(0, |before| PLACES.min(before + 1));
        self.placed = Some(place);
        Uuid::from_u128((self.id().as_u128() & !(PLACES << 64)) | (place << 64))
    }

    /// 32 bits derived from the request, for names such as an instance's.
    pub fn random(&mut self) -> u32 {
        let [first, second, third, fourth, ..] = self.draw();
        u32::from_be_bytes([first, second, third, fourth])
    }

    /// The next bits that follow from the request alone.
    fn draw(&mut self) -> [u8; 16] {
        self.drawn += 1;
        Uuid::new_v5(&self.request, &self.drawn.to_be_bytes()).into_bytes()
    }

    /// The later of `stored` and one `period` after this owner began to serve: late beats early.
    pub fn grace(&self, stored: Timestamp, period: std::time::Duration) -> Timestamp {
        stored.max(self.serving_since + period)
    }

    pub fn token(&self, number: u64) -> Token {
        Token { epoch: self.epoch, number }
    }
}

/// What an accepted command leads to.
#[derive(Debug)]
pub struct Decision<E: Entity> {
    pub events: Vec<E::Event>,
    pub reply: E::Reply,
    pub effects: Vec<Effect>,
}

impl<E: Entity> Decision<E> {
    /// An answer that changes nothing, and so costs no commit.
    pub fn reply(reply: E::Reply) -> Self {
        Self { events: Vec::new(), reply, effects: Vec::new() }
    }

    pub fn new(reply: E::Reply, events: Vec<E::Event>) -> Self {
        Self { events, reply, effects: Vec::new() }
    }

    #[must_use]
    pub fn effects(mut self, effects: Vec<Effect>) -> Self {
        self.effects = effects;
        self
    }
}

/// Who commands a runner: the entity that gives the command, and the epoch under which its owner does. A runner refuses
/// lower epochs than it has seen, for that owner has a successor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reign {
    pub source: EntityKey,
    pub epoch: Epoch,
}

/// What a coordinator asks of a runner. `token` rises with each command for an instance; a runner refuses
/// lower ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "do")]
pub enum RunnerCommand {
    /// Start `instance` of `agent`; the session adds the instance's access token on its way out.
    Start { instance: String, agent: String, swarm: String, token: Token, input: Value },
    /// Freeze the instance's whole process tree.
    Freeze { instance: String, token: Token },
    /// Let it run on, after the answer that it waits for was written.
    Thaw { instance: String, token: Token },
    /// End the processes of a frozen instance, and keep all that it takes to start it again.
    Spill { instance: String, token: Token },
    /// Start a spilled instance again where it stopped; `input` is what its wait came to.
    Restore { instance: String, token: Token, input: Value },
    /// End it: ask, and after the grace kill.
    Stop { instance: String, token: Token, reason: String, grace_ms: u64 },
    /// The coordinators have taken note of the instance's end; the ledger may forget it.
    Forget { instance: String, token: Token },
}

/// The documents and blobs that events change.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    pub documents: Vec<DocumentChange>,
    pub blobs: Vec<BlobChange>,
    /// Nobody reads the documents.
    blobs_only: bool,
}

/// What becomes of a blob: a text too long for a document, whose chunks are in the store before the event that names
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlobChange {
    /// It can be read from now on. All of its chunks have to be there.
    Keep { blob: Uuid, bytes: u64 },
    /// It is gone, with its chunks.
    Free { blob: Uuid },
}

/// A document has a head, which the entity restores while the document is live and decides from (at most
/// some 128 bytes), and a body, which is read by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentChange {
    Put {
        /// `type/id`, such as `task/0190…`; unique within the entity.
        key: String,
        /// A document that is not live stays readable and is not restored.
        live: bool,
        head: Json,
        /// Top-level fields to merge into the body; a null removes a field. `None` leaves it alone.
        body: Option<Json>,
        /// There was no such document before, so the fields are all of the body: nobody needs to read it. For
        /// those who see the commit; it is not written.
        #[serde(skip)]
        new: bool,
    },
    Delete {
        key: String,
    },
}

impl DocumentChange {
    /// The document's key.
    pub fn key(&self) -> &str {
        let (Self::Put { key, .. } | Self::Delete { key }) = self;
        key
    }

    /// How long its texts are, bytes.
    pub fn length(&self) -> usize {
        let Self::Put { head, body, .. } = self else { return 0 };
        head.text().len() + body.as_ref().map_or(0, |body| body.text().len())
    }
}

impl Changes {
    /// For a decision in the making, which follows its events only to see where they lead: documents are not noted.
    pub fn of_blobs() -> Self {
        Self { blobs_only: true, ..Self::default() }
    }

    /// Puts a live document: it is restored when the entity starts again.
    pub fn put(&mut self, key: impl Into<String>, head: &impl Serialize, body: Option<Json>) {
        self.push(key.into(), true, head, body, false);
    }

    /// Puts a live document with a body that is written out only if documents are noted.
    pub fn put_with(&mut self, key: impl Display, head: &impl Serialize, body: &impl Serialize) {
        if !self.blobs_only {
            self.put(key.to_string(), head, Some(Json::of(body)));
        }
    }

    /// Puts a live document where there is none.
    pub fn create(&mut self, key: impl Into<String>, head: &impl Serialize, body: impl Into<Json>) {
        self.push(key.into(), true, head, Some(body.into()), true);
    }

    /// Like [`Changes::put_with`], where there is no such document.
    pub fn create_with(&mut self, key: impl Display, head: &impl Serialize, body: &impl Serialize) {
        if !self.blobs_only {
            self.create(key.to_string(), head, Json::of(body));
        }
    }

    /// Puts a document where there is none, which the entity does not need for its decisions.
    pub fn create_archived(&mut self, key: impl Into<String>, head: &impl Serialize, body: impl Into<Json>) {
        self.push(key.into(), false, head, Some(body.into()), true);
    }

    /// Puts a document that the entity no longer needs for its decisions.
    pub fn archive(&mut self, key: impl Into<String>, head: &impl Serialize, body: Option<Json>) {
        self.push(key.into(), false, head, body, false);
    }

    /// Like [`Changes::put_with`], of a document that the entity no longer needs for its decisions.
    pub fn archive_with(&mut self, key: impl Display, head: &impl Serialize, body: &impl Serialize) {
        if !self.blobs_only {
            self.archive(key.to_string(), head, Some(Json::of(body)));
        }
    }

    pub fn delete(&mut self, key: impl Into<String>) {
        if !self.blobs_only {
            self.documents.push(DocumentChange::Delete { key: key.into() });
        }
    }

    /// Names a blob whose chunks are all there.
    pub fn keep_blob(&mut self, blob: Uuid, bytes: u64) {
        self.blobs.push(BlobChange::Keep { blob, bytes });
    }

    pub fn free_blob(&mut self, blob: Uuid) {
        self.blobs.push(BlobChange::Free { blob });
    }

    fn push(&mut self, key: String, live: bool, head: &impl Serialize, body: Option<Json>, new: bool) {
        if !self.blobs_only {
            self.documents.push(DocumentChange::Put { key, live, head: Json::of(head), body, new });
        }
    }
}

/// A live document as the store gives it back: its head alone, as it was written. There may be a million of
/// them, so they are read into what the entity needs and into nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveDocument {
    pub key: String,
    /// JSON.
    pub head: String,
}

impl LiveDocument {
    /// Splits the key into the document's type and its id.
    pub fn split(&self) -> (&str, &str) {
        self.key.split_once('/').unwrap_or((&self.key, ""))
    }

    /// Reads the head.
    ///
    /// # Errors
    /// When it does not have the shape of `T`.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T, Corrupt> {
        serde_json::from_str(&self.head).map_err(|error| self.corrupt(error.to_string()))
    }

    pub fn corrupt(&self, problem: impl Into<String>) -> Corrupt {
        Corrupt { document: self.key.clone(), problem: problem.into() }
    }
}

/// A document of the store could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("document {document} cannot be read: {problem}")]
pub struct Corrupt {
    pub document: String,
    pub problem: String,
}
