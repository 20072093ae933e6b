//! Talking to whoever works on a task. What is said is written down at once, and goes with the next answer that the
//! task's agent gets.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use skein_shared::Refusal;
use skein_shared::id::{InstanceId, Kind, Name};
use skein_shared::pool::{Command, Pool, Reply, Untold, steering};
use skein_shared::time::Timestamp;
use tracing::Instrument;
use uuid::Uuid;

use super::read::id_of;
use super::unread::{Carries, Delivery, Lost, Unread};
use super::{Service, unexpected};
use crate::auth::{Principal, policy};
use crate::entity::hub::Bell;

/// Callers that are remembered. When there are more, all are forgotten, and each costs one more question.
const CALLERS: usize = 10_000;
/// How long an answer waits for what goes with it. A pool may be on its way to this node, or another one's that has
/// died.
const PATIENCE: Duration = Duration::from_millis(250);

/// Whom the pool has to be asked about: who has called here before is told of by a bell.
#[derive(Clone, Debug, Default)]
pub(super) struct Steered {
    callers: Arc<Mutex<HashMap<Who, Arc<Caller>>>>,
}

/// An instance of an agent of a swarm.
type Who = (Name, Uuid, InstanceId);

#[derive(Debug)]
struct Caller {
    bell: Bell,
    question: Mutex<Question>,
}

/// What the pool is asked for a caller.
#[derive(Debug, Default)]
struct Question {
    under_way: bool,
    /// Of one whose answer is not known: it is asked again, for it may have taken something.
    open: Option<Uuid>,
}

impl Service {
    /// Says something to the agent that works on a task, now or as soon as it begins. Gives the message's id, and the
    /// task.
    ///
    /// # Errors
    /// `forbidden` but for the lead and the task's creator; `wrong_state`, `not_found`; `queue_full` while the agent
    /// has not had what was said before.
    pub async fn steer_task(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        text: String,
    ) -> Result<(Uuid, Value), Refusal> {
        policy::require_arranging(who)?;
        let by = who.as_agent();
        let command = Command::Steer { task, by, text };
        match self.change_shown::<Pool>(&who.entity(Kind::Pool), request, command).await? {
            (Reply::Steered { message, task }, body) => {
                Ok((message, self.shown_as_changed(who, &task, body).await))
            }
            _ => Err(unexpected("the pool")),
        }
    }

    /// What was said to the caller about its tasks and has not reached it: `{taskId, from?, content, createdAt}`. It is
    /// given once, with an answer that was read. One that cannot be had soon comes with a later answer. Who may only
    /// read gets none of it, for the agent would not have it then.
    pub async fn take_steering(&self, who: &Principal, delivery: &Delivery) -> Vec<Value> {
        if !policy::may_work(who) {
            return Vec::new();
        }
        let caller = self.steered.caller(self, who);
        let Some(turn) = caller.begin() else { return Vec::new() };
        let (service, who) = (self.clone().keeping_answers(true), who.clone());
        let question = async move {
            let taken = service.said(&who, turn.request).await;
            turn.ends(taken.is_ok());
            taken.unwrap_or_default()
        };
        // It goes on when it is late. Then nobody takes what it gives, which so goes back.
        let taken = tokio::time::timeout(PATIENCE, tokio::spawn(question.in_current_span())).await;
        let words = taken.ok().and_then(Result::ok).unwrap_or_default().into_iter();
        words
            .map(|(word, unread)| {
                delivery.carries(unread);
                word
            })
            .collect()
    }

    async fn said(&self, who: &Principal, request: Uuid) -> Result<Vec<(Value, Unread)>, Refusal> {
        let (pool, command) = (
            who.entity(Kind::Pool),
            Command::TakeSteering { agent: who.agent, instance: who.instance.clone() },
        );
        let Reply::Steering(messages) = self.change::<Pool>(&pool, request, command).await? else {
            return Err(unexpected("the pool"));
        };
        let mut bodies = Vec::with_capacity(messages.len());
        for message in messages {
            let body = self.body(&pool, &format!("steering/{message}")).await?;
            bodies.extend(body.map(|body| (message, body)));
        }
        let mut words = Vec::with_capacity(bodies.len());
        for (message, body) in bodies {
            let lost = untold(message, &body).map(|message| Lost {
                service: self.clone(),
                who: who.clone(),
                what: Carries::Steering(message),
            });
            let Some(lost) = lost else { continue };
            words.push((self.word(who, &body).await, Unread::new(lost)));
        }
        Ok(words)
    }

    async fn word(&self, who: &Principal, body: &Value) -> Value {
        let mut word =
            json!({ "taskId": body["taskId"], "content": body["content"], "createdAt": body["createdAt"] });
        if let Some(from) = id_of(body, "fromAgentId")
            && let Ok(Some(member)) = self.member(who, from).await
        {
            word["from"] = member["name"].clone();
        }
        word
    }
}

fn untold(message: Uuid, body: &Value) -> Option<Untold> {
    let since = Timestamp::parse_iso(body["createdAt"].as_str()?)?;
    Some(Untold { message, task: id_of(body, "taskId")?, since })
}

impl Caller {
    /// A question that is to be asked now: somebody rang, and none is under way.
    fn begin(self: Arc<Self>) -> Option<Turn> {
        let mut question = self.question();
        if question.under_way || !self.bell.has_rung() {
            return None;
        }
        question.under_way = true;
        let request = *question.open.get_or_insert_with(Uuid::now_v7);
        drop(question);
        Some(Turn { caller: self, request, is_answered: false })
    }

    fn question(&self) -> MutexGuard<'_, Question> {
        self.question.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question under way, until it is dropped.
struct Turn {
    caller: Arc<Caller>,
    request: Uuid,
    is_answered: bool,
}

impl Turn {
    fn ends(mut self, is_answered: bool) {
        self.is_answered = is_answered;
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let open = (!self.is_answered).then_some(self.request);
        *self.caller.question() = Question { under_way: false, open };
        if open.is_some() {
            self.caller.bell.ring();
        }
    }
}

impl Steered {
    fn caller(&self, service: &Service, who: &Principal) -> Arc<Caller> {
        let mut callers = self.callers.lock().unwrap_or_else(PoisonError::into_inner);
        let name = (who.swarm.clone(), who.agent, who.instance.clone());
        if let Some(caller) = callers.get(&name) {
            return Arc::clone(caller);
        }
        if callers.len() >= CALLERS {
            callers.clear();
        }
        let bell = service.entities.hub().bell(steering(who.agent));
        let caller = Arc::new(Caller { bell, question: Mutex::default() });
        callers.insert(name, Arc::clone(&caller));
        caller
    }
}
