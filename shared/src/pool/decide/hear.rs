//! People: who gets what they say in Slack, and what they are told of the tasks that come of it.

use std::collections::BTreeSet;

use serde_json::json;
use uuid::Uuid;

use super::Answer;
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::inboxes::{self, Inboxes};
use crate::pool::command::Reply;
use crate::pool::creation::{Create, Rules, Target, TaskSpec};
use crate::pool::event::Event;
use crate::pool::state::{Outcome, Pool, Source, Status, Task};
use crate::slack::{Note, Said, Thread};

impl Pool {
    /// Whoever is named gets it; in a thread whoever works in it; else, if the swarm was meant, the lead, or the pool
    /// while nobody leads. What nobody is meant by changes nothing.
    pub(super) fn decide_hear(&self, said: &Said, ctx: &mut Ctx) -> Answer {
        let request = said.request();
        let named = said.named();
        let is_named = named.all || !named.agents.is_empty();
        if request.is_empty() {
            let asked = (said.mentioned || is_named).then(|| self.asks_back(said));
            return Ok(
                Decision::reply(Reply::Heard { tasks: Vec::new() }).effects(asked.into_iter().collect())
            );
        }
        let request = said.explained(request);
        let mut agents = self.named_members(&named.agents, named.all);
        if !is_named && said.is_in_thread() {
            agents.extend(self.working_in(&said.thread()));
        }
        let meant = said.mentioned || is_named;
        if agents.is_empty() {
            return match self.lead {
                None if meant => self.hand_out(said, &request, &[None], ctx),
                lead => Ok(self.leave_to_inboxes(said, request, lead, meant)),
            };
        }
        let (lead, workers): (Vec<Uuid>, Vec<Uuid>) =
            agents.into_iter().partition(|agent| Some(*agent) == self.lead);
        let workers: Vec<Option<Uuid>> = workers.into_iter().map(Some).collect();
        let mut decision = self.hand_out(said, &request, &workers, ctx)?;
        if let Some(lead) = lead.first() {
            decision.effects.extend(self.leave_to_inboxes(said, request, Some(*lead), true).effects);
        }
        Ok(decision)
    }

    /// Members that are awake: those of these ids, and of all those who do not lead.
    fn named_members(&self, ids: &BTreeSet<Uuid>, all: bool) -> BTreeSet<Uuid> {
        let awake = self.members.iter().filter(|(_, member)| !member.offline);
        awake.filter(|(id, member)| ids.contains(id) || (all && !member.lead)).map(|(id, _)| *id).collect()
    }

    /// The agent that has the newest task of the thread under way.
    fn working_in(&self, thread: &Thread) -> Option<Uuid> {
        let tasks = self.indexes.of_thread(thread).filter_map(|id| Some((self.tasks.get(id)?, id)));
        let open = tasks.filter(|(task, _)| matches!(task.status, Status::Pending | Status::InProgress));
        let agent = open.max_by_key(|(task, id)| (task.created, *id))?.0.agent?;
        self.members.get(&agent).filter(|member| !member.offline).map(|_| agent)
    }

    /// A task for each of the agents, without asking for capacity: people do not look at that.
    fn hand_out(&self, said: &Said, request: &str, agents: &[Option<Uuid>], ctx: &mut Ctx) -> Answer {
        let (mut tasks, mut events) = (Vec::new(), Vec::new());
        for agent in agents {
            let mut spec = TaskSpec { source: Source::Slack, ..TaskSpec::new(request) };
            for (field, value) in [
                ("slackChannelId", &said.channel),
                ("slackThreadTs", &said.thread),
                ("slackUserId", &said.user),
            ] {
                spec.context.insert(field.to_owned(), json!(value));
            }
            let target = agent.map_or(Target::Pool, |agent| Target::Assign { agent: Some(agent) });
            let create = Create { by: None, spec, target, rules: Rules::Plain, facts: Vec::new() };
            let decision = self.decide_create(&create, ctx)?;
            if let Reply::Created { task, .. } = decision.reply {
                tasks.push(task.id);
            }
            events.extend(decision.events);
        }
        Ok(Decision::new(Reply::Heard { tasks }, events))
    }

