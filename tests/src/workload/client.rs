//! One agent of the swarm: whatever it asks and is told is taken down.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use skein_shared::fence::Token;

use super::patient::Patient;
use super::{CAPACITY, Field, ROOMS, room};
use crate::history::{Outcome, claims, inbox, locks};

pub struct Client {
    pub number: usize,
    /// Its id as an agent.
    pub agent: String,
    pub(super) field: Arc<Field>,
    patient: Patient,
}

impl Client {
    /// Joins the swarm.
    ///
    /// # Errors
    /// When it is not let in.
    pub async fn join(field: Arc<Field>, number: usize, token: &str) -> Result<Self> {
        let patient = Patient::new(token, &field, number);
        let introduction = json!({"name": format!("worker-{number}"), "maxTasks": CAPACITY});
        let Outcome::Ok(joined) = patient.ask("join-swarm", introduction, true).await else {
            bail!("worker-{number} could not join");
        };
        let agent = joined["yourAgentId"].as_str().unwrap_or_default().to_owned();
        Ok(Self { number, agent, field, patient })
    }

    pub async fn create(&self, text: &str, priority: u8, needs: &[String]) -> Outcome<claims::Answer> {
        let asked = json!({"action": "create", "task": text, "priority": priority, "dependsOn": needs});
        let call = claims::Call::Create { text: text.to_owned(), priority, needs: needs.to_vec() };
        self.on_task(call, "task-action", asked).await
    }

    /// A message that makes a task for another by an effect.
    pub async fn order(&self, text: &str, other: &str) -> Outcome<claims::Answer> {
        let asked = json!({"content": format!("/task {text}"), "mentions": [other]});
        self.on_task(claims::Call::Order { text: text.to_owned() }, "post-message", asked).await
    }

    pub async fn claim(&self, task: &str) -> Outcome<claims::Answer> {
        let asked = json!({"action": "claim", "taskId": task});
        self.on_task(claims::Call::Claim { task: task.to_owned() }, "task-action", asked).await
    }

    pub async fn claim_next(&self) -> Outcome<claims::Answer> {
        self.on_task(claims::Call::ClaimNext, "task_claim_next", json!({})).await
    }

    pub async fn release(&self, task: &str) -> Outcome<claims::Answer> {
        let asked = json!({"action": "release", "taskId": task});
        self.on_task(claims::Call::Release { task: task.to_owned() }, "task-action", asked).await
    }

    pub async fn complete(&self, task: &str, output: &str) -> Outcome<claims::Answer> {
        let asked = json!({"taskId": task, "status": "completed", "output": output});
        let call = claims::Call::Complete { task: task.to_owned(), output: output.to_owned() };
        self.on_task(call, "store-progress", asked).await
    }

    pub async fn look_at(&self, task: &str) -> Outcome<claims::Answer> {
        let work = async {
            let found = self.patient.ask("get-task-details", json!({"taskId": task}), false).await;
            found.map(|found| {
                claims::Answer::Seen(found["task"]["status"].as_str().unwrap_or_default().to_owned())
            })
        };
        self.field.claims.run(self.number, claims::Call::Read { task: task.to_owned() }, work).await
    }

    /// What it has begun and not ended, as the pool says. None if nobody said.
    pub(super) async fn mine(&self) -> Option<Vec<String>> {
        let mine = json!({"mineOnly": true, "status": "in_progress", "limit": 100});
        let Outcome::Ok(mine) = self.patient.ask("get-tasks", mine, false).await else { return None };
        let tasks = mine["tasks"].as_array().into_iter().flatten();
        Some(tasks.map(|task| task["id"].as_str().unwrap_or_default().to_owned()).collect())
    }

    async fn on_task(&self, call: claims::Call, tool: &str, asked: Value) -> Outcome<claims::Answer> {
        let work = async { self.patient.ask(tool, asked, true).await.map(|answer| of_task(&answer)) };
        self.field.claims.run(self.number, call, work).await
    }

