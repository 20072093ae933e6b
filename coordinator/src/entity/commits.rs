//! Sends an entity's batches to the store, in order, and tells in order what became of them, as [`line`](super::line)
//! decides. It is the host's own and does nothing by itself: a task between the host and the store would have to be
//! woken twice for each commit, and a runtime wakes one more of its threads for what is woken late in a chain.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::in_order::InOrder;
use super::line::{Input, Line, Outcome, Output};
use crate::projection::Projection;
use crate::store::{Batch, Fence, Receipt, Store};

/// How long a batch waits for a read side that cannot keep up.
const ROOM: Duration = Duration::from_secs(1);

/// What the host brings back to its [`Commits`].
#[derive(Debug)]
pub enum Event {
    /// The store's answer to a submission, by its number.
    Answered(u64, Outcome),
    /// A pause is over.
    Rested,
    /// The read side has room for a batch, or has had its time.
    Room,
}

/// The way of one entity's batches to the store. Dropping it lets those under way finish, untold.
pub(super) struct Commits {
    store: Arc<dyn Store>,
    projection: Projection,
    fence: Fence,
    /// Brings an event to the host, which brings it here.
    report: Arc<dyn Fn(Event) + Send + Sync>,
    line: Line,
    /// Decided, and not taken by the line yet.
    unsent: VecDeque<Arc<Batch>>,
    /// The line hears the oldest first, and the store may answer a later one sooner.
    answers: InOrder<Outcome>,
    /// The oldest unsent batch waits for the read side.
    waits_for_room: bool,
}

impl Commits {
    pub(super) fn new(
        store: Arc<dyn Store>,
        projection: Projection,
        fence: Fence,
        report: impl Fn(Event) + Send + Sync + 'static,
    ) -> Self {
        Self {
            store,
            projection,
            fence,
            report: Arc::new(report),
            line: Line::default(),
            unsent: VecDeque::new(),
            answers: InOrder::default(),
            waits_for_room: false,
        }
    }

    /// Sends a batch on its way. After a failure was told nothing is sent any more.
    pub(super) fn send(&mut self, batch: Arc<Batch>) {
        self.unsent.push_back(batch);
        self.send_on();
    }

    /// Takes a step, and gives what became of batches, oldest first.
    pub(super) fn on(&mut self, event: Event) -> Vec<Outcome> {
        let mut told = Vec::new();
        match event {
            Event::Answered(submission, outcome) => {
                self.answers.answered(submission, outcome);
                while let Some(outcome) = self.answers.next() {
                    self.pass(Input::Answer(outcome), &mut told);
                }
            }
            Event::Rested => self.pass(Input::Rested, &mut told),
            Event::Room => {
                self.waits_for_room = false;
                self.send_next();
            }
        }
        self.send_on();
        told
    }

    /// Lets the line have what it takes.
    fn send_on(&mut self) {
        while !self.waits_for_room && self.line.is_open() && !self.unsent.is_empty() {
            if self.projection.has_room() {
                self.send_next();
            } else {
                self.wait_for_room();
            }
        }
    }

    fn send_next(&mut self) {
        let batch = if self.line.is_open() { self.unsent.pop_front() } else { None };
        if let Some(batch) = batch {
            // A batch alone tells nothing.
            self.pass(Input::Batch(batch), &mut Vec::new());
        }
    }

    fn wait_for_room(&mut self) {
        self.waits_for_room = true;
        let (projection, report) = (self.projection.clone(), Arc::clone(&self.report));
        tokio::spawn(async move {
            projection.room(ROOM).await;
            report(Event::Room);
        });
    }

    /// Passes something to the line, and does what it says.
    fn pass(&mut self, input: Input, told: &mut Vec<Outcome>) {
        for output in self.line.on(input) {
            match output {
                Output::Commit(batch) => self.submit(batch),
                Output::Tell(outcome) => told.push(outcome),
                Output::Rest(time) => {
                    let report = Arc::clone(&self.report);
                    tokio::spawn(async move {
                        tokio::time::sleep(time).await;
                        report(Event::Rested);
                    });
                }
                Output::End => self.unsent.clear(),
            }
        }
    }

    fn submit(&mut self, batch: Arc<Batch>) {
        let submission = self.answers.asked();
        let (begun, report) = (Instant::now(), Arc::clone(&self.report));
        let receipt = Receipt::new(move |outcome| {
            metrics::histogram!("skein_entity_commit_seconds").record(begun.elapsed());
            report(Event::Answered(submission, outcome));
        });
        self.store.submit(self.fence, batch, receipt);
    }
}
