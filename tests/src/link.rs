//! A link between two programs that can be cut, and can keep answers back. Its near end stays where it is when the
//! program at its far end comes back somewhere else.

use std::io;
use std::path::PathBuf;
use std::pin::pin;

use anyhow::Result;
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;

/// What a link does with what goes through it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passage {
    Open,
    /// Requests arrive, and whoever is answered loses the connection instead.
    NoAnswers,
    /// Whatever is sent, either way, waits.
    Held,
    /// Nothing passes: connections end, and new ones do too.
    Cut,
}

/// How often something has come through, or has not.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    /// Parts of requests that have arrived at the far end.
    asked: u64,
    /// Answers that were kept back.
    lost: u64,
    /// Connections that were ended as soon as they were made.
    refused: u64,
}

/// One end of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Socket(PathBuf),
    /// `HOST:PORT`
    Port(String),
}

trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<W: AsyncRead + AsyncWrite + Send + Unpin> Wire for W {}

enum Listener {
    Socket(UnixListener),
    Port(TcpListener),
}

/// Ends with the test that made it.
pub struct Link {
    near: End,
    far: watch::Sender<Option<End>>,
    passage: watch::Sender<Passage>,
    /// Changes when the connections of that time fall silent.
    silence: watch::Sender<()>,
    traffic: watch::Sender<Traffic>,
    /// Holds the socket of the near end.
    _folder: Option<TempDir>,
}

impl Link {
    /// A socket that leads to another one.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn to_socket(target: PathBuf) -> Result<Self> {
        let folder = TempDir::with_prefix("skein-link-")?;
        let path = folder.path().join("link.sock");
        let listener = Listener::Socket(UnixListener::bind(&path)?);
        Ok(Self::begin(listener, End::Socket(path), Some(End::Socket(target)), Some(folder)))
    }

    /// A port that leads nowhere until it is told where to.
    ///
    /// # Errors
    /// When none is free.
    pub async fn port() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let near = End::Port(listener.local_addr()?.to_string());
        Ok(Self::begin(Listener::Port(listener), near, None, None))
    }

    fn begin(listener: Listener, near: End, far: Option<End>, folder: Option<TempDir>) -> Self {
        let link = Self {
            near,
            far: watch::Sender::new(far),
            passage: watch::Sender::new(Passage::Open),
            silence: watch::Sender::new(()),
            traffic: watch::Sender::default(),
            _folder: folder,
        };
        let (far, passing) = (link.far.subscribe(), link.passage.subscribe());
        tokio::spawn(serve(listener, far, passing, link.silence.subscribe(), link.traffic.clone()));
        link
    }

    /// The near end, as a URL of Redis.
    pub fn redis(&self) -> String {
        match &self.near {
            End::Socket(path) => format!("unix://{}", path.display()),
            End::Port(address) => format!("redis://{address}"),
        }
    }

    /// The near end, as `HOST:PORT` or a path.
    pub fn address(&self) -> String {
        match &self.near {
            End::Socket(path) => path.display().to_string(),
            End::Port(address) => address.clone(),
        }
    }

    /// Leads to this `HOST:PORT` from now on. Connections that led elsewhere end.
    pub fn leads_to(&self, address: &str) {
        self.far.send_replace(Some(End::Port(address.to_owned())));
    }

    /// Leads to this socket from now on. Connections that led elsewhere end.
    pub fn leads_to_socket(&self, path: PathBuf) {
        self.far.send_replace(Some(End::Socket(path)));
    }

    /// From now on requests arrive, and whoever is answered loses the connection instead.
    pub fn lose_answers(&self) {
        self.passage.send_replace(Passage::NoAnswers);
    }

    /// Waits until a request has arrived at the far end, since the link was made.
    pub async fn asked(&self) {
        // The link itself holds a sender, so this cannot fail.
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.asked > 0).await;
    }

    /// Waits until one more answer is lost: whoever asked then asks again.
    pub async fn loses_an_answer(&self) {
        let before = self.traffic.borrow().lost;
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.lost > before).await;
    }

    /// Waits until one more connection is refused, while the link is cut.
    pub async fn refuses_a_connection(&self) {
        let before = self.traffic.borrow().refused;
        let _ = self.traffic.subscribe().wait_for(|traffic| traffic.refused > before).await;
    }

    /// From now on whatever is sent, either way, waits until the link is healed.
    pub fn hold_back(&self) {
        self.passage.send_replace(Passage::Held);
    }

    /// Nothing passes any more, either way, on the connections that are there, which stay. New ones are as before.
    pub fn silence(&self) {
        self.silence.send_replace(());
    }

    /// From now on nothing passes.
    pub fn cut(&self) {
        self.passage.send_replace(Passage::Cut);
    }

    pub fn heal(&self) {
        self.passage.send_replace(Passage::Open);
    }
}

