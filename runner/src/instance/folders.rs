//! The data folder: the ledger and logs are the runner's alone, each agent has a work folder.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::runtime::Handle;

use super::ledger::Ledger;
use super::transcript::{self, Heard};
use crate::container::docker::COPIED;
use crate::container::{Isolation, Kept, User};
use crate::error::Error;
use crate::harness::Harness;

pub(super) const LEDGER: &str = "ledger.sqlite";
/// A log is cut when it has grown past this; the older half goes into a second file.
pub const LOG: u64 = 16 * 1024 * 1024;
/// How many logs of ended instances are kept.
const LOGS: usize = 500;
/// No swarm's name begins with a dot.
const LENT: &str = ".lent";
const INPUTS: &str = ".inputs";
const OUTPUTS: &str = ".outputs";
const KEPT: &str = ".kept";
const JOINED: &str = ".joined";
/// Folders that hold something for each instance. Each may pass through them to its own.
const OF_EACH: [&str; 5] = [LENT, INPUTS, OUTPUTS, KEPT, JOINED];
const AGENT_COMMANDS: &str = ".bin";
const WORK_LOCK: &str = ".lock";
const UNBEGUN: &str = "unbegun";
const LOG_LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Folders {
    data: PathBuf,
    work: PathBuf,
}

/// Keeps both folders taken for as long as it lives. The data folder, which is taken first, is the last that is let go.
#[derive(Debug)]
pub struct Lock {
    _work: Taken,
    _data: Taken,
}

/// A file that nobody else has.
#[derive(Debug)]
struct Taken(fs::File);

