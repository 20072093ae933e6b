//! New tasks: who they go to, what they wait for, and whether they are new at all.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;

use super::Answer;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::forge::Forge;
use crate::limits;
use crate::mail;
use crate::pool::command::Reply;
use crate::pool::creation::{Create, Fact, Rules, Target, TaskSpec};
use crate::pool::dependency::Dependency;
use crate::pool::event::{Created, Event};
use crate::pool::guard::Sketch;
use crate::pool::state::{ForgeLink, Pool, Source, Status, Task};
use crate::wire;

/// Longest task type, characters.
const TASK_TYPE: usize = 50;
/// Highest priority.
const PRIORITY_MAX: u8 = 100;

impl Pool {
    pub(super) fn decide_create(&self, create: &Create, ctx: &mut Ctx) -> Answer {
        let spec = &create.spec;
        require_shape(spec)?;
        require_epic(spec)?;
        let delegation = matches!(create.rules, Rules::Delegation { .. } | Rules::Inbox { .. });
        if delegation && named(create.target).is_some_and(|agent| create.by == Some(agent)) {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "agentId: you cannot send a task to yourself; leave it out to put the task into the pool",
            ));
        }
        let missing = self.missing_facts(create, ctx);
        if !missing.is_empty() {
            let asked = Some(self.ends.moment(ctx.epoch));
            return Ok(Decision::reply(Reply::NeedFacts { tasks: missing, asked }));
        }
        let id = spec.id.unwrap_or_else(|| self.new_id(ctx));
        self.require_new(id, create)?;
        self.require_no_cycle(id, spec)?;
        self.require_alone(create)?;

        let agent = self.routed(create, delegation);
        let sketch = create.by.map(|_| Sketch::of(&spec.task, &spec.context));
        let assigned = agent.filter(|_| matches!(create.target, Target::Assign { .. }));
        let guarded = matches!(
            create.rules,
            Rules::Delegation { allow_duplicate: false } | Rules::Inbox { allow_duplicate: false }
        );
        if let (true, Some(by), Some(sketch)) = (guarded, create.by, &sketch) {
            self.require_no_duplicate(by, sketch, assigned, ctx)?;
        }
        if let Some(agent) = agent {
            let needs_room = assigned.is_some() && !is_delegated_message(create);
            self.require_target(agent, create, needs_room)?;
        }
        let created = self.created(id, create, agent, sketch, ctx);
        let warnings = warnings(&created, create);
        let task = Task::of(&created);
        let started: Vec<Event> = self.hand_over(id, &task, ctx).into_iter().collect();
        let task = super::after(task, &started).view(id);
        let events = std::iter::once(Event::Created(Box::new(created))).chain(started).collect();
        let follow = self.delegated_thread(id, create, agent);
        Ok(Decision::new(Reply::Created { task, warnings }, events).effects(follow.into_iter().collect()))
    }

    /// An id for a task that is made now. Tasks that are equal else are in the order of their ids, which is that of their
    /// coming, within a millisecond too.
    pub(super) fn new_id(&self, ctx: &mut Ctx) -> Uuid {
        ctx.id_behind(self.tasks.newest_of(ctx.now))
    }

    /// The thread of a letter that the lead has made a task of: what comes next in it goes to the worker.
    fn delegated_thread(&self, task: Uuid, create: &Create, agent: Option<Uuid>) -> Option<Effect> {
        let thread = create.spec.context.get(mail::THREAD).filter(|_| is_delegated_message(create))?;
        Some(self.follow_thread(thread.as_str()?.to_owned(), task, agent))
    }

    fn created(
        &self,
        task: Uuid,
        create: &Create,
        agent: Option<Uuid>,
        sketch: Option<Sketch>,
        ctx: &Ctx,
    ) -> Created {
        let (status, agent, offered_to) = match (create.target, agent) {
            (Target::Backlog, _) => (Status::Backlog, None, None),
            (Target::Offer { .. }, Some(agent)) => (Status::Offered, None, Some(agent)),
            (Target::Assign { .. }, Some(agent)) => (Status::Pending, Some(agent), None),
            _ => (Status::Unassigned, None, None),
        };
        let mut spec = create.spec.clone();
        let tag = spec.epic_name.as_ref().map(|name| wire::tag(&format!("epic:{name}")));
        spec.tags.extend(tag.filter(|tag| !create.spec.tags.contains(tag)));
        self.pass_on_subject(create, &mut spec);
        let mut seen = BTreeSet::new();
        spec.depends_on.retain(|&id| seen.insert(id));
        let outcome =
            |id: &Uuid| if self.tasks.contains(*id) { None } else { self.known(create, *id)?.outcome };
        let dependencies =
            spec.depends_on.iter().map(|id| Dependency { task: *id, outcome: outcome(id) }).collect();
        let until = offered_to.map(|_| ctx.now + limits::OFFER);
        let by = create.by;
        let (news, at) = (false, ctx.now);
        Created { task, by, spec, status, agent, offered_to, dependencies, until, sketch, news, at }
    }

    /// What an agent makes of a task about an issue is about that issue, too, unless it comes from Slack or names
    /// another repository.
    fn pass_on_subject(&self, create: &Create, spec: &mut TaskSpec) {
        let parent = spec.parent.filter(|_| create.by.is_some() && spec.source != Source::Slack);
        let parent = parent.and_then(|parent| self.tasks.get(parent));
        let Some(subject) = parent.as_ref().and_then(|task| task.forge.as_ref()).map(ForgeLink::subject)
        else {
            return;
        };
        let named = spec.context.get("githubRepo");
        if named.is_none_or(|repo| *repo == subject.repo() && subject.forge() == Forge::Github) {
            spec.context.extend(subject.fields());
            spec.forge = Some(ForgeLink::Part(subject.clone()));
        }
    }

    /// Tasks that the decision depends on and that neither the pool nor the facts know.
    fn missing_facts(&self, create: &Create, ctx: &Ctx) -> Vec<Uuid> {
        let routes = matches!(create.target, Target::Assign { agent: None } | Target::Offer { agent: None });
        let parent = create.spec.parent.filter(|_| routes);
        let needed = create.spec.depends_on.iter().copied().chain(parent).chain(create.spec.id);
        let stands = |id: &Uuid| self.known(create, *id).is_some_and(|fact| self.stands(&fact, ctx));
        let is_missing = |id: &Uuid| !self.tasks.contains(*id) && !stands(id);
        needed.filter(is_missing).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// What is known of a task that the pool does not hold: what the service found, and how it has ended since.
    fn known(&self, create: &Create, id: Uuid) -> Option<Fact> {
        let fact = *found(create, id)?;
        let ended = if fact.outcome.is_none() { self.ends.of(id) } else { None };
        Some(ended.unwrap_or(fact))
    }

    /// Whether a fact is still one. An end is; what had not ended when it was asked for may have since, unless the ends
    /// since then are known.
    fn stands(&self, fact: &Fact, ctx: &Ctx) -> bool {
        fact.outcome.is_some() || fact.asked.is_none_or(|asked| self.ends.reach_back_to(asked, ctx.epoch))
    }

    fn routed(&self, create: &Create, delegation: bool) -> Option<Uuid> {
        match create.target {
            Target::Pool | Target::Backlog => None,
            Target::Assign { agent: Some(agent) } | Target::Offer { agent: Some(agent) } => Some(agent),
            Target::Assign { agent: None } | Target::Offer { agent: None } => {
                let parent = create.spec.parent?;
                let agent = match self.tasks.get(parent) {
                    Some(task) => task.agent,
                    None => self.known(create, parent)?.agent,
                };
                // What a lead sends of its own work is for others: nobody sends tasks to the lead.
                let leads = delegation && create.by == self.lead;
                let agent = agent.filter(|_| !(leads && agent == self.lead));
                // Whoever has left does no more of it.
                agent.filter(|agent| self.members.contains_key(agent))
            }
        }
    }

    fn require_target(&self, agent: Uuid, create: &Create, needs_room: bool) -> Result<(), Refusal> {
        let Some(member) = self.members.get(&agent) else {
            let problem =
                format!("agent {agent} is not a member of this swarm; see get-swarm for those who are");
            return Err(Refusal::new(Code::NotFound, problem));
        };
        if matches!(create.rules, Rules::Plain | Rules::Alone) {
            return Ok(());
        }
        if member.lead {
            let problem =
                format!("{} is the lead, and tasks are not sent to the lead; send it a message", member.name);
            return Err(Refusal::new(Code::InvalidArgument, problem));
        }
        let active = self.active(agent);
        if needs_room && active >= member.max_tasks as usize {
            let otherwise = way_around(create);
            return Err(Refusal::new(
                Code::NoCapacity,
                format!(
                    "{} is at capacity ({active}/{}); use offerMode to offer the task, or {otherwise}",
                    member.name, member.max_tasks
                ),
            )
            .with(json!({ "current": active, "max": member.max_tasks })));
        }
        Ok(())
    }

    fn require_new(&self, id: Uuid, create: &Create) -> Result<(), Refusal> {
        let ended = self.known(create, id).is_some_and(|fact| fact.outcome.is_some());
        if !ended && !self.tasks.contains(id) {
            return Ok(());
        }
        Err(Refusal::new(Code::AlreadyExists, format!("there is a task {id} already; choose another id")))
    }

    fn require_alone(&self, create: &Create) -> Result<(), Refusal> {
        let schedule = create.spec.schedule.filter(|_| create.rules == Rules::Alone);
        let Some(open) = schedule.and_then(|schedule| self.indexes.of_schedule(schedule).next()) else {
            return Ok(());
        };
        let problem = format!(
            "task {open} of the same schedule has not ended, and the schedule makes none beside it; end or cancel that \
             one, or run the schedule by hand"
        );
        Err(Refusal::new(Code::Duplicate, problem).with(json!({ "task": open })))
    }

    /// A chosen id may be one that live tasks already wait for: then the new task must not wait for them. For any other
    /// id nothing above the new task has to be looked at.
    fn require_no_cycle(&self, id: Uuid, spec: &TaskSpec) -> Result<(), Refusal> {
        if !spec.depends_on.contains(&id) && self.indexes.waiting_for(id).next().is_none() {
            return Ok(());
        }
        let mut open = spec.depends_on.clone();
        let mut seen = BTreeSet::new();
        while let Some(next) = open.pop() {
            if next == id {
                return Err(Refusal::new(
                    Code::Cycle,
                    format!(
                        "task {id} would wait for itself through its dependencies; leave one of them out"
                    ),
                ));
            }
            if seen.insert(next)
                && let Some(task) = self.tasks.get(next)
            {
                open.extend(task.dependencies.iter().filter(|d| d.outcome.is_none()).map(|d| d.task));
            }
        }
        Ok(())
    }

    fn require_no_duplicate(
        &self,
        by: Uuid,
        sketch: &Sketch,
        assigned: Option<Uuid>,
        ctx: &Ctx,
    ) -> Result<(), Refusal> {
        for (id, other) in self.recent.young(by, ctx.now) {
            let Some(task) = self.tasks.get(id) else { continue };
            let same_agent = assigned.is_some() && task.agent == assigned;
            if let Some(why) = other.duplicate(sketch, same_agent) {
                return Err(Refusal::new(
                    Code::Duplicate,
                    format!("this looks like a duplicate of your task {id}: {why}; set allowDuplicate to send it all the same"),
                )
                .with(json!({ "task": id })));
            }
        }
        Ok(())
    }
}

