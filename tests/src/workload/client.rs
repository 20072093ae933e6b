//! One client: what it does next it draws from its seed.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};
use skein_shared::fence::Token;
use tokio_util::sync::CancellationToken;

use super::patient::Patient;
use super::{CAPACITY, Field, ROOMS};
use crate::history::{Outcome, claims, inbox, locks};

const LOCKS: usize = 5;
const TTL: Duration = Duration::from_secs(4);
/// Between two operations: the machine is to be busy with faults and not with load.
const PACE: Duration = Duration::from_millis(60);

pub struct Worker {
    pub number: usize,
    /// Its id as an agent.
    pub agent: String,
    field: Arc<Field>,
    patient: Patient,
    random: fastrand::Rng,
    /// What it knows to have.
    has: Vec<String>,
    made: usize,
}

impl Worker {
    /// Joins the swarm.
    ///
    /// # Errors
    /// When it is not let in.
    pub async fn join(field: Arc<Field>, number: usize, token: &str, seed: u64) -> Result<Self> {
        let patient = Patient::new(token, field.nodes.clone(), number);
        let introduction = json!({"name": format!("worker-{number}"), "maxTasks": CAPACITY});
        let Outcome::Ok(joined) = patient.ask("join-swarm", introduction, true).await else {
            bail!("worker-{number} could not join");
        };
        let random = fastrand::Rng::with_seed(seed ^ (number as u64 + 1));
        let agent = joined["yourAgentId"].as_str().unwrap_or_default().to_owned();
        Ok(Self { number, agent, field, patient, random, has: Vec::new(), made: 0 })
    }

    /// Works until it is told to stop; what it has asked by then it waits for.
    pub async fn work(mut self, others: Arc<Vec<String>>, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            match self.random.u32(..100) {
                0..20 => self.create().await,
                20..45 => drop(self.claim_next().await),
                45..55 => self.claim_known().await,
                55..73 => self.complete().await,
                73..76 => self.release().await,
                76..78 => self.order(&others).await,
                78..88 => self.lock().await,
                _ => self.post().await,
            }
            tokio::time::sleep(PACE).await;
        }
        self
    }

    fn text(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}-{}", self.number, self.made)
    }

    async fn create(&mut self) {
        let (text, priority) = (self.text("task"), self.random.u8(..=100));
        let mut needs: Vec<String> = Vec::new();
        if self.random.u32(..10) == 0 {
            needs.extend(self.has.first().cloned());
        }
        let asked = json!({"action": "create", "task": text, "priority": priority, "dependsOn": needs});
        let call = claims::Call::Create { text, priority, needs };
        if let Outcome::Ok(claims::Answer::Task(task)) = self.on_task(call, "task-action", asked).await {
            self.field.publish(&task);
        }
    }

    async fn claim_next(&mut self) -> bool {
        let outcome = self.on_task(claims::Call::ClaimNext, "task_claim_next", json!({})).await;
        let Outcome::Ok(claims::Answer::Task(task) | claims::Answer::Again(task)) = outcome else {
            return false;
        };
        if !self.has.contains(&task) {
            self.has.push(task);
        }
        true
    }

    async fn claim_known(&mut self) {
        let Some(task) = self.field.any_known(&mut self.random) else { return };
        let asked = json!({"action": "claim", "taskId": task});
        let call = claims::Call::Claim { task: task.clone() };
        if let Outcome::Ok(_) = self.on_task(call, "task-action", asked).await
            && !self.has.contains(&task)
        {
            self.has.push(task);
        }
    }

    async fn complete(&mut self) {
        if self.has.is_empty() {
            return;
        }
        let task = self.has.swap_remove(self.random.usize(..self.has.len()));
        self.finish(task).await;
    }

    async fn finish(&mut self, task: String) {
        let output = self.text("output");
        let asked = json!({"taskId": task, "status": "completed", "output": output});
        self.on_task(claims::Call::Complete { task, output }, "store-progress", asked).await;
    }

    async fn release(&mut self) {
        let Some(task) = self.has.pop() else { return };
        let asked = json!({"action": "release", "taskId": task});
        self.on_task(claims::Call::Release { task }, "task-action", asked).await;
    }

    /// A message that makes a task for another by an effect.
    async fn order(&mut self, others: &[String]) {
        let text = self.text("order");
        let other = &others[self.random.usize(..others.len())];
        let asked = json!({"content": format!("/task {text}"), "mentions": [other]});
        self.on_task(claims::Call::Order { text }, "post-message", asked).await;
    }

    async fn on_task(&self, call: claims::Call, tool: &str, asked: Value) -> Outcome<claims::Answer> {
        let work = async { self.patient.ask(tool, asked, true).await.map(|answer| of_task(&answer)) };
        self.field.claims.run(self.number, call, work).await
    }

    /// Takes a lock, writes under it, and mostly gives it back.
    async fn lock(&mut self) {
        let key = format!("file:///shelf/{}", self.random.usize(..LOCKS));
        let Some(token) = self.acquire(&key).await else { return };
        for _ in 0..2 {
            let write = locks::Write { key: key.clone(), client: self.number, token };
            self.field.resource.lock().unwrap_or_else(PoisonError::into_inner).write(write);
            tokio::time::sleep(PACE).await;
        }
        // The time to live ends what nobody gives back.
        if self.random.u32(..10) > 0 {
            self.give_back(key).await;
        }
    }

    /// Takes a lock, and says its token.
    async fn acquire(&self, key: &str) -> Option<Token> {
        let call = locks::Call::Acquire { key: key.to_owned(), ttl: TTL };
        let asked = json!({"resource_key": key, "ttl_seconds": TTL.as_secs()});
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

    async fn give_back(&self, key: String) {
        let asked = json!({"resource_key": key});
        let work =
            async { self.patient.ask("release_lock", asked, true).await.map(|_| locks::Answer::Released) };
        self.field.locks.run(self.number, locks::Call::Release { key }, work).await;
    }

    async fn post(&mut self) {
        let (channel, text) = (room(self.number % ROOMS), self.text("message"));
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

    /// Reads what is new in all rooms, again and again until it is told to stop.
    pub async fn listen(self, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            self.read_all().await;
            tokio::time::sleep(PACE * 5).await;
        }
        self
    }

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

    /// Completes everything that it has and that is to be had, once all is well again.
    pub async fn drain(mut self) -> Self {
        let mine = json!({"mineOnly": true, "status": "in_progress", "limit": 100});
        if let Outcome::Ok(mine) = self.patient.ask("get-tasks", mine, false).await {
            for task in mine["tasks"].as_array().into_iter().flatten() {
                self.finish(task["id"].as_str().unwrap_or_default().to_owned()).await;
            }
        }
        self.has.clear();
        while self.claim_next().await {
            while let Some(task) = self.has.pop() {
                self.finish(task).await;
            }
        }
        self
    }

    /// Takes each lock once, as soon as it is free, and gives it back.
    pub async fn take_each_lock(&self, within: Duration) {
        let tries = async {
            for number in 0..LOCKS {
                let key = format!("file:///shelf/{number}");
                while self.acquire(&key).await.is_none() {
                    tokio::time::sleep(PACE).await;
                }
                self.give_back(key).await;
            }
        };
        // The checker finds what was not granted in time.
        let _ = tokio::time::timeout(within, tries).await;
    }

    /// How long a lock may stay with whoever died with it.
    pub fn time_to_live() -> Duration {
        TTL
    }
}

pub fn room(number: usize) -> String {
    format!("room-{number}")
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
