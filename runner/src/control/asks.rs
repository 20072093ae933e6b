//! What coordinators ask, each question answered beside the others and done once, however often it comes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use skein_proto::convert::ask;
use skein_proto::v1::runner_message::Message;
use skein_proto::v1::{self, Answer, RunnerMessage};
use skein_shared::ask::{Ask, What};
use skein_shared::transport::Tool;
use skein_shared::{Code, Refusal, transport};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::instance::Instances;

/// Questions that are worked on at a time.
const MOST: usize = 256;
/// Bytes of one message. Others wait behind it for no longer than that takes.
const PART: usize = 256 * 1024;
/// How long the answer of a tool is kept for whoever asks again over another stream, after the one it was asked on
/// broke.
const KEEP: Duration = Duration::from_secs(30);
/// Answers that are kept so at a time, and their bytes.
const KEPT: usize = 256;
const KEPT_BYTES: usize = 32 * 1024 * 1024;

type Answered = Result<Arc<str>, Refusal>;

/// The questions that are worked on, or were a moment ago.
#[derive(Clone, Default)]
pub(super) struct Asks {
    under_way: Arc<Mutex<HashMap<Uuid, Work>>>,
}

struct Work {
    answer: Shared<BoxFuture<'static, Answered>>,
    /// Those who wait for it, on whatever stream.
    waiting: usize,
    /// When the last of them left.
    left: Instant,
    /// Its answer may be asked for once more.
    keeps: bool,
    cancel: CancellationToken,
}

/// The questions of one stream, by their numbers there.
#[derive(Default)]
pub(super) struct Asked {
    withdraw: HashMap<u64, CancellationToken>,
}

impl Asked {
    /// Lets a question be answered. What is given up with the stream goes on: it may be asked again on another.
    pub(super) fn take_in(
        &mut self,
        asks: &Asks,
        instances: &Arc<Instances>,
        asked: v1::Ask,
        answers: &mpsc::Sender<RunnerMessage>,
    ) {
        self.withdraw.retain(|_, withdrawn| !withdrawn.is_cancelled());
        let (number, withdrawn, answers) = (asked.number, CancellationToken::new(), answers.clone());
        self.withdraw.insert(number, withdrawn.clone());
        let begun = ask::from_wire(asked).and_then(|ask| asks.begin(instances, ask));
        let asks = asks.clone();
        tokio::spawn(async move {
            match begun {
                Err(refusal) => say(&answers, number, Err(refusal)).await,
                Ok((id, answer)) => {
                    if let Some(answer) = withdrawn.run_until_cancelled(answer).await {
                        say(&answers, number, answer).await;
                    }
                    asks.leave(id, withdrawn.is_cancelled());
                }
            }
            withdrawn.cancel();
        });
    }

    pub(super) fn withdraw(&mut self, number: u64) {
        if let Some(withdrawn) = self.withdraw.remove(&number) {
            withdrawn.cancel();
        }
    }
}

impl Asks {
    fn begin(
        &self,
        instances: &Arc<Instances>,
        ask: Ask,
    ) -> Result<(Uuid, Shared<BoxFuture<'static, Answered>>), Refusal> {
        let mut under_way = self.lock();
        let id = ask.id;
        if let Some(work) = under_way.get_mut(&id) {
            work.waiting += 1;
            return Ok((id, work.answer.clone()));
        }
        if under_way.values().filter(|work| work.waiting > 0).count() >= MOST {
            let problem = format!("the runner works on {MOST} questions already; ask again in a moment");
            return Err(Refusal::new(Code::Overloaded, problem).retry_after(1000));
        }
        let cancel = CancellationToken::new();
        let keeps = keeps(&ask.what);
        let answer =
            tokio::spawn(cancel.clone().run_until_cancelled_owned(answer(Arc::clone(instances), ask)));
        let answer = answer.map(|ended| match ended {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(Refusal::new(Code::Unavailable, "nobody waited for it any more")),
            Err(lost) => Err(Refusal::new(Code::Internal, format!("the runner failed at it: {lost}"))),
        });
        let answer = answer.boxed().shared();
        let work = Work { answer: answer.clone(), waiting: 1, left: Instant::now(), keeps, cancel };
        under_way.insert(id, work);
        Ok((id, answer))
    }