    /// Takes a lock for so long, in whole seconds, and says its token.
    pub async fn acquire(&self, key: &str, ttl: Duration) -> Option<Token> {
        let call = locks::Call::Acquire { key: key.to_owned(), ttl };
        let asked = json!({"resource_key": key, "ttl_seconds": ttl.as_secs()});
        let work = async {
            match self.patient.ask("acquire_lock", asked, true).await {
                Outcome::Ok(answer) => match answer["fencing_token"].as_str().unwrap_or_default().parse() {
                    Ok(token) => Outcome::Ok(locks::Answer::Granted(token)),
                    Err(_) => Outcome::Fail("no token".to_owned()),
                },
                other => other.map(|_| locks::Answer::Released),
            }
        };
        match self.field.locks.run(self.number, call, work).await {
            Outcome::Ok(locks::Answer::Granted(token)) => Some(token),
            _ => None,
        }
    }

    pub async fn give_back(&self, key: &str) {
        let call = locks::Call::Release { key: key.to_owned() };
        let asked = json!({"resource_key": key});
        let work =
            async { self.patient.ask("release_lock", asked, true).await.map(|_| locks::Answer::Released) };
        self.field.locks.run(self.number, call, work).await;
    }

    /// Writes to what a lock guards.
    pub fn write(&self, key: &str, token: Token) {
        let write = locks::Write { key: key.to_owned(), client: self.number, token };
        self.field.resource.lock().unwrap_or_else(PoisonError::into_inner).write(write);
    }

    pub async fn post(&self, channel: String, text: String) {
        let asked = json!({"channel": channel, "content": text});
        let call = inbox::Call::Post { channel, text };
        let work =
            async { self.patient.ask("post-message", asked, true).await.map(|_| inbox::Answer::Posted) };
        self.field.inbox.run(self.number, call, work).await;
    }

    /// Makes the rooms.
    ///
    /// # Errors
    /// When one is refused.
    pub async fn furnish(&self) -> Result<()> {
        for number in 0..ROOMS {
            let made = self.patient.ask("create-channel", json!({"name": room(number)}), true).await;
            if !matches!(made, Outcome::Ok(_)) {
                bail!("{} was not made: {made:?}", room(number));
            }
        }
        Ok(())
    }

    /// Reads what is new in all rooms.
    pub async fn read_all(&self) {
        for number in 0..ROOMS {
            let call = inbox::Call::Read { channel: room(number) };
            let work = async { self.read(number, true).await.map(inbox::Answer::Messages) };
            self.field.inbox.run(self.number, call, work).await;
        }
    }

    /// The texts of a room, oldest first: those not read before, or all.
    pub async fn read(&self, number: usize, unread: bool) -> Outcome<Vec<String>> {
        let asked = json!({"channel": room(number), "limit": 1000, "unreadOnly": unread});
        self.patient.ask("read-messages", asked, true).await.map(|answer| {
            let messages = answer["messages"].as_array().into_iter().flatten();
            messages.map(|message| message["content"].as_str().unwrap_or_default().to_owned()).collect()
        })
    }

    /// The rooms as they are, oldest message first.
    ///
    /// # Errors
    /// When one cannot be read, or has more messages than are shown.
    pub async fn rooms(&self) -> Result<BTreeMap<String, Vec<String>>> {
        let mut rooms = BTreeMap::new();
        for number in 0..ROOMS {
            let Outcome::Ok(texts) = self.read(number, false).await else {
                bail!("{} cannot be read", room(number));
            };
            ensure!(texts.len() < 1000, "{} has more messages than are shown", room(number));
            rooms.insert(room(number), texts);
        }
        Ok(rooms)
    }

    /// Makes a schedule that fires at intervals.
    ///
    /// # Errors
    /// When it is refused.
    pub async fn schedule(&self, name: &str, interval: Duration) -> Result<()> {
        let asked = json!({"name": name, "taskTemplate": name, "intervalMs": interval.as_millis() as u64});
        match self.patient.ask("create-schedule", asked, true).await {
            Outcome::Ok(_) => Ok(()),
            refused => bail!("the schedule was not made: {refused:?}"),
        }
    }
}

/// What an answer says of its task.
fn of_task(answer: &Value) -> claims::Answer {
    let id = answer["task"]["id"].as_str().or(answer["taskIds"][0].as_str()).map(str::to_owned);
    match id {
        Some(task) if answer["redelivered"] == json!(true) => claims::Answer::Again(task),
        Some(task) if answer["task"]["status"] != json!("completed") => claims::Answer::Task(task),
        Some(_) => claims::Answer::Done,
        None => claims::Answer::Nothing,
    }
}
