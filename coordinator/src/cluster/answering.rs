//! The other end of a [`super::pipe`]: the requests of one stream are answered beside one another, each for as long as
//! somebody waits for it.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{AbortHandle, AbortRegistration, Abortable};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, Stream, StreamExt};
use skein_proto::v1::forward_reply::Outcome;
use skein_proto::v1::{ForwardBatch, ForwardReplies, ForwardReply, ForwardRequest, Forwarded, Replied};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::door::Door;
use super::pipe::one_message;

/// Requests that share a task: one for each costs more than most requests, and one for all of them would leave the
/// other processors idle.
const TOGETHER: usize = 32;
/// Answers that go back together.
const ANSWERS: usize = 256;
/// Messages that are looked through before anything of them begins. After a time in which nothing was read the first
/// may ask for what a later one withdraws.
const MESSAGES: usize = 64;

/// Answers all requests of a stream. What was asked on it is not wanted any more when it ends.
pub(super) fn answer_all(
    door: Door,
    batches: Streaming<ForwardBatch>,
) -> impl Stream<Item = Result<ForwardReplies, Status>> + Send {
    let (replies, stream) = mpsc::channel(16);
    let (answered, all) = mpsc::unbounded_channel();
    tokio::spawn(take_in(Arc::new(door), batches, answered));
    tokio::spawn(give_back(all, replies));
    ReceiverStream::new(stream)
}

/// What is being answered, by the numbers of the requests.
#[derive(Default)]
struct UnderWay(Mutex<HashMap<u64, AbortHandle>>);

impl UnderWay {
    fn begin(&self, requests: Vec<Forwarded>) -> Vec<Begun> {
        let mut under_way = self.lock();
        let begin = |Forwarded { number, request }| {
            let (handle, registration) = AbortHandle::new_pair();
            under_way.insert(number, handle);
            Begun { number, request: request.unwrap_or_default(), registration }
        };
        requests.into_iter().map(begin).collect()
    }

    fn withdraw(&self, number: u64) {
        if let Some(handle) = self.lock().remove(&number) {
            handle.abort();
        }
    }

    fn withdraw_all(&self) {
        for (_, handle) in self.lock().drain() {
            handle.abort();
        }
    }

    fn is_answered(&self, number: u64) {
        self.lock().remove(&number);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, AbortHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Begun {
    number: u64,
    request: ForwardRequest,
    registration: AbortRegistration,
}

/// Begins whatever comes, until the stream ends.
async fn take_in(
    door: Arc<Door>,
    batches: Streaming<ForwardBatch>,
    answered: mpsc::UnboundedSender<Replied>,
) {
    let under_way = Arc::new(UnderWay::default());
    let mut batches = batches.ready_chunks(MESSAGES);
    while let Some(messages) = batches.next().await {
        let (mut forwarded, mut withdrawn) = (Vec::new(), Vec::new());
        for message in messages {
            // One that cannot be read is the last one.
            let Ok(ForwardBatch { forwarded: more, withdrawn: no_more }) = message else { continue };
            forwarded.extend(more);
            withdrawn.extend(no_more);
        }
        let mut begun = under_way.begin(forwarded).into_iter();
        withdrawn.into_iter().for_each(|number| under_way.withdraw(number));
        while begun.len() > 0 {
            let some = begun.by_ref().take(TOGETHER).collect();
            tokio::spawn(answer_some(Arc::clone(&door), Arc::clone(&under_way), some, answered.clone()));
        }
    }
    under_way.withdraw_all();
}

/// Sends each answer back as soon as it is there.
async fn answer_some(
    door: Arc<Door>,
    under_way: Arc<UnderWay>,
    some: Vec<Begun>,
    answered: mpsc::UnboundedSender<Replied>,
) {
    let answer = async |Begun { number, request, registration }: Begun| {
        let answer = Abortable::new(door.answer(request), registration);
        // One that this program fails at takes no other with it.
        let answer = AssertUnwindSafe(answer).catch_unwind().await;
        under_way.is_answered(number);
        let (reply, problem) = match answer {
            Ok(Ok(Ok(outcome))) => (Some(ForwardReply { outcome: Some(outcome) }), String::new()),
            Ok(Ok(Err(status))) => (None, status.message().to_owned()),
            Ok(Err(_withdrawn)) => return None,
            Err(_) => (None, "it failed at the request; its log says how".to_owned()),
        };
        Some(Replied { number, reply, problem })
    };
    let mut answers: FuturesUnordered<_> = some.into_iter().map(answer).collect();
    while let Some(replied) = answers.next().await {
        // Whoever asked may be gone.
        let _ = replied.map(|replied| answered.send(replied));
    }
}

/// Sends whatever answers have come together. There are no more of them than questions.
async fn give_back(
    mut answered: mpsc::UnboundedReceiver<Replied>,
    stream: mpsc::Sender<Result<ForwardReplies, Status>>,
) {
    let mut replies = Vec::new();
    while answered.recv_many(&mut replies, ANSWERS).await > 0 {
        while !replies.is_empty() {
            let message = ForwardReplies { replies: one_message(&mut replies, weight) };
            if stream.send(Ok(message)).await.is_err() {
                return;
            }
        }
    }
}

fn weight(replied: &Replied) -> usize {
    match replied.reply.as_ref().and_then(|reply| reply.outcome.as_ref()) {
        Some(Outcome::Answer(answer)) => answer.len(),
        _ => 0,
    }
}
