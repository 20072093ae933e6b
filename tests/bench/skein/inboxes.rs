//! Messages that go through the inboxes of a swarm.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, bail, ensure};
use futures::future::BoxFuture;
use skein_coordinator::entity::Request;
use skein_shared::id::{EntityKey, Kind};
use skein_shared::inboxes::{Command, Deliver, Inboxes, Reply, Slack, Source};
use uuid::Uuid;

use super::embedded::{Agent, refused};
use crate::probes::sqlite::PAYLOAD;

/// Inboxes that take turns.
pub(crate) const INBOXES: usize = 1000;

/// Puts a message into the next inbox, fetches the oldest one of it with its text, and answers it: three durable steps
/// and a read.
pub(crate) fn pass(agent: Agent) -> BoxFuture<'static, Result<()>> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let owner = Uuid::from_u128(1 + (NEXT.fetch_add(1, Ordering::Relaxed) % INBOXES) as u128);
    Box::pin(async move {
        let deliver = Deliver {
            agent: owner,
            content: PAYLOAD.to_owned(),
            source: Source::Slack,
            slack: Slack::default(),
            dedupe: None,
            mail: None,
        };
        ask(&agent, Command::Deliver(Box::new(deliver))).await?;
        let Reply::Taken(taken) = ask(&agent, Command::Take { agent: owner, limit: 1 }).await? else {
            bail!("the inboxes gave no list")
        };
        let [message] = taken[..] else { bail!("{} messages were taken", taken.len()) };
        let body = agent.kernel.entities.body(&key(&agent), &format!("message/{message}")).await;
        let body = body.map_err(refused)?.unwrap_or_default();
        ensure!(body["content"] == PAYLOAD, "the message reads {body}");
        ask(&agent, Command::Respond { agent: owner, message, text: "done".to_owned() }).await?;
        Ok(())
    })
}

async fn ask(agent: &Agent, command: Command) -> Result<Reply> {
    let request = Request::once(Uuid::now_v7());
    agent.kernel.entities.ask::<Inboxes>(&key(agent), request, command).await.map_err(refused)
}

fn key(agent: &Agent) -> EntityKey {
    EntityKey::of(Kind::Inboxes, &agent.kernel.swarm)
}
