//! Tasks: made, handed out, reported on, ended.

use std::collections::BTreeSet;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use skein_shared::costs::Cost;
use skein_shared::id::{Kind, derived};
use skein_shared::pool::{
    Attempted, Command, Create, Fact, Finish, Outcome, Pool, Progress, Reply, Rules, Status, Target,
    TaskSpec, TaskView, answer_for_ended, claimable,
};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::read::task_shape;
use super::standing::Standing;
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// Most offers that a poll shows: each may be as long as a task is. The next ones come when these are decided.
pub const OFFERS: usize = 20;

/// A task that somebody wants done.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub spec: TaskSpec,
    pub target: Target,
    pub rules: Rules,
}

/// A task as it stands after a change.
#[derive(Clone, Debug)]
pub struct Changed {
    pub task: Value,
    /// It was so already.
    pub repeated: bool,
    pub warnings: Vec<String>,
}

/// What there is to do for the caller.
#[derive(Clone, Debug)]
pub struct Polled {
    /// The task that the caller now works on, and whether it was handed out before.
    pub task: Option<(Value, bool)>,
    /// Offers to accept or reject, oldest first, and no more than [`OFFERS`].
    pub offers: Vec<Value>,
    /// How many there are in all.
    pub offered: usize,
    /// Tasks in the pool.
    pub pool: usize,
    pub empty_polls: u32,
    /// The caller has as many tasks as it may have.
    pub full: bool,
    pub waited: Duration,
}

/// A task that the caller claimed without knowing it.
#[derive(Clone, Debug)]
pub struct ClaimedNext {
    /// The task that the caller now works on, and whether it was handed out before.
    pub task: Option<(Value, bool)>,
    pub waited: Duration,
}

/// A change that one agent makes to one task.
#[derive(Clone, Debug)]
pub enum Action {
    Claim,
    Release,
    Accept,
    Reject { reason: Option<String> },
    ToBacklog,
    FromBacklog,
    Cancel { reason: Option<String> },
    Pause,
    Resume,
}

impl Service {
    /// Makes a task and hands it to the target.
    ///
    /// # Errors
    /// `no_capacity`, `duplicate`, `not_found` for an unknown target or epic, `forbidden` for an observer.
    pub async fn send_task(
        &self,
        who: &Principal,
        request: Uuid,
        wanted: Wanted,
    ) -> Result<Changed, Refusal> {
        policy::require_arranging(who)?;
        let mut wanted = wanted;
        self.inherit_epic(who, &mut wanted.spec).await?;
        let by = who.as_agent();
        let key = who.entity(Kind::Pool);
        let mut facts = Vec::new();
        // The pool asks for what it has forgotten. A task that ends in between is asked for in the next turn.
        // All turns are one request: what it was told on the way is no part of what was asked.
        for _ in 0..4 {
            let create = Create {
                by,
                spec: wanted.spec.clone(),
                target: wanted.target,
                rules: wanted.rules,
                facts: facts.clone(),
            };
            match self.change_shown::<Pool>(&key, request, Command::Create(Box::new(create))).await? {
                (Reply::Created { task, warnings }, body) => {
                    let task = self.shown_as_changed(who, &task, body).await;
                    return Ok(Changed { task, repeated: false, warnings });
                }
                (Reply::NeedFacts { tasks, asked }, _) => {
                    for task in tasks {
                        facts.retain(|fact: &Fact| fact.task != task);
                        facts.push(Fact { asked, ..self.fact(who, task).await? });
                    }
                }
                _ => return Err(unexpected("the pool")),
            }
        }
        Err(Refusal::new(Code::Unavailable, "the dependencies change too fast; try again").retry_after(500))
    }

    /// Takes the next task or shows the open offers; waits up to `patience` for something to do. A lead polls
    /// like a worker: what its workers finished comes to it as follow-up tasks.
    ///
    /// # Errors
    /// `not_joined`.
    pub async fn poll_task(
        &self,
        who: &Principal,
        request: Uuid,
        patience: Duration,
    ) -> Result<Polled, Refusal> {
        policy::require(who, Right::Work)?;
        let started = self.clock().now();
        let key = who.entity(Kind::Pool);
        let poll = |last| Command::Poll {
            agent: who.agent,
            instance: who.instance.clone(),
            managed: who.managed,
            last,
        };
        let topics = BTreeSet::from([who.agent.to_string()]);
        let standing = Standing::new(&self.entities, who, request);
        let waits = AtomicBool::new(false);
        let look = || async {
            let (reply, body) = self.change_shown::<Pool>(&key, request, poll(false)).await?;
            Ok(match &reply {
                Reply::Polled { task: None, offers, .. } if offers.is_empty() => {
                    if !waits.swap(true, Ordering::Relaxed) {
                        self.awake(who, request).await?;
                    }
                    standing.stands();
                    None
                }
                _ => Some((reply, body)),
            })
        };
        let (reply, body) = match self.until(who, topics, patience, look).await? {
            Some(found) => found,
            None => self.change_shown::<Pool>(&key, derived(request, "last"), poll(true)).await?,
        };
        let Reply::Polled { task, redelivered, offers, pool, empty_polls, full } = reply else {
            return Err(unexpected("the pool"));
        };
        let task = match task {
            Some(task) => Some((self.shown(who, &task, body).await?, redelivered)),
            None => None,
        };
        let mut shown = Vec::with_capacity(offers.len().min(OFFERS));
        for offer in offers.iter().take(OFFERS) {
            shown.push(self.shown(who, offer, None).await?);
        }
        let waited = self.clock().now().since(started);
        Ok(Polled { task, offers: shown, offered: offers.len(), pool, empty_polls, full, waited })
    }