impl Drop for Taken {
    /// A process that is started at this moment has the file too, until its program begins.
    fn drop(&mut self) {
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Folders {
    /// Makes the folders and takes both for this process. Whoever has one clears away what its own ledger knows no
    /// instance for, so that nobody else may have it.
    ///
    /// The agents' work stands beside the data folder, which is closed to everybody else: agents with users of
    /// their own have to pass through every folder above their work.
    ///
    /// # Errors
    /// When another runner has one of them, or when agents with users of their own could not reach `work`.
    pub fn open(data: &Path, work: Option<&Path>, isolation: Isolation) -> Result<(Self, Lock), Error> {
        make(data, 0o700)?;
        let data = data.canonicalize().map_err(|error| Error::io("find", data, error))?;
        let data_lock = take(&data.join("lock"))?.ok_or_else(|| Error::InUse(data.clone()))?;
        for folder in ["logs", UNBEGUN] {
            make(&data.join(folder), 0o700)?;
        }
        let users = isolation == Isolation::Users;
        let work = work.map_or_else(|| usual_work(&data, isolation), Path::to_owned);
        fs::create_dir_all(&work).map_err(|error| Error::io("make", &work, error))?;
        must_be_ours(&work)?;
        let work_lock = take(&work.join(WORK_LOCK))?.ok_or_else(|| Error::WorkInUse(work.clone()))?;
        set_mode(&work, if users { 0o711 } else { 0o700 })?;
        let work = work.canonicalize().map_err(|error| Error::io("find", &work, error))?;
        for folder in OF_EACH {
            make(&work.join(folder), if users { 0o711 } else { 0o700 })?;
        }
        // What agents leave behind is nothing for the version control of the folder around it.
        let ignore = work.join(".gitignore");
        fs::write(&ignore, "*\n").map_err(|error| Error::io("write", &ignore, error))?;
        if users && let Some(blocked) = blocked_at(&work)? {
            let shown = blocked.display();
            return Err(Error::config(format!(
                "agents run as users of their own and cannot pass through {shown}; run `chmod o+x {shown}`, or choose another work folder"
            )));
        }
        Ok((Self { data, work }, Lock { _work: work_lock, _data: data_lock }))
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn ledger(&self) -> PathBuf {
        self.data.join(LEDGER)
    }

    pub fn log(&self, instance: &str) -> PathBuf {
        self.data.join("logs").join(format!("{instance}.log"))
    }

    /// A file that is there from before the first process of an instance is started until that begins.
    pub fn unbegun(&self, instance: &str) -> PathBuf {
        self.data.join(UNBEGUN).join(instance)
    }

    /// Where the credentials are that an instance is lent.
    pub fn lent(&self, instance: &str) -> PathBuf {
        self.work.join(LENT).join(instance)
    }

    /// What no instance may look into but for its own part of it.
    pub fn closed(&self) -> Vec<PathBuf> {
        vec![self.data.clone(), self.work.clone()]
    }

    /// Where the input of an instance is when it is too long for a variable.
    pub fn input(&self, instance: &str) -> PathBuf {
        self.work.join(INPUTS).join(instance)
    }

    /// Where the commands are that shell scripts call.
    pub fn agent_commands(&self) -> PathBuf {
        self.work.join(AGENT_COMMANDS)
    }

    /// Where the tools of an instance keep what is too long to be shown.
    pub fn outputs(&self, instance: &str) -> PathBuf {
        self.work.join(OUTPUTS).join(instance)
    }

    /// Makes that folder, for the instance alone.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open_outputs(&self, instance: &str, user: Option<User>) -> Result<(), Error> {
        make_for(user, &self.outputs(instance), 0o700)
    }

    /// Where the writable folders of an instance's container lie, if they are to outlive the container.
    pub fn kept(&self, instance: &str) -> Kept {
        let folder = self.work.join(KEPT).join(instance);
        Kept { tmp: folder.join("tmp"), home: folder.join("home") }
    }

    /// Makes these, for the instance alone.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn open_kept(&self, instance: &str, user: Option<User>) -> Result<Kept, Error> {
        // On this machine nobody else looks into them; inside, what is below `/tmp` is as it is anywhere.
        make(&self.work.join(KEPT).join(instance), 0o700)?;
        let kept = self.kept(instance);
        make_for(user, &kept.tmp, 0o1777)?;
        make_for(user, &kept.home, 0o700)?;
        Ok(kept)
    }

    /// Where the work folder of an instance's container is put together, if it is made of several.
    ///
    /// # Errors
    /// When there cannot be such a place.
    pub fn open_joined(&self, instance: &str) -> Result<PathBuf, Error> {
        // On this machine nobody else looks into it, whatever the modes of the files in it.
        let folder = self.work.join(JOINED).join(instance);
        make(&folder, 0o700)?;
        Ok(folder.join("static"))
    }

    /// Removes what an instance has beside its agent's work: links are removed and not followed.
    pub fn take_files_back(&self, instance: &str) {
        let [kept, joined] = [KEPT, JOINED].map(|folder| self.work.join(folder).join(instance));
        for folder in [self.outputs(instance), kept, joined] {
            if let Err(error) = remove_all(&folder)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(instance, %error, "files of an instance that has ended are still there");
            }
        }
        // As a rule it is gone since the instance has begun.
        let _ = fs::remove_file(self.unbegun(instance));
    }

