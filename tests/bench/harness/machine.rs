//! What the figures were measured on, and how busy it was.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::stats::median;

/// Flushes in one probe.
const FLUSHES: usize = 50;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub processors: usize,
    pub model: String,
    pub memory_gib: f64,
    pub kernel: String,
    pub filesystem: String,
    /// The commit that was built, with a plus sign if the tree had changes.
    pub commit: String,
    pub rustc: String,
}

impl Machine {
    pub(crate) fn look(folder: &Path) -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let field = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':')).map(|(_, value)| value.trim().to_owned())
        };
        let memory =
            procfs::Current::current().map(|info: procfs::Meminfo| info.mem_total).unwrap_or_default();
        let changed = !said("git", &["status", "--porcelain", "--untracked-files=no"]).is_empty();
        Self {
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            model: field("model name").unwrap_or_default(),
            memory_gib: (memory as f64 / f64::from(1 << 30) * 10.0).round() / 10.0,
            kernel: said("uname", &["-sr"]),
            filesystem: said("stat", &["-f", "-c", "%T", &folder.to_string_lossy()]),
            commit: format!(
                "{}{}",
                said("git", &["rev-parse", "--short", "HEAD"]),
                if changed { "+" } else { "" }
            ),
            rustc: said("rustc", &["--version"]),
        }
    }
}

/// How busy the machine was at one moment.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Weather {
    /// Of the last minute.
    pub load: f64,
    /// The median of small synchronous writes, microseconds: on a busy machine this is a matter of the scheduler.
    pub flush_us: f64,
    /// Share of the time that the host took away since boot.
    pub steal: f64,
}

impl Weather {
    /// # Errors
    /// When the folder cannot be written.
    pub(crate) fn look(folder: &Path) -> Result<Self> {
        let load: procfs::LoadAverage = procfs::Current::current()?;
        let stat: procfs::KernelStats = procfs::CurrentSI::current()?;
        let total = stat.total;
        let all = total.user + total.nice + total.system + total.idle;
        let steal = total.steal.unwrap_or_default() as f64 / all.max(1) as f64;
        Ok(Self { load: f64::from(load.one), flush_us: flush_probe(folder)?, steal })
    }
}

/// Overwrites 256 bytes of a file and flushes, again and again.
fn flush_probe(folder: &Path) -> Result<f64> {
    let file = tempfile::tempfile_in(folder)?;
    file.write_all_at(&[0; 64 * 1024], 0)?;
    file.sync_all()?;
    let times: Result<Vec<f64>> = (0..FLUSHES).map(|turn| flush(&file, turn)).collect();
    Ok(median(&times?).unwrap_or_default())
}

fn flush(file: &File, turn: usize) -> Result<f64> {
    let start = Instant::now();
    file.write_all_at(&[1; 256], (turn as u64 % 64) * 512)?;
    file.sync_data()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// The first line that a program says, or nothing.
pub(crate) fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or_default().trim().to_owned()
}
