//! Room for the bodies of one instance's requests. Each is kept until it is answered, for it may have to be sent again;
//! and the memory that they take is the runner's, which the bounds of an instance do not hold for.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Body;
use skein_shared::{Code, Refusal, limits};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// What of them may be here at a time, bytes.
const ROOM: usize = 2 * limits::REQUEST;
/// How long a body waits for room.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Room(Arc<Semaphore>);

/// A body, which takes room until it is dropped.
pub(super) struct Held {
    pub(super) bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl Default for Room {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(ROOM)))
    }
}

impl Room {
    /// Reads a body to its end. One whose sender is not known yet may be less long, and holds no room for longer than
    /// others wait for it.
    ///
    /// # Errors
    /// `too_large`, `wait_timeout`, and `overloaded` when others take the room for too long.
    pub(super) async fn read<B>(&self, body: B, known: bool) -> Result<Held, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        if known {
            // An instance may be frozen in the middle of it.
            return self.whole(body, known).await;
        }
        tokio::time::timeout(PATIENCE, self.whole(body, known)).await.unwrap_or_else(|_| {
            let problem =
                "the body took too long; send it faster, or show SKEIN_TOKEN as `Authorization: Bearer`";
            Err(Refusal::new(Code::WaitTimeout, problem))
        })
    }

    async fn whole<B>(&self, body: B, known: bool) -> Result<Held, Refusal>
    where
        B: Body<Data = Bytes> + Unpin,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let most = if known { limits::REQUEST } else { limits::REQUEST_UNKNOWN };
        let (mut body, mut read) = (Limited::new(body, most), Vec::<u8>::new());
        let mut room = self.take(0).await?;
        while let Some(frame) = body.frame().await {
            let bytes = frame.map_err(|_| too_large(known))?.into_data().unwrap_or_default();
            room.merge(self.take(bytes.len()).await?);
            read.extend_from_slice(&bytes);
        }
        // As it grew it may have taken twice as much as it needs.
        Ok(Held { bytes: Bytes::from(read.into_boxed_slice()), _room: room })
    }

    async fn take(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Refusal> {
        let room = Arc::clone(&self.0).acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let room = tokio::time::timeout(PATIENCE, room).await.ok().and_then(Result::ok);
        room.ok_or_else(|| {
            let problem =
                format!("requests of {ROOM} bytes are under way; send this one again when some are answered");
            Refusal::new(Code::Overloaded, problem)
        })
    }
}

fn too_large(known: bool) -> Refusal {
    let problem = match known {
        true => format!(
            "the request is cut off or longer than {} bytes as JSON, in which quotes, line ends and what else is \
             escaped count for more than one byte; put what is longer into a file and say where it is",
            limits::REQUEST
        ),
        false => format!(
            "the request is cut off or longer than {} bytes; with the value of SKEIN_TOKEN as `Authorization: Bearer` \
             it may have {}",
            limits::REQUEST_UNKNOWN,
            limits::REQUEST
        ),
    };
    Refusal::new(Code::TooLarge, problem)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{Full, StreamBody};
    use hyper::body::Frame;

    use super::*;

    fn body(bytes: usize) -> Full<Bytes> {
        Full::new(Bytes::from(vec![b' '; bytes]))
    }

    #[tokio::test(start_paused = true)]
    async fn bodies_have_their_room_until_they_are_dropped() {
        let room = Room::default();
        let refused =
            async |bytes: usize| room.read(body(bytes), true).await.err().map(|refusal| refusal.code);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(room.read(body(limits::REQUEST), true).await.ok().unwrap());
        }
        assert_eq!((refused(0).await, refused(1).await), (None, Some(Code::Overloaded)));
        held.pop();
        assert_eq!(refused(limits::REQUEST).await, None);
        assert_eq!(refused(limits::REQUEST).await, None, "what was dropped takes room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_of_somebody_unknown_takes_no_room_for_long() {
        let room = Room::default();
        let stalled = StreamBody::new(futures::stream::pending::<Result<Frame<Bytes>, Infallible>>());
        assert_eq!(
            room.read(stalled, false).await.err().map(|refusal| refusal.code),
            Some(Code::WaitTimeout)
        );
    }

    #[tokio::test]
    async fn a_body_of_somebody_unknown_may_be_less_long() {
        let read = async |bytes: usize, known: bool| {
            let read = Room::default().read(body(bytes), known).await;
            read.map(|held| held.bytes.len()).map_err(|refusal| refusal.code)
        };
        for (most, known) in [(limits::REQUEST, true), (limits::REQUEST_UNKNOWN, false)] {
            assert_eq!(read(most, known).await, Ok(most));
            assert_eq!(read(most + 1, known).await, Err(Code::TooLarge));
        }
    }
}
