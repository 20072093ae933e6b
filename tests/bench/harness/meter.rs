//! What an operation costs, whatever the clock says: processor time, bytes written, allocations, flushes.

use std::collections::HashMap;

use anyhow::{Context, Result, anyhow};
use procfs::process::Process;
use tikv_jemalloc_ctl::{epoch, stats, stats_print};
use tikv_jemallocator::Jemalloc;

use super::contender::{Contender, Metered};

/// The allocator that the product has.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

/// Counters of a contender's processes, since they began.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reading {
    pub cpu_us: f64,
    /// Handed to the block layer.
    pub bytes: f64,
    /// Of this process alone.
    pub allocations: Option<f64>,
    pub flushes: Option<f64>,
    pub redis_calls: Option<f64>,
    /// Resident at this moment.
    pub resident: f64,
}

impl Reading {
    /// Reads the counters of a contender.
    ///
    /// # Errors
    /// When its process is gone.
    pub(crate) fn take(contender: &dyn Contender) -> Result<Self> {
        let mut reading = Self::of(contender.card().metered)?;
        reading.flushes = contender.flushes().map(|count| count as f64);
        reading.redis_calls = contender.redis_calls().map(|count| count as f64);
        Ok(reading)
    }

    /// Reads the counters of this process or of a tree.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn of(metered: Metered) -> Result<Self> {
        match metered {
            Metered::Myself => {
                let mut reading = Self::of_process(&Process::myself()?)?;
                reading.allocations = Some(allocations()?);
                Ok(reading)
            }
            Metered::MyselfAnd(server) => {
                let (mut sum, server) = (Self::of(Metered::Myself)?, Self::of(Metered::Tree(server))?);
                sum.add(&server);
                Ok(sum)
            }
            Metered::Trees(roots) => {
                let mut sum = Self::default();
                for root in roots {
                    sum.add(&Self::of(Metered::Tree(root))?);
                }
                Ok(sum)
            }
            Metered::Tree(root) => {
                let mut sum = Self::of_process(&alive(root)?)?;
                for process in descendants(root)? {
                    // A process may end between the listing and this.
                    let Ok(reading) = Self::of_process(&process) else { continue };
                    sum.add(&reading);
                }
                Ok(sum)
            }
        }
    }

    fn add(&mut self, other: &Self) {
        self.cpu_us += other.cpu_us;
        self.bytes += other.bytes;
        self.resident += other.resident;
    }

    fn of_process(process: &Process) -> Result<Self> {
        let stat = process.stat()?;
        let tick = 1e6 / procfs::ticks_per_second() as f64;
        let resident = stat.rss as f64 * procfs::page_size() as f64;
        let cpu_us = (stat.utime + stat.stime) as f64 * tick;
        let bytes = process.io().map(|io| io.write_bytes as f64).unwrap_or_default();
        Ok(Self { cpu_us, bytes, resident, ..Self::default() })
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let less = |now: Option<f64>, then: Option<f64>| now.zip(then).map(|(now, then)| now - then);
        Self {
            cpu_us: self.cpu_us - earlier.cpu_us,
            bytes: self.bytes - earlier.bytes,
            allocations: less(self.allocations, earlier.allocations),
            flushes: less(self.flushes, earlier.flushes),
            redis_calls: less(self.redis_calls, earlier.redis_calls),
            resident: self.resident,
        }
    }

    /// The shares of one of `operations`.
    pub(crate) fn per(&self, operations: u64) -> Self {
        let share = |value: f64| value / operations.max(1) as f64;
        Self {
            cpu_us: share(self.cpu_us),
            bytes: share(self.bytes),
            allocations: self.allocations.map(share),
            flushes: self.flushes.map(share),
            redis_calls: self.redis_calls.map(share),
            resident: self.resident,
        }
    }
}

/// Bytes that this process has asked for and not given back.
///
/// # Errors
/// When the allocator keeps no counters.
pub(crate) fn heap() -> Result<f64> {
    epoch::advance().map_err(uncounted)?;
    Ok(stats::allocated::read().map_err(uncounted)? as f64)
}