    /// The instances that have something here, or had when this machine or runner ended.
    pub fn borrowers(&self) -> Vec<String> {
        let folders =
            OF_EACH.map(|folder| self.work.join(folder)).into_iter().chain([self.data.join(UNBEGUN)]);
        let entries = folders.flat_map(|folder| fs::read_dir(folder).into_iter()).flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Makes an agent's work folder, shared by its instances and closed to others. One that is there is left as it is
    /// if it is right: instances are at work in it.
    pub fn work(&self, swarm: &str, agent: &str, user: Option<User>) -> Result<PathBuf, Error> {
        let swarm = self.work.join(swarm);
        let folder = swarm.join(agent);
        let Some(user) = user else {
            make(&swarm, 0o700)?;
            make(&folder, 0o700)?;
            return Ok(folder);
        };
        make(&swarm, 0o711)?;
        make_own(&folder)?;
        let about = fs::metadata(&folder).map_err(|error| Error::io("look at", &folder, error))?;
        if about.gid() != user.gid {
            chown(&folder, None, Some(user.gid)).map_err(|error| Error::io("hand over", &folder, error))?;
        }
        // Set-group-id: what one instance makes belongs to the agent's group.
        if about.mode() & 0o7777 != 0o2770 {
            set_mode(&folder, 0o2770)?;
        }
        Ok(folder)
    }

    /// Keeps logs bounded while instances write to them; `live` are those that do. Never returns.
    pub async fn tend(self, ledger: Ledger, live: impl Fn() -> Vec<String>) {
        let mut look = tokio::time::interval(LOG_LOOK);
        loop {
            look.tick().await;
            let (logs, live) = (self.data.join("logs"), live().into_iter().map(|id| self.log(&id)).collect());
            let (ledger, runtime) = (ledger.clone(), Handle::current());
            let harness = move |instance: &str| runtime.block_on(ledger.harness(instance));
            let tended = tokio::task::spawn_blocking(move || tend_logs(&logs, &live, harness)).await;
            if let Ok(Err(error)) = tended {
                tracing::warn!(%error, "logs could not be bounded");
            }
        }
    }
}

/// Takes a file; none if another has it. No user but the runner's may open it, or an agent could keep it taken.
fn take(file: &Path) -> Result<Option<Taken>, Error> {
    let mut options = fs::OpenOptions::new();
    let opened = options.create(true).truncate(false).write(true).mode(0o600).open(file);
    let opened = opened.map_err(|error| Error::io("make", file, error))?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Taken(opened))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(Error::io("lock", file, error.into())),
    }
}

/// Agents append, so a log can be copied and cut under them; lines written in between are lost. That of an instance
/// that sleeps may be older than any other, and is still needed when it wakes.
fn tend_logs(
    logs: &Path,
    live: &BTreeSet<PathBuf>,
    harness: impl Fn(&str) -> Harness,
) -> std::io::Result<()> {
    // One that cannot be bounded keeps none of the others from it.
    let (mut kept, mut tended) = (Vec::new(), Ok(()));
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        let Ok(about) = fs::metadata(&path) else { continue };
        if path.extension().is_some_and(|extension| extension == "log") {
            if about.len() > LOG {
                let instance = path.file_stem().unwrap_or_default().to_string_lossy();
                tended = tended.and(cut_if_long(&path, harness(&instance)));
            }
            if !live.contains(&path) {
                kept.push((about.modified()?, path));
            }
        }
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(LOGS);
    for (_, path) in kept.into_iter().take(surplus) {
        // As a rule one of them or both do not exist.
        for beside in ["log.1", COPIED] {
            let _ = fs::remove_file(path.with_extension(beside));
        }
        transcript::forget(&path);
        tended = tended.and(fs::remove_file(path));
    }
    tended
}

/// Bounds a log, and keeps beside it its newest part and what a client has said in it of its run. However fast an agent
/// prints, that part has its bound. On a full disk there is no room for it, and there would never be any, were the log
/// not emptied all the same.
pub(super) fn cut_if_long(path: &Path, harness: Harness) -> std::io::Result<()> {
    let _alone = transcript::alone();
    let log = fs::OpenOptions::new().read(true).write(true).open(path)?;
    if log.metadata()?.len() <= LOG {
        return Ok(());
    }
    // First, for it may take its time: what is printed between the last look and the end is lost.
    let mut heard = Heard::before_it_is_emptied(harness, path, &log);
    let beside = path.with_extension("log.1");
    let copied = keep_newest(&log, &beside);
    if copied.is_err() {
        // A part of it would pass for all.
        let _ = fs::remove_file(&beside);
    }
    let read = match &mut heard {
        Ok(Some(heard)) => heard.go_on(&log, LOG),
        _ => Ok(()),
    };
    log.set_len(0)?;
    let kept = heard.and_then(|heard| heard.map_or(Ok(()), |heard| heard.now_it_is_empty(path)));
    copied.and(read).and(kept)
}

