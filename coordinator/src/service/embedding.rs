//! Finds out what learnings mean, in the background: those that were just learnt, and all others that have no vector of
//! the model that is asked now.
//!
//! What is to be done is the memory's to say, so nothing is lost with this process, and what fails is tried again. A
//! learning that the endpoint takes none of is given up after some tries; while the endpoint itself fails, nothing is.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::memory::{self, Command, Embedding, LEARNT, Meaning, Memory, Reply, Scope, Source};
use tokio_util::sync::CancellationToken;
use tracing::warn;
use uuid::Uuid;

use super::unexpected;
use crate::alarms::{Alarms, Kind as Alarm};
use crate::embeddings::{Endpoint, Error, TOGETHER};
use crate::entity::{Entities, Request};

/// Between two requests while there is more to do: a model that is new for a large memory is not to be noticed.
const PACE: Duration = Duration::from_millis(200);
/// How often a text is tried that the endpoint fails at while it takes others.
const TRIES: u32 = 3;
/// Pause after the endpoint failed; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);
/// The longest that an endpoint may wish to be left alone.
const LONGEST_WISH: Duration = Duration::from_secs(3600);
/// How often it looks without being told.
const LOOK: Duration = Duration::from_secs(600);
/// What every endpoint takes: by it is told whether an endpoint fails or a text.
const HARMLESS: &str = "skein";

/// Why nothing more can be done for now.
struct Trouble {
    problem: String,
    /// What the endpoint wishes.
    pause: Option<Duration>,
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Self { problem: refusal.message, pause: refusal.retry_after_ms.map(Duration::from_millis) }
    }
}

impl From<Error> for Trouble {
    fn from(problem: Error) -> Self {
        Self { problem: problem.to_string(), pause: problem.pause() }
    }
}

/// What a round over the memories came to.
struct Round {
    /// Whether there may be more to do.
    more: bool,
    /// Why one of them could not be asked.
    trouble: Option<Trouble>,
}

/// A learning without a vector, and what is asked for it.
struct Asked {
    embedding: Embedding,
    text: String,
}

struct Embedder {
    entities: Entities,
    endpoint: Arc<Endpoint>,
    /// Of the texts that failed alone.
    tries: HashMap<Uuid, u32>,
    /// Rounds in a row that came to nothing.
    failures: u32,
}

/// Runs until `stop`.
pub async fn run(entities: Entities, endpoint: Arc<Endpoint>, stop: CancellationToken) {
    let embedder = Embedder { entities, endpoint, tries: HashMap::new(), failures: 0 };
    stop.run_until_cancelled(embedder.run()).await;
}

impl Embedder {
    async fn run(mut self) {
        let mut learnt = self.entities.hub().subscribe(LEARNT);
        let mut shards = self.entities.shared().shards.subscribe();
        let mut memories = self.memories().await;
        loop {
            let round = match &memories {
                Ok(memories) => self.work(memories).await,
                Err(trouble) => Err(Trouble { problem: trouble.problem.clone(), pause: trouble.pause }),
            };
            match round {
                Ok(Round { more: true, trouble }) => {
                    match trouble {
                        Some(trouble) => self.raise(&trouble),
                        None => self.clear(),
                    }
                    tokio::time::sleep(PACE).await;
                }
                Ok(Round { more: false, trouble: None }) => {
                    self.clear();
                    memories = tokio::select! {
                        () = learnt.changed() => Ok(self.memories_at_hand()),
                        _ = shards.changed() => self.memories().await,
                        () = tokio::time::sleep(LOOK) => self.memories().await,
                    };
                }
                Ok(Round { more: false, trouble: Some(trouble) }) => {
                    let pause = self.pause(&trouble);
                    // What others learn meanwhile does not wait for it.
                    tokio::select! {
                        () = learnt.changed() => {}
                        () = tokio::time::sleep(pause) => {}
                    }
                    memories = self.memories().await;
                }
                Err(trouble) => {
                    tokio::time::sleep(self.pause(&trouble)).await;
                    memories = self.memories().await;
                }
            }
        }
    }

    fn alarms(&self) -> &Alarms {
        &self.entities.shared().alarms
    }

    async fn memories(&self) -> Result<Vec<EntityKey>, Trouble> {
        Ok(self.entities.of_kind(Kind::Memory).await?)
    }

    /// Those in memory: what has just learnt something is among them.
    fn memories_at_hand(&self) -> Vec<EntityKey> {
        let all = self.entities.in_memory().into_iter().map(|(key, _)| key);
        all.filter(|key| key.kind == Kind::Memory).collect()
    }

    /// How long to wait after a failure, which is an alarm.
    fn pause(&mut self, trouble: &Trouble) -> Duration {
        let pause = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        self.raise(trouble);
        pause.max(trouble.pause.unwrap_or_default().min(LONGEST_WISH))
    }

    fn raise(&mut self, trouble: &Trouble) {
        let problem = format!("learnings wait for their vectors, since {}", trouble.problem);
        self.alarms().raise(Alarm::Embeddings, &self.endpoint.model().name, &problem);
        self.failures = self.failures.max(1);
    }

