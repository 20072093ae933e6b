//! A connection of HTTP/2 that ends by itself when its peer does not begin: whoever never says anything is asked by
//! nobody whether it is there.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// What HTTP/2 begins with, bytes (RFC 9113, 3.4), and how long it may take. Whoever has sent it is asked every so
/// often whether it is there.
const PREFACE: usize = 24;
pub(crate) const LIMIT: Duration = Duration::from_secs(10);

pub(crate) struct Greeting<S> {
    stream: S,
    /// How much of the beginning is still to come, and when it is too late for that.
    begins: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> Greeting<S> {
    pub(crate) fn of(stream: S) -> Self {
        Self { stream, begins: Some((PREFACE, Box::pin(sleep(LIMIT)))) }
    }

    /// Takes note of what has come. Whether it is too late for what has not.
    fn is_too_late(&mut self, come: usize, context: &mut Context<'_>) -> bool {
        let Some((left, late)) = &mut self.begins else { return false };
        *left = left.saturating_sub(come);
        if *left == 0 {
            self.begins = None;
            return false;
        }
        late.as_mut().poll(context).is_ready()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeting<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(context, buffer);
        let come = buffer.filled().len() - before;
        if self.is_too_late(come, context) && outcome.is_pending() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        outcome
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeting<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_has_begun_may_be_quiet() {
        let (mut peer, stream) = duplex(PREFACE);
        let mut stream = Greeting::of(stream);
        peer.write_all(&[b'x'; PREFACE - 1]).await.unwrap();
        stream.read_exact(&mut [0; PREFACE - 1]).await.unwrap();
        assert!(stream.begins.is_some(), "a part of it is not enough");
        peer.write_u8(b'x').await.unwrap();
        stream.read_u8().await.unwrap();
        let quiet = tokio::time::timeout(LIMIT * 10, stream.read_u8()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn who_begins_and_does_not_go_on_keeps_no_connection() {
        let (mut peer, stream) = duplex(PREFACE);
        let mut stream = Greeting::of(stream);
        peer.write_u8(b'x').await.unwrap();
        stream.read_u8().await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
