//! `skein export` and `skein import`: from the embedded store to Redis and back, while no node runs.

use std::fs::{self, File, OpenOptions};
use std::io::{BufReader, BufWriter, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;
use secrecy::SecretString;
use serde_json::json;
use skein_shared::{Code, Refusal};

use super::{CliError, table};
use crate::config::{self, Overrides};
use crate::node::datadir::{self, DataDir, Layout};
use crate::node::{Alone, StartError};
use crate::projection;
use crate::store::transfer::{self, Summary, TransferError};

#[derive(Debug, Args)]
pub(super) struct Export {
    /// The new file. It must not be there yet.
    file: PathBuf,
    #[command(flatten)]
    place: Place,
}

#[derive(Debug, Args)]
pub(super) struct Import {
    /// What `skein export` has written.
    file: PathBuf,
    #[command(flatten)]
    place: Place,
}

/// Which store. No node may have it.
#[derive(Debug, Args)]
struct Place {
    /// The data directory.
    #[arg(long, value_name = "DIR", env = "SKEIN_DATA", default_value = ".skein")]
    data: PathBuf,
    /// The store is in this Redis and not in the data directory. A URL with a password is better written into
    /// config.toml (`[store] redis`), where no list of processes shows it.
    #[arg(long, value_name = "URL", env = "SKEIN_REDIS", hide_env_values = true)]
    redis: Option<SecretString>,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

impl Export {
    pub(super) async fn run(self) -> Result<(), CliError> {
        // A store that this made would hide that Redis has lost the one that was to be saved.
        let alone = self.place.open(false).await?;
        // As secret as the store that it is from.
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&self.file);
        let file = file.map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => is_there(&self.file),
            _ => unusable(&self.file, &error),
        })?;
        let mut out = BufWriter::new(&file);
        let exported = transfer::export(&*alone.store, &mut out).await;
        drop(out);
        let exported = exported.and_then(|summary| Ok(file.sync_all().map(|()| summary)?));
        let exported = whole(&self.file, exported, alone.close().await)?;
        self.place.report(&exported)
    }
}

/// What was exported, if the store was this process' own to the end: another may have written meanwhile what is there
/// in part. Otherwise the file goes, for nobody shall take it for a whole one.
fn whole(
    file: &Path,
    exported: Result<Summary, TransferError>,
    closed: Result<(), StartError>,
) -> Result<Summary, CliError> {
    // First, for a lost store makes the rest fail.
    let exported = closed.map_err(CliError::from).and_then(|()| Ok(exported?));
    exported.inspect_err(|_| {
        let _ = fs::remove_file(file);
    })
}

impl Import {
    pub(super) async fn run(self) -> Result<(), CliError> {
        let file = open(&self.file)?;
        let alone = self.place.open(true).await?;
        // What was read of the store that was here before could pass for what there is of the new one.
        if let Err(problem) = projection::remove(&Layout::new(&self.place.data).projection()) {
            alone.close().await?;
            return Err(StartError::from(problem).into());
        }
        let imported = transfer::import(alone.store.clone(), &mut BufReader::new(file)).await;
        alone.close().await?;
        self.place.report(&imported?)
    }
}

/// Opens what is to be imported. It is read twice, which a pipe does not let anybody do; and to open one waits for
/// whoever writes into it.
fn open(path: &Path) -> Result<File, CliError> {
    let about = fs::metadata(path).map_err(|error| unusable(path, &error))?;
    if about.is_file() {
        return File::open(path).map_err(|error| unusable(path, &error));
    }
    let problem = format!(
        "{} is a pipe or a folder, and an import reads a file, all of it twice; write it into a file first, and name \
         that one",
        path.display()
    );
    Err(Refusal::new(Code::InvalidArgument, problem).into())
}

impl Place {
    async fn open(&self, makes: bool) -> Result<Alone, CliError> {
        datadir::look_into(&self.data)?;
        let overrides = Overrides { redis: self.redis.clone(), ..Overrides::default() };
        let config = config::load(&Layout::new(&self.data).config(), &overrides)
            .map_err(|error| CliError::Usage(error.to_string()))?;
        if !makes && config.store.redis.is_none() {
            self.require_store()?;
        }
        let data = DataDir::open(&self.data).map_err(StartError::from)?;
        Ok(Alone::open(data, &config, makes).await?)
    }

