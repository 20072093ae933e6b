//! A headless Chromium, driven by its own protocol over one websocket.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tokio_websockets::{ClientBuilder, Limits, MaybeTlsStream, Message, WebSocketStream};

/// Longest that anything may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(90);
/// The file in which the browser writes down where it listens is looked for this often.
const LOOK: Duration = Duration::from_millis(50);
/// Longest that its processes may take to be gone.
const FAREWELL: Duration = Duration::from_secs(5);

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A browser with one page. It ends when it is dropped.
pub struct Browser {
    child: Child,
    folder: TempDir,
    outgoing: tokio::sync::Mutex<SplitSink<Socket, Message>>,
    heard: Arc<Heard>,
    number: AtomicU64,
    session: String,
    loads: watch::Receiver<u64>,
}

/// What the browser has said.
#[derive(Default)]
struct Heard {
    answers: Mutex<HashMap<u64, oneshot::Sender<Value>>>,
    problems: Mutex<Vec<String>>,
    /// Requests to other hosts than this machine.
    outside: Mutex<Vec<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Browser {
    /// Starts the program that `SKEIN_TEST_CHROMIUM` names, or `chromium`.
    ///
    /// # Errors
    /// When it is not installed or does not get ready.
    pub async fn start() -> Result<Self> {
        let folder = TempDir::with_prefix("skein-browser-")?;
        let program = std::env::var("SKEIN_TEST_CHROMIUM").unwrap_or_else(|_| "chromium".to_owned());
        let child = Command::new(&program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--disable-dev-shm-usage", "--hide-scrollbars", "--remote-debugging-port=0"])
            .arg(format!("--user-data-dir={}", folder.path().display()))
            .arg("about:blank")
            .env("TMPDIR", folder.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{program} is missing; on Debian: apt-get install chromium"))?;
        let url =
            tokio::time::timeout(LIMIT, listens(folder.path())).await.context("it does not get ready")??;
        let (socket, _) = ClientBuilder::new()
            .uri(&url)?
            .limits(Limits::default().max_payload_len(Some(64 << 20)))
            .connect()
            .await?;
        let (outgoing, incoming) = socket.split();
        let (heard, (loaded, loads)) = (Arc::<Heard>::default(), watch::channel(0));
        tokio::spawn(listen(incoming, Arc::clone(&heard), loaded));
        let mut browser = Self {
            child,
            folder,
            outgoing: tokio::sync::Mutex::new(outgoing),
            heard,
            number: AtomicU64::new(0),
            session: String::new(),
            loads,
        };
        browser.attach().await?;
        Ok(browser)
    }

    async fn attach(&mut self) -> Result<()> {
        let made = self.ask("Target.createTarget", json!({ "url": "about:blank" })).await?;
        let attach = json!({ "targetId": made["targetId"], "flatten": true });
        let attached = self.ask("Target.attachToTarget", attach).await?;
        self.session = attached["sessionId"].as_str().context("no session")?.to_owned();
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.ask(&format!("{domain}.enable"), json!({})).await?;
        }
        // Keys go to the page as if its window were in front.
        self.ask("Emulation.setFocusEmulationEnabled", json!({ "enabled": true })).await?;
        self.size(1280, 900).await
    }

    /// Opens an address and waits until it is loaded.
    ///
    /// # Errors
    /// When it does not load.
    pub async fn open(&self, url: &str) -> Result<()> {
        self.loading(async || {
            let opened = self.ask("Page.navigate", json!({ "url": url })).await?;
            match opened["errorText"].as_str() {
                Some(error) => bail!("{url}: {error}"),
                None => Ok(()),
            }
        })
        .await
    }

    /// Does what leads to another page, and waits until that is loaded.
    ///
    /// # Errors
    /// When none is.
    pub async fn loading(&self, lead: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
        let mut loads = self.loads.clone();
        loads.mark_unchanged();
        lead().await?;
        tokio::time::timeout(LIMIT, loads.changed()).await.context("no page was loaded")??;
        Ok(())
    }

    /// Waits until the page of an address is there and loaded, which pages before it lead to by themselves.
    ///
    /// # Errors
    /// When it is not reached.
    pub async fn arrive(&self, url: &str) -> Result<()> {
        let is_there = format!("location.href === {} && performance.timing.loadEventEnd > 0", json!(url));
        let mut loads = self.loads.clone();
        loop {
            loads.mark_unchanged();
            // A page that is being left answers nothing.
            if self.eval(&is_there).await.is_ok_and(|there| there == json!(true)) {
                return Ok(());
            }
            let changed = tokio::time::timeout(LIMIT, loads.changed()).await;
            changed.with_context(|| format!("{url} was not reached"))??;
        }
    }

    /// What an expression is on the page; of a promise, what it becomes.
    ///
    /// # Errors
    /// When it fails.
    pub async fn eval(&self, expression: &str) -> Result<Value> {
        let asked = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let mut found = self.ask("Runtime.evaluate", asked).await?;
        if let Some(problem) = found.get("exceptionDetails") {
            bail!("{expression}: {problem}");
        }
        Ok(found["result"]["value"].take())
    }

    /// Waits until an expression is true on this page, which is asked at each change of it.
    ///
    /// # Errors
    /// When it does not come to be.
    pub async fn until(&self, expression: &str) -> Result<()> {
        let watched = format!(
            "new Promise(done => {{
                const look = () => {{ if ({expression}) {{ watcher.disconnect(); done(true); }} }};
                const watcher = new MutationObserver(look);
                watcher.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
                look();
            }})"
        );
        self.eval(&watched).await.with_context(|| format!("it never came to be that {expression}"))?;
        Ok(())
    }

    /// Presses a key: a letter, or one that has a name.
    ///
    /// # Errors
    /// When the browser does not answer.
    pub async fn press(&self, key: &str) -> Result<()> {
        let (code, number, text) = match key {
            "Enter" => ("Enter", 13, "\r"),
            "Tab" => ("Tab", 9, ""),
            "Escape" => ("Escape", 27, ""),
            letter => ("", 0, letter),
        };
        let mut event =
            json!({ "type": "keyDown", "key": key, "code": code, "windowsVirtualKeyCode": number });
        if !text.is_empty() {
            event["text"] = json!(text);
        }
        self.ask("Input.dispatchKeyEvent", event).await?;
        let up = json!({ "type": "keyUp", "key": key, "code": code, "windowsVirtualKeyCode": number });
        self.ask("Input.dispatchKeyEvent", up).await?;
        Ok(())
    }

    /// Presses the tabulator until an expression is true of what has the focus, named `it`.
    ///
    /// # Errors
    /// When the whole page was gone through.
    pub async fn tab_to(&self, expression: &str) -> Result<()> {
        for _ in 0..300 {
            self.press("Tab").await?;
            let is_there = format!("(it => {expression})(document.activeElement)");
            if self.eval(&is_there).await? == json!(true) {
                return Ok(());
            }
        }
        bail!("the tabulator does not lead to {expression}")
    }

    /// # Errors
    /// When the browser does not answer.
    pub async fn size(&self, width: u32, height: u32) -> Result<()> {
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500 });
        self.ask("Emulation.setDeviceMetricsOverride", metrics).await.map(|_| ())
    }

    /// # Errors
    /// When the browser does not answer.
    pub async fn scheme(&self, scheme: &str) -> Result<()> {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.ask("Emulation.setEmulatedMedia", features).await.map(|_| ())
    }

    /// A picture of the whole page.
    ///
    /// # Errors
    /// When it cannot be taken or written.
    pub async fn picture(&self, file: &Path) -> Result<()> {
        use base64::Engine;
        let taken = self
            .ask("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true }))
            .await?;
        let bytes = base64::engine::general_purpose::STANDARD
            .decode(taken["data"].as_str().context("no picture")?)?;
        Ok(std::fs::write(file, bytes)?)
    }

    /// What pages have complained of so far: errors of scripts, blocked or missing files.
    pub fn problems(&self) -> Vec<String> {
        lock(&self.heard.problems).clone()
    }

    /// What pages have asked other machines for.
    pub fn outside(&self) -> Vec<String> {
        lock(&self.heard.outside).clone()
    }

    async fn ask(&self, method: &str, params: Value) -> Result<Value> {
        let id = self.number.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        lock(&self.heard.answers).insert(id, answer);
        let mut question = json!({ "id": id, "method": method, "params": params });
        if !self.session.is_empty() {
            question["sessionId"] = json!(self.session);
        }
        self.outgoing.lock().await.send(Message::text(question.to_string())).await?;
        let mut answer = tokio::time::timeout(LIMIT, answered)
            .await
            .with_context(|| format!("{method} was not answered"))?
            .context("the browser has ended")?;
        match answer.get("error") {
            Some(error) => bail!("{method}: {error}"),
            None => Ok(answer["result"].take()),
        }
    }
}

