//! Reports and ends: progress, results, cancellations, and what follows from them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Answer, not_yours, require_ready, require_reason, work, wrong_state};
use crate::channels::{self, Channels, Post};
use crate::code::{Code, Refusal};
use crate::costs::{self, Cost, Costs};
use crate::entity::{Ctx, Effect};
use crate::id::{EntityKey, InstanceId, Kind};
use crate::inboxes::{self, Deliver, Inboxes, Slack};
use crate::json::{Fields, Json};
use crate::limits;
use crate::memory::{self, Memory, Remember, Scope};
use crate::mutation::{self, Mutation};
use crate::pool::command::{About, Finish, Progress};
use crate::pool::creation::TaskSpec;
use crate::pool::event::Event;
use crate::pool::guard;
use crate::pool::state::{Outcome, Pool, Source, Status, Task, Term};
use crate::text::{beginning, excerpt};
use crate::wire;

/// The same progress text again within this time is no news.
const SAME_NEWS: Duration = Duration::from_secs(300);
/// Memories shorter than this teach nothing, characters.
const MEMORY_MIN: usize = 30;
/// Longest part of a task's text in a memory's name, and of task and result in a follow-up, characters.
const NAME: usize = 80;
const EXCERPT: usize = 200;
const RESULT: usize = 500;
/// Tasks that are named of those that wait for one.
const NAMED: usize = 20;
/// Longest part of a task in a memory that would be too long with all of it, bytes.
const TASK_PART: usize = limits::TEXT / 4;

/// The end of a task, as others are told of it.
#[derive(Clone, Copy)]
struct End<'a> {
    id: Uuid,
    /// As it was before.
    task: &'a Task,
    /// Who has ended it; nobody where that was the administration, or the pool itself.
    by: Option<Uuid>,
    about: Option<&'a About>,
    outcome: Outcome,
    result: &'a str,
}

impl End<'_> {
    /// Whose word it is.
    fn agent(&self) -> Option<Uuid> {
        self.by.or(self.task.agent)
    }
}

impl Pool {
    /// A report of the agent that has the task. It starts a pending or paused task, renews the lease, and
    /// with a result it ends the task: the first result stays.
    pub(super) fn decide_progress(&self, report: &Progress, ctx: &mut Ctx) -> Answer {
        let id = report.task;
        let task = &self.live(id)?;
        if !self.may_report(report, task) && !mutation::is_on(Mutation::ResultFromAnyone) {
            return Err(not_yours(
                id,
                "reported on",
                "the agent that it is assigned to, and ended by the lead",
            ));
        }
        if !matches!(task.status, Status::Pending | Status::InProgress | Status::Paused) {
            return Err(wrong_state(id, task.status, "reported on", "pending, in_progress or paused"));
        }
        require_lengths(report)?;
        report.cost.as_ref().map_or(Ok(()), Cost::check)?;
        let mut events = Vec::new();
        if let Some(text) = report.progress.as_deref().filter(|text| !text.is_empty()) {
            self.begin(report, task, &mut events, ctx)?;
            note_progress(report, task, text, &mut events, ctx);
        }
        let Some(finish) = &report.finish else {
            events.extend(sign(report, task, ctx).filter(|_| events.is_empty()));
            if events.is_empty() {
                return Ok(Self::unchanged(id, task));
            }
            return Ok(self.changed(id, task, events));
        };
        let (outcome, output, reason) = match finish {
            Finish::Completed { output } => (Outcome::Completed, output.clone(), None),
            Finish::Failed { reason } => (Outcome::Failed, None, Some(failure(reason.as_deref()))),
        };
        let output = output.filter(|text| !text.is_empty());
        let result = output.clone().or_else(|| reason.clone()).unwrap_or_default();
        let cost = report.cost.clone();
        events.push(Event::Finished { task: id, outcome, output, reason, cost, at: ctx.now });
        let mut decision = self.changed(id, task, events);
        let (by, about) = (report.by, report.about.as_ref());
        let end = End { id, task, by, about, outcome, result: &result };
        decision.effects = self.memories(&end, ctx);
        decision.effects.extend(self.notices(id, outcome));
        decision.effects.extend(self.tell_cost(&end, report.cost.as_ref(), ctx));
        if by.is_none() || by != self.lead {
            decision.events.extend(self.follow_up(&end, ctx));
        }
        Ok(decision)
    }

