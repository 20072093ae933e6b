//! Loads: the same operation again and again, by many clients.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::future::BoxFuture;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

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
    let start = Instant::now();
    let count = (rate * plan.time.as_secs_f64()).max(1.0) as u64;
    let mut clients = JoinSet::new();
    for client in 0..plan.in_flight {
        let operation = Arc::clone(&operation);
        let step = plan.in_flight;
        clients.spawn(async move {
            let mut latency = histogram();
            for place in (client as u64..count).step_by(step) {
                let due = start + Duration::from_secs_f64(place as f64 / rate);
                sleep_until(due).await;
                operation(client).await?;
                latency.saturating_record(nanoseconds(due.elapsed()));
            }
            anyhow::Ok(latency)
        });
    }
    gather(clients, start).await
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
    use super::*;

    fn plan(pace: Pace) -> Plan {
        Plan { in_flight: 4, time: Duration::from_millis(200), pace }
    }

    #[tokio::test(start_paused = true)]
    async fn a_closed_load_keeps_every_client_busy() {
        let pause: Operation = Arc::new(|_| {
            Box::pin(async {
                tokio::time::sleep(Duration::from_millis(10)).await;
                Ok(())
            })
        });
        let work = run(&plan(Pace::Closed), pause).await.expect("it runs");
        assert_eq!(work.operations, 4 * 20);
    }

    /// A stall of 100 ms must be felt by all that were due in it, not by the one that met it alone.
    #[tokio::test(start_paused = true)]
    async fn an_open_load_counts_from_the_moment_an_operation_was_due() {
        let start = Instant::now();
        let stall: Operation = Arc::new(move |_| {
            Box::pin(async move {
                sleep_until(start + Duration::from_millis(100)).await;
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
