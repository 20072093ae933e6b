//! A small HTTP client that costs little: one connection, one request at a time, bytes in and bytes out.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::Instant;

/// One keep-alive connection.
pub(crate) struct Connection {
    stream: BufReader<TcpStream>,
    line: Vec<u8>,
}

/// How the body of an answer ends.
enum Length {
    Bytes(usize),
    Chunks,
}

impl Connection {
    /// # Errors
    /// When nobody listens there.
    pub(crate) async fn open(address: SocketAddr) -> Result<Self> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("{address} does not answer"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(1024, stream), line: Vec::new() })
    }

    /// Sends a request and gives the whole body of its answer.
    ///
    /// # Errors
    /// When the connection breaks or the status is no success.
    pub(crate) async fn ask(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.ask_timed(request).await.map(|(body, _)| body)
    }

    /// Also tells when the last piece of the body was here: the end of a stream may follow later.
    ///
    /// # Errors
    /// As [`Connection::ask`].
    pub(crate) async fn ask_timed(&mut self, request: &[u8]) -> Result<(Vec<u8>, Instant)> {
        self.stream.write_all(request).await?;
        let (status, length) = self.head().await?;
        let (body, at) = self.body(length).await?;
        if status != 200 {
            bail!("status {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok((body, at))
    }

    /// Sends a request whose answer goes on and on, and returns at the first piece of it.
    ///
    /// # Errors
    /// When the connection breaks, the status is no success, or the answer is complete.
    pub(crate) async fn begin(&mut self, request: &[u8]) -> Result<Vec<u8>> {
        self.stream.write_all(request).await?;
        let (status, length) = self.head().await?;
        match length {
            Length::Chunks if status == 200 => self.chunk().await,
            length => {
                let (body, _) = self.body(length).await?;
                bail!("no stream but {status}: {}", String::from_utf8_lossy(&body));
            }
        }
    }

    /// Reads what comes and throws it away, until the other side closes the connection.
    pub(crate) async fn drain(&mut self) {
        let mut buffer = [0; 512];
        while matches!(self.stream.read(&mut buffer).await, Ok(count) if count > 0) {}
    }

    async fn head(&mut self) -> Result<(u16, Length)> {
        let text = self.line().await?;
        let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("this is no HTTP: {text:?}"))?;
        let mut length = Length::Bytes(0);
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                return Ok((status, length));
            }
            let Some((name, value)) = line.split_once(':') else { bail!("no header: {line}") };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = Length::Bytes(value.trim().parse()?),
                "transfer-encoding" => length = Length::Chunks,
                _ => {}
            }
        }
    }

    async fn body(&mut self, length: Length) -> Result<(Vec<u8>, Instant)> {
        let mut body = Vec::new();
        let mut at = Instant::now();
        match length {
            Length::Bytes(count) => {
                body.resize(count, 0);
                self.stream.read_exact(&mut body).await?;
                at = Instant::now();
            }
            Length::Chunks => loop {
                let chunk = self.chunk().await?;
                if chunk.is_empty() {
                    break;
                }
                at = Instant::now();
                body.extend(chunk);
            },
        }
        Ok((body, at))
    }

    /// The next chunk; the last one is empty.
    async fn chunk(&mut self) -> Result<Vec<u8>> {
        let size = usize::from_str_radix(&self.line().await?, 16)?;
        let mut chunk = vec![0; size];
        self.stream.read_exact(&mut chunk).await?;
        self.line().await?;
        Ok(chunk)
    }

    async fn line(&mut self) -> Result<String> {
        self.line.clear();
        if self.stream.read_until(b'\n', &mut self.line).await? == 0 {
            bail!("the other side closed the connection");
        }
        Ok(std::str::from_utf8(&self.line)?.trim_end().to_owned())
    }
}