    /// Claims the most urgent task of the pool that can start and has any of the tags, or any task without tags;
    /// waits up to `patience` for one.
    ///
    /// # Errors
    /// `not_joined`; `no_capacity` when the caller has as many tasks as it may have.
    pub async fn claim_next(
        &self,
        who: &Principal,
        request: Uuid,
        tags: Vec<String>,
        patience: Duration,
    ) -> Result<ClaimedNext, Refusal> {
        policy::require(who, Right::Work)?;
        let started = self.clock().now();
        let key = who.entity(Kind::Pool);
        let topics = match tags.is_empty() {
            true => BTreeSet::from([claimable(&who.swarm, None)]),
            false => tags.iter().map(|tag| claimable(&who.swarm, Some(tag))).collect(),
        };
        let waits = AtomicBool::new(false);
        let claim = || async {
            let (agent, instance, managed) = (who.agent, who.instance.clone(), who.managed);
            let command = Command::ClaimNext { agent, instance, managed, tags: tags.clone() };
            match self.change_shown::<Pool>(&key, request, command).await? {
                (Reply::Claimed { task, redelivered }, body) => {
                    if task.is_none() && !waits.swap(true, Ordering::Relaxed) {
                        self.awake(who, request).await?;
                    }
                    Ok(task.map(|task| (task, redelivered, body)))
                }
                _ => Err(unexpected("the pool")),
            }
        };
        let task = match self.until(who, topics, patience, claim).await? {
            Some((task, redelivered, body)) => Some((self.shown(who, &task, body).await?, redelivered)),
            None => None,
        };
        Ok(ClaimedNext { task, waited: self.clock().now().since(started) })
    }

    /// Notes progress or the end of a task.
    ///
    /// # Errors
    /// `not_found`, `forbidden` for somebody else's task, `wrong_state` when it ended otherwise.
    pub async fn report(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        progress: Option<String>,
        finish: Option<(Finish, Option<Cost>)>,
    ) -> Result<Changed, Refusal> {
        policy::require(who, Right::Work)?;
        let (finish, cost) = finish.map_or((None, None), |(finish, cost)| (Some(finish), cost));
        // For the lead, who may have ended it, and now says so again.
        let by = (!self.caller(who).await?.lead).then_some(who.agent);
        let attempted = match finish.clone() {
            Some(finish) => Attempted::Finish { by, finish },
            None => Attempted::Progress { by },
        };
        let report = Progress {
            task,
            by: Some(who.agent),
            instance: Some(who.instance.clone()),
            managed: who.managed,
            progress,
            finish,
            cost,
            about: None,
        };
        self.on_task(who, request, task, Command::Progress(Box::new(report)), attempted).await
    }

    /// Claims, releases, accepts, rejects, parks, cancels, …
    ///
    /// # Errors
    /// `not_found`, `wrong_state`, `forbidden`, `no_capacity`, `blocked`.
    pub async fn act(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        action: Action,
    ) -> Result<Changed, Refusal> {
        policy::require_arranging(who)?;
        let by = who.as_agent();
        let agent = who.agent;
        let attempted = match &action {
            Action::Claim => Attempted::Other("claimed"),
            Action::Release => Attempted::Other("released"),
            Action::Accept => Attempted::Other("accepted"),
            Action::Reject { .. } => Attempted::Other("rejected"),
            Action::ToBacklog | Action::FromBacklog => Attempted::Other("moved"),
            Action::Cancel { .. } => Attempted::Cancel,
            Action::Pause => Attempted::Other("paused"),
            Action::Resume => Attempted::Other("resumed"),
        };
        let command = match action {
            Action::Claim => {
                Command::Claim { agent, instance: who.instance.clone(), managed: who.managed, task }
            }
            Action::Release => Command::Release { agent, task },
            Action::Accept => Command::Accept { agent, task },
            Action::Reject { reason } => Command::Reject { agent, task, reason },
            Action::ToBacklog => Command::ToBacklog { task, by },
            Action::FromBacklog => Command::FromBacklog { task, by },
            Action::Cancel { reason } => Command::Cancel { task, by, reason },
            Action::Pause => Command::Pause { task, by },
            Action::Resume => {
                Command::Resume { task, by, instance: who.instance.clone(), managed: who.managed }
            }
        };
        self.on_task(who, request, task, command, attempted).await
    }

