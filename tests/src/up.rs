//! `skein up` as a program of its own.

use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use tokio::time::Instant;

use crate::process::{self, Signal};
use crate::program::{Ground, Program};

/// How long a start may take on a busy machine. It ends as soon as the node is ready.
const START: Duration = Duration::from_secs(120);

/// How often to look for what no event tells: at first, and when it has not come for seconds.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How long to wait until the next look for what has been awaited for some time. Many a look is a program of its own,
/// which takes a processor from what it looks for.
pub(crate) fn until_next_look(awaited: Duration) -> Duration {
    (awaited / 20).clamp(LOOK, LOOK_AGAIN)
}

/// The files in a folder, and in those within it, that have a text in them: a secret, for example.
///
/// # Errors
/// When one cannot be read.
pub fn files_with(folder: &Path, text: &str) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files_with(&path, text)?);
        } else if path.is_file() && std::fs::read(&path)?.windows(text.len()).any(|at| at == text.as_bytes())
        {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}

/// Where a program of this workspace was built.
pub fn binary(name: &str) -> PathBuf {
    let me = std::env::current_exe().expect("a program knows its own path");
    // A test lies in target/PROFILE/deps, a program beside what it looks for.
    let found = me.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.exists());
    found.unwrap_or_else(|| panic!("{name} is missing; run `cargo build --workspace --bins` first"))
}

/// A running node with its data folder. It is killed when dropped.
pub struct Up {
    program: Program,
    pub folder: Folder,
    pub mcp: String,
    pub ingress: String,
    pub grpc: String,
    /// Where the other coordinators come in, if there can be any.
    pub node: Option<String>,
}

/// The folder that outlives a node's process, what its processes find in their environment, and where they are started.
pub struct Folder {
    root: TempDir,
    ground: Ground,
    variables: Vec<(String, String)>,
}

impl Folder {
    pub fn new() -> Result<Self> {
        Ok(Self::of(TempDir::with_prefix("skein-test-")?))
    }

    /// One on the disk of another folder.
    pub fn within(folder: &Path) -> Result<Self> {
        Ok(Self::of(TempDir::with_prefix_in("skein-test-", folder)?))
    }

    fn of(root: TempDir) -> Self {
        Self { root, ground: Ground::default(), variables: Vec::new() }
    }

    /// The same for processes that are started in a way of their own.
    #[must_use]
    pub fn on(mut self, ground: &Ground) -> Self {
        self.ground = ground.clone();
        self
    }

    /// The same with a variable for each process that is started in it.
    #[must_use]
    pub fn with_variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with these settings for the node that is started in it.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn configured(self, settings: &str) -> Result<Self> {
        std::fs::create_dir_all(self.data())?;
        std::fs::write(self.data().join("config.toml"), settings)?;
        Ok(self)
    }

    pub fn data(&self) -> PathBuf {
        self.root.path().join("data")
    }

    pub fn path(&self) -> &Path {
        self.root.path()
    }
}

impl Up {
    pub async fn start() -> Result<Self> {
        Self::start_in(Folder::new()?, &["--no-runner"]).await
    }

    /// Starts in a folder, which may hold the data of an earlier node.
    pub async fn start_in(folder: Folder, arguments: &[&str]) -> Result<Self> {
        Self::launch("up", folder, arguments).await
    }

    /// Starts `skein serve` in a folder.
    pub async fn serve_in(folder: Folder, arguments: &[&str]) -> Result<Self> {
        Self::launch("serve", folder, arguments).await
    }

    async fn launch(command: &str, folder: Folder, arguments: &[&str]) -> Result<Self> {
        let data = folder.data();
        let endpoint = data.join("endpoint.json");
        let _ = std::fs::remove_file(&endpoint);
        let mut program = Command::new(binary("skein"));
        program
            .arg(command)
            .arg("--data")
            .arg(&data)
            .args(addresses(arguments))
            .args(arguments)
            .envs(folder.variables.iter().map(|(name, value)| (name, value)))
            .current_dir(folder.path());
        let mut program = folder.ground.start(program, &folder.path().join("log")).await?;
        let endpoint = tokio::time::timeout(START, ready(&mut program, &endpoint))
            .await
            .context("the node did not get ready")?
            .with_context(|| std::fs::read_to_string(folder.path().join("log")).unwrap_or_default())?;
        let address = |name: &str| {
            endpoint[name].as_str().map(str::to_owned).with_context(|| format!("endpoint.json lacks {name}"))
        };
        Ok(Self {
            mcp: format!("http://{}/mcp", address("http")?),
            ingress: format!("http://{}", address("ingress")?),
            grpc: address("grpc")?,
            node: endpoint["node"].as_str().map(str::to_owned),
            program,
            folder,
        })
    }

    pub fn data(&self) -> PathBuf {
        self.folder.data()
    }

    pub fn id(&self) -> Option<u32> {
        self.program.id()
    }

