//! Connections of peers that are gone without a word: a laptop whose lid was shut, a network that was left. What is
//! written into such a connection is lost, and a wait whose answer it was would have been answered.

use std::time::Duration;

use rustix::io::Result;
use rustix::net::sockopt;
use tokio::net::TcpStream;

/// A peer that has said nothing for so long is asked whether it is there.
const IDLE: Duration = Duration::from_secs(15);
/// So often, and so many times without an answer.
const EVERY: Duration = Duration::from_secs(5);
const TRIES: u32 = 3;
/// What a peer has not acknowledged for so long ends the connection.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Sees to it that a connection ends within half a minute of its peer. One that cannot be told so is served as it is.
pub(super) fn watch(stream: &TcpStream) {
    if let Err(problem) = set(stream) {
        tracing::debug!(%problem, "a connection is not watched");
    }
}

fn set(stream: &TcpStream) -> Result<()> {
    sockopt::set_tcp_keepidle(stream, IDLE)?;
    sockopt::set_tcp_keepintvl(stream, EVERY)?;
    sockopt::set_tcp_keepcnt(stream, TRIES)?;
    sockopt::set_socket_keepalive(stream, true)?;
    let millis = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, millis)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_connection_ends_within_half_a_minute_of_its_peer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        watch(&stream);
        assert!(sockopt::socket_keepalive(&stream).unwrap());
        let probed = sockopt::tcp_keepidle(&stream).unwrap()
            + sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
        assert!(probed <= Duration::from_secs(30), "{probed:?}");
        assert!((1..=30_000).contains(&sockopt::tcp_user_timeout(&stream).unwrap()));
    }
}