    fn clear(&mut self) {
        if std::mem::take(&mut self.failures) > 0 {
            self.alarms().clear(Alarm::Embeddings, &self.endpoint.model().name);
        }
    }

    /// One request for each of the memories: no swarm waits until another has all its vectors, nor for one whose memory
    /// cannot be asked.
    async fn work(&mut self, memories: &[EntityKey]) -> Result<Round, Trouble> {
        let mut round = Round { more: false, trouble: None };
        for memory in memories {
            let (asked, mut embeddings) = match self.lacking(memory).await {
                Ok(lacking) => lacking,
                Err(refusal) => {
                    round.trouble = Some(refusal.into());
                    continue;
                }
            };
            if asked.is_empty() && embeddings.is_empty() {
                continue;
            }
            if !asked.is_empty() {
                if round.more {
                    tokio::time::sleep(PACE).await;
                }
                embeddings.extend(self.embed(asked).await?);
            }
            match self.keep(memory, embeddings).await {
                Ok(()) => {
                    round.more = true;
                    // Whatever ends this round, it has come to something.
                    self.failures = self.failures.min(1);
                }
                Err(refusal) => round.trouble = Some(refusal.into()),
            }
        }
        Ok(round)
    }

    async fn keep(&self, memory: &EntityKey, embeddings: Vec<Embedding>) -> Result<(), Refusal> {
        if embeddings.is_empty() {
            return Ok(());
        }
        let command = Command::Embed { model: self.endpoint.model().clone(), embeddings };
        let request = Request { keep_reply: false, ..Request::once(Uuid::now_v7()) };
        self.entities.ask::<Memory>(memory, request, command).await.map(drop)
    }

    /// The next learnings that have no vector, and those of them that cannot be asked about.
    async fn lacking(&self, memory: &EntityKey) -> Result<(Vec<Asked>, Vec<Embedding>), Refusal> {
        let command = Command::Lacking { model: self.endpoint.model().id(), limit: TOGETHER };
        let reply = self.entities.ask::<Memory>(memory, Request::read(), command).await?;
        let Reply::Learnings(ids) = reply else { return Err(unexpected("the memory")) };
        let (mut lacking, mut lost) = (Vec::with_capacity(ids.len()), Vec::new());
        for id in ids {
            match self.entities.body(memory, &memory::key(id)).await?.and_then(|body| asked(id, &body)) {
                Some(asked) => lacking.push(asked),
                None => lost.push(unreadable(id)),
            }
        }
        Ok((lacking, lost))
    }

    /// What came of it for some of them at least.
    async fn embed(&mut self, asked: Vec<Asked>) -> Result<Vec<Embedding>, Trouble> {
        let texts: Vec<&str> = asked.iter().map(|one| one.text.as_str()).collect();
        if let Ok(vectors) = self.endpoint.embed(&texts).await {
            let meanings = vectors.into_iter().map(Meaning::Vector);
            return Ok(asked.into_iter().zip(meanings).map(|(one, meaning)| one.means(meaning)).collect());
        }
        self.require_well().await?;
        self.embed_one_by_one(asked).await
    }

    /// Whatever an endpoint says of the texts: one that takes none is to blame itself, as one is whose key is bad or
    /// whose budget is spent.
    async fn require_well(&self) -> Result<(), Trouble> {
        tokio::time::sleep(PACE).await;
        self.endpoint.embed(&[HARMLESS]).await?;
        Ok(())
    }

    /// The endpoint is well, so it is one of the texts, or all of them together.
    async fn embed_one_by_one(&mut self, asked: Vec<Asked>) -> Result<Vec<Embedding>, Trouble> {
        let mut embeddings = Vec::new();
        for one in asked {
            match self.embed_one(one).await {
                Ok(embedding) => embeddings.extend(embedding),
                Err(trouble) if embeddings.is_empty() => return Err(trouble),
                // What there is by now is kept first; the next round finds out what is wrong.
                Err(_) => break,
            }
        }
        Ok(embeddings)
    }

    /// What came of one text, once that is known. Nothing is held against it that the endpoint does to others too.
    async fn embed_one(&mut self, one: Asked) -> Result<Option<Embedding>, Trouble> {
        tokio::time::sleep(PACE).await;
        let memory = one.embedding.memory;
        let problem = match self.endpoint.embed(&[&one.text]).await {
            Ok(vectors) => {
                self.tries.remove(&memory);
                return Ok(vectors.into_iter().next().map(|vector| one.means(Meaning::Vector(vector))));
            }
            Err(busy @ Error::Busy { .. }) => return Err(busy.into()),
            Err(problem) => problem,
        };
        self.require_well().await?;
        let tries = self.tries.entry(memory).or_default();
        *tries += 1;
        if *tries < TRIES {
            return Ok(None);
        }
        self.tries.remove(&memory);
        warn!(%memory, %problem, "a learning gets no vector; words find it");
        Ok(Some(one.means(Meaning::None(problem.to_string()))))
    }
}