/// How often this process has asked for memory. The allocator counts for each thread by itself: one counter that all
/// threads touch took a sixth of the processor time that it was to explain.
fn allocations() -> Result<f64> {
    epoch::advance().map_err(uncounted)?;
    let mut printed = Vec::new();
    let mut options = stats_print::Options::default();
    options.json_format = true;
    options.skip_constants = true;
    options.skip_per_arena = true;
    options.skip_bin_size_classes = true;
    options.skip_large_size_classes = true;
    options.skip_mutex_statistics = true;
    stats_print::stats_print(&mut printed, options)?;
    let printed: serde_json::Value = serde_json::from_slice(&printed)?;
    let counted =
        |size: &str| printed.pointer(&format!("/jemalloc/stats.arenas/merged/{size}/nrequests"))?.as_f64();
    let both = counted("small").zip(counted("large"));
    both.map(|(small, large)| small + large).ok_or_else(|| anyhow!("the allocator counts no requests"))
}

fn uncounted(error: tikv_jemalloc_ctl::Error) -> anyhow::Error {
    anyhow!("the allocator keeps no counters: {error}")
}

/// The processor time of each thread of this process, to the nanosecond: the process's own clock ticks a
/// hundred times a second.
pub(crate) struct ThreadTimes(HashMap<i32, u64>);

impl ThreadTimes {
    /// # Errors
    /// When the kernel keeps no such times.
    pub(crate) fn take() -> Result<Self> {
        let mut times = HashMap::new();
        for thread in Process::myself()?.tasks()? {
            let thread = thread?;
            // A thread may end between the listing and this.
            let Ok(used) = thread.schedstat() else { continue };
            times.insert(thread.tid, used.sum_exec_runtime);
        }
        anyhow::ensure!(!times.is_empty(), "the kernel keeps no times of threads");
        Ok(Self(times))
    }

    /// Microseconds since this was taken. What a thread used that has ended meanwhile is missing.
    ///
    /// # Errors
    /// When the threads cannot be listed.
    pub(crate) fn used_us(&self) -> Result<f64> {
        let since = |(id, now): (&i32, &u64)| now.saturating_sub(self.0.get(id).copied().unwrap_or(0));
        Ok(Self::take()?.0.iter().map(since).sum::<u64>() as f64 / 1000.0)
    }
}

fn alive(id: u32) -> Result<Process> {
    Process::new(id.cast_signed()).with_context(|| format!("process {id} has ended"))
}

/// The ids of a process and its descendants.
///
/// # Errors
/// When the processes cannot be listed.
pub(crate) fn tree(root: u32) -> Result<Vec<u32>> {
    let below = descendants(root)?.into_iter().map(|process| process.pid().cast_unsigned());
    Ok(std::iter::once(root).chain(below).collect())
}

/// The children of a process, theirs, and so on.
fn descendants(root: u32) -> Result<Vec<Process>> {
    let mut children: HashMap<i32, Vec<Process>> = HashMap::new();
    for process in procfs::process::all_processes()?.flatten() {
        if let Ok(stat) = process.stat() {
            children.entry(stat.ppid).or_default().push(process);
        }
    }
    let mut found = Vec::new();
    let mut open = vec![root.cast_signed()];
    while let Some(parent) = open.pop() {
        for child in children.remove(&parent).unwrap_or_default() {
            open.push(child.pid());
            found.push(child);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocations_of_this_process_are_counted() {
        let before = Reading::of(Metered::Myself).expect("a reading");
        let kept: Vec<Box<u8>> = (0..1000).map(Box::new).map(|byte| Box::new(*byte as u8)).collect();
        let used = Reading::of(Metered::Myself).expect("a reading").since(&before);
        assert!(used.allocations.expect("counted") >= kept.len() as f64);
    }

    #[test]
    fn shares_are_by_operation() {
        let reading = Reading { cpu_us: 300.0, flushes: Some(3.0), ..Reading::default() };
        let share = reading.per(100);
        assert_eq!((share.cpu_us, share.flushes, share.allocations), (3.0, Some(0.03), None));
    }
}