    /// Whose report counts: that of the agent that has the task. The lead may end it too, and its creator while nobody
    /// has begun it. Later not: a worker that made a task itself, and lost it, must not end what its successor does.
    fn may_report(&self, report: &Progress, task: &Task) -> bool {
        let Some(by) = report.by else { return true };
        let ends = report.finish.is_some() && report.progress.is_none();
        let unbegun = task.attempt == 0 && task.creator == Some(by);
        task.agent == Some(by) || (ends && (self.lead == Some(by) || unbegun))
    }

    /// Fails a task that nobody could bring to its end.
    pub(super) fn give_up(
        &self,
        id: Uuid,
        task: &Task,
        reason: &str,
        ctx: &mut Ctx,
    ) -> (Vec<Event>, Vec<Effect>) {
        let (outcome, cause) = (Outcome::Failed, Some(reason.to_owned()));
        let end = Event::Finished { task: id, outcome, output: None, reason: cause, cost: None, at: ctx.now };
        let told = self.follow_up(&End { id, task, by: None, about: None, outcome, result: reason }, ctx);
        (std::iter::once(end).chain(told).collect(), self.notices(id, outcome))
    }

    /// A report on a task that is not in progress begins it, under the rules of every beginning.
    fn begin(
        &self,
        report: &Progress,
        task: &Task,
        events: &mut Vec<Event>,
        ctx: &Ctx,
    ) -> Result<(), Refusal> {
        let Some(agent) = task.agent.filter(|_| task.status != Status::InProgress) else { return Ok(()) };
        require_ready(report.task, task)?;
        self.require_capacity(agent)?;
        let instance = report.instance.clone().unwrap_or_else(|| InstanceId(agent.to_string()));
        events.push(work::start(report.task, task, agent, &instance, report.managed, ctx));
        Ok(())
    }

    /// Lead and creator may cancel; so may the administration.
    pub(super) fn decide_cancel(
        &self,
        id: Uuid,
        by: Option<Uuid>,
        reason: &Option<String>,
        ctx: &Ctx,
    ) -> Answer {
        if let Some(by) = by {
            self.joined(by)?;
        }
        let task = &self.live(id)?;
        if by.is_some() && by != self.lead && by != task.creator {
            return Err(not_yours(id, "cancelled", "the lead or the agent that created it"));
        }
        require_reason(reason.as_deref())?;
        let reason = reason.clone().filter(|text| !text.trim().is_empty());
        let reason = Some(reason.unwrap_or_else(|| "Cancelled without a reason given".to_owned()));
        let (outcome, output) = (Outcome::Cancelled, None);
        let event = Event::Finished { task: id, outcome, output, reason, cost: None, at: ctx.now };
        Ok(self.changed(id, task, vec![event]).effects(self.notices(id, outcome)))
    }

    /// The lead learns of every end of a worker's task by a task of its own, and who has ended it.
    fn follow_up(&self, end: &End<'_>, ctx: &mut Ctx) -> Option<Event> {
        let End { id, task, by, about, outcome, result } = *end;
        let lead = self.lead?;
        let worker = task.agent.filter(|&agent| agent != lead).and_then(|agent| self.members.get(&agent))?;
        let (who, whose) = match by.filter(|by| task.agent != Some(*by)) {
            None => (worker.name.clone(), String::new()),
            Some(other) => {
                let name = self.members.get(&other).map(|member| member.name.clone());
                (name.unwrap_or_else(|| format!("agent {other}")), format!(" of {}", worker.name))
            }
        };
        let what = match about {
            Some(about) => excerpt(&about.text, EXCERPT),
            None => format!("task {id}"),
        };
        let (verb, label) = match outcome {
            Outcome::Completed => ("has completed", "Output"),
            _ => ("could not complete", "Reason"),
        };
        let result = if result.is_empty() { "(none)".to_owned() } else { excerpt(result, RESULT) };
        let mut text = format!(
            "{who} {verb} a task{whose}.\n\nTask: {what}\n\n{label}: {result}\n\nSee get-task-details with taskId {id} for all of it."
        );
        let blocked: Vec<Uuid> = match outcome {
            Outcome::Completed => Vec::new(),
            _ => self.indexes.waiting_for(id).collect(),
        };
        if !blocked.is_empty() {
            text.push_str(&format!("\n\nBlocked by it for good: {}", first_of(&blocked)));
        }
        let mut spec = TaskSpec::new(text);
        spec.task_type = Some("follow-up".to_owned());
        spec.parent = Some(id);
        spec.source = Source::System;
        spec.context = about.map(|about| about.context.clone()).unwrap_or_default();
        Some(self.news(lead, spec, ctx))
    }

