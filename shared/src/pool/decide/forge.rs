//! Forges: who gets what people ask the swarm for at GitHub and GitLab, and what becomes of it (spec: Agent Swarm 4.6).

use std::time::Duration;

use uuid::Uuid;

use super::Answer;
use crate::entity::{Ctx, Decision};
use crate::forge::{Act, Activity, Forge, Subject};
use crate::pool::command::Reply;
use crate::pool::creation::{Create, Rules, Target, TaskSpec};
use crate::pool::event::Event;
use crate::pool::state::{ForgeLink, Pool, Source, Task};

/// Within this time whatever asks for the same, such as a mention and an assignment, is one question.
const SAME_QUESTION: Duration = Duration::from_secs(60);
/// What the lead is told beside what happened.
const ADVICE: &str = "If others shall do it, send-task with this task as parentTaskId before you finish it: then the \
                      swarm knows what theirs is about, and tells you what becomes of it.";

impl Pool {
    /// What is asked for is a task of the lead's, and of the pool's while nobody leads; so are news of what an open
    /// task is about. What is the swarm's no longer ends all tasks about it.
    pub(super) fn decide_forge(&self, activity: &Activity, ctx: &mut Ctx) -> Answer {
        let mut decision = Decision::reply(Reply::Heard { tasks: Vec::new() });
        for subject in &activity.subjects {
            let open = self.open_about(subject);
            if activity.act == Act::Withdraw {
                let reason = activity.report.reason(subject);
                for (id, task) in &open {
                    let (events, effects) = self.give_up(*id, task, &reason, ctx);
                    decision.events.extend(events);
                    decision.effects.extend(effects);
                }
                continue;
            }
            let Some(create) = self.task_about(activity, subject, &open, ctx) else { continue };
            let made = self.decide_create(&create, ctx)?;
            // An open poll gets one task, and each of these was decided as if there were no other.
            let is_start = |event: &Event| matches!(event, Event::Started { .. });
            let handed_over = decision.events.iter().any(is_start);
            decision.events.extend(made.events.into_iter().filter(|event| !(handed_over && is_start(event))));
            if let (Reply::Heard { tasks }, Reply::Created { task, .. }) = (&mut decision.reply, made.reply) {
                tasks.push(task.id);
            }
        }
        Ok(decision)
    }

    fn open_about(&self, subject: &Subject) -> Vec<(Uuid, Task)> {
        self.indexes.of_subject(subject).filter_map(|id| Some((id, self.tasks.get(id)?))).collect()
    }

    /// The task that comes of it, if one does: without asking for capacity, for who writes at a forge does not look at
    /// that.
    fn task_about(
        &self,
        activity: &Activity,
        subject: &Subject,
        open: &[(Uuid, Task)],
        ctx: &Ctx,
    ) -> Option<Create> {
        // News alone keep nothing open: they would go on for ever.
        let work = open.iter().filter(|(_, task)| !matches!(task.forge, Some(ForgeLink::News(_))));
        let newest = work.max_by_key(|(id, task)| (task.created, *id)).map(|(id, _)| *id);
        let (task_type, link) = match &activity.act {
            Act::Ask { task_type, once: true } => {
                if open.iter().any(|(_, task)| is_the_same_question(task, ctx)) {
                    return None;
                }
                (task_type, ForgeLink::Asked(subject.clone()))
            }
            Act::Ask { task_type, once: false } => (task_type, ForgeLink::Part(subject.clone())),
            Act::News { task_type } => {
                newest?;
                (task_type, ForgeLink::News(subject.clone()))
            }
            Act::Withdraw => return None,
        };
        let advice = self.lead.map(|_| format!("\n{ADVICE}")).unwrap_or_default();
        let mut context = activity.fields.clone();
        context.extend(subject.fields());
        let spec = TaskSpec {
            task_type: Some(task_type.clone()),
            source: match subject.forge() {
                Forge::Github => Source::Github,
                Forge::Gitlab => Source::Gitlab,
            },
            forge: Some(link),
            parent: newest,
            context,
            ..TaskSpec::new(format!("{}{advice}", activity.report.words(subject)))
        };
        let target = self.lead.map_or(Target::Pool, |lead| Target::Assign { agent: Some(lead) });
        Some(Create { by: None, spec, target, rules: Rules::Plain, facts: Vec::new() })
    }
}

/// Whether the task came of a question that was asked just now.
fn is_the_same_question(task: &Task, ctx: &Ctx) -> bool {
    matches!(task.forge, Some(ForgeLink::Asked(_))) && ctx.now.since(task.created) < SAME_QUESTION
}
