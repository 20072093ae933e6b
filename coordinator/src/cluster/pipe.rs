//! One stream to another node, for everything that is forwarded to its entities: whatever comes together goes in one
//! message, so that many requests cost little more than one.
//!
//! Whoever stops waiting takes back what it has asked: what still waits here is not sent, and what was sent is
//! withdrawn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use skein_proto::v1::peer_client::PeerClient;
use skein_proto::v1::{ForwardBatch, ForwardReplies, ForwardReply, ForwardRequest, Forwarded, Replied};
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;
use tonic::{Request, Streaming};

use super::member::Member;
use super::peers::{Secret, Silence, refused, silent};

/// Requests that may wait for the next message; beyond them callers wait for a place.
const QUEUE: usize = 1024;
/// Requests in one message, at most.
const BATCH: usize = 256;
/// Bytes in one message, unless a single request has more: far below what a message may have.
const BATCH_BYTES: usize = 4 << 20;
/// Messages on their way.
const UNDER_WAY: usize = 4;

type Answer = Result<ForwardReply, Silence>;

struct Asked {
    number: u64,
    request: ForwardRequest,
    answer: oneshot::Sender<Answer>,
}

/// One who waits for an answer, and takes the question back when it stops.
struct Asker<'a> {
    number: u64,
    answered: oneshot::Receiver<Answer>,
    given_up: &'a mpsc::UnboundedSender<u64>,
}

impl Drop for Asker<'_> {
    fn drop(&mut self) {
        if !self.answered.is_terminated() {
            // First, so that what was not sent yet is known not to be wanted.
            self.answered.close();
            let _ = self.given_up.send(self.number);
        }
    }
}

/// A handle to the stream, which ends with the last handle.
#[derive(Clone)]
pub(super) struct Pipe {
    node: Arc<Member>,
    requests: mpsc::Sender<Asked>,
    given_up: mpsc::UnboundedSender<u64>,
    /// The number of the request that comes next.
    next: Arc<AtomicU64>,
}

impl Pipe {
    /// Begins a stream to a node; what is asked meanwhile waits for it.
    pub(super) fn open(node: &Member, client: PeerClient<Channel>, secret: &Secret) -> Self {
        let (requests, queue) = mpsc::channel(QUEUE);
        let (given_up, withdrawals) = mpsc::unbounded_channel();
        let node = Arc::new(node.clone());
        tokio::spawn(run(Arc::clone(&node), client, secret.clone(), Questions { queue, withdrawals }));
        Self { node, requests, given_up, next: Arc::default() }
    }

    /// Whether nothing more can be asked on it.
    pub(super) fn is_over(&self) -> bool {
        self.requests.is_closed()
    }

    /// # Errors
    /// When the stream ends before the answer is there.
    pub(super) async fn ask(&self, request: ForwardRequest) -> Answer {
        let (answer, answered) = oneshot::channel();
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if self.requests.send(Asked { number, request, answer }).await.is_err() {
            return Err(ended(&self.node));
        }
        let mut asker = Asker { number, answered, given_up: &self.given_up };
        (&mut asker.answered).await.unwrap_or_else(|_| Err(ended(&self.node)))
    }
}

fn ended(node: &Member) -> Silence {
    silent(node, "the stream to it ended")
}

/// Those who wait for answers, by the numbers of their requests.
#[derive(Clone, Default)]
struct Waiting(Arc<Mutex<HashMap<u64, oneshot::Sender<Answer>>>>);

impl Waiting {
    /// Keeps those who wait for the answers to requests that go together.
    fn note(&self, together: Vec<Asked>) -> Vec<Forwarded> {
        let mut waiting = self.lock();
        let note = |Asked { number, request, answer }| {
            waiting.insert(number, answer);
            Forwarded { number, request: Some(request) }
        };
        together.into_iter().map(note).collect()
    }

    /// Forgets those who have stopped waiting. Leaves out what was not sent, and what was answered meanwhile.
    fn withdraw(&self, given_up: Vec<u64>) -> Vec<u64> {
        let mut waiting = self.lock();
        given_up.into_iter().filter(|number| waiting.remove(number).is_some()).collect()
    }