    /// What the swarm learns from a result: whoever has brought it always, all of it where the task says so.
    fn memories(&self, end: &End<'_>, ctx: &mut Ctx) -> Vec<Effect> {
        let End { id, task, outcome, result, .. } = *end;
        let (Some(agent), Some(about)) = (end.agent(), end.about) else { return Vec::new() };
        let content = learning(&about.text, outcome, result);
        if content.chars().count() < MEMORY_MIN {
            return Vec::new();
        }
        let shared = about.task_type.as_deref() == Some("research")
            || about.tags.iter().any(|tag| tag == "knowledge" || tag == "shared")
            || task.epic.is_some();
        let mut scopes = vec![Scope::Agent];
        if shared && outcome == Outcome::Completed {
            scopes.push(Scope::Swarm);
        }
        let key = EntityKey::of(Kind::Memory, &self.swarm);
        let name = format!("Task: {}", about.text.chars().take(NAME).collect::<String>());
        let remember = |scope| {
            let remember = Remember {
                id: Some(ctx.id()),
                agent: Some(agent),
                scope,
                name: name.clone(),
                content: content.clone(),
                summary: None,
                source: memory::Source::TaskCompletion,
                source_task: Some(id),
                source_path: None,
                tags: memorable(&about.tags),
                chunk_index: 0,
                total_chunks: 1,
            };
            Effect::entity::<Memory>(key.clone(), &memory::Command::Remember(Box::new(remember)))
        };
        scopes.into_iter().map(remember).collect()
    }

    /// What it cost is added to what the swarm's work costs, in the name of the agent that says so: it is its own cost.
    fn tell_cost(&self, end: &End<'_>, cost: Option<&Cost>, ctx: &Ctx) -> Option<Effect> {
        let (id, agent, cost) = (end.id, end.agent()?, cost?.clone());
        let report = costs::Report {
            source: costs::Source::Task,
            session: format!("mcp-{id}-{}", ctx.now.millis()),
            agent,
            task: Some(id),
            failed: end.outcome != Outcome::Completed,
            cost,
        };
        let command = costs::Command::Report(Box::new(report));
        Some(Effect::entity::<Costs>(EntityKey::of(Kind::Costs, &self.swarm), &command))
    }

    /// Dependants of a task that did not complete can never start. The lead is told in its inbox; their other creators,
    /// who read no inbox, by a post that mentions them.
    fn notices(&self, id: Uuid, outcome: Outcome) -> Vec<Effect> {
        if outcome == Outcome::Completed {
            return Vec::new();
        }
        let mut told: BTreeMap<Uuid, Vec<Uuid>> = BTreeMap::new();
        for dependant in self.indexes.waiting_for(id) {
            let creator = self.tasks.get(dependant).and_then(|task| task.creator);
            let creator =
                creator.filter(|agent| self.members.contains_key(agent) && Some(*agent) != self.lead);
            for agent in creator.into_iter().chain(self.lead) {
                told.entry(agent).or_default().push(dependant);
            }
        }
        let notice = |(agent, blocked): (Uuid, Vec<Uuid>)| {
            let content = format!(
                "Task {id} is {}, so tasks that depend on it can never start: {}. Cancel them or create them anew.",
                outcome.status(),
                first_of(&blocked)
            );
            if Some(agent) == self.lead {
                let dedupe = format!("blocked:{id}:{agent}");
                self.leave_notice(agent, content, dedupe)
            } else {
                self.mention(agent, content)
            }
        };
        told.into_iter().map(notice).collect()
    }

    fn leave_notice(&self, lead: Uuid, content: String, dedupe: String) -> Effect {
        let deliver = Deliver {
            agent: lead,
            content,
            source: inboxes::Source::System,
            slack: Slack::default(),
            mail: None,
            dedupe: Some(dedupe),
        };
        let command = inboxes::Command::Deliver(Box::new(deliver));
        Effect::entity::<Inboxes>(EntityKey::of(Kind::Inboxes, &self.swarm), &command)
    }

