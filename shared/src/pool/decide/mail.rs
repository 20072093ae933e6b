//! Letters: who gets what people write to the swarm by e-mail (spec: Agent Swarm 4.5).

use uuid::Uuid;

use super::Answer;
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::inboxes::{self, Deliver, Inboxes};
use crate::mail::{self, Ids, Letter, Mail};
use crate::pool::command::{Mailed, Reply};
use crate::pool::creation::{Create, Rules, Target, TaskSpec};
use crate::pool::state::{Pool, Source};
use crate::pool::view::TaskView;

/// The type of a task about a letter that begins a thread.
pub(super) const MESSAGE: &str = "agentmail-message";
/// The type of one about what follows in a thread.
const REPLY: &str = "agentmail-reply";

impl Pool {
    /// What comes in a thread goes to whoever has the thread's task; else the agent whose inbox it is gets it; else the
    /// lead; else the pool. The lead gets messages, all others tasks.
    pub(super) fn decide_mail(&self, mailed: &Mailed, ctx: &mut Ctx) -> Answer {
        let letter = &mailed.letter;
        let is_member = |agent: &Uuid| self.members.contains_key(agent);
        let kind = if mailed.task.is_some() { REPLY } else { MESSAGE };
        let spec = TaskSpec { parent: mailed.task, ..task_of(letter, kind) };
        let worker = mailed
            .task
            .and_then(|task| self.tasks.get(task).map_or(mailed.worker, |task| task.agent))
            .filter(is_member);
        if worker.is_some() {
            return self.hand_in(&letter.ids, spec, worker, ctx);
        }
        match mailed.agent.filter(is_member).or(self.lead) {
            Some(agent) if Some(agent) == self.lead => Ok(self.leave_to_the_lead(letter, agent)),
            agent => self.hand_in(&letter.ids, spec, agent, ctx),
        }
    }

    /// A task, without asking for capacity: who writes a letter does not look at that.
    pub(super) fn hand_in(&self, ids: &Ids, spec: TaskSpec, agent: Option<Uuid>, ctx: &mut Ctx) -> Answer {
        let target = agent.map_or(Target::Pool, |agent| Target::Assign { agent: Some(agent) });
        let create = Create { by: None, spec, target, rules: Rules::Plain, facts: Vec::new() };
        let mut made = self.decide_create(&create, ctx)?;
        let Reply::Created { task: TaskView { id: task, .. }, .. } = made.reply else { return Ok(made) };
        made.effects.extend(ids.thread.clone().map(|thread| self.follow_thread(thread, task, agent)));
        made.reply = Reply::Heard { tasks: vec![task] };
        Ok(made)
    }

    /// Has what comes next in a thread go to whoever has this task.
    pub(super) fn follow_thread(&self, thread: String, task: Uuid, agent: Option<Uuid>) -> Effect {
        let follow = mail::Command::Follow { thread, task, agent };
        Effect::entity::<Mail>(EntityKey::of(Kind::Mail, &self.swarm), &follow)
    }

    fn leave_to_the_lead(&self, letter: &Letter, lead: Uuid) -> Decision<Self> {
        let deliver = Deliver {
            agent: lead,
            content: letter.words(),
            source: inboxes::Source::Agentmail,
            slack: inboxes::Slack::default(),
            mail: Some(letter.ids.clone()),
            dedupe: None,
        };
        let command = inboxes::Command::Deliver(Box::new(deliver));
        let effect = Effect::entity::<Inboxes>(EntityKey::of(Kind::Inboxes, &self.swarm), &command);
        Decision::reply(Reply::Heard { tasks: Vec::new() }).effects(vec![effect])
    }
}

fn task_of(letter: &Letter, kind: &str) -> TaskSpec {
    mailed(&letter.ids, letter.words(), kind)
}

/// A task about words that came by mail.
pub(super) fn mailed(ids: &Ids, words: String, kind: &str) -> TaskSpec {
    TaskSpec {
        task_type: Some(kind.to_owned()),
        source: Source::Agentmail,
        context: ids.fields(),
        ..TaskSpec::new(words)
    }
}
