//! PostgreSQL as a queue: three statements, each a transaction of its own, with `FOR UPDATE SKIP LOCKED`.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use async_trait::async_trait;
use futures::FutureExt;
use tokio::process::Command;
use tokio_postgres::{Client, NoTls, Statement};

use super::{Peer, install};
use crate::harness::contender::{Card, Contender, Durability, Plan, Work};
use crate::harness::load::{self, Operation};
use crate::harness::machine::said;
use crate::harness::process::{Server, free_port};
use crate::options::Options;
use crate::probes::sqlite::PAYLOAD;

pub(crate) const POSTGRES: Peer = Peer { name: "PostgreSQL", start: |options| start(options).boxed() };

/// More would cost more in switching between them than they bring.
const CONNECTIONS: usize = 128;

/// How often, and after which pause, a server that starts is asked again.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(100);

const SCHEMA: &str = "
    CREATE TABLE task (id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY, state INT NOT NULL, body TEXT NOT NULL);
    CREATE INDEX task_pending ON task (id) WHERE state = 0;";
const CREATE: &str = "INSERT INTO task (state, body) VALUES (0, $1)";
const CLAIM: &str = "
    UPDATE task SET state = 1
    WHERE id = (SELECT id FROM task WHERE state = 0 ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED)
    RETURNING id, body";
const COMPLETE: &str = "UPDATE task SET state = 2 WHERE id = $1";

struct Postgres {
    server: Server,
    version: String,
    port: u16,
    sessions: Vec<Arc<Session>>,
}

/// A connection with its prepared statements.
struct Session {
    client: Client,
    create: Statement,
    claim: Statement,
    complete: Statement,
}

async fn start(options: Options) -> Result<Box<dyn Contender>> {
    let programs = programs()?;
    let folder = options.folder_for("postgres")?;
    let data = folder.join("data");
    let owner = owner(&folder).await?;
    let mut initdb = command(owner, &programs.join("initdb"));
    initdb
        .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-sync", "--pgdata"])
        .arg(&data);
    let made = initdb.output().await.context("initdb cannot be started")?;
    anyhow::ensure!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr).trim());

    let port = free_port()?;
    let mut postgres = command(owner, &programs.join("postgres"));
    postgres.arg("-D").arg(&data);
    for setting in settings(port) {
        postgres.args(["-c", &setting]);
    }
    let mut server = Server::start("PostgreSQL", postgres, &folder.join("log"))?;
    server.listening(port).await?;
    let version = said(&programs.join("postgres").to_string_lossy(), &["--version"]);
    let client = first_connection(port).await?;
    client.batch_execute(SCHEMA).await?;
    Ok(Box::new(Postgres { server, version, port, sessions: Vec::new() }))
}

/// Safe against a power cut, and enough memory and log that checkpoints do not hold up the work.
fn settings(port: u16) -> [String; 7] {
    [
        format!("port={port}"),
        "listen_addresses=127.0.0.1".to_owned(),
        "unix_socket_directories=".to_owned(),
        format!("max_connections={}", CONNECTIONS + 10),
        "synchronous_commit=on".to_owned(),
        "shared_buffers=256MB".to_owned(),
        "max_wal_size=4GB".to_owned(),
    ]
}

/// The newest PostgreSQL that Debian put aside, or the one on the path.
fn programs() -> Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    folders.sort();
    folders.reverse();
    folders.extend(std::env::split_paths(&path));
    let found = folders.into_iter().find(|folder| folder.join("initdb").exists());
    found.context("there is no initdb; on Debian: apt-get install postgresql-15")
}

/// PostgreSQL refuses to run as root: then the folder is given to another user.
async fn owner(folder: &Path) -> Result<Option<&'static str>> {
    if said("id", &["-u"]) != "0" {
        return Ok(None);
    }
    let user = if said("id", &["-u", "postgres"]).is_empty() { "nobody" } else { "postgres" };
    install::run(folder, "chown", &[user, "."]).await?;
    let reach = command(Some(user), Path::new("test")).arg("-w").arg(folder).status().await?;
    anyhow::ensure!(reach.success(), "the user {user} cannot reach {}", folder.display());
    Ok(Some(user))
}

/// A command, as another user if need be.
fn command(user: Option<&str>, program: &Path) -> Command {
    let Some(user) = user else { return Command::new(program) };
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={user}"), "--clear-groups".to_owned()]);
    command.arg(format!("--regid={}", said("id", &["-g", user])));
    command.args([OsStr::new("--"), program.as_os_str()]);
    command.kill_on_drop(true);
    command
}

async fn connect(port: u16) -> Result<Client> {
    let settings = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    tokio::spawn(async move {
        // An error of the connection comes to whoever uses the client.
        let _ = connection.await;
    });
    Ok(client)
}

/// It listens before it lets anybody in.
async fn first_connection(port: u16) -> Result<Client> {
    let mut tries = 0;
    loop {
        match connect(port).await {
            Ok(client) => return Ok(client),
            Err(error) if tries == TRIES => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        tries += 1;
    }
}

impl Session {
    async fn open(port: u16) -> Result<Self> {
        let client = connect(port).await?;
        let (create, claim, complete) =
            futures::try_join!(client.prepare(CREATE), client.prepare(CLAIM), client.prepare(COMPLETE))?;
        Ok(Self { client, create, claim, complete })
    }

    async fn cycle(&self) -> Result<()> {
        self.client.execute(&self.create, &[&PAYLOAD]).await?;
        let task: i64 = loop {
            // Others may have taken all that this statement's snapshot shows: then there is a newer one.
            if let Some(row) = self.client.query_opt(&self.claim, &[]).await? {
                break row.try_get(0)?;
            }
        };
        self.client.execute(&self.complete, &[&task]).await?;
        Ok(())
    }
}

#[async_trait]
impl Contender for Postgres {
    fn card(&self) -> Card {
        Card::peer(POSTGRES.name, Durability::PowerCut, self.version.clone(), self.server.metered())
    }

    async fn prepare(&mut self, in_flight: usize) -> Result<()> {
        while self.sessions.len() < in_flight.min(CONNECTIONS) {
            self.sessions.push(Arc::new(Session::open(self.port).await?));
        }
        Ok(())
    }

    async fn work(&mut self, plan: &Plan) -> Result<Work> {
        let sessions = self.sessions.clone();
        let operation: Operation = Arc::new(move |client| {
            let session = Arc::clone(&sessions[client % sessions.len()]);
            Box::pin(async move { session.cycle().await })
        });
        load::run(plan, operation).await
    }

    async fn stop(self: Box<Self>) -> Result<()> {
        // It ends when its clients have gone.
        drop(self.sessions);
        self.server.stop().await
    }
}