fn keep_newest(mut log: &fs::File, beside: &Path) -> std::io::Result<()> {
    let length = log.metadata()?.len();
    log.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
    let mut older = fs::OpenOptions::new();
    let mut older = older.create(true).truncate(true).write(true).mode(0o600).open(beside)?;
    std::io::copy(&mut log.take(LOG), &mut older).map(drop)
}

/// Removes a folder with all that is in it. Links are removed and not followed. Whoever owns a folder may have closed
/// it to themselves, as the cache of Go's modules is.
fn remove_all(folder: &Path) -> std::io::Result<()> {
    let removed = fs::remove_dir_all(folder);
    if !matches!(&removed, Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied) {
        return removed;
    }
    open_all(folder)?;
    fs::remove_dir_all(folder)
}

/// Lets the owner into a folder and all below it.
fn open_all(folder: &Path) -> std::io::Result<()> {
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_all(&entry.path())?;
        }
    }
    Ok(())
}

/// Whoever owns the work folder, or may write into it, could put links in the place of what the runner makes there, and
/// so have it write and give away whatever they like. Among the temporary files anybody may have been there first.
fn must_be_ours(folder: &Path) -> Result<(), Error> {
    let failed = |error| Error::io("look at", folder, error);
    let (place, about) =
        (fs::symlink_metadata(folder).map_err(failed)?, fs::metadata(folder).map_err(failed)?);
    let own = rustix::process::geteuid().as_raw();
    if place.uid() == own && about.uid() == own && about.mode() & 0o022 == 0 {
        return Ok(());
    }
    let shown = folder.display();
    Err(Error::config(format!(
        "the work folder {shown} belongs to another user, or others may write into it; run `chown $(id -u) {shown}` and `chmod go-w {shown}` if all in it is yours, or choose another with --work"
    )))
}

/// Where agents work when nothing is said: beside the data folder, or among the temporary ones where agents'
/// users could not get there.
pub fn usual_work(data: &Path, isolation: Isolation) -> PathBuf {
    let mut name = data.file_name().unwrap_or_default().to_owned();
    name.push("-work");
    let beside = data.with_file_name(&name);
    let parent = data.parent().unwrap_or(data);
    if isolation != Isolation::Users || matches!(blocked_at(parent), Ok(None)) {
        return beside;
    }
    let mark = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, data.as_os_str().as_encoded_bytes());
    std::env::temp_dir().join(format!("skein-work-{}", mark.simple()))
}

/// The first folder on the way that others cannot pass through: every folder above the work folders must let them.
pub(super) fn blocked_at(path: &Path) -> Result<Option<PathBuf>, Error> {
    for folder in path.ancestors() {
        let about = fs::metadata(folder).map_err(|error| Error::io("look at", folder, error))?;
        if about.permissions().mode() & 0o001 == 0 {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

fn make(folder: &Path, mode: u32) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::io("make", folder, error))?;
    set_mode(folder, mode)
}

/// Makes a folder that is closed to all others. False when it is there, however it is.
fn make_own(folder: &Path) -> Result<bool, Error> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(false),
        made => made.map(|()| true).map_err(|error| Error::io("make", folder, error)),
    }
}

/// A folder that is another's, unless an earlier process of the same run has it already.
fn make_for(user: Option<User>, folder: &Path, mode: u32) -> Result<(), Error> {
    if !make_own(folder)? {
        return Ok(());
    }
    set_mode(folder, mode)?;
    let (uid, gid) = (user.map(|user| user.uid), user.map(|user| user.gid));
    chown(folder, uid, gid).map_err(|error| Error::io("hand over", folder, error))
}

fn set_mode(folder: &Path, mode: u32) -> Result<(), Error> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(folder, permissions).map_err(|error| Error::io("set the mode of", folder, error))
}

#[cfg(test)]
mod tests;