    /// One who waited has the answer, or does not want it any more. Work that nobody wants is given up.
    fn leave(&self, id: Uuid, withdrawn: bool) {
        let mut under_way = self.lock();
        let Some(work) = under_way.get_mut(&id) else { return };
        work.waiting = work.waiting.saturating_sub(1);
        if work.waiting > 0 {
            return;
        }
        if withdrawn || !work.keeps {
            work.cancel.cancel();
            under_way.remove(&id);
            return;
        }
        work.left = Instant::now();
        bound(&mut under_way);
        let asks = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KEEP).await;
            let mut under_way = asks.lock();
            // It may have been asked for and left once more since.
            let is_old = |work: &Work| work.waiting == 0 && work.left.elapsed() >= KEEP;
            if under_way.get(&id).is_some_and(is_old) {
                under_way.remove(&id);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Work>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an answer is kept for whoever asks again. A part of a file is large, and is as well read again.
fn keeps(what: &What) -> bool {
    let What::Tool { name, .. } = what else { return true };
    let tool: Option<Tool> = serde_json::from_value(name.as_str().into()).ok();
    tool != Some(Tool::GetPart)
}

/// Forgets the oldest answers that nobody waits for, as many as are too many.
fn bound(under_way: &mut HashMap<Uuid, Work>) {
    let mut kept: Vec<_> = under_way
        .iter()
        .filter(|(_, work)| work.waiting == 0)
        .map(|(id, work)| (work.left, *id, work.size()))
        .collect();
    kept.sort_unstable_by(|one, other| other.cmp(one));
    let mut bytes = 0;
    for (number, (_, id, size)) in kept.into_iter().enumerate() {
        bytes += size;
        if number >= KEPT || bytes > KEPT_BYTES {
            under_way.remove(&id);
        }
    }
}

impl Work {
    /// Bytes of the answer.
    fn size(&self) -> usize {
        self.answer.peek().and_then(|answer| answer.as_ref().ok()).map_or(0, |text| text.len())
    }
}

async fn answer(instances: Arc<Instances>, ask: Ask) -> Answered {
    let limit = Duration::from_millis(ask.timeout_ms).min(transport::LONGEST * 2);
    let instance = ask.instance.0;
    let work = async {
        match ask.what {
            What::Tool { name, arguments } => instances.tool(&instance, &name, arguments).await,
            What::Log(query) => {
                let lines = instances.log(&instance, query).await?;
                serde_json::to_string(&lines)
                    .map_err(|error| Refusal::new(Code::Internal, format!("the log cannot be sent: {error}")))
            }
        }
    };
    let late = |_| {
        Refusal::new(Code::Unknown, "the runner did not come to an end in time; look before you repeat it")
    };
    Ok(tokio::time::timeout(limit, work).await.map_err(late)??.into())
}

/// Sends an answer in parts, as fast as the coordinator takes them.
async fn say(answers: &mpsc::Sender<RunnerMessage>, number: u64, answer: Answered) {
    let parts = match &answer {
        Err(refusal) => {
            vec![Answer { number, last: true, refused: Some(ask::refused(refusal)), ..Answer::default() }]
        }
        Ok(text) => {
            let mut parts: Vec<Answer> = text
                .as_bytes()
                .chunks(PART)
                .map(|part| Answer { number, part: part.to_vec(), ..Answer::default() })
                .collect();
            if let Some(last) = parts.last_mut() {
                last.last = true;
            }
            parts
        }
    };
    for part in parts {
        // The stream broke; whoever asked knows it.
        let _ = answers.send(RunnerMessage { message: Some(Message::Answer(part)) }).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn of_answers_that_nobody_waits_for_the_newest_are_kept_within_their_bounds() {
        let began = Instant::now();
        let work = |number: u64, bytes: usize, waiting| {
            let answer = async move { Ok("x".repeat(bytes).into()) }.boxed().shared();
            // Of one that was never asked for the answer nothing is known.
            assert!(answer.clone().now_or_never().is_some());
            let left = began + Duration::from_secs(number);
            (
                Uuid::from_u128(number.into()),
                Work { answer, waiting, left, keeps: true, cancel: CancellationToken::new() },
            )
        };
        let mut small: HashMap<_, _> = (0..300).map(|number| work(number, 1, 0)).collect();
        small.extend([work(1000, 1, 1)]);
        bound(&mut small);
        assert_eq!(small.len(), KEPT + 1);
        assert!(!small.contains_key(&Uuid::from_u128(43)) && small.contains_key(&Uuid::from_u128(44)));
        let mut large: HashMap<_, _> = (0..10).map(|number| work(number, KEPT_BYTES / 4, 0)).collect();
        bound(&mut large);
        assert_eq!(large.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_from_when_it_was_left_last() {
        let (asks, id, cancel) = (Asks::default(), Uuid::from_u128(7), CancellationToken::new());
        let answer = async { Ok("done".into()) }.boxed().shared();
        let work = Work { answer, waiting: 1, left: Instant::now(), keeps: true, cancel };
        asks.lock().insert(id, work);
        asks.leave(id, false);
        tokio::time::sleep(KEEP / 2).await;
        asks.lock().get_mut(&id).unwrap().waiting += 1;
        asks.leave(id, false);
        tokio::time::sleep(KEEP * 3 / 4).await;
        assert!(asks.lock().contains_key(&id), "whoever asks for it now would have it done again");
        tokio::time::sleep(KEEP / 2).await;
        assert!(asks.lock().is_empty());
    }

    #[tokio::test]
    async fn a_part_of_a_file_is_read_again_rather_than_kept() {
        let tool = |name: &str| What::Tool { name: name.to_owned(), arguments: serde_json::Value::Null };
        assert!(!keeps(&tool("get_part")) && keeps(&tool("put_part")) && keeps(&tool("bash")));
        let (asks, id, cancel) = (Asks::default(), Uuid::from_u128(7), CancellationToken::new());
        let answer = async { Ok("part".into()) }.boxed().shared();
        let work = Work { answer, waiting: 1, left: Instant::now(), keeps: false, cancel: cancel.clone() };
        asks.lock().insert(id, work);
        asks.leave(id, false);
        assert!(asks.lock().is_empty() && cancel.is_cancelled());
    }
}
