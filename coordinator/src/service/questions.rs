//! Questions to people: asked by agents, answered by the lead and operators, whichever way they come.

use std::time::Duration;

use serde_json::{Map, Value, json};
use skein_shared::caller::Caller;
use skein_shared::id::Kind;
use skein_shared::pool::MemberView;
use skein_shared::questions::{Ask, By, Command, NULLABLE, Questions, Reply, State, Through, key};
use skein_shared::{Code, Refusal, wire};
use tracing::debug;
use uuid::Uuid;

use super::lists::{List, Page};
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Freshness, Order, Query, Test};

/// A question that somebody wants to ask.
#[derive(Clone, Debug, Default)]
pub struct Draft {
    pub question: String,
    pub choices: Vec<String>,
    /// The task that waits for it; without one the caller's only one at work.
    pub task: Option<Uuid>,
    pub open_for: Option<Duration>,
}

/// A question that was asked.
#[derive(Clone, Debug)]
pub struct Asked {
    /// As it stands: a repeat of the request may find it answered.
    pub question: Value,
    /// Where a wait for its answer begins, so that nothing is missed.
    pub cursor: u64,
    /// Whether there is a lead who is told of it.
    pub lead_told: bool,
}

/// What is said to a question.
#[derive(Clone, Debug)]
pub enum Word {
    Answer(String),
    /// Nobody will answer it.
    Decline(Option<String>),
}

/// Which questions a list shows.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Those that wait for an answer, the oldest first; else those that are over, the last first.
    pub open: bool,
    /// The caller's own alone.
    pub mine: bool,
    pub page: Page,
}

impl Service {
    /// Files a question, and has the lead told of it.
    ///
    /// # Errors
    /// `not_joined`; `not_found` and `forbidden` for a task that is not the caller's; `queue_full`, `too_large` and
    /// `invalid_argument`; `unavailable` while nobody can say which task the caller works on.
    pub async fn ask_question(&self, who: &Principal, request: Uuid, draft: Draft) -> Result<Asked, Refusal> {
        policy::require(who, Right::Work)?;
        let asker = self.own_member(who).await?;
        let members = self.survey(who).await?.members;
        let lead = members.iter().find(|member| member.lead && member.id != who.agent).map(|lead| lead.id);
        let at_work = match draft.task {
            Some(_) => None,
            None => self.only_task_at_work(who, &members).await?,
        };
        let ask = Ask {
            agent: who.agent,
            name: asker["name"].as_str().unwrap_or(who.agent_name.as_str()).to_owned(),
            instance: who.instance.clone(),
            task: draft.task,
            question: draft.question,
            choices: draft.choices,
            open_for: draft.open_for,
            at_work,
            lead,
            denied: self.why_it_cannot_wait(who, draft.task).await?,
        };
        let entity = who.entity(Kind::Questions);
        let command = Command::Ask(Box::new(ask));
        // At the worst a wait begins here, and hears of the question itself first.
        let before = self.newest_position().await?;
        let Reply::Asked(asked) = self.change::<Questions>(&entity, request, command).await? else {
            return Err(unexpected("the questions"));
        };
        // In this order: what is answered before this position shows in the question, what is answered after it shows
        // to whoever waits from there on. It is asked, whether it can be looked at or not.
        let cursor = self.newest_position().await.unwrap_or(before);
        let id = asked.question["id"].as_str().and_then(|id| Uuid::try_parse(id).ok());
        let question = match id {
            Some(id) => self.shown_or(who, id, asked.question).await?,
            None => asked.question,
        };
        Ok(Asked { question, cursor, lead_told: asked.lead_told.unwrap_or(lead.is_some()) })
    }

    /// Refuses the caller a question for a task that is not its own, whoever is to answer it.
    ///
    /// # Errors
    /// `not_found` and `forbidden`.
    pub async fn require_own_task(&self, who: &Principal, task: Option<Uuid>) -> Result<(), Refusal> {
        policy::require(who, Right::Work)?;
        self.why_it_cannot_wait(who, task).await?.map_or(Ok(()), Err)
    }

