//! Mutual TLS with another node, from both sides, so that either can say why it did not come about.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::distrust;
use super::identity::{Identity, host};
use crate::alarms::{Alarms, Kind};
use crate::greeting::Greeting;

/// How long the other may take for its part.
pub(super) const LIMIT: Duration = Duration::from_secs(3);
/// Handshakes at a time: a stranger may begin as many as it likes.
const AT_ONCE: usize = 64;
/// A listener that cannot accept, for want of file descriptors say, is tried again after this.
const AGAIN: Duration = Duration::from_millis(100);

/// A connection to a node that has shown its certificate.
type Trusted = Greeting<TlsStream<TcpStream>>;

/// Those who have come in and shown a certificate of the authority. One that dies then is not waited for either.
pub(super) fn incoming(
    listener: TcpListener,
    identity: &Identity,
    alarms: Alarms,
    stop: CancellationToken,
) -> impl Stream<Item = io::Result<Trusted>> + use<> {
    let (trusted, stream) = mpsc::channel(16);
    let acceptor = TlsAcceptor::from(Arc::clone(&identity.server));
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = accept(listener, acceptor, trusted.clone(), alarms) => {}
        }
    });
    ReceiverStream::new(stream)
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    trusted: mpsc::Sender<io::Result<Trusted>>,
    alarms: Alarms,
) {
    let slots = Arc::new(Semaphore::new(AT_ONCE));
    loop {
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(problem) => {
                warn!(%problem, "no coordinator can come in");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
        };
        let (acceptor, trusted, alarms) = (acceptor.clone(), trusted.clone(), alarms.clone());
        tokio::spawn(async move {
            let _ = stream.set_nodelay(true);
            let shaken = timeout(LIMIT, acceptor.accept(stream)).await;
            drop(slot);
            match shaken {
                Ok(Ok(stream)) => drop(trusted.send(Ok(Greeting::of(stream))).await),
                Ok(Err(error)) => {
                    // Without a reason of TLS it only went away.
                    if let Some(reason) = distrust::reason(&error) {
                        let problem = format!("somebody at {} would be a coordinator: {reason}", from.ip());
                        alarms.raise(Kind::TurnedAway, &from.ip().to_string(), &problem);
                    }
                }
                // Whoever says nothing at all probes the port.
                Err(_) => {}
            }
        });
    }
}

/// Greets a node to see whether the two trust one another; a connection of gRPC would not say why they do not.
/// `Ok(Some(..))` is the reason for which they do not.
///
/// # Errors
/// When the node is not there.
pub(super) async fn greet(identity: &Identity, address: &str) -> io::Result<Option<String>> {
    let name = ServerName::try_from(host(address).to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(Arc::clone(&identity.client));
    let greeting = async {
        let stream = TcpStream::connect(address).await?;
        let mut stream = connector.connect(name, stream).await?;
        // In TLS 1.3 the other looks at our certificate after our part is over: its first word tells.
        stream.read_u8().await
    };
    match timeout(LIMIT, greeting).await {
        Ok(Ok(_)) => Ok(None),
        Ok(Err(error)) => match distrust::reason(&error) {
            Some(reason) => Ok(Some(reason)),
            None => Err(error),
        },
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use secrecy::ExposeSecret;
    use skein_shared::time::Timestamp;
    use tokio::io::AsyncWriteExt;
    use tokio_stream::StreamExt;

    use super::super::authority::{Authority, Host};
    use super::super::identity::{CA, CERTIFICATE, KEY};
    use super::*;
    use crate::entity::Clock;

    fn identity(authority: &Authority, trusts: &str, now: Timestamp) -> Identity {
        let folder = tempfile::tempdir().unwrap();
        let issued = authority.issue(&[Host::parse("127.0.0.1").unwrap()], now, 1).unwrap();
        let trusted = format!("{}{trusts}", authority.certificate());
        for (name, text) in [
            (CA, trusted.as_str()),
            (CERTIFICATE, issued.certificate.as_str()),
            (KEY, issued.key.expose_secret()),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        let mode = std::fs::Permissions::from_mode(0o600);
        std::fs::set_permissions(folder.path().join(KEY), mode).unwrap();
        Identity::load(folder.path(), "127.0.0.1", now).unwrap()
    }

    /// A node that says a word to everybody whom it trusts.
    async fn listening(identity: &Identity) -> (String, CancellationToken) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let stop = CancellationToken::new();
        let mut trusted = Box::pin(incoming(listener, identity, Alarms::default(), stop.clone()));
        tokio::spawn(async move {
            while let Some(Ok(mut stream)) = trusted.next().await {
                let _ = stream.write_all(b"hello").await;
            }
        });
        (address, stop)
    }

    #[tokio::test]
    async fn who_is_trusted_and_never_begins_keeps_no_connection() {
        let now = Clock::start().wall();
        let us = identity(&Authority::create(now).unwrap().0, "", now);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut trusted = Box::pin(incoming(listener, &us, Alarms::default(), CancellationToken::new()));
        let connector = TlsConnector::from(Arc::clone(&us.client));
        let stream = TcpStream::connect(address).await.unwrap();
        let _peer = connector.connect(ServerName::try_from("127.0.0.1").unwrap(), stream).await.unwrap();
        let mut stream = trusted.next().await.unwrap().unwrap();
        tokio::time::pause();
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn both_sides_say_why_they_do_not_trust_one_another() {
        let now = Clock::start().wall();
        let (ours, _) = Authority::create(now).unwrap();
        let (theirs, _) = Authority::create(now).unwrap();
        let (us, stranger) = (identity(&ours, "", now), identity(&theirs, "", now));
        let (address, stop) = listening(&us).await;
        assert_eq!(greet(&us, &address).await.unwrap(), None);
        let refused = greet(&stranger, &address).await.unwrap().unwrap();
        assert!(refused.contains("its certificate is from another authority"), "{refused}");
        // One that trusts us, and is not trusted.
        let eager = identity(&theirs, ours.certificate(), now);
        let refused = greet(&eager, &address).await.unwrap().unwrap();
        assert!(refused.contains("does not trust the certificate of this node"), "{refused}");

        // One that was issued long ago is not good any more, whatever it was when it was loaded.
        let long_ago = now - Duration::from_secs(40 * 86_400);
        let expired = identity(&ours, "", long_ago);
        let refused = greet(&expired, &address).await.unwrap().unwrap();
        assert!(refused.contains("finds the certificate of this node expired"), "{refused}");
        let (elsewhere, other) = listening(&expired).await;
        let refused = greet(&us, &elsewhere).await.unwrap().unwrap();
        assert!(refused.contains("its certificate has expired"), "{refused}");

        let plain = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = plain.local_addr().unwrap().to_string();
        tokio::spawn(async move {
            let (mut stream, _) = plain.accept().await.unwrap();
            let _ = stream.write_all(b"\0\0\x12\x04\0\0\0\0\0\0\x03\0\0\0\x64\0\x04\0\0\xff\xff").await;
            let _ = stream.read_u8().await;
        });
        let refused = greet(&us, &address).await.unwrap().unwrap();
        assert!(refused.contains("plain text"), "{refused}");
        stop.cancel();
        other.cancel();
    }
}
