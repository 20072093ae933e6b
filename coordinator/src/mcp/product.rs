//! What this program offers besides its tools. All of it is asked of the same services as the tools ask.

mod prompts;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{self, BoxStream, StreamExt};
use serde_json::{Map, Value};
use skein_shared::agent::CallStatus;
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use super::Catalogue;
use super::client::Client;
use super::content::Document;
use super::dispatch::{self, Context};
use super::elicitation::{self, ANSWER};
use super::idempotency;
use super::job::{Job, State};
use super::offer::{List, Listed, Offer, Page, Place, Prompt, Written, once_it_can_be_said};
use crate::service::resources::{Line, Outline, Resource, Sort};

const JSON: &str = "application/json";
/// The method by which a client answers what a job asks.
const UPDATE: &str = "tasks/update";
/// How long one look at a list lasts, and the pause after a change: a busy swarm is not told of each task.
const LOOK: Duration = Duration::from_secs(3600);
const CALM: Duration = Duration::from_secs(1);

pub(super) struct Product {
    tools: Arc<Catalogue>,
}

impl Product {
    pub(super) fn new(tools: Arc<Catalogue>) -> Self {
        Self { tools }
    }
}

#[async_trait]
impl Offer for Product {
    fn tools(&self) -> &Arc<Catalogue> {
        &self.tools
    }

    fn prompts(&self, caller: &Context) -> Vec<Prompt> {
        prompts::of(caller.who.role)
    }

