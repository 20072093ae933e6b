//! A client that works: what it does next it draws from its seed.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::client::Client;
use super::{ROOMS, room};
use crate::history::{Outcome, claims};

const LOCKS: usize = 5;
/// Of every lock that is asked for.
pub const TTL: Duration = Duration::from_secs(4);
/// Between two operations: the machine is to be busy with faults and not with load.
const PACE: Duration = Duration::from_millis(60);

pub struct Worker {
    pub client: Client,
    random: fastrand::Rng,
    /// What it knows to have.
    has: Vec<String>,
    made: usize,
}

impl Worker {
    pub fn new(client: Client, seed: u64) -> Self {
        let random = fastrand::Rng::with_seed(seed ^ (client.number as u64 + 1));
        Self { client, random, has: Vec::new(), made: 0 }
    }

    /// Works until it is told to stop; what it has asked by then it waits for.
    pub async fn work(mut self, others: Arc<Vec<String>>, stop: CancellationToken) -> Self {
        while !stop.is_cancelled() {
            match self.random.u32(..100) {
                0..20 => self.create().await,
                20..45 => self.claim_next().await,
                45..54 => self.claim_known().await,
                54..72 => self.complete().await,
                72..75 => self.release().await,
                75..77 => self.order(&others).await,
                77..80 => self.look().await,
                80..94 => self.lock().await,
                _ => self.post().await,
            }
            tokio::time::sleep(PACE).await;
        }
        self
    }

    fn text(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}-{}", self.client.number, self.made)
    }

    async fn create(&mut self) {
        let (text, priority) = (self.text("task"), self.random.u8(..=100));
        let mut needs: Vec<String> = Vec::new();
        if self.random.u32(..10) == 0 {
            needs.extend(self.has.first().cloned());
        }
        if let Outcome::Ok(claims::Answer::Task(task)) = self.client.create(&text, priority, &needs).await {
            self.client.field.publish(&task);
        }
    }

    async fn claim_next(&mut self) {
        let outcome = self.client.claim_next().await;
        let Outcome::Ok(claims::Answer::Task(task) | claims::Answer::Again(task)) = outcome else { return };
        if !self.has.contains(&task) {
            self.has.push(task);
        }
    }

    async fn claim_known(&mut self) {
        let Some(task) = self.client.field.any_known(&mut self.random) else { return };
        if let Outcome::Ok(_) = self.client.claim(&task).await
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
        self.finish(&task).await;
    }

    async fn finish(&mut self, task: &str) {
        let output = self.text("output");
        self.client.complete(task, &output).await;
    }

    async fn release(&mut self) {
        if let Some(task) = self.has.pop() {
            self.client.release(&task).await;
        }
    }

    async fn order(&mut self, others: &[String]) {
        let text = self.text("order");
        let other = &others[self.random.usize(..others.len())];
        self.client.order(&text, other).await;
    }

    async fn look(&mut self) {
        if let Some(task) = self.client.field.any_known(&mut self.random) {
            self.client.look_at(&task).await;
        }
    }

    /// Takes a lock, writes under it, and mostly gives it back.
    async fn lock(&mut self) {
        let key = lock(self.random.usize(..LOCKS));
        let Some(token) = self.client.acquire(&key, TTL).await else { return };
        for _ in 0..2 {
            self.client.write(&key, token);
            tokio::time::sleep(PACE).await;
        }
        // The time to live ends what nobody gives back.
        if self.random.u32(..10) > 0 {
            self.client.give_back(&key).await;
        }
    }

    async fn post(&mut self) {
        let (channel, text) = (room(self.client.number % ROOMS), self.text("message"));
        self.client.post(channel, text).await;
    }

    /// Completes everything that it has and that is to be had, once all is well again.
    pub async fn drain(mut self) -> Self {
        for task in self.client.mine().await.unwrap_or_default() {
            self.finish(&task).await;
        }
        self.has.clear();
        loop {
            match self.client.claim_next().await {
                Outcome::Ok(claims::Answer::Task(task) | claims::Answer::Again(task)) => {
                    self.finish(&task).await;
                }
                Outcome::Ok(_) => return self,
                // Well again, and not yet settled.
                _ => tokio::time::sleep(PACE).await,
            }
        }
    }
}

fn lock(number: usize) -> String {
    format!("file:///shelf/{number}")
}

/// Reads what is new in all rooms, again and again until it is told to stop.
pub async fn listen(client: Client, stop: CancellationToken) -> Client {
    while !stop.is_cancelled() {
        client.read_all().await;
        tokio::time::sleep(PACE * 5).await;
    }
    client
}

/// Takes each lock once, as soon as it is free, and gives it back.
pub async fn take_each_lock(client: &Client, within: Duration) {
    let tries = async {
        for number in 0..LOCKS {
            let key = lock(number);
            while client.acquire(&key, TTL).await.is_none() {
                tokio::time::sleep(PACE).await;
            }
            client.give_back(&key).await;
        }
    };
    // The checker finds what was not granted in time.
    let _ = tokio::time::timeout(within, tries).await;
}
