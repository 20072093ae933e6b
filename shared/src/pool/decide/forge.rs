//! Forges: who gets what people ask the swarm for at GitHub and GitLab, and what becomes of it (spec: Agent Swarm 4.6).

use std::time::Duration;

use uuid::Uuid;

use super::Answer;
use crate::entity::{Ctx, Decision};
use crate::forge::{Act, Activity, Forge, Subject};
use crate::pool::command::{Create, Reply, Rules, Target, TaskSpec};
use crate::pool::state::{Origin, Pool, Source, Task};

/// Within this time whatever asks for the same, such as a mention and an assignment, is one question.
const SAME_QUESTION: Duration = Duration::from_secs(60);
/// What the lead is told beside what happened.
const ADVICE: &str = "If others shall do it, send-task with this task as parentTaskId before you finish it: then the \
                      swarm knows what theirs is about, and tells you what becomes of it.";

impl Pool {
    /// What is asked for is a task of the lead's, and of the pool's while nobody leads; so are news of what an open task
    /// is about. What is the swarm's no longer ends all tasks about it.
    pub(super) fn decide_forge(&self, activity: &Activity, ctx: &mut Ctx) -> Answer {
        let open = self.open_about(&activity.subjects);
        // News alone keep nothing open: they would go on for ever.
        let work = open.iter().filter(|(_, _, task)| !matches!(task.origin, Some(Origin::News { .. })));
        let newest = work.max_by_key(|(_, id, task)| (task.created, *id));
        let parent = newest.map(|(_, id, _)| *id);
        match &activity.act {
            Act::Ask { task_type, words, once } => {
                let is_asked = newest.is_some_and(|(_, _, task)| ctx.now.since(task.created) < SAME_QUESTION);
                match activity.subjects.first().filter(|_| !(*once && is_asked)) {
                    Some(subject) => {
                        let origin = Origin::Subject(subject.clone());
                        self.ask_the_lead(
                            self.task_of(activity, subject, task_type, words),
                            origin,
                            parent,
                            ctx,
                        )
                    }
                    None => Ok(Decision::reply(Reply::Heard { tasks: Vec::new() })),
                }
            }
            Act::News { task_type, words } => match newest {
                Some((subject, ..)) => {
                    let origin = Origin::News { news: (*subject).clone() };
                    self.ask_the_lead(self.task_of(activity, subject, task_type, words), origin, parent, ctx)
                }
                None => Ok(Decision::reply(Reply::Heard { tasks: Vec::new() })),
            },
            Act::Withdraw { reason } => {
                let (mut events, mut effects) = (Vec::new(), Vec::new());
                for (_, id, task) in &open {
                    let (ended, told) = self.give_up(*id, task, reason, ctx);
                    events.extend(ended);
                    effects.extend(told);
                }
                Ok(Decision::new(Reply::Heard { tasks: Vec::new() }, events).effects(effects))
            }
        }
    }

    fn open_about<'a>(&self, subjects: &'a [Subject]) -> Vec<(&'a Subject, Uuid, Task)> {
        let mut open = Vec::new();
        for subject in subjects {
            for origin in [Origin::Subject(subject.clone()), Origin::News { news: subject.clone() }] {
                let tasks = self.indexes.of_origin(&origin).filter_map(|id| Some((id, self.tasks.get(id)?)));
                open.extend(tasks.map(|(id, task)| (subject, id, task)));
            }
        }
        open
    }

    fn task_of(&self, activity: &Activity, subject: &Subject, task_type: &str, words: &str) -> TaskSpec {
        let words = if self.lead.is_some() { format!("{words}\n{ADVICE}") } else { words.to_owned() };
        let mut context = activity.fields.clone();
        context.extend(subject.fields());
        let source = match subject.forge() {
            Forge::Github => Source::Github,
            Forge::Gitlab => Source::Gitlab,
        };
        TaskSpec { task_type: Some(task_type.to_owned()), source, context, ..TaskSpec::new(words) }
    }

    /// Without asking for capacity: who writes at a forge does not look at that.
    fn ask_the_lead(&self, spec: TaskSpec, origin: Origin, parent: Option<Uuid>, ctx: &mut Ctx) -> Answer {
        let spec = TaskSpec { origin: Some(origin), parent, ..spec };
        let target = self.lead.map_or(Target::Pool, |lead| Target::Assign { agent: Some(lead) });
        let create = Create { by: None, spec, target, rules: Rules::Plain, facts: Vec::new() };
        let mut made = self.decide_create(&create, ctx)?;
        if let Reply::Created { task, .. } = &made.reply {
            made.reply = Reply::Heard { tasks: vec![task.id] };
        }
        Ok(made)
    }
}