    /// Answers a question of an agent, or says that nobody will.
    ///
    /// # Errors
    /// `forbidden` but for the lead and operators; `wrong_state` when somebody was sooner; `invalid_argument` for what
    /// is none of the choices; `not_found`.
    pub async fn answer_question(
        &self,
        who: &Principal,
        request: Uuid,
        question: Uuid,
        word: Word,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Lead)?;
        let caller = self.caller(who).await?;
        self.reply_to(who, request, question, caller, Through::Swarm, word).await
    }

    /// The person in front of the asker's client has said something to the asker's question.
    ///
    /// # Errors
    /// As [`Self::answer_question`]; `not_found` for a question of another agent.
    pub async fn answer_own_question(
        &self,
        who: &Principal,
        request: Uuid,
        question: Uuid,
        word: Word,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        self.own_question(who, question).await?;
        self.reply_to(who, request, question, Caller::agent(who.agent), Through::Client, word).await
    }

    /// Takes the caller's own question back.
    ///
    /// # Errors
    /// `forbidden` for that of another; `wrong_state` when it is over; `not_found`.
    pub async fn withdraw_question(
        &self,
        who: &Principal,
        request: Uuid,
        question: Uuid,
    ) -> Result<Value, Refusal> {
        policy::require(who, Right::Work)?;
        let command = Command::Withdraw { question, by: who.agent };
        let known = json!({ "id": question, "status": State::Withdrawn });
        self.settle(who, request, question, command, known).await
    }

    /// Takes back what an agent that left has asked, for it counts towards what may wait. While the questions cannot be
    /// asked it waits on, until somebody answers it or its time is over.
    pub(super) async fn withdraw_all_questions(&self, who: &Principal, request: Uuid, agent: Uuid) {
        let command = Command::WithdrawAll { agent };
        let withdrawn = self.change::<Questions>(&who.entity(Kind::Questions), request, command).await;
        if let Err(refusal) = withdrawn {
            debug!(problem = %refusal.message, "the questions of an agent that left stay open");
        }
    }

    /// A question as it stands.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn question(&self, who: &Principal, question: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        let body = self.body(&who.entity(Kind::Questions), &key(question)).await?;
        body.map(shape).ok_or_else(|| unknown(question))
    }

    /// A question that the caller has asked.
    ///
    /// # Errors
    /// `not_found`, also for that of another.
    pub async fn own_question(&self, who: &Principal, question: Uuid) -> Result<Value, Refusal> {
        let found = self.question(who, question).await?;
        if found["agentId"] == json!(who.agent) { Ok(found) } else { Err(unknown(question)) }
    }

    /// A page of the questions of the swarm's agents.
    ///
    /// # Errors
    /// `invalid_argument` for a cursor that is none.
    pub async fn list_questions(&self, who: &Principal, wanted: Wanted) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = if wanted.open { open(who)? } else { over(who)? };
        if wanted.mine {
            query.filters.push(Filter::new("agentId", Test::Eq(json!(who.agent)))?);
        }
        let mut list = self.list_page(&who.entity(Kind::Questions), query, wanted.page).await?;
        list.rows = list.rows.into_iter().map(shape).collect();
        Ok(list)
    }

    /// A task with all its fields, and with the questions whose answers it waits for; and whether of those some may be
    /// missing.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn task_with_questions(
        &self,
        who: &Principal,
        task: Uuid,
    ) -> Result<(Value, Freshness), Refusal> {
        let mut found = self.get_task(who, task).await?;
        if super::tasks::is_over(&found) {
            return Ok((found, Freshness::Fresh));
        }
        let mut query = open(who)?;
        query.filters.push(Filter::new("taskId", Test::Eq(json!(task)))?);
        let List { rows: questions, freshness, .. } = self.list(&who.entity(Kind::Questions), query).await?;
        if let (Value::Object(found), false) = (&mut found, questions.is_empty()) {
            let brief = questions.iter().map(brief).collect();
            found.insert("waitsForInput".to_owned(), Value::Array(brief));
        }
        Ok((found, freshness))
    }

    async fn reply_to(
        &self,
        who: &Principal,
        request: Uuid,
        question: Uuid,
        caller: Caller,
        through: Through,
        word: Word,
    ) -> Result<Value, Refusal> {
        let by = By { caller, name: who.agent_name.to_string(), through };
        let (id, name) = (question, &by.name);
        let known = match &word {
            Word::Answer(answer) => {
                json!({ "id": id, "status": State::Answered, "answer": answer.trim(), "answeredBy": name })
            }
            Word::Decline(reason) => {
                json!({ "id": id, "status": State::Declined, "reason": reason, "answeredBy": name })
            }
        };
        let command = match word {
            Word::Answer(answer) => Command::Answer { question, by, answer },
            Word::Decline(reason) => Command::Decline { question, by, reason },
        };
        self.settle(who, request, question, command, known).await
    }

    /// Ends a question, and shows it or what is known of it: it is over, whether it can be looked at or not.
    async fn settle(
        &self,
        who: &Principal,
        request: Uuid,
        question: Uuid,
        command: Command,
        known: Value,
    ) -> Result<Value, Refusal> {
        self.change::<Questions>(&who.entity(Kind::Questions), request, command).await?;
        self.shown_or(who, question, known).await
    }

    /// A question after a change, or what is known of it while it cannot be looked at.
    async fn shown_or(&self, who: &Principal, question: Uuid, known: Value) -> Result<Value, Refusal> {
        match self.question(who, question).await {
            Err(refusal) if refusal.code.is_passing() => Ok(known),
            shown => shown,
        }
    }

    /// The task that was named has to be the caller's.
    async fn why_it_cannot_wait(
        &self,
        who: &Principal,
        task: Option<Uuid>,
    ) -> Result<Option<Refusal>, Refusal> {
        let Some(id) = task else { return Ok(None) };
        let task = match self.known_task(who, id).await {
            Err(refusal) if refusal.code == Code::NotFound => return Ok(Some(refusal)),
            task => task?,
        };
        if task["agentId"] == json!(who.agent) {
            return Ok(None);
        }
        let problem = format!("task {id} is not yours; name one that you work on, or none");
        Ok(Some(Refusal::new(Code::Forbidden, problem)))
    }

    /// The task that the caller works on, if it is one. How many there are the pool says, which one it is a list: it is
    /// asked for no more often than it must be, for after a start it may take a while.
    async fn only_task_at_work(
        &self,
        who: &Principal,
        members: &[MemberView],
    ) -> Result<Option<Uuid>, Refusal> {
        let own = members.iter().find(|member| member.id == who.agent);
        if own.is_none_or(|own| own.current != 1) {
            return Ok(None);
        }
        let mut query = Query::new(&who.swarm, Kind::Pool, "task");
        query.filters = vec![
            Filter::new("agentId", Test::Eq(json!(who.agent)))?,
            Filter::new("status", Test::Eq(json!("in_progress")))?,
        ];
        query.limit = 2;
        let tasks = self.list(&who.entity(Kind::Pool), query).await?.whole()?.rows;
        let [task] = tasks.as_slice() else { return Ok(None) };
        Ok(task["id"].as_str().and_then(|id| Uuid::try_parse(id).ok()))
    }
}