/// Where the browser listens, as it writes it into its folder.
impl Drop for Browser {
    /// Ends the browser with the processes that it has started, which write into its folder until they are gone.
    #[expect(clippy::disallowed_methods, reason = "nothing can be awaited here")]
    fn drop(&mut self) {
        let Some(group) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) else { return };
        let _ = kill_process_group(group, Signal::KILL);
        let began = Instant::now();
        while std::fs::remove_dir_all(self.folder.path()).is_err() && began.elapsed() < FAREWELL {
            std::thread::sleep(LOOK);
        }
    }
}

async fn listens(folder: &Path) -> Result<String> {
    loop {
        if let Ok(text) = std::fs::read_to_string(folder.join("DevToolsActivePort"))
            && let Some((port, path)) = text.trim().split_once('\n')
        {
            return Ok(format!("ws://127.0.0.1:{port}{path}"));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn listen(mut incoming: SplitStream<Socket>, heard: Arc<Heard>, loaded: watch::Sender<u64>) {
    while let Some(Ok(message)) = incoming.next().await {
        let Some(said) = message.as_text().and_then(|text| serde_json::from_str::<Value>(text).ok()) else {
            continue;
        };
        if let Some(id) = said["id"].as_u64() {
            if let Some(asked) = lock(&heard.answers).remove(&id) {
                let _ = asked.send(said);
            }
            continue;
        }
        let params = &said["params"];
        match said["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => loaded.send_modify(|count| *count += 1),
            "Runtime.exceptionThrown" => lock(&heard.problems).push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled" if params["type"] == "error" => {
                lock(&heard.problems).push(params["args"].to_string());
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                lock(&heard.problems).push(params["entry"].to_string());
            }
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                let at_home =
                    ["http://127.0.0.1:", "data:", "about:"].iter().any(|home| url.starts_with(home));
                if !at_home {
                    lock(&heard.outside).push(url.to_owned());
                }
            }
            _ => {}
        }
    }
    // Whoever still asks shall not wait.
    lock(&heard.answers).clear();
}
