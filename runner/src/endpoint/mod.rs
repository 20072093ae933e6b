//! An instance's own door to the coordinators: a port, on the loopback or where the instance's container reaches it,
//! that demands the instance's secret and puts the instance's token in its place, so that the token never reaches the
//! instance.

mod answer;
mod gate;
mod gateway;
mod message;
mod port;
mod proxy;
mod repeats;
mod room;
pub mod tunnel;
mod upstreams;

use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::instance::ledger::Row;
use gate::Gate;
use proxy::Proxy;
use tunnel::Tunnels;
pub use upstreams::Upstreams;

/// Connections that one instance may have open.
const CONNECTIONS: usize = 64;
/// How long no connection is taken after one could not be.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a client may take to send a request's head.
const HEAD: Duration = Duration::from_secs(30);

/// The open door. Dropping it closes the port and ends what goes through.
pub struct Endpoint {
    port: u16,
    gate: Arc<Gate>,
    _serving: DropGuard,
}

impl Endpoint {
    /// Listens on the row's address and port, or on a new port if it has none yet.
    ///
    /// # Errors
    /// When the port is taken, or the address is none of this machine.
    pub async fn open(row: &Row, upstreams: Upstreams) -> std::io::Result<Self> {
        let listener = match row.port {
            0 => port::listen(row.address).await?,
            port => TcpListener::bind((row.address, port)).await?,
        };
        let port = listener.local_addr()?.port();
        let gate = Arc::new(Gate::default());
        let stop = CancellationToken::new();
        let tunnels = Tunnels::new(row.egress.clone(), &row.secret, stop.clone());
        let proxy = Proxy::new(row, upstreams, Arc::clone(&gate), tunnels);
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve(listener, Arc::new(proxy), stop.clone())));
        Ok(Self { port, gate, _serving: stop.drop_guard() })
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// Keeps answers back from now on: the instance is about to be frozen.
    pub fn hold(&self) {
        self.gate.hold();
    }

    /// Takes no request any more. Answers stay back, as in a freeze.
    pub fn shut(&self) {
        self.gate.shut();
    }

    /// Lets answers through again.
    pub fn release(&self) {
        self.gate.release();
    }

    /// Returns when the instance is owed no answer any more, at the latest after `limit`.
    pub async fn answered(&self, limit: Duration) {
        // Late is no failure: the answer then comes to a process that runs already.
        let _ = tokio::time::timeout(limit, self.gate.answered()).await;
    }
}

async fn serve(listener: TcpListener, proxy: Arc<Proxy>, stop: CancellationToken) {
    let connections = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            // No file is left to open, say. At once it would fail again, and take a processor.
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        // It only saves a delay; the connection works without.
        let _ = stream.set_nodelay(true);
        let proxy = Arc::clone(&proxy);
        let serving = async move {
            let service = service_fn(move |request| Arc::clone(&proxy).serve(request));
            let mut http = hyper::server::conn::http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(HEAD);
            // The client went away; nobody is left to tell.
            let _ = http.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
            drop(permit);
        };
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
    }
}