    /// Stops the process, and waits until it stands still.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn freeze(&self) -> Result<()> {
        process::freeze(self.id().context("the node has ended")?).await
    }

    /// Lets the process go on that was frozen.
    ///
    /// # Errors
    /// When it has ended.
    pub fn thaw(&self) -> Result<()> {
        process::thaw(self.id().context("the node has ended")?)
    }

    /// Ends the process the hard way, as a crash does, and gives the folder back.
    pub async fn kill(mut self) -> Result<Folder> {
        self.program.kill().await?;
        Ok(self.folder)
    }

    /// Asks the process to end and expects it to do so cleanly.
    pub async fn terminate(mut self) -> Result<Folder> {
        let id = self.program.id().context("the node has ended already")?;
        process::signal(id, Signal::TERM)?;
        let status =
            tokio::time::timeout(START, self.program.wait()).await.context("the node did not drain")??;
        ensure!(status.success(), "the node ended with {status}");
        Ok(self.folder)
    }

    /// Asks the process to end, and once it has said what that takes, with another signal again. Gives how it ended.
    pub async fn ask_twice(mut self) -> Result<(Folder, ExitStatus)> {
        let id = self.program.id().context("the node has ended already")?;
        process::signal(id, Signal::TERM)?;
        let said = async || Ok(self.log()?.contains("asked again, it ends at once").then_some(()));
        self.until("it has said what that takes", said).await?;
        process::signal(id, Signal::INT)?;
        let status = self.ended().await?;
        Ok((self.folder, status))
    }

    /// Waits until the process has ended by itself.
    pub async fn ended(&mut self) -> Result<ExitStatus> {
        tokio::time::timeout(START, self.program.wait()).await.context("the node goes on")?
    }

    /// Whether the process has ended, by itself or by a signal.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn has_ended(&mut self) -> Result<bool> {
        self.program.has_ended()
    }

    /// What the node has written to its log.
    pub fn log(&self) -> Result<String> {
        Ok(std::fs::read_to_string(self.folder.path().join("log"))?)
    }

    /// Waits until the node's log has a text: a thread of its own writes what was logged a moment ago.
    ///
    /// # Errors
    /// When it does not come, with the log.
    pub async fn has_logged(&self, text: &str) -> Result<()> {
        let logged = async || Ok(self.log()?.contains(text).then_some(()));
        let waited = self.until(&format!("the log says `{text}`"), logged).await;
        waited.with_context(|| self.log().unwrap_or_default())
    }

    /// Runs the command line against this node and gives all that came of it.
    pub async fn run(&self, arguments: &[&str]) -> Result<Output> {
        self.run_with(arguments, "").await
    }

    /// The same with something to read.
    async fn run_with(&self, arguments: &[&str], input: &str) -> Result<Output> {
        let mut command = Command::new(binary("skein"));
        command.args(arguments).arg("--data").arg(self.data()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut stdin = child.stdin.take().context("it has no input")?;
        // It may end without reading.
        let _ = stdin.write_all(input.as_bytes()).await;
        drop(stdin);
        Ok(child.wait_with_output().await?)
    }

    /// Runs the command line against this node and gives what it prints.
    pub async fn skein(&self, arguments: &[&str]) -> Result<String> {
        self.skein_with(arguments, "").await
    }

    /// The same with something to read.
    pub async fn skein_with(&self, arguments: &[&str], input: &str) -> Result<String> {
        printed(arguments, self.run_with(arguments, input).await?)
    }

    /// Looks at the node until it shows what is awaited.
    pub async fn until<T>(&self, what: &str, look: impl AsyncFn() -> Result<Option<T>>) -> Result<T> {
        let began = Instant::now();
        let found = tokio::time::timeout(START, async {
            loop {
                if let Some(found) = look().await? {
                    return Ok(found);
                }
                tokio::time::sleep(until_next_look(began.elapsed())).await;
            }
        });
        found.await.with_context(|| format!("{what}: this did not come about"))?
    }

    /// The first row of a list that is as wanted, as soon as there is one.
    pub async fn row(&self, view: &str, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        self.until(view, async || {
            let printed = self.skein(&[view, "list", "--json"]).await?;
            let rows = printed.lines().map(serde_json::from_str).collect::<Result<Vec<Value>, _>>()?;
            Ok(rows.into_iter().find(|row| wanted(row)))
        })
        .await
    }

    /// Issues a token; it is the last line of what the command prints.
    pub async fn token(&self, role: &str, name: &str) -> Result<String> {
        let printed = self.skein(&["token", "issue", "--role", role, "--name", name]).await?;
        printed.lines().last().map(str::to_owned).context("no token was printed")
    }
}

/// Runs the command line as on another machine, where there is no data folder of a node, and gives what it prints.
///
/// # Errors
/// When it does not end well.
pub async fn skein_elsewhere(arguments: &[&str]) -> Result<String> {
    printed(arguments, Command::new(binary("skein")).args(arguments).output().await?)
}

fn printed(arguments: &[&str], output: Output) -> Result<String> {
    if !output.status.success() {
        let (arguments, problem) = (arguments.join(" "), String::from_utf8_lossy(&output.stderr));
        bail!("skein {arguments} ended with {}: {problem}", output.status);
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// Free ports for the listeners that the test gives no address.
fn addresses<'a>(arguments: &[&str]) -> Vec<&'a str> {
    let given = |flag: &&str| !arguments.contains(flag);
    let free = ["--listen", "--grpc", "--ingress"].into_iter().filter(given);
    free.flat_map(|flag| [flag, "127.0.0.1:0"]).collect()
}

/// Waits until the node has written where it listens, which it does once it is ready.
async fn ready(program: &mut Program, endpoint: &Path) -> Result<Value> {
    loop {
        if program.has_ended()? {
            bail!("the node ended with {}", program.wait().await?);
        }
        if let Ok(text) = std::fs::read_to_string(endpoint)
            && let Ok(endpoint) = serde_json::from_str(&text)
        {
            return Ok(endpoint);
        }
        tokio::time::sleep(LOOK).await;
    }
}
