//! Questions on the streams of this node's runners, and their answers as they come in, part by part.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use skein_proto::convert::{ask as convert, command};
use skein_proto::v1::coordinator_message::Message;
use skein_proto::v1::{self, Withdraw};
use skein_shared::ask::Ask;
use skein_shared::{Code, Refusal, transport};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::sessions::Outgoing;

/// What an answer may take longer than its question allows: the way there and back.
const WAY: Duration = Duration::from_secs(5);

type Answer = Result<String, Refusal>;

/// The questions that wait for an answer. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Asks {
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    last: u64,
    asked: HashMap<u64, Asked>,
}

struct Asked {
    /// The stream that it was asked on.
    session: Uuid,
    id: Uuid,
    /// Of the answer, what has come so far.
    parts: Vec<u8>,
    done: oneshot::Sender<Answer>,
}

/// A question whose answer somebody waits for. Dropping it tells the runner that nobody does any more.
struct Open {
    asks: Asks,
    number: u64,
    outgoing: Outgoing,
}

impl Asks {
    /// Asks on a stream. `None` when the stream takes nothing.
    pub(super) async fn ask(&self, session: Uuid, outgoing: Outgoing, ask: &Ask) -> Option<Answer> {
        let (done, answer) = oneshot::channel();
        let number = {
            let mut waiting = self.lock();
            waiting.last += 1;
            let number = waiting.last;
            waiting.asked.insert(number, Asked { session, id: ask.id, parts: Vec::new(), done });
            number
        };
        let open = Open { asks: self.clone(), number, outgoing };
        let message = command::plain(Message::Ask(convert::to_wire(ask.clone(), number)));
        let limit = Duration::from_millis(ask.timeout_ms).saturating_add(WAY);
        // With the sending: a runner that reads nothing holds that up too.
        let asked = async {
            open.outgoing.send(Ok(message)).await.ok()?;
            let broke = |_| Err(unknown("the stream to the runner broke before it had answered"));
            Some(answer.await.unwrap_or_else(broke))
        };
        let late = |_| Some(Err(unknown("the runner did not answer in time")));
        tokio::time::timeout(limit, asked).await.unwrap_or_else(late)
    }

    /// Takes in a part of an answer that came on a stream.
    pub(super) fn answered(&self, session: Uuid, part: v1::Answer) {
        let mut waiting = self.lock();
        let Some(asked) = waiting.asked.get_mut(&part.number) else { return };
        if asked.session != session {
            return;
        }
        asked.parts.extend_from_slice(&part.part);
        let too_large = asked.parts.len() > transport::ANSWER;
        if !part.last && !too_large {
            return;
        }
        let Some(Asked { parts, done, .. }) = waiting.asked.remove(&part.number) else { return };
        let answer = match part.refused {
            Some(refused) => Err(convert::refusal(refused)),
            None if too_large => Err(Refusal::new(Code::TooLarge, "the answer is too large; ask for less")),
            None => String::from_utf8(parts)
                .map_err(|_| Refusal::new(Code::Internal, "the runner's answer is no text; update it")),
        };
        // Whoever asked may have gone this moment.
        let _ = done.send(answer);
    }

    /// Gives up what was asked on a stream that has ended.
    pub(super) fn closed(&self, session: Uuid) {
        self.lock().asked.retain(|_, asked| asked.session != session);
    }

    /// Gives up a question by its id: on another node, whoever asked it has gone.
    pub(super) fn withdraw(&self, id: Uuid) {
        self.lock().asked.retain(|_, asked| asked.id != id);
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.asks.lock().asked.remove(&self.number);
        // Of one that was answered the runner knows nothing any more, and a full stream only costs it some work.
        let withdraw = Message::Withdraw(Withdraw { number: self.number });
        let _ = self.outgoing.try_send(Ok(command::plain(withdraw)));
    }
}

fn unknown(what: &str) -> Refusal {
    let problem = format!("{what}; what it was asked may be done all the same: look before you repeat it");
    Refusal::new(Code::Unknown, problem).retry_after(1000)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::ask::What;
    use skein_shared::id::InstanceId;
    use tokio::sync::mpsc;

    use super::*;

    fn question() -> Ask {
        let what = What::Tool { name: "bash".into(), arguments: json!({"command": "true"}) };
        Ask { id: Uuid::from_u128(7), instance: InstanceId("worker-1".into()), timeout_ms: 60_000, what }
    }

    /// The number under which the question went out.
    async fn asked(stream: &mut mpsc::Receiver<Result<v1::CoordinatorMessage, tonic::Status>>) -> u64 {
        match stream.recv().await.unwrap().unwrap().message {
            Some(Message::Ask(ask)) => ask.number,
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn an_answer_is_put_together_and_belongs_to_its_stream() {
        let (asks, here, elsewhere) = (Asks::default(), Uuid::from_u128(1), Uuid::from_u128(2));
        let (outgoing, mut stream) = mpsc::channel(4);
        let (other, question) = (asks.clone(), question());
        let waiting = tokio::spawn(async move { other.ask(here, outgoing, &question).await });
        let number = asked(&mut stream).await;
        let part = |text: &str, last| v1::Answer { number, part: text.into(), last, refused: None };
        asks.answered(elsewhere, part("forged", true));
        asks.answered(here, part("one ", false));
        asks.answered(here, part("two", true));
        assert_eq!(waiting.await.unwrap(), Some(Ok("one two".to_owned())));
        assert!(asks.lock().asked.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_runner_that_reads_nothing_holds_nobody_up_for_longer_than_was_allowed() {
        let (asks, question) = (Asks::default(), question());
        let (outgoing, _stream) = mpsc::channel(1);
        outgoing.send(Ok(command::plain(Message::Withdraw(Withdraw { number: 0 })))).await.unwrap();
        let answer = asks.ask(Uuid::from_u128(1), outgoing, &question);
        let limit = Duration::from_millis(question.timeout_ms) + 2 * WAY;
        let answer = tokio::time::timeout(limit, answer).await.expect("an answer in time");
        assert_eq!(answer.unwrap().unwrap_err().code, Code::Unknown);
        assert!(asks.lock().asked.is_empty());
    }

    #[tokio::test]
    async fn who_goes_away_withdraws_and_a_broken_stream_is_said() {
        let (asks, session) = (Asks::default(), Uuid::from_u128(1));
        let (outgoing, mut stream) = mpsc::channel(4);
        let ask = |outgoing| {
            let asks = asks.clone();
            tokio::spawn(async move { asks.ask(session, outgoing, &question()).await })
        };
        let gone = ask(outgoing.clone());
        let number = asked(&mut stream).await;
        gone.abort();
        let withdrawn = stream.recv().await.unwrap().unwrap().message;
        assert_eq!(withdrawn, Some(Message::Withdraw(Withdraw { number })));

        let cut_off = ask(outgoing.clone());
        asked(&mut stream).await;
        asks.closed(session);
        assert_eq!(cut_off.await.unwrap().unwrap().unwrap_err().code, Code::Unknown);
        drop(stream);
        assert_eq!(ask(outgoing).await.unwrap(), None);
        assert!(asks.lock().asked.is_empty());
    }
}
