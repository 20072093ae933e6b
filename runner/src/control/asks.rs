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
use skein_shared::{Code, Refusal, transport};
use tokio::sync::mpsc;
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
        if under_way.len() >= MOST {
            let problem = format!("the runner works on {MOST} questions already; ask again in a moment");
            return Err(Refusal::new(Code::Overloaded, problem).retry_after(1000));
        }
        let cancel = CancellationToken::new();
        let answer =
            tokio::spawn(cancel.clone().run_until_cancelled_owned(answer(Arc::clone(instances), ask)));
        let answer = answer.map(|ended| match ended {
            Ok(Some(answer)) => answer,
            Ok(None) => Err(Refusal::new(Code::Unavailable, "nobody waited for it any more")),
            Err(lost) => Err(Refusal::new(Code::Internal, format!("the runner failed at it: {lost}"))),
        });
        let answer = answer.boxed().shared();
        under_way.insert(id, Work { answer: answer.clone(), waiting: 1, cancel });
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
        if withdrawn {
            work.cancel.cancel();
            under_way.remove(&id);
            return;
        }
        let asks = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(KEEP).await;
            let mut under_way = asks.lock();
            if under_way.get(&id).is_some_and(|work| work.waiting == 0) {
                under_way.remove(&id);
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Work>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
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
            parts.last_mut().expect("an answer is JSON, which is never empty").last = true;
            parts
        }
    };
    for part in parts {
        // The stream broke; whoever asked knows it.
        let _ = answers.send(RunnerMessage { message: Some(Message::Answer(part)) }).await;
    }
}
