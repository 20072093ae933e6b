//! The bodies of those who show their token within the body, which is read before anybody knows who has sent it. So
//! these are short, come soon, and are few at a time: together they take little memory, whoever sends them. Whoever
//! shows the token in the header is known before the body is read, and waits for no stranger.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::{BodyExt, Limited};
use skein_shared::{Code, Refusal, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

/// How many are read at a time.
const AT_A_TIME: usize = 64;
/// How long one waits until others are read, and how long it may take to arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Those that are being read. Cheap to clone.
#[derive(Clone)]
pub(super) struct Strangers(Arc<Semaphore>);

impl Default for Strangers {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(AT_A_TIME)))
    }
}

impl Strangers {
    /// Reads a body. It counts as being read until the permit is dropped, which is when its sender is known.
    ///
    /// # Errors
    /// `overloaded` when there are too many for too long, `wait_timeout` for a body that takes too long, `too_large`
    /// for one that is too long.
    pub(super) async fn read(&self, body: Body) -> Result<(Bytes, OwnedSemaphorePermit), Refusal> {
        let turn = timeout(PATIENCE, Arc::clone(&self.0).acquire_owned()).await.ok().and_then(Result::ok);
        let turn = turn.ok_or_else(|| {
            let problem =
                "too many show their token in the body just now; show it as `Authorization: Bearer`";
            Refusal::new(Code::Overloaded, problem).retry_after(1000)
        })?;
        let body = Limited::new(body, limits::REQUEST_UNKNOWN).collect();
        let body = timeout(PATIENCE, body).await.map_err(|_| {
            let problem = format!("the body took longer than {} seconds; send it faster", PATIENCE.as_secs());
            Refusal::new(Code::WaitTimeout, problem)
        })?;
        let body = body.map_err(|_| {
            let problem = format!(
                "the body is cut off or longer than {} bytes; with the token as `Authorization: Bearer` it may have {}",
                limits::REQUEST_UNKNOWN,
                limits::REQUEST
            );
            Refusal::new(Code::TooLarge, problem)
        })?;
        Ok((body.to_bytes(), turn))
    }
}

#[cfg(test)]
mod tests {
    use futures::stream::pending;

    use super::*;

    fn endless() -> Body {
        Body::from_stream(pending::<Result<Bytes, std::io::Error>>())
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_of_strangers_are_short_and_few_and_come_soon() {
        let strangers = Strangers::default();
        let refused = async |body: Body| strangers.read(body).await.unwrap_err().code;
        assert_eq!(refused(endless()).await, Code::WaitTimeout);
        assert_eq!(refused(Body::from(vec![b' '; limits::REQUEST_UNKNOWN + 1])).await, Code::TooLarge);
        let mut read = Vec::new();
        for _ in 0..AT_A_TIME {
            read.push(strangers.read(Body::from("{}")).await.unwrap());
        }
        assert_eq!(refused(Body::from("{}")).await, Code::Overloaded);
        read.pop();
        assert_eq!(strangers.read(Body::from("{}")).await.unwrap().0, "{}");
    }
}
