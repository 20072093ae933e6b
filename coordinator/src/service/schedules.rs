//! Schedules: tasks that are made at certain times.

use serde_json::Value;
use skein_shared::id::{Kind, Name};
use skein_shared::schedules::{Command, Create, Reply, Schedules, Update};
use skein_shared::which::Which;
use skein_shared::{Code, Refusal, json, limits, wire};
use tokio::time::Instant;
use uuid::Uuid;

use super::read::id_of;
use super::{ARRIVAL, Service, unexpected};
use crate::auth::{Principal, Right, policy};

/// Which schedules a list shows.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub enabled: Option<bool>,
    /// Part of the name.
    pub name: Option<String>,
    pub one_time: Option<bool>,
    /// Leaves out one-time schedules that ran.
    pub hide_completed: bool,
    /// Those alone that have a next run, the soonest first.
    pub soonest: bool,
    /// In the order of names: those alone that come behind this one. Empty for the beginning.
    pub after: String,
}

/// Where a list goes on of which so many were left out, if it does: behind the name of the last that it shows.
pub fn next(shown: &[Value], left_out: usize) -> Option<&str> {
    shown.last().filter(|_| left_out > 0)?["name"].as_str()
}

/// What a run by hand makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Made {
    Task(Uuid),
    /// A run of the agent whose definition has the times.
    Run(Name),
}

impl Service {
    /// Makes a schedule.
    ///
    /// # Errors
    /// `invalid_argument` for a bad expression, zone or mixture of times; `already_exists`; `not_found` for
    /// an unknown target.
    pub async fn create_schedule(
        &self,
        who: &Principal,
        request: Uuid,
        create: Create,
    ) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let (agent, create) = (create.target, Create { creator: who.as_agent(), ..create });
        let command = Command::Create(Box::new(create));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        self.on_schedule(who, request, command).await
    }

    /// Changes what is given.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it or leads; `not_found`; `wrong_state` for one that ran.
    pub async fn update_schedule(
        &self,
        who: &Principal,
        request: Uuid,
        update: Update,
    ) -> Result<Value, Refusal> {
        policy::require_arranging(who)?;
        let (agent, update) = (update.target.flatten(), Update { by: self.caller(who).await?, ..update });
        let command = Command::Update(Box::new(update));
        let command = self.naming(who, agent, command, Command::Denied).await?;
        self.on_schedule(who, request, command).await
    }

    /// Deletes a schedule; tasks that it made stay.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it or leads; `not_found`.
    pub async fn delete_schedule(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
    ) -> Result<(Uuid, String), Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        let key = who.entity(Kind::Schedules);
        match self.change::<Schedules>(&key, request, Command::Delete { which, by }).await? {
            Reply::Deleted { id, name } => Ok((id, name)),
            _ => Err(unexpected("the schedules")),
        }
    }

    /// Makes the schedule's task at once, or asks its agent for a run. What is refused the schedule says.
    ///
    /// # Errors
    /// `forbidden` unless the caller made it or leads; `disabled`; `not_found`; `wrong_state` for a one-time schedule
    /// that ran, and for one whose task the pool refuses.
    pub async fn run_schedule(
        &self,
        who: &Principal,
        request: Uuid,
        which: Which,
    ) -> Result<(Value, Made), Refusal> {
        policy::require_arranging(who)?;
        let by = self.caller(who).await?;
        let key = who.entity(Kind::Schedules);
        match self.change::<Schedules>(&key, request, Command::RunNow { which, by }).await? {
            Reply::Ran { schedule, task: Some(task), .. } => {
                self.taken(who, &schedule, task).await?;
                Ok((schedule, Made::Task(task)))
            }
            Reply::Ran { schedule, agent: Some(agent), .. } => Ok((schedule, Made::Run(agent))),
            _ => Err(unexpected("the schedules")),
        }
    }

    /// Waits until the pool has the task of a run by hand, or has refused it, of which the schedule says why. That
    /// neither could be looked at undoes nothing.
    async fn taken(&self, who: &Principal, ran: &Value, task: Uuid) -> Result<(), Refusal> {
        let Some(schedule) = id_of(ran, "id") else { return Err(unexpected("the schedules")) };
        let (key, document) = (who.entity(Kind::Schedules), format!("schedule/{schedule}"));
        let look = || async {
            if self.task(who, task).await?.is_some() {
                return Ok(Some(Ok(())));
            }
            let now = self.body(&key, &document).await?.unwrap_or_default();
            // What it said before is of another run.
            let is_new = now["lastErrorAt"] != ran["lastErrorAt"];
            let problem = now["lastErrorMessage"].as_str().filter(|_| is_new);
            Ok(problem.map(|problem| Err(problem.to_owned())))
        };
        let found = self.arrival(&[task, schedule], Instant::now() + ARRIVAL, look).await.ok().flatten();
        let Some(Err(problem)) = found else { return Ok(()) };
        let name = ran["name"].as_str().unwrap_or_default();
        Err(Refusal::new(
            Code::WrongState,
            format!(
                "the pool did not take the task of the schedule `{name}`: {problem}; change that with update-schedule \
                 and run it again, or create it anew if it was to run once"
            ),
        ))
    }

    /// A schedule, if there is one with the id.
    ///
    /// # Errors
    /// `forbidden` unless the caller may look.
    pub async fn schedule(&self, who: &Principal, schedule: Uuid) -> Result<Option<Value>, Refusal> {
        policy::require(who, Right::Read)?;
        let body = self.body(&who.entity(Kind::Schedules), &format!("schedule/{schedule}")).await?;
        Ok(body.map(|body| wire::shown(body, &[])))
    }

    /// Schedules by name, or the soonest first, and how many more there are than a list shows.
    pub async fn list_schedules(
        &self,
        who: &Principal,
        wanted: Wanted,
    ) -> Result<(Vec<Value>, usize), Refusal> {
        policy::require(who, Right::Read)?;
        let Wanted { enabled, name, one_time, hide_completed, soonest, after } = wanted;
        let command = Command::List { enabled, name, one_time, hide_completed, soonest, after };
        match self.ask::<Schedules>(&who.entity(Kind::Schedules), command).await? {
            Reply::List { schedules, left_out } => Ok((schedules, left_out)),
            _ => Err(unexpected("the schedules")),
        }
    }

    /// All schedules that are wanted, by name.
    ///
    /// # Errors
    /// `too_large` if they are more than one answer holds.
    pub async fn all_schedules(&self, who: &Principal, mut wanted: Wanted) -> Result<Vec<Value>, Refusal> {
        wanted.soonest = false;
        let (mut all, mut bytes) = (Vec::new(), 0);
        loop {
            let (page, left_out) = self.list_schedules(who, wanted.clone()).await?;
            bytes += json::length(&page);
            if bytes > limits::ANSWER {
                let most = limits::ANSWER >> 20;
                let problem =
                    format!("the schedules are more than {most} MiB; ask for those of a name or type");
                return Err(Refusal::new(Code::TooLarge, problem));
            }
            let behind = next(&page, left_out).map(str::to_owned);
            all.extend(page);
            match behind {
                Some(name) => wanted.after = name,
                None => return Ok(all),
            }
        }
    }

    async fn on_schedule(&self, who: &Principal, request: Uuid, command: Command) -> Result<Value, Refusal> {
        match self.change::<Schedules>(&who.entity(Kind::Schedules), request, command).await? {
            Reply::Schedule(schedule) => Ok(schedule),
            _ => Err(unexpected("the schedules")),
        }
    }
}
