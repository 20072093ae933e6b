//! One small row a step.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use anyhow::{Context, Result};
use async_trait::async_trait;
use rusqlite::{Connection, params};
use tokio::sync::{mpsc, oneshot};

use super::{PAYLOAD, open};
use crate::harness::contender::{Card, Contender, Durability, Metered, Plan, Work};
use crate::harness::load::{self, Operation};

/// One row a step: clients hand their steps to one thread, which writes what has queued up in one commit.
pub(crate) struct Bare {
    steps: &'static [Step],
    queue: mpsc::Sender<Write>,
    next: Arc<AtomicI64>,
    flushes: Arc<AtomicU64>,
}

/// What a step of an operation does to its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Insert,
    Update,
}

/// A step on its way to the thread, and where its acknowledgement goes.
struct Write {
    step: Step,
    id: i64,
    state: i64,
    done: oneshot::Sender<()>,
}

/// Steps in one commit at most.
const GROUP: usize = 1024;

impl Bare {
    /// # Errors
    /// When the file cannot be made.
    pub(crate) fn new(folder: &Path, steps: &'static [Step]) -> Result<Self> {
        let connection = open(&folder.join("bare.db"))?;
        connection.execute_batch(
            "CREATE TABLE task (id INTEGER PRIMARY KEY, state INTEGER NOT NULL, body TEXT NOT NULL);
             CREATE INDEX task_pending ON task (id) WHERE state = 0;",
        )?;
        let (queue, steps_to_write) = mpsc::channel(4 * GROUP);
        let flushes = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&flushes);
        std::thread::Builder::new()
            .name("bare-writer".to_owned())
            .spawn(move || write_groups(&connection, steps_to_write, &count))?;
        Ok(Self { steps, queue, next: Arc::default(), flushes })
    }
}

/// Ends with the last client, or at a fault of the disk, which the clients notice.
fn write_groups(connection: &Connection, mut queue: mpsc::Receiver<Write>, flushes: &AtomicU64) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP {
            let Ok(next) = queue.try_recv() else { break };
            group.push(next);
        }
        if let Err(error) = write_group(connection, &group) {
            eprintln!("the probe cannot write: {error}");
            return;
        }
        flushes.fetch_add(1, Ordering::Relaxed);
        for write in group {
            let _ = write.done.send(());
        }
    }
}

fn write_group(connection: &Connection, group: &[Write]) -> rusqlite::Result<()> {
    connection.execute_batch("BEGIN IMMEDIATE")?;
    for write in group {
        match write.step {
            Step::Insert => connection
                .prepare_cached("INSERT INTO task (id, state, body) VALUES (?1, 0, ?2)")?
                .execute(params![write.id, PAYLOAD])?,
            Step::Update => connection
                .prepare_cached("UPDATE task SET state = ?2 WHERE id = ?1")?
                .execute(params![write.id, write.state])?,
        };
    }
    connection.execute_batch("COMMIT")
}

#[async_trait]
impl Contender for Bare {
    fn card(&self) -> Card {
        Card::limit("bare", Durability::PowerCut, format!("SQLite {}", rusqlite::version()), Metered::Myself)
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let (steps, queue, next) = (self.steps, self.queue.clone(), Arc::clone(&self.next));
        let operation: Operation = Arc::new(move |_| {
            let (queue, id) = (queue.clone(), next.fetch_add(1, Ordering::Relaxed));
            Box::pin(async move {
                for (state, &step) in (0_i64..).zip(steps) {
                    let (done, written) = oneshot::channel();
                    queue
                        .send(Write { step, id, state, done })
                        .await
                        .ok()
                        .context("the probe's thread has ended")?;
                    written.await?;
                }
                Ok(())
            })
        });
        load::run(plan, operation).await
    }

    fn flushes(&self) -> Option<u64> {
        Some(self.flushes.load(Ordering::Relaxed))
    }
}