fn found(create: &Create, id: Uuid) -> Option<&Fact> {
    create.facts.iter().find(|fact| fact.task == id)
}

fn is_delegated_message(create: &Create) -> bool {
    matches!(create.rules, Rules::Inbox { .. })
}

fn named(target: Target) -> Option<Uuid> {
    match target {
        Target::Assign { agent } | Target::Offer { agent } => agent,
        Target::Pool | Target::Backlog => None,
    }
}

/// How a task gets past the agent that it would go to.
fn way_around(create: &Create) -> &'static str {
    match (named(create.target), create.spec.parent) {
        (Some(_), None) => "leave agentId out for the pool",
        (Some(_), Some(_)) => "leave agentId and parentTaskId out for the pool",
        (None, _) => "name another agent with agentId, or leave parentTaskId out for the pool",
    }
}

fn warnings(created: &Created, create: &Create) -> Vec<String> {
    let mut warnings = Vec::new();
    for dependency in &created.dependencies {
        let id = dependency.task;
        if dependency.is_broken() {
            warnings.push(format!("dependency {id} did not complete, so this task is blocked for good"));
        } else if dependency.outcome.is_none() && found(create, id).is_some_and(|f| f.outcome.is_none()) {
            warnings
                .push(format!("dependency {id} is unknown; the task waits until one with this id completes"));
        }
    }
    warnings
}