    async fn prompt(
        &self,
        caller: &Context,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Written, Refusal> {
        prompts::write(caller, name, arguments).await
    }

    async fn list(&self, caller: &Context, cursor: Option<&str>) -> Result<Page, Refusal> {
        let (lines, next) = caller.service.lines(&caller.who, cursor).await?;
        let lists = Sort::ALL.into_iter().filter(|_| cursor.is_none()).map(|sort| Listed {
            uri: sort.list_address(),
            name: sort.as_str().to_owned(),
            about: format!("The {} of the swarm", sort.as_str()),
            mime_type: JSON,
        });
        Ok(Page { listed: lists.chain(lines.into_iter().map(listed)).collect(), next })
    }

    fn templates(&self) -> Vec<Listed> {
        let template = |sort: Sort| Listed {
            uri: sort.address(&format!("{{{}}}", sort.by())),
            name: sort.as_str().to_owned(),
            about: format!("One of the {}, by its {}", sort.as_str(), sort.by()),
            mime_type: JSON,
        };
        Sort::ALL.map(template).to_vec()
    }

    async fn read(&self, caller: &Context, uri: &str) -> Result<Document, Refusal> {
        let resource = Resource::parse(uri)?;
        Ok(shown(uri, &caller.service.show(&caller.who, &resource).await?))
    }

    async fn changed(&self, caller: &Context, uri: &str, seen: u64) -> Result<u64, Refusal> {
        let resource = Resource::parse(uri)?;
        let digest = |now: &Value| shown(uri, now).digest();
        let differs = |now: &Value| digest(now) != seen;
        loop {
            if let Some(now) = caller.service.shown_anew(&caller.who, &resource, differs, LOOK).await? {
                return Ok(digest(&now));
            }
        }
    }

    async fn complete(
        &self,
        caller: &Context,
        place: Place<'_>,
        argument: &str,
        begun: &str,
    ) -> Result<Vec<String>, Refusal> {
        let sort = match place {
            Place::Template(uri) => Sort::ALL
                .into_iter()
                .find(|sort| sort.by() == argument && uri == sort.address(&format!("{{{argument}}}"))),
            Place::Prompt(_) => (argument == "epic").then_some(Sort::Epics),
        };
        match sort {
            Some(sort) => caller.service.called(&caller.who, sort, begun).await,
            None => Ok(Vec::new()),
        }
    }

    async fn job(&self, caller: &Context, id: &str) -> Result<Job, Refusal> {
        let (call, began) = match parse(id)? {
            Followed::Call(call, began) => (call, began),
            Followed::Question(question) => {
                let question = caller.service.own_question(&caller.who, question).await?;
                return Ok(elicitation::job(&question));
            }
        };
        let view = caller.service.check_call(&caller.who, call).await?;
        let state = match view.status {
            CallStatus::Pending | CallStatus::Running => State::Working,
            CallStatus::Completed | CallStatus::Error => {
                let arguments = Map::from_iter([("call_id".to_owned(), Value::String(call.to_string()))]);
                State::Done(Box::new(dispatch::call(caller.clone(), "check_call", arguments).await))
            }
        };
        let changed = began.max(view.ended.unwrap_or(began));
        let kept = view.ended.map(|_| (changed + limits::CALL_KEEP).since(began));
        Ok(Job { id: id.to_owned(), state, began, changed, kept })
    }

    async fn answer_job(
        &self,
        caller: &Context,
        id: &str,
        answers: BTreeMap<String, Value>,
    ) -> Result<(), Refusal> {
        let Followed::Question(question) = parse(id)? else {
            // A call asks nothing, so whatever the answers are for is over.
            return self.job(caller, id).await.map(drop);
        };
        let form = Client { answers, ..Client::default() }.form(ANSWER).ok_or_else(|| {
            let problem = format!("{ANSWER}: it is missing, or no form; answer as elicitation/create does");
            Refusal::new(Code::InvalidArgument, problem)
        })?;
        let Some(word) = elicitation::word(&form) else { return self.job(caller, id).await.map(drop) };
        dispatch::require_writable(UPDATE, &caller.who, &caller.view)?;
        // A runner's endpoint sends it again on fail-over.
        let key = idempotency::key(&mut Map::new(), caller.key.as_deref())?;
        let request = idempotency::request(&caller.who, UPDATE, key.as_deref());
        caller.service.answer_own_question(&caller.who, request, question, word).await.map(drop)
    }

    async fn cancel_job(&self, caller: &Context, id: &str) -> Result<(), Refusal> {
        let (tool, argument, of) = match parse(id)? {
            Followed::Call(call, _) => ("cancel_call", "call_id", call),
            Followed::Question(question) => ("withdraw_question", "question_id", question),
        };
        if self.job(caller, id).await?.is_over() {
            return Ok(());
        }
        let arguments = Map::from_iter([(argument.to_owned(), Value::String(of.to_string()))]);
        let reply = dispatch::call(caller.clone(), tool, arguments).await;
        match reply.refusal() {
            // One that is over by now is as good as cancelled.
            Some(refusal) if !self.job(caller, id).await?.is_over() => Err(refusal),
            _ => Ok(()),
        }
    }

    fn relisted(&self, caller: Context) -> BoxStream<'static, List> {
        stream::unfold((caller, None::<Outline>), |(caller, seen)| async move {
            let Some(seen) = seen else {
                let now = once_it_can_be_said(|| caller.service.outline(&caller.who)).await.ok()?;
                return Some((List::Documents, (caller, Some(now))));
            };
            loop {
                let anew = once_it_can_be_said(|| caller.service.lines_anew(&caller.who, &seen, LOOK));
                if let Some(now) = anew.await.ok()? {
                    tokio::time::sleep(CALM).await;
                    return Some((List::Documents, (caller, Some(now))));
                }
            }
        })
        .boxed()
    }
}

/// The job that a call is to a client which can follow it.
pub(super) fn job_of(call: Uuid, began: Timestamp) -> Job {
    Job { id: format!("{call}@{}", began.0), state: State::Working, began, changed: began, kept: None }
}

/// What a job is.
enum Followed {
    /// And when it began, which a call does not say.
    Call(Uuid, Timestamp),
    Question(Uuid),
}

fn parse(id: &str) -> Result<Followed, Refusal> {
    let call = |(call, at): (&str, &str)| {
        Some(Followed::Call(Uuid::try_parse(call).ok()?, Timestamp(at.parse().ok()?)))
    };
    let read = match id.strip_prefix(elicitation::JOB) {
        Some(question) => Uuid::try_parse(question).ok().map(Followed::Question),
        None => id.split_once('@').and_then(call),
    };
    read.ok_or_else(|| {
        Refusal::new(Code::NotFound, "there is no such task; its id comes from call_agent or ask_human")
    })
}

fn listed(line: Line) -> Listed {
    Listed { uri: line.address, name: line.name, about: line.about, mime_type: JSON }
}

fn shown(uri: &str, value: &Value) -> Document {
    Document::text(uri, JSON, value.to_string())
}