impl Asked {
    fn means(self, meaning: Meaning) -> Embedding {
        Embedding { meaning, ..self.embedding }
    }
}

fn asked(memory: Uuid, body: &Value) -> Option<Asked> {
    let text = |field: &str| body[field].as_str().unwrap_or_default();
    let embedding = Embedding {
        memory,
        agent: serde_json::from_value(body["agentId"].clone()).ok()?,
        scope: serde_json::from_value(body["scope"].clone()).ok()?,
        source: serde_json::from_value(body["source"].clone()).ok()?,
        meaning: Meaning::None(String::new()),
    };
    Some(Asked { embedding, text: format!("{}\n\n{}", text("name"), text("content")) })
}

/// Nobody finds it by what it means. The memory drops this if it was merely forgotten meanwhile.
fn unreadable(memory: Uuid) -> Embedding {
    let meaning = Meaning::None("its document cannot be read".to_owned());
    Embedding { memory, agent: None, scope: Scope::Agent, source: Source::Manual, meaning }
}

#[cfg(test)]
mod tests {
    use axum::routing::post;
    use axum::{Json, Router};
    use http::StatusCode;
    use serde_json::json;
    use skein_shared::id::Name;
    use skein_shared::memory::Remember;
    use tokio::net::TcpListener;
    use tokio::sync::{Semaphore, SemaphorePermit};

    use super::*;
    use crate::config;
    use crate::entity::tests::{Node, node, poison};

    /// An endpoint that has a vector for every text, and answers so many requests before it is too busy.
    async fn endpoint(answers: usize) -> Endpoint {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
        let left = Arc::new(Semaphore::new(answers));
        let embed = move |Json(asked): Json<Value>| {
            let is_busy = left.try_acquire().map(SemaphorePermit::forget).is_err();
            let texts = asked["input"].as_array().unwrap().len();
            let vectors = json!({ "data": vec![json!({ "embedding": [1.0, 0.5] }); texts] });
            let answer = if is_busy { Err(StatusCode::TOO_MANY_REQUESTS) } else { Ok(Json(vectors)) };
            async move { answer }
        };
        let router = Router::new().route("/embeddings", post(embed));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let model = "m".to_owned();
        let settings = config::Embeddings { url, model, dimensions: None, api_key: None, api_key_file: None };
        Endpoint::new(&settings).unwrap()
    }

    /// The memory of a swarm, with so many learnings.
    async fn taught(node: &Node, swarm: &str, learnings: usize) -> EntityKey {
        let key = EntityKey::of(Kind::Memory, &Name::parse(swarm).unwrap());
        for number in 0..learnings {
            let learning = Remember {
                id: None,
                agent: None,
                scope: Scope::Swarm,
                name: "geese".to_owned(),
                content: format!("goose {number}"),
                summary: None,
                source: Source::Manual,
                source_task: None,
                source_path: None,
                tags: Vec::new(),
                chunk_index: 0,
                total_chunks: 1,
            };
            let remember = Command::Remember(Box::new(learning));
            node.entities.ask::<Memory>(&key, Request::once(Uuid::now_v7()), remember).await.unwrap();
        }
        key
    }

    async fn embedder(node: &Node, answers: usize, failures: u32) -> Embedder {
        let (entities, endpoint) = (node.entities.clone(), Arc::new(endpoint(answers).await));
        Embedder { entities, endpoint, tries: HashMap::new(), failures }
    }

    #[tokio::test]
    async fn an_endpoint_that_is_busy_again_after_an_answer_is_not_left_alone_for_longer_each_time() {
        let node = node();
        let memories = [taught(&node, "one", 1).await, taught(&node, "two", 1).await];
        let mut embedder = embedder(&node, 1, 9).await;
        assert!(embedder.work(&memories).await.is_err(), "the second request was answered");
        assert_eq!(embedder.failures, 1, "the alarm stands, and the pause begins anew");
        assert!(embedder.work(&memories).await.is_err());
        assert_eq!(embedder.failures, 1);
        embedder.pause(&Trouble { problem: "it is busy".to_owned(), pause: None });
        assert_eq!(embedder.failures, 2);
    }

    #[tokio::test]
    async fn no_memory_waits_for_another_for_its_vectors() {
        let node = node();
        let broken = EntityKey::of(Kind::Memory, &Name::parse("broken").unwrap());
        poison(&node, broken.clone()).await;
        let large = taught(&node, "large", TOGETHER + 1).await;
        let small = taught(&node, "small", 1).await;
        let mut embedder = embedder(&node, 10, 0).await;
        let round = embedder.work(&[broken, large.clone(), small.clone()]).await;
        let Ok(Round { more: true, trouble: Some(_) }) = round else { panic!("nothing was done") };
        for (memory, left) in [(&large, 1), (&small, 0)] {
            let (asked, lost) = embedder.lacking(memory).await.unwrap();
            assert_eq!((asked.len(), lost.len()), (left, 0), "{memory}");
        }
    }
}
