//! Search of a memory of 100,000 learnings, by words and by meaning, beside a bare FTS5 table with the same texts and a
//! bare scan over the same vectors in memory.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use hdrhistogram::Histogram;
use rusqlite::{Connection, params};
use skein_coordinator::entity::Request;
use skein_coordinator::projection::{Freshness, Seen, Sought};
use skein_shared::id::{EntityKey, Kind};
use skein_shared::limits::LEARNINGS;
use skein_shared::memory::{
    Command, Embedding, Meaning, Memory, Model, Remember, Reply, Scope, Source, Vector,
};
use uuid::Uuid;

use super::Bench;
use crate::harness::report::{Figure, Goal, Latency, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::embedded::{Kernel, refused};

pub(super) const BENCH: Bench = Bench {
    name: "memory_search",
    about: "100,000 learnings: search by words and by meaning, beside a bare FTS5 table and a bare scan of vectors",
    run: |options| run(options).boxed(),
};

/// Learnings that are written at a time.
const AT_ONCE: usize = 1024;
/// Vectors in one command.
const TOGETHER: usize = 32;
const DIMENSIONS: usize = 512;
/// Whose the learnings are; half of what each has learnt is for all.
const AGENTS: u128 = 10;
const VOCABULARY: usize = 20_000;
/// Words of a learning, and of a query.
const WORDS: usize = 40;
const ASKED: usize = 3;
/// Searches of each kind, and those before them that count for nothing.
const SEARCHES: usize = 400;
const WARM: usize = 20;
const LIMIT: usize = 10;

async fn run(options: Options) -> Result<Report> {
    let total = if options.rounds < 5 { 2000 } else { LEARNINGS };
    let folder = options.folder_for("skein")?;
    let kernel = Kernel::open(&folder)?;
    let mut corpus = Corpus::new(total);
    let mut report = Report::default();

    let began = Instant::now();
    let filled = Filled::of(&kernel, &corpus).await?;
    let rate = total as f64 / began.elapsed().as_secs_f64();
    report.figures.push(Figure::new("learnings kept with their vectors a second", "1/s", rate));

    let bare = Bare::of(&options.folder_for("bare")?, &corpus)?;
    let mut taken = (0..4).map(|_| Histogram::<u64>::new(3)).collect::<Result<Vec<_>, _>>()?;
    for turn in 0..WARM + SEARCHES {
        let (text, vector) = (corpus.query(), corpus.vector());
        let times = [
            filled.search(&text, None).await?,
            bare.words(&text)?,
            filled.search(&text, Some(&vector)).await?,
            bare.scan(&vector)?,
        ];
        for (histogram, time) in taken.iter_mut().zip(times).filter(|_| turn >= WARM) {
            histogram.record(time)?;
        }
    }
    let latencies: Vec<Latency> = taken.iter().map(|times| Latency::of(1.0, times)).collect();
    let [words, table, both, scan] = &latencies[..] else { bail!("four things are measured") };
    for (what, latency) in [
        ("search by words", words),
        ("a bare FTS5 table", table),
        ("search by words and meaning", both),
        ("a bare scan of the vectors", scan),
    ] {
        report.figures.push(Figure::new(format!("{what}, median"), "ms", latency.p50));
        report.figures.push(Figure::new(format!("{what}, p99"), "ms", latency.p99));
    }
    if total < LEARNINGS {
        report.remarks.push(format!("a first look, with {total} learnings; the goals are for {LEARNINGS}"));
        return Ok(report);
    }
    let exactly = |value| Some(Interval::exactly(value));
    report.goals.extend([
        Goal::at_most("search by words among 100,000, p99, ms", 10.0, exactly(words.p99)),
        Goal::at_most("search by words and meaning among 100,000, p99, ms", 40.0, exactly(both.p99)),
    ]);
    Ok(report)
}

/// Texts of words that are as unequally frequent as those of a language, and vectors of no order.
struct Corpus {
    random: fastrand::Rng,
    texts: Vec<String>,
    vectors: Vec<Vector>,
}

impl Corpus {
    fn new(total: usize) -> Self {
        let mut corpus = Self { random: fastrand::Rng::with_seed(7), texts: Vec::new(), vectors: Vec::new() };
        corpus.texts = (0..total).map(|_| corpus.words(WORDS)).collect();
        corpus.vectors = (0..total).map(|_| corpus.vector()).collect();
        corpus
    }

    /// The frequency of a word falls as its rank rises.
    fn words(&mut self, count: usize) -> String {
        let mut word = || {
            let rank = (VOCABULARY as f64).powf(self.random.f64()) as usize;
            format!("w{rank}x")
        };
        (0..count).map(|_| word()).collect::<Vec<_>>().join(" ")
    }

    fn query(&mut self) -> String {
        self.words(ASKED)
    }

    fn vector(&mut self) -> Vector {
        let values: Vec<f32> = (0..DIMENSIONS).map(|_| self.random.f32() - 0.5).collect();
        Vector::of(&values).expect("it has a direction")
    }
}

fn owner(number: usize) -> Uuid {
    Uuid::from_u128(1 + number as u128 % AGENTS)
}

fn scope(number: usize) -> Scope {
    if number.is_multiple_of(2) { Scope::Swarm } else { Scope::Agent }
}

fn model() -> Model {
    Model { name: "bench".to_owned(), dimensions: None }
}

/// Skein's memory of a corpus.
struct Filled<'a> {
    kernel: &'a Kernel,
    key: EntityKey,
}

