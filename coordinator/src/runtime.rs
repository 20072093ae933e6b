//! The threads that Skein's tasks run on.

use std::num::NonZero;
use std::thread::available_parallelism;

use tokio::runtime::{Builder, Runtime};

/// Under this name tokio lets the user say how many threads there are.
const THREADS: &str = "TOKIO_WORKER_THREADS";

/// One processor is left to what works beside the tasks: the thread that writes to SQLite, or Redis, and the read
/// side's. With a thread for each processor the system puts two on one again and again, where they wake one another for
/// each answer (measured on two processors: up to a sixth of the rate).
///
/// # Errors
/// When the system gives no threads.
pub fn start() -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    if std::env::var_os(THREADS).is_none() {
        builder.worker_threads(threads(available_parallelism().map_or(1, NonZero::get)));
    }
    builder.enable_all().build()
}

fn threads(processors: usize) -> usize {
    processors.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_is_left_where_there_are_several() {
        assert_eq!([1, 2, 3, 8].map(threads), [1, 1, 2, 7]);
    }
}