    /// A mistyped folder must not become one with an empty store, whose export would pass for a good copy.
    fn require_store(&self) -> Result<(), CliError> {
        if Layout::new(&self.data).store().exists() {
            return Ok(());
        }
        let problem = format!(
            "there is no store in {}; name the data directory of the node with --data or SKEIN_DATA",
            self.data.display()
        );
        Err(Refusal::new(Code::NotFound, problem).into())
    }

    fn report(&self, summary: &Summary) -> Result<(), CliError> {
        let document = json!({"lines": summary.lines, "state": summary.state, "file": summary.file});
        Ok(table::print_document(&document, self.json)?)
    }
}

/// As a node says it of a backup: it takes the place of no file.
fn is_there(path: &Path) -> CliError {
    let problem = format!("{} is there already; choose a new name", path.display());
    CliError::Refused(Refusal::new(Code::AlreadyExists, problem))
}

fn unusable(path: &Path, error: &std::io::Error) -> CliError {
    let problem = format!("{} cannot be used: {error}; name another file", path.display());
    CliError::Refused(Refusal::new(Code::InvalidArgument, problem))
}

impl From<TransferError> for CliError {
    fn from(error: TransferError) -> Self {
        let code = match &error {
            TransferError::Format { .. } | TransferError::Checksum => Code::InvalidArgument,
            TransferError::NotEmpty | TransferError::Clock(_) => Code::WrongState,
            _ => Code::Internal,
        };
        CliError::Refused(Refusal::new(code, error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[tokio::test]
    async fn an_import_leaves_nothing_of_what_was_read_of_another_store() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("export.jsonl");
        let place = |name: &str| Place { data: folder.path().join(name), redis: None, json: true };
        place("old").open(true).await.unwrap().close().await.unwrap();
        Export { file: file.clone(), place: place("old") }.run().await.unwrap();
        let data = place("new").data;
        fs::create_dir(&data).unwrap();
        let left = ["projection.db", "projection.db-wal", "projection.db-shm"].map(|name| data.join(name));
        for path in &left {
            fs::write(path, "of another store").unwrap();
        }
        Import { file: file.clone(), place: place("new") }.run().await.unwrap();
        assert!(left.iter().all(|path| !path.exists()));
        let written = fs::read(&file).unwrap();
        let refused = Export { file: file.clone(), place: place("new") }.run().await.unwrap_err();
        assert_eq!(refused.exit(), Code::AlreadyExists.exit(), "{refused}");
        assert!(fs::read(&file).unwrap() == written, "it takes the place of no file");
    }

    #[tokio::test]
    async fn an_import_of_what_can_be_read_once_alone_is_refused_before_anything_is_made() {
        let folder = tempfile::tempdir().unwrap();
        let (read, _) = std::io::pipe().unwrap();
        let pipe = PathBuf::from(format!("/dev/fd/{}", read.as_raw_fd()));
        for file in [pipe, folder.path().to_owned()] {
            let place = Place { data: folder.path().join("new"), redis: None, json: true };
            let refused = Import { file, place }.run().await.unwrap_err();
            assert_eq!(refused.exit(), Code::InvalidArgument.exit(), "{refused}");
            assert!(refused.to_string().contains("write it into a file first"), "{refused}");
        }
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn of_an_export_whose_store_was_lost_no_file_is_left() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("export.jsonl");
        let summary = || Summary { lines: 1, state: "state".to_owned(), file: "file".to_owned() };
        fs::write(&file, "all of it").unwrap();
        whole(&file, Ok(summary()), Ok(())).unwrap();
        assert!(file.exists());
        let lost = StartError::Failed("store: another coordinator has taken shard 7".to_owned());
        let said = whole(&file, Ok(summary()), Err(lost)).unwrap_err().to_string();
        assert!(said.contains("shard 7") && !file.exists(), "{said}");
        fs::write(&file, "half of it").unwrap();
        whole(&file, Err(TransferError::Checksum), Ok(())).unwrap_err();
        assert!(!file.exists());
    }
}