impl<'a> Filled<'a> {
    async fn of(kernel: &'a Kernel, corpus: &Corpus) -> Result<Self> {
        let filled = Self { kernel, key: EntityKey::of(Kind::Memory, &kernel.swarm) };
        let learnt = stream::iter(0..corpus.texts.len())
            .map(|number| filled.learn(number, &corpus.texts[number]))
            .buffered(AT_ONCE);
        let ids: Vec<Uuid> = learnt.try_collect().await?;
        let given: Vec<_> = ids.into_iter().zip(&corpus.vectors).enumerate().collect();
        let embedded = stream::iter((0..given.len()).step_by(TOGETHER))
            .map(|from| filled.embed(&given[from..given.len().min(from + TOGETHER)]))
            .buffered(AT_ONCE / TOGETHER);
        embedded.try_collect::<()>().await?;
        Ok(filled)
    }

    async fn learn(&self, number: usize, text: &str) -> Result<Uuid> {
        let remember = Remember {
            id: None,
            agent: Some(owner(number)),
            scope: scope(number),
            name: format!("lesson {number}"),
            content: text.to_owned(),
            summary: None,
            source: Source::Manual,
            source_task: None,
            source_path: None,
            tags: Vec::new(),
            chunk_index: 0,
            total_chunks: 1,
        };
        match self.ask(Command::Remember(Box::new(remember))).await? {
            Reply::Remembered(body) => Ok(body["id"].as_str().context("a learning has an id")?.parse()?),
            other => bail!("it remembers nothing: {other:?}"),
        }
    }

    async fn embed(&self, given: &[(usize, (Uuid, &Vector))]) -> Result<()> {
        let embedding = |(number, (memory, vector)): &(usize, (Uuid, &Vector))| Embedding {
            memory: *memory,
            agent: Some(owner(*number)),
            scope: scope(*number),
            source: Source::Manual,
            meaning: Meaning::Vector((*vector).clone()),
        };
        let embeddings = given.iter().map(embedding).collect();
        self.ask(Command::Embed { model: model(), embeddings }).await.map(drop)
    }

    async fn ask(&self, command: Command) -> Result<Reply> {
        let request = Request { keep_reply: false, ..Request::once(Uuid::now_v7()) };
        self.kernel.entities.ask::<Memory>(&self.key, request, command).await.map_err(refused)
    }

    /// How long a search takes, nanoseconds.
    async fn search(&self, text: &str, meaning: Option<&Vector>) -> Result<u64> {
        let sought = Sought {
            text: text.to_owned(),
            meaning: meaning.map(|vector| (model(), vector.clone())),
            seen: Seen { by: Some(owner(0)), scope: None },
            source: None,
            limit: LIMIT,
        };
        let began = Instant::now();
        let (hits, freshness) = self.kernel.entities.search(&self.key, sought).await.map_err(refused)?;
        let time = u64::try_from(began.elapsed().as_nanos())?;
        ensure!(freshness == Freshness::Fresh, "the read side is {freshness:?}");
        ensure!(meaning.is_none() || hits.len() == LIMIT, "{} of {LIMIT} were found", hits.len());
        Ok(time)
    }
}

/// The least that has to be done.
struct Bare {
    table: Connection,
    scales: Vec<f32>,
    codes: Vec<u8>,
}

impl Bare {
    fn of(folder: &Path, corpus: &Corpus) -> Result<Self> {
        let mut table = Connection::open(folder.join("bare.db"))?;
        table.execute_batch(
            "CREATE VIRTUAL TABLE text USING fts5 (content, content = '', tokenize = 'porter unicode61')",
        )?;
        let transaction = table.transaction()?;
        for (text, row) in corpus.texts.iter().zip(1_i64..) {
            transaction
                .prepare_cached("INSERT INTO text (rowid, content) VALUES (?1, ?2)")?
                .execute(params![row, text])?;
        }
        transaction.commit()?;
        let scales = corpus.vectors.iter().map(Vector::scale).collect();
        let codes = corpus.vectors.iter().flat_map(|vector| vector.codes().to_vec()).collect();
        Ok(Self { table, scales, codes })
    }

    fn words(&self, text: &str) -> Result<u64> {
        let began = Instant::now();
        let mut statement = self
            .table
            .prepare_cached("SELECT rowid FROM text WHERE text MATCH ?1 ORDER BY bm25(text) LIMIT ?2")?;
        let words = text.replace(' ', " OR ");
        let rows = statement.query_map(params![words, i64::try_from(LIMIT)?], |row| row.get::<_, i64>(0))?;
        black_box(rows.collect::<rusqlite::Result<Vec<_>>>()?);
        Ok(u64::try_from(began.elapsed().as_nanos())?)
    }

    fn scan(&self, vector: &Vector) -> Result<u64> {
        let began = Instant::now();
        let near = self.scales.iter().zip(self.codes.chunks(DIMENSIONS));
        let nearest = near.filter_map(|(scale, codes)| vector.cosine(*scale, codes)).fold(-1.0, f32::max);
        black_box(nearest);
        Ok(u64::try_from(began.elapsed().as_nanos())?)
    }
}