/// Questions that wait for an answer, the oldest first.
pub(super) fn open(who: &Principal) -> Result<Query, Refusal> {
    let mut query = all(who);
    query.filters = vec![Filter::new("status", Test::Eq(json!(State::Open)))?];
    query.order = vec![Order::ascending("askedAt")?, Order::ascending("id")?];
    Ok(query)
}

/// Questions that are over, the last first.
pub(super) fn over(who: &Principal) -> Result<Query, Refusal> {
    let mut query = all(who);
    query.filters = vec![Filter::new("status", Test::Not(json!(State::Open)))?];
    query.order = vec![Order::descending("settledAt")?, Order::ascending("id")?];
    Ok(query)
}

fn all(who: &Principal) -> Query {
    Query { live: Some(true), ..Query::new(&who.swarm, Kind::Questions, "question") }
}

fn shape(body: Value) -> Value {
    wire::shown(body, &NULLABLE)
}

/// What a task shows of a question that it waits for.
fn brief(question: &Value) -> Value {
    let fields = ["id", "agentName", "question", "choices", "askedAt", "expiresAt"];
    let fields = fields.iter().map(|field| ((*field).to_owned(), question[*field].clone()));
    Value::Object(fields.collect::<Map<String, Value>>())
}

fn unknown(question: Uuid) -> Refusal {
    let problem = format!("there is no question {question}; list_questions shows those there are");
    Refusal::new(Code::NotFound, problem)
}