    /// They know whether a lead has had something of the thread; in all others it is for the lead if the swarm is
    /// `meant`. While nobody leads, a thread stays with whoever had it, who may lead again. Whoever asks the swarm for
    /// something is told once the message is there.
    fn leave_to_inboxes(
        &self,
        said: &Said,
        request: String,
        lead: Option<Uuid>,
        meant: bool,
    ) -> Decision<Self> {
        let (said, otherwise) = (said.clone(), lead.filter(|_| meant));
        let words = |name: &str| format!("**{name}** has this in its inbox.");
        let name = self.name_of(otherwise).filter(|_| said.is_request());
        let note = name.map(|name| Box::new(answer(&said, "inbox", &words(name))));
        let command = inboxes::Command::Hear { said, request, otherwise, lead, note };
        let effect = Effect::entity::<Inboxes>(EntityKey::of(Kind::Inboxes, &self.swarm), &command);
        Decision::reply(Reply::Heard { tasks: Vec::new() }).effects(vec![effect])
    }

    fn asks_back(&self, said: &Said) -> Effect {
        self.answer_to(said, "asked", "What shall be done? Say it in a few words, here in the thread.")
    }

    /// What whoever said something is told about that, in its thread.
    pub(super) fn answer_to(&self, said: &Said, what: &str, words: &str) -> Effect {
        self.tell(answer(said, what, words))
    }

    /// What people are told of the tasks that came from a thread: who has it and how it goes, in one message that is
    /// written anew, and how it ended, in another.
    pub(in crate::pool) fn slack_notes(&self, events: &[Event]) -> Vec<Effect> {
        let told = events.iter().filter_map(|event| self.note_of(event));
        told.map(|note| self.tell(note)).collect()
    }

    fn note_of(&self, event: &Event) -> Option<Note> {
        match event {
            Event::Created(created) => {
                let task = Task::of(created);
                let words = match self.name_of(created.agent.or(created.offered_to)) {
                    Some(name) => format!("**{name}** has it."),
                    None => "It waits for an agent that is free.".to_owned(),
                };
                Some(Note { edits: true, ..task.thread?.note(created.task, "status", &words) })
            }
            Event::Progressed { task: id, text, .. } => {
                let task = self.tasks.get(*id)?;
                let name = self.name_of(task.agent).unwrap_or("an agent");
                let words = format!("**{name}**: {text}");
                Some(Note { edits: true, ..task.thread?.note(*id, "status", &words) })
            }
            Event::Finished { task: id, outcome, output, reason, .. } => {
                let task = self.tasks.get(*id)?;
                let words = match outcome {
                    Outcome::Completed => output.clone().unwrap_or_else(|| "Done.".to_owned()),
                    Outcome::Failed => {
                        format!("It could not be done: {}", reason.as_deref().unwrap_or_default())
                    }
                    Outcome::Cancelled => {
                        format!("It was cancelled: {}", reason.as_deref().unwrap_or_default())
                    }
                };
                let name = self.name_of(task.agent).map(str::to_owned);
                Some(Note { name, ..task.thread?.note(*id, "outcome", &words) })
            }
            _ => None,
        }
    }

    fn name_of(&self, agent: Option<Uuid>) -> Option<&str> {
        self.members.get(&agent?).map(|member| member.name.as_str())
    }

    fn tell(&self, note: Note) -> Effect {
        Effect::Slack { swarm: self.swarm.clone(), note }
    }
}

/// One for each message and each thing that it is told, however often that is said.
fn answer(said: &Said, what: &str, words: &str) -> Note {
    let about = Uuid::new_v5(&Uuid::NAMESPACE_OID, said.key().as_bytes());
    said.thread().note(about, what, words)
}
