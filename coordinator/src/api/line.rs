//! A connection that can be cut. An answer that its peer does not take is not looked at any more until the peer takes
//! something, so it cannot be ended in any other way. Agents reach this door too, so it ends by itself when its peer
//! does not begin.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tonic::transport::server::Connected;

use crate::greeting::Greeting;

/// Cuts the connection that a request has come by; it is among the request's extensions.
#[derive(Clone, Debug)]
pub(super) struct Cut(CancellationToken);

impl Cut {
    pub(super) fn now(&self) {
        self.0.cancel();
    }
}

pub(super) struct Line {
    stream: Greeting<TcpStream>,
    cut: CancellationToken,
    is_cut: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl Line {
    pub(super) fn of(stream: TcpStream) -> Self {
        let cut = CancellationToken::new();
        let is_cut = Box::pin(cut.clone().cancelled_owned());
        Self { stream: Greeting::of(stream), cut, is_cut }
    }

    /// The stream, unless it is cut. Whoever waits for it is woken when it is.
    fn whole(&mut self, context: &mut Context<'_>) -> io::Result<Pin<&mut Greeting<TcpStream>>> {
        match self.is_cut.as_mut().poll(context) {
            Poll::Ready(()) => Err(io::ErrorKind::ConnectionAborted.into()),
            Poll::Pending => Ok(Pin::new(&mut self.stream)),
        }
    }
}

impl Connected for Line {
    type ConnectInfo = Cut;

    fn connect_info(&self) -> Cut {
        Cut(self.cut.clone())
    }
}

impl AsyncRead for Line {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.whole(context)?.poll_read(context, buffer)
    }
}

impl AsyncWrite for Line {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.whole(context)?.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.whole(context)?.poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole(context)?.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.whole(context)?.poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::greeting::LIMIT;

    #[tokio::test(start_paused = true)]
    async fn who_never_begins_keeps_no_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut line = Line::of(listener.accept().await.unwrap().0);
        let begun = Instant::now();
        let ended = line.read_u8().await.unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert!(begun.elapsed() <= LIMIT, "{:?}", begun.elapsed());
    }
}
