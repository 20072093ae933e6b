//! Loads: the same operation again and again, by many clients.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use hdrhistogram::Histogram;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;

use super::contender::{Pace, Plan, Work};

/// Latencies are kept in nanoseconds with three digits, up to a minute.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are in order")
}

/// One client: given its number, it makes one operation.
pub(crate) type Operation = Arc<dyn Fn(usize) -> BoxFuture<'static, Result<()>> + Send + Sync>;

/// Runs an operation by the plan's clients at the plan's pace.
///
/// # Errors
/// The first error of an operation: a bench measures no failures.
pub(crate) async fn run(plan: &Plan, operation: Operation) -> Result<Work> {
    match plan.pace {
        Pace::Closed => closed(plan, operation).await,
        Pace::Open(rate) => open(plan, rate, operation).await,
    }
}

async fn closed(plan: &Plan, operation: Operation) -> Result<Work> {
    let start = Instant::now();
    let end = start + plan.time;
    let mut clients = JoinSet::new();
    for client in 0..plan.in_flight {
        let operation = Arc::clone(&operation);
        clients.spawn(async move {
            let mut latency = histogram();
            loop {
                let began = Instant::now();
                if began >= end {
                    return anyhow::Ok(latency);
                }
                operation(client).await?;
                latency.saturating_record(nanoseconds(began.elapsed()));
            }
        });
    }
    gather(clients, start).await
}

/// Each client owns every n-th place of the timetable, so that one slow answer delays only its own client's
/// later places, which are counted as late.
async fn open(plan: &Plan, rate: f64, operation: Operation) -> Result<Work> {
    let timetable = Timetable::new(plan, rate);
    let mut clients = JoinSet::new();
    for (client, mut places) in timetable.wake(plan.in_flight).into_iter().enumerate() {
        let operation = Arc::clone(&operation);
        clients.spawn(async move {
            let mut latency = histogram();
            while let Some(place) = places.recv().await {
                operation(client).await?;
                latency.saturating_record(nanoseconds(timetable.due(place).elapsed()));
            }
            anyhow::Ok(latency)
        });
    }
    gather(clients, timetable.start).await
}

/// When the operations of an open load are due, by their places.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timetable {
    pub(crate) start: Instant,
    pub(crate) count: u64,
    rate: f64,
}

impl Timetable {
    /// It begins now.
    pub(crate) fn new(plan: &Plan, rate: f64) -> Self {
        let count = (rate * plan.time.as_secs_f64()).max(1.0) as u64;
        Self { start: Instant::now(), count, rate }
    }

    pub(crate) fn due(&self, place: u64) -> Instant {
        self.start + Duration::from_secs_f64(place as f64 / self.rate)
    }

    /// Tells the clients of their places in turn, each when it is due. A thread does that, for the timers of the
    /// runtime are a millisecond coarse, and that would be counted as the product's.
    pub(crate) fn wake(self, clients: usize) -> Vec<UnboundedReceiver<u64>> {
        let (clients, receivers): (Vec<_>, Vec<_>) = (0..clients).map(|_| unbounded_channel()).unzip();
        std::thread::spawn(move || {
            for (place, client) in (0..self.count).zip(clients.iter().cycle()) {
                std::thread::sleep(self.due(place).saturating_duration_since(Instant::now()));
                // The first error of a client ends the load.
                if client.send(place).is_err() {
                    return;
                }
            }
        });
        receivers
    }
}

async fn gather(mut clients: JoinSet<Result<Histogram<u64>>>, start: Instant) -> Result<Work> {
    let mut latency = histogram();
    while let Some(ended) = clients.join_next().await {
        latency.add(ended.context("a client panicked")??)?;
    }
    Ok(Work { operations: latency.len(), elapsed: start.elapsed(), latency: Some(latency) })
}

/// A duration as the histogram takes it.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use futures::FutureExt;

    use super::*;

    fn plan(pace: Pace) -> Plan {
        Plan { in_flight: 4, time: Duration::from_millis(200), pace }
    }

    #[tokio::test]
    async fn a_closed_load_keeps_every_client_busy() {
        let seen: Arc<[AtomicU64; 4]> = Arc::default();
        let counts = Arc::clone(&seen);
        let count: Operation = Arc::new(move |client| {
            counts[client].fetch_add(1, Ordering::Relaxed);
            Box::pin(tokio::task::yield_now().map(Ok))
        });
        let work = run(&plan(Pace::Closed), count).await.expect("it runs");
        let each: Vec<u64> = seen.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        assert!(each.iter().all(|count| *count > 1), "{each:?}");
        assert_eq!(work.operations, each.iter().sum::<u64>());
    }

    /// A stall of 100 ms must be felt by all that were due in it, not by the one that met it alone.
    #[tokio::test]
    async fn an_open_load_counts_from_the_moment_an_operation_was_due() {
        let start = Instant::now();
        let stall: Operation = Arc::new(move |_| {
            Box::pin(async move {
                tokio::time::sleep_until((start + Duration::from_millis(100)).into()).await;
                Ok(())
            })
        });
        let work = run(&plan(Pace::Open(1000.0)), stall).await.expect("it runs");
        let latency = work.latency.expect("latencies");
        assert_eq!(work.operations, 200);
        // Half of them were due in the stall, and waited 50 ms on average.
        let stalled = Duration::from_nanos(latency.value_at_quantile(0.75));
        assert!(stalled >= Duration::from_millis(45), "{stalled:?}");
    }

    #[tokio::test]
    async fn an_error_ends_the_load() {
        let broken: Operation = Arc::new(|_| Box::pin(async { anyhow::bail!("no") }));
        assert!(run(&plan(Pace::Closed), broken).await.is_err());
    }
}