    fn mention(&self, agent: Uuid, content: String) -> Effect {
        let post = Post {
            author: None,
            channel: None,
            content,
            reply_to: None,
            mentions: vec![agent],
            strangers: Vec::new(),
            assignees: Vec::new(),
        };
        let command = channels::Command::Post(Box::new(post));
        Effect::entity::<Channels>(EntityKey::of(Kind::Channels, &self.swarm), &command)
    }
}

/// The first of these tasks, and how many more there are: no message takes all that may wait for one.
fn first_of(tasks: &[Uuid]) -> String {
    let first = tasks.iter().take(NAMED).map(Uuid::to_string).collect::<Vec<_>>().join(", ");
    match tasks.len().checked_sub(NAMED) {
        None | Some(0) => first,
        Some(more) => format!("{first} and {more} more"),
    }
}

/// What is remembered of an end. Where the memory takes less than that, the task is cut before its result.
fn learning(task: &str, outcome: Outcome, result: &str) -> String {
    let tell = |task: &str| match outcome {
        Outcome::Completed => format!("Task: {task}\n\nOutput: {result}"),
        _ => format!(
            "Task: {task}\n\nFailed: {result}\n\nLesson: know this reason before you try something like it again."
        ),
    };
    let whole = tell(task);
    if whole.len() <= limits::TEXT {
        return whole;
    }
    beginning(&tell(beginning(task, TASK_PART)), limits::TEXT).to_owned()
}

/// The tags of a task as the memory takes them: that of its epic comes to those that it may have.
fn memorable(tags: &[String]) -> Vec<String> {
    let tags = tags.iter().filter(|tag| !tag.is_empty()).map(|tag| wire::tag(tag));
    tags.take(limits::TAGS).collect()
}

fn note_progress(report: &Progress, task: &Task, text: &str, events: &mut Vec<Event>, ctx: &Ctx) {
    let started = !events.is_empty();
    let spoke = started || (report.instance.is_some() && report.instance == task.instance);
    let managed = if started { report.managed } else { task.managed };
    let until = ctx.now + Term::lease(managed).period();
    let same = task.progress == Some(guard::hash(text)) && ctx.now.since(task.updated) < SAME_NEWS;
    if !same {
        let text = text.to_owned();
        events.push(Event::Progressed { task: report.task, text, reported: spoke, until, at: ctx.now });
    } else if spoke && (started || !task.reported) {
        events.push(Event::Reported { task: report.task, until, at: ctx.now });
    }
}

/// A report that says nothing says that the hand-over has arrived.
fn sign(report: &Progress, task: &Task, ctx: &Ctx) -> Option<Event> {
    let spoke = report.instance.is_some() && report.instance == task.instance;
    let until = ctx.now + Term::lease(task.managed).period();
    (spoke && !task.reported).then(|| Event::Reported { task: report.task, until, at: ctx.now })
}

fn require_lengths(report: &Progress) -> Result<(), Refusal> {
    let result = report.finish.as_ref().and_then(|finish| match finish {
        Finish::Completed { output } => output.as_ref(),
        Finish::Failed { reason } => reason.as_ref(),
    });
    for (field, text) in [("progress", report.progress.as_ref()), ("output", result)] {
        if text.is_some_and(|text| text.len() > limits::TEXT) {
            return Err(Refusal::new(
                Code::TooLarge,
                format!("{field}: more than {} bytes; write it to a file and name the file", limits::TEXT),
            ));
        }
    }
    Ok(())
}

/// The reason that is stored for a failure.
pub(super) fn failure(reason: Option<&str>) -> String {
    match reason {
        Some(text) if !text.trim().is_empty() => text.to_owned(),
        _ => "Failed without a reason given".to_owned(),
    }
}

/// Slack fields alone travel from a task to its follow-up.
fn slack(body: &Fields<'_>) -> Map<String, Value> {
    let fields = ["slackChannelId", "slackThreadTs", "slackUserId"];
    let found = fields.into_iter().filter_map(|name| Some((name.to_owned(), body.read(name)?)));
    found.collect()
}

impl About {
    /// Reads the fixed words of a task from its body.
    pub fn of_body(body: &Json) -> Option<Self> {
        let body = Fields::of(body);
        Some(Self {
            text: body.read("task")?,
            task_type: body.read("taskType"),
            tags: body.read("tags").unwrap_or_default(),
            context: slack(&body),
        })
    }
}
