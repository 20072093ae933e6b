//! The data folder: the ledger and logs are the runner's alone, each agent has a work folder.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

use crate::container::{Isolation, User};
use crate::error::Error;

/// A log is cut when it has grown past this; the older half goes into a second file.
pub const LOG: u64 = 16 * 1024 * 1024;
/// How many logs of ended instances are kept.
const LOGS: usize = 500;
/// No swarm's name begins with a dot.
const LENT: &str = ".lent";
const INPUTS: &str = ".inputs";
const HELPER: &str = ".bin";
const LOG_LOOK: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
pub struct Folders {
    data: PathBuf,
    work: PathBuf,
}

impl Folders {
    /// Makes the folders and takes the data folder for this process; the file keeps it taken.
    ///
    /// The agents' work stands beside the data folder, which is closed to everybody else: agents with users of
    /// their own have to pass through every folder above their work.
    ///
    /// # Errors
    /// When another runner has it, or when agents with users of their own could not reach `work`.
    pub fn open(data: &Path, work: Option<&Path>, isolation: Isolation) -> Result<(Self, fs::File), Error> {
        make(data, 0o700)?;
        let data = data.canonicalize().map_err(|error| Error::io("find", data, error))?;
        make(&data.join("logs"), 0o700)?;
        let users = isolation == Isolation::Users;
        let work = work.map_or_else(|| usual_work(&data, isolation), Path::to_owned);
        make(&work, if users { 0o711 } else { 0o700 })?;
        let work = work.canonicalize().map_err(|error| Error::io("find", &work, error))?;
        // What agents leave behind is nothing for the version control of the folder around it.
        let ignore = work.join(".gitignore");
        fs::write(&ignore, "*\n").map_err(|error| Error::io("write", &ignore, error))?;
        let file = data.join("lock");
        let lock = fs::File::create(&file).map_err(|error| Error::io("make", &file, error))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| Error::InUse(data.clone()))?;
        if users && let Some(blocked) = blocked_at(&work)? {
            let shown = blocked.display();
            return Err(Error::config(format!(
                "agents run as users of their own and cannot pass through {shown}; run `chmod o+x {shown}`, or choose another work folder"
            )));
        }
        Ok((Self { data, work }, lock))
    }

    pub fn data(&self) -> &Path {
        &self.data
    }

    pub fn ledger(&self) -> PathBuf {
        self.data.join("ledger.sqlite")
    }

    pub fn log(&self, instance: &str) -> PathBuf {
        self.data.join("logs").join(format!("{instance}.log"))
    }

    /// Where the credentials are that an instance is lent.
    pub fn lent(&self, instance: &str) -> PathBuf {
        self.work.join(LENT).join(instance)
    }

    /// Makes the folder that holds those of all instances. Each may pass through it to its own.
    pub fn open_lent(&self, isolation: Isolation) -> Result<(), Error> {
        make(&self.work.join(LENT), if isolation == Isolation::Users { 0o711 } else { 0o700 })
    }

    /// Where the input of an instance is when it is too long for a variable.
    pub fn input(&self, instance: &str) -> PathBuf {
        self.work.join(INPUTS).join(instance)
    }

    /// Where the commands are that shell scripts call.
    pub fn helper(&self) -> PathBuf {
        self.work.join(HELPER)
    }

    /// Makes the folder that holds those of all instances.
    pub fn open_inputs(&self, isolation: Isolation) -> Result<(), Error> {
        make(&self.work.join(INPUTS), if isolation == Isolation::Users { 0o711 } else { 0o700 })
    }

    /// The instances that are lent something, or were when this machine or runner ended.
    pub fn borrowers(&self) -> Vec<String> {
        let folders = [LENT, INPUTS].map(|folder| fs::read_dir(self.work.join(folder)).into_iter());
        let entries = folders.into_iter().flatten().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    /// Makes an agent's work folder, shared by its instances and closed to others.
    pub fn work(&self, swarm: &str, agent: &str, user: Option<User>) -> Result<PathBuf, Error> {
        let swarm = self.work.join(swarm);
        let folder = swarm.join(agent);
        let Some(user) = user else {
            make(&swarm, 0o700)?;
            make(&folder, 0o700)?;
            return Ok(folder);
        };
        make(&swarm, 0o711)?;
        make(&folder, 0o700)?;
        chown(&folder, None, Some(user.gid)).map_err(|error| Error::io("hand over", &folder, error))?;
        // Set-group-id: what one instance makes belongs to the agent's group.
        set_mode(&folder, 0o2770)?;
        Ok(folder)
    }

    /// Keeps logs bounded while instances write to them. Never returns.
    pub async fn tend(self) {
        let mut look = tokio::time::interval(LOG_LOOK);
        loop {
            look.tick().await;
            let logs = self.data.join("logs");
            let tended = tokio::task::spawn_blocking(move || tend_logs(&logs)).await;
            if let Ok(Err(error)) = tended {
                tracing::warn!(%error, "logs could not be bounded");
            }
        }
    }
}

/// Agents append, so a log can be copied and cut under them; lines written in between are lost.
fn tend_logs(logs: &Path) -> std::io::Result<()> {
    let mut kept = Vec::new();
    for entry in fs::read_dir(logs)? {
        let path = entry?.path();
        let Ok(about) = fs::metadata(&path) else { continue };
        if path.extension().is_some_and(|extension| extension == "log") {
            if about.len() > LOG {
                cut(&path)?;
            }
            kept.push((about.modified()?, path));
        }
    }
    kept.sort();
    let surplus = kept.len().saturating_sub(LOGS);
    for (_, path) in kept.into_iter().take(surplus) {
        // The second file may not exist.
        let _ = fs::remove_file(path.with_extension("log.1"));
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Bounds a log that nobody writes to any more.
pub(super) fn cut_if_long(log: &Path) -> std::io::Result<()> {
    if fs::metadata(log)?.len() > LOG { cut(log) } else { Ok(()) }
}

/// Keeps the last part of a log in the second file, however much came between two looks.
fn cut(log: &Path) -> std::io::Result<()> {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(log)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
    let before = log.with_extension("log.1");
    let mut kept = fs::OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(before)?;
    std::io::copy(&mut Read::by_ref(&mut file).take(LOG), &mut kept)?;
    file.set_len(0)
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
fn blocked_at(path: &Path) -> Result<Option<PathBuf>, Error> {
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

fn set_mode(folder: &Path, mode: u32) -> Result<(), Error> {
    let permissions = fs::Permissions::from_mode(mode);
    fs::set_permissions(folder, permissions).map_err(|error| Error::io("set the mode of", folder, error))
}
