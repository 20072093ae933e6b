//! B20: the power goes off at random instants, and what was acknowledged is compared with what is there.

use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::FutureExt;
use skein_tests::process;
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::Bench;
use crate::harness::image::Image;
use crate::harness::report::{Figure, Goal, Report};
use crate::harness::stats::Interval;
use crate::options::Options;
use crate::skein::witness::{self, Difference, Notes};

pub(super) const BENCH: Bench = Bench {
    name: "power_cut",
    about: "the power goes off during task cycles and messages; nothing acknowledged may be lost",
    run: |options| until_ended(options).boxed(),
};

/// A disk has to hold what is written between the cuts of one run.
const DISK: u64 = 2 << 30;
/// How long the load goes on between two cuts, milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 20..400;
/// Enough for the run without flushes to lose something.
const CONTROL_CUTS: u32 = 2;
const PATIENCE: Duration = Duration::from_secs(60);
/// Differences that are shown in words.
const SHOWN: usize = 5;

/// What some cuts found.
#[derive(Debug, Default)]
struct Outcome {
    cuts: u32,
    opened: u32,
    lost: usize,
    invented: usize,
    /// Acknowledged before the cuts, by all of them together.
    acknowledged: u64,
    /// The first differences and failures.
    words: Vec<String>,
}

impl Outcome {
    fn add(&mut self, acknowledged: u64, examined: Result<Difference>) {
        self.cuts += 1;
        self.acknowledged += acknowledged;
        match examined {
            Ok(difference) => {
                self.opened += 1;
                self.lost += difference.lost.len();
                self.invented += difference.invented.len();
                self.words.extend(difference.lost.into_iter().map(|lost| format!("lost: {lost}")));
                self.words.extend(difference.invented.into_iter().map(|what| format!("invented: {what}")));
            }
            Err(error) => self.words.push(format!("does not open: {error:#}")),
        }
        self.words.truncate(SHOWN);
    }
}

/// Whatever ends the bench, its file systems are unmounted: the guards see to it, if they are dropped.
async fn until_ended(options: Options) -> Result<Report> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut interrupt, mut end) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        report = run(&options) => report,
        _ = interrupt.recv() => anyhow::bail!("interrupted"),
        _ = end.recv() => anyhow::bail!("ended"),
    }
}

async fn run(options: &Options) -> Result<Report> {
    let mut report = Report::default();
    if let Err(error) = Image::make(&options.folder_for("probe")?, 16 << 20).await {
        let remark = format!("POWER CUTS WERE NOT TRIED: {error:#}; this needs root and loop devices");
        eprintln!("    {remark}");
        report.remarks.push(remark);
        goals(&mut report, None);
        return Ok(report);
    }
    let cuts_a_run = if options.slot > Duration::from_secs(1) { 10 } else { 2 };
    let mut outcome = Outcome::default();
    for _ in 0..options.rounds {
        cut_again_and_again(options, cuts_a_run, false, &mut outcome).await?;
    }
    let mut control = Outcome::default();
    cut_again_and_again(options, CONTROL_CUTS, true, &mut control).await?;
    report.remarks.extend(outcome.words.iter().cloned());
    report.figures.extend([
        Figure::new("cuts", "", f64::from(outcome.cuts)),
        Figure::new("acknowledged before the cuts", "steps", outcome.acknowledged as f64),
        Figure::new("lost without flushes, as a check of the check", "things", control.lost as f64),
    ]);
    goals(&mut report, Some((&outcome, &control)));
    Ok(report)
}

fn goals(report: &mut Report, outcomes: Option<(&Outcome, &Outcome)>) {
    let measured = |read: fn(&Outcome, &Outcome) -> f64| {
        outcomes.map(|(outcome, control)| Interval::exactly(read(outcome, control)))
    };
    let unopened = measured(|outcome, _| f64::from(outcome.cuts - outcome.opened));
    report.goals.extend([
        Goal::at_most("B20 acknowledged and lost", 0.0, measured(|outcome, _| outcome.lost as f64)),
        Goal::at_most("B20 invented", 0.0, measured(|outcome, _| outcome.invented as f64)),
        Goal::at_most("B20 images that do not open or work", 0.0, unopened),
        Goal::at_least(
            "B20 lost or unusable without flushes",
            1.0,
            measured(|_, control| control.lost as f64 + f64::from(control.cuts - control.opened)),
        ),
    ]);
}

/// One store on a disk of its own, and several cuts while it works.
async fn cut_again_and_again(
    options: &Options,
    cuts: u32,
    without_flushes: bool,
    outcome: &mut Outcome,
) -> Result<()> {
    let folder = options.folder_for("power-cut")?;
    let disk = Image::make(&folder, DISK).await?;
    let mut load = Load::start(&disk.folder().join("store"), &folder, without_flushes).await?;
    for cut in 0..cuts {
        tokio::time::sleep(Duration::from_millis(fastrand::u64(PAUSE_MS))).await;
        load.freeze().await?;
        let left = disk.cut(&folder.join(format!("cut-{cut}"))).await?;
        let examined = witness::examine(&left.folder().join("store"), &load.notes).await;
        outcome.add(load.notes.acknowledged, examined);
        drop(left);
        load.thaw()?;
    }
    load.end().await
}

/// The process that works, and its notes.
struct Load {
    child: Child,
    id: u32,
    file: PathBuf,
    read: u64,
    notes: Notes,
}

impl Load {
    async fn start(store: &Path, folder: &Path, without_flushes: bool) -> Result<Self> {
        let file = folder.join("notes");
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("witness").arg("--folder").arg(store);
        if without_flushes {
            command.arg("--without-flushes");
        }
        command
            .stdin(Stdio::null())
            .stdout(std::fs::File::create(&file)?)
            .process_group(0)
            .kill_on_drop(true);
        let child = command.spawn()?;
        let id = child.id().context("the load ended at once")?;
        let mut load = Self { child, id, file, read: 0, notes: Notes::default() };
        let began = Instant::now();
        while load.notes.acknowledged == 0 {
            anyhow::ensure!(began.elapsed() < PATIENCE, "the load does nothing");
            load.alive()?;
            tokio::time::sleep(Duration::from_millis(20)).await;
            load.take_notes()?;
        }
        Ok(load)
    }

    fn alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => anyhow::bail!("the load ended with {status}"),
        }
    }

    /// Stops the process and takes up what it noted until then.
    async fn freeze(&mut self) -> Result<()> {
        self.alive()?;
        process::freeze(self.id).await?;
        self.take_notes()
    }

    fn thaw(&self) -> Result<()> {
        process::thaw(self.id)
    }

    fn take_notes(&mut self) -> Result<()> {
        let mut file = std::fs::File::open(&self.file)?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        self.notes.read(&text[..whole])
    }

    async fn end(mut self) -> Result<()> {
        self.child.kill().await?;
        Ok(())
    }
}