    /// Notes the model's session that works on a task, so that a child can continue it.
    ///
    /// # Errors
    /// `not_found`; `forbidden` for somebody else's task.
    pub async fn note_session(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        session: String,
    ) -> Result<Changed, Refusal> {
        policy::require_arranging(who)?;
        let by = who.as_agent();
        let command = Command::NoteSession { task, by, session };
        self.on_task(who, request, task, command, Attempted::Other("given a session")).await
    }

    /// A task with all its fields.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn get_task(&self, who: &Principal, task: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        self.known_task(who, task).await
    }

    /// Puts a task into an epic, or takes it out of its epic.
    ///
    /// # Errors
    /// `not_found`; `wrong_state` when it is in none.
    pub async fn move_to_epic(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        epic: Option<Uuid>,
    ) -> Result<Changed, Refusal> {
        policy::require(who, Right::Lead)?;
        let by = who.as_agent();
        let command = match epic {
            Some(epic) => Command::AssignEpic { task, epic, by },
            None => Command::UnassignEpic { task, by },
        };
        self.on_task(who, request, task, command, Attempted::Other("moved between epics")).await
    }

    async fn on_task(
        &self,
        who: &Principal,
        request: Uuid,
        task: Uuid,
        command: Command,
        attempted: Attempted,
    ) -> Result<Changed, Refusal> {
        let asked = self.change_shown::<Pool>(&who.entity(Kind::Pool), request, command).await;
        match asked {
            Ok((Reply::Task { task, repeated }, body)) => {
                let task = self.shown_as_changed(who, &task, body).await;
                Ok(Changed { task, repeated, warnings: Vec::new() })
            }
            Ok(_) => Err(unexpected("the pool")),
            // The pool forgets ended tasks; their documents stay.
            Err(refusal) if refusal.code == Code::NotFound => {
                self.ended(who, task, &attempted, refusal).await
            }
            Err(refusal) => Err(refusal),
        }
    }

    /// Answers for a task that the pool has forgotten because it ended: a repeat of what happened succeeds.
    async fn ended(
        &self,
        who: &Principal,
        task: Uuid,
        attempted: &Attempted,
        unknown: Refusal,
    ) -> Result<Changed, Refusal> {
        let Some(Value::Object(body)) = self.task(who, task).await? else { return Err(unknown) };
        answer_for_ended(&body, attempted)?;
        Ok(Changed { task: Value::Object(body), repeated: true, warnings: Vec::new() })
    }

    /// A task as it is shown, by its document if that came along with the pool's answer. The view stands in should the
    /// document be gone.
    pub(super) async fn shown(
        &self,
        who: &Principal,
        view: &TaskView,
        body: Option<Value>,
    ) -> Result<Value, Refusal> {
        let Some(body) = body else {
            return Ok(self.task(who, view.id).await?.unwrap_or_else(|| brief(view)));
        };
        let mut task = task_shape(body);
        self.leave_out_lost_epics(who, slice::from_mut(&mut task)).await;
        Ok(task)
    }

    /// The same after a change, which is done whether its task can be looked at or not. Who was given a task to work on
    /// is told that it cannot be, and is given it again.
    pub(super) async fn shown_as_changed(
        &self,
        who: &Principal,
        view: &TaskView,
        body: Option<Value>,
    ) -> Value {
        self.shown(who, view, body).await.unwrap_or_else(|_| brief(view))
    }

    /// What is known of a task that the pool does not hold.
    async fn fact(&self, who: &Principal, task: Uuid) -> Result<Fact, Refusal> {
        let Some(found) = self.task(who, task).await? else { return Ok(Fact::unknown(task)) };
        let outcome = match found["status"].as_str() {
            Some("completed") => Some(Outcome::Completed),
            Some("failed") => Some(Outcome::Failed),
            Some("cancelled") => Some(Outcome::Cancelled),
            _ => None,
        };
        let agent = found["agentId"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        Ok(Fact { outcome, agent, ..Fact::unknown(task) })
    }

    /// An epic gives its tasks a tag and its repository. Of one that is not there a task learns no name: the pool
    /// refuses it then, unless it has answered the same request while the epic was there.
    async fn inherit_epic(&self, who: &Principal, spec: &mut TaskSpec) -> Result<(), Refusal> {
        let Some(epic) = spec.epic else { return Ok(()) };
        let body = match self.find_epic(who, Which::Id(epic)).await {
            Err(refusal) if refusal.code == Code::NotFound => return Ok(()),
            found => found?.1,
        };
        spec.epic_name = body["name"].as_str().map(str::to_owned);
        if let Some(repo) = body.get("githubRepo").filter(|repo| repo.is_string()) {
            spec.context.entry("githubRepo").or_insert_with(|| repo.clone());
        }
        Ok(())
    }
}

/// What the pool itself says of a task.
fn brief(view: &TaskView) -> Value {
    json!({ "id": view.id, "agentId": view.agent, "status": view.status })
}

/// Whether a task, as it is shown, has ended.
pub fn is_over(task: &Value) -> bool {
    Status::deserialize(&task["status"]).is_ok_and(Status::is_terminal)
}