    /// Gives each answer to whoever waits for it.
    fn answer(&self, node: &Member, replies: Vec<Replied>) {
        let mut waiting = self.lock();
        for Replied { number, reply, problem } in replies {
            if let Some(one) = waiting.remove(&number) {
                // Whoever waited may have given up.
                let _ = one.send(reply.ok_or_else(|| silent(node, &problem)));
            }
        }
    }

    fn answer_all(&self, silence: &Silence) {
        for (_, waiting) in self.lock().drain() {
            let _ = waiting.send(Err(silence.clone()));
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, oneshot::Sender<Answer>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What comes from those who ask.
struct Questions {
    queue: mpsc::Receiver<Asked>,
    withdrawals: mpsc::UnboundedReceiver<u64>,
}

async fn run(node: Arc<Member>, mut client: PeerClient<Channel>, secret: Secret, mut questions: Questions) {
    let (messages, stream) = mpsc::channel(UNDER_WAY);
    let mut request = Request::new(ReceiverStream::new(stream));
    secret.sign(&mut request);
    let waiting = Waiting::default();
    let silence = match client.forward_many(request).await {
        Err(status) => refused(&node, &status),
        Ok(replies) => tokio::select! {
            () = send(&mut questions, &messages, &waiting) => ended(&node),
            silence = hear(&node, replies.into_inner(), &waiting) => silence,
        },
    };
    questions.queue.close();
    while let Some(asked) = questions.queue.recv().await {
        let _ = asked.answer.send(Err(silence.clone()));
    }
    waiting.answer_all(&silence);
}

/// Sends whatever has come together, until nobody asks any more or the stream ends.
async fn send(questions: &mut Questions, messages: &mpsc::Sender<ForwardBatch>, waiting: &Waiting) {
    let Questions { queue, withdrawals } = questions;
    let (mut together, mut given_up) = (Vec::with_capacity(BATCH), Vec::new());
    loop {
        let come = tokio::select! {
            asked = queue.recv_many(&mut together, BATCH) => asked,
            withdrawn = withdrawals.recv_many(&mut given_up, BATCH) => withdrawn,
        };
        if come == 0 {
            return;
        }
        together.retain(|asked| !asked.answer.is_closed());
        let mut withdrawn = waiting.withdraw(std::mem::take(&mut given_up));
        while !together.is_empty() || !withdrawn.is_empty() {
            let batch = one_message(&mut together, |asked| asked.request.call.len());
            let message =
                ForwardBatch { forwarded: waiting.note(batch), withdrawn: std::mem::take(&mut withdrawn) };
            if messages.send(message).await.is_err() {
                return;
            }
        }
    }
}

/// Takes from the front what goes into one message: at least one.
pub(super) fn one_message<T>(all: &mut Vec<T>, weight: impl Fn(&T) -> usize) -> Vec<T> {
    let mut bytes = 0;
    let fits = all.iter().take_while(|one| {
        bytes += weight(one);
        bytes <= BATCH_BYTES
    });
    let count = fits.count().max(1).min(all.len());
    all.drain(..count).collect()
}

/// Gives each answer to whoever waits for it, until the stream ends. Says how it ended.
async fn hear(node: &Member, mut replies: Streaming<ForwardReplies>, waiting: &Waiting) -> Silence {
    loop {
        match replies.message().await {
            Ok(Some(ForwardReplies { replies })) => waiting.answer(node, replies),
            Ok(None) => return ended(node),
            Err(status) => return refused(node, &status),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_together_is_divided_into_messages_that_are_not_too_large() {
        let half = BATCH_BYTES / 2;
        let mut all = vec![1, half, half, half, 3 * BATCH_BYTES, 2, 3];
        let mut messages = Vec::new();
        while !all.is_empty() {
            messages.push(one_message(&mut all, |bytes| *bytes));
        }
        assert_eq!(messages, [vec![1, half], vec![half, half], vec![3 * BATCH_BYTES], vec![2, 3]]);
        assert_eq!(one_message(&mut all, |bytes| *bytes), Vec::<usize>::new());
    }
}