/// The service tells the name of every epic that is there.
fn require_epic(spec: &TaskSpec) -> Result<(), Refusal> {
    match spec.epic.filter(|_| spec.epic_name.is_none()) {
        None => Ok(()),
        Some(epic) => Err(Refusal::new(
            Code::NotFound,
            format!("epicId: there is no epic {epic}; list-epics shows those there are"),
        )),
    }
}

fn require_shape(spec: &TaskSpec) -> Result<(), Refusal> {
    let invalid = |problem: String| Err(Refusal::new(Code::InvalidArgument, problem));
    if spec.task.trim().is_empty() {
        return invalid("task: say what is to be done".to_owned());
    }
    if spec.task.len() > limits::TEXT {
        let problem =
            format!("task: more than {} bytes; put the material into a file and name it", limits::TEXT);
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    if spec.priority > PRIORITY_MAX {
        return invalid(format!("priority: {} is not between 0 and {PRIORITY_MAX}", spec.priority));
    }
    if spec.task_type.as_ref().is_some_and(|kind| kind.chars().count() > TASK_TYPE) {
        return invalid(format!("taskType: at most {TASK_TYPE} characters; shorten it"));
    }
    if spec.tags.len() > limits::TAGS || spec.tags.iter().any(|tag| tag.chars().count() > limits::TAG) {
        return invalid(format!("tags: at most {} tags of at most {} characters", limits::TAGS, limits::TAG));
    }
    if spec.depends_on.len() > limits::DEPENDENCIES {
        return invalid(format!("dependsOn: at most {} tasks; put a task between", limits::DEPENDENCIES));
    }
    Ok(())
}