/// Takes connections until the link is gone.
async fn serve(
    listener: Listener,
    far: watch::Receiver<Option<End>>,
    passing: watch::Receiver<Passage>,
    silence: watch::Receiver<()>,
    traffic: watch::Sender<Traffic>,
) {
    let mut alive = passing.clone();
    loop {
        let near = tokio::select! {
            near = listener.accept() => near,
            // The sender is gone, and with it the link.
            _ = alive.wait_for(|_| false) => return,
        };
        let Ok(near) = near else { return };
        let (mut leads, mut passing, traffic) = (far.clone(), passing.clone(), traffic.clone());
        let mut silence = silence.clone();
        silence.mark_unchanged();
        tokio::spawn(async move {
            if *passing.borrow_and_update() == Passage::Cut {
                traffic.send_modify(|traffic| traffic.refused += 1);
                return;
            }
            let Some(far) = leads.borrow_and_update().clone() else { return };
            let mut carried = pin!(async {
                if let Ok(far) = connect(&far).await {
                    carry(near, far, passing, &traffic).await;
                }
            });
            let is_silent = tokio::select! {
                () = &mut carried => false,
                // It leads elsewhere from now on.
                _ = leads.changed() => false,
                fell = silence.changed() => fell.is_ok(),
            };
            if is_silent {
                // Both of its ends are kept, and nobody carries what they say.
                let _ = leads.changed().await;
            }
        });
    }
}

impl Listener {
    async fn accept(&self) -> io::Result<Box<dyn Wire>> {
        Ok(match self {
            Self::Socket(listener) => Box::new(listener.accept().await?.0),
            Self::Port(listener) => Box::new(quick(listener.accept().await?.0)?),
        })
    }
}

async fn connect(to: &End) -> io::Result<Box<dyn Wire>> {
    Ok(match to {
        End::Socket(path) => Box::new(UnixStream::connect(path).await?),
        End::Port(address) => Box::new(quick(TcpStream::connect(address).await?)?),
    })
}

fn quick(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Carries bytes both ways until one side ends, an answer is to be lost, or the link is cut or gone.
async fn carry(
    near: Box<dyn Wire>,
    far: Box<dyn Wire>,
    mut passing: watch::Receiver<Passage>,
    traffic: &watch::Sender<Traffic>,
) {
    let (from_client, to_client) = tokio::io::split(near);
    let (from_server, to_server) = tokio::io::split(far);
    let asked = |arrived| traffic.send_modify(|traffic| traffic.asked += u64::from(arrived));
    let answered = |arrived: bool| traffic.send_modify(|traffic| traffic.lost += u64::from(!arrived));
    let asks = pass(from_client, to_server, passing.clone(), |_| true, asked);
    let answers = pass(from_server, to_client, passing.clone(), |passage| passage == Passage::Open, answered);
    tokio::select! {
        () = asks => {}
        () = answers => {}
        _ = passing.wait_for(|passage| *passage == Passage::Cut) => {}
    }
}

/// Carries bytes one way until its end, or until something comes that may not pass. Notes of each part whether it
/// arrived.
async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut passing: watch::Receiver<Passage>,
    may: impl Fn(Passage) -> bool,
    note: impl Fn(bool),
) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let passage = passing.wait_for(|passage| *passage != Passage::Held).await.map(|passage| *passage);
        let arrived = passage.is_ok_and(&may) && to.write_all(&bytes[..count]).await.is_ok();
        note(arrived);
        if !arrived {
            return;
        }
    }
}
