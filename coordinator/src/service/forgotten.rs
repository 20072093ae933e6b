//! Messages that retention has removed. Their channels are told, for these count what is unread, and nobody can read
//! what is gone.

use skein_shared::Refusal;
use skein_shared::channels::{Channel, Channels, Command, Reply, message_key};
use skein_shared::id::{EntityKey, Kind};

use super::unexpected;
use crate::entity::{Entities, Request};

/// Looks through the channels of the swarms whose channels this node has: it is the one that removes their messages.
///
/// # Errors
/// When not all could be looked through. What was told stays told, and it can be repeated.
pub async fn note_forgotten(entities: &Entities) -> Result<(), Refusal> {
    let mut outcome = Ok(());
    for swarm in entities.swarms().await? {
        let key = EntityKey::of(Kind::Channels, &swarm);
        // One that cannot be looked at holds up no other.
        if entities.has(&key)
            && let Err(refusal) = note(entities, &key).await
        {
            outcome = Err(refusal);
        }
    }
    outcome
}

async fn note(entities: &Entities, key: &EntityKey) -> Result<(), Refusal> {
    let Reply::List(channels) = entities.ask::<Channels>(key, Request::read(), Command::List).await? else {
        return Err(unexpected("the channels"));
    };
    for channel in channels.iter().filter(|channel| channel.forgotten < channel.last) {
        let Some(through) = last_gone(entities, key, channel).await? else { continue };
        let trim = Command::Trim { channel: channel.id, through };
        entities.ask::<Channels>(key, Request::read(), trim).await?;
    }
    Ok(())
}

/// The newest message that is gone. The oldest go first, so none is while the first one is there.
async fn last_gone(entities: &Entities, key: &EntityKey, channel: &Channel) -> Result<Option<u64>, Refusal> {
    let (mut gone, mut kept) = (channel.forgotten, channel.last + 1);
    if !is_gone(entities, key, channel, gone + 1).await? {
        return Ok(None);
    }
    gone += 1;
    while gone + 1 < kept {
        let middle = gone.midpoint(kept);
        match is_gone(entities, key, channel, middle).await? {
            true => gone = middle,
            false => kept = middle,
        }
    }
    Ok(Some(gone))
}

async fn is_gone(
    entities: &Entities,
    key: &EntityKey,
    channel: &Channel,
    number: u64,
) -> Result<bool, Refusal> {
    Ok(entities.body(key, &message_key(channel.id, number)).await?.is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::channels::Read;
    use skein_shared::time::Timestamp;
    use uuid::Uuid;

    use super::*;
    use crate::auth::{Principal, Role};
    use crate::entity::tests::node;
    use crate::service::Service;
    use crate::service::messages::Draft;
    use crate::service::swarm::Introduction;
    use crate::store::TrimPlan;
    use crate::store::conformance::nothing;
    use crate::store::memory::Fault;

    fn all_that_is_not_live(now: Timestamp) -> TrimPlan {
        TrimPlan { now, archived_before: Timestamp::NEVER, ..nothing() }
    }

    async fn joined(service: &Service, name: &str) -> Principal {
        let who = Principal::named(name, Role::Worker);
        let introduction = Introduction { name: name.to_owned(), ..Introduction::default() };
        service.join(&who, Uuid::now_v7(), introduction).await.unwrap();
        who
    }

    #[tokio::test]
    async fn messages_that_retention_has_removed_are_unread_to_nobody() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let (ann, bob) = (joined(&service, "ann").await, joined(&service, "bob").await);
        let post = async |content: String| {
            let draft = Draft { content, mentions: vec![bob.agent], ..Draft::default() };
            service.post_message(&ann, Uuid::now_v7(), draft).await.unwrap();
        };
        for number in 0..7 {
            // Longer than what a node has at hand, so that it is looked for in the store.
            post(format!("{number} {}", "x".repeat(3000))).await;
        }
        let entities = &node.entities;
        note_forgotten(entities).await.unwrap();
        assert_eq!(service.unread(&bob).await.unwrap(), (7, 7), "all are there yet");
        let trimmed = entities.forget(&all_that_is_not_live(entities.clock().now())).await.unwrap();
        assert!(trimmed.documents >= 7, "{trimmed:?}");
        for number in 7..9 {
            post(number.to_string()).await;
        }

        note_forgotten(entities).await.unwrap();
        assert_eq!(service.unread(&bob).await.unwrap(), (2, 2));
        let read = Read { limit: 1, ..Read::new(bob.agent) };
        let found = service.read_messages(&bob, Uuid::now_v7(), read).await.unwrap();
        let shown: Vec<_> = found.messages.iter().map(|(_, message)| message["content"].clone()).collect();
        assert_eq!((shown, found.unread, found.total_unread), (vec![json!("8")], 1, 2));
        let carl = joined(&service, "carl").await;
        assert_eq!(service.unread(&carl).await.unwrap(), (2, 0));
        entities.forget(&all_that_is_not_live(entities.clock().now())).await.unwrap();
        note_forgotten(entities).await.unwrap();
        assert_eq!(service.unread(&carl).await.unwrap(), (0, 0));
    }

    #[tokio::test]
    async fn what_a_store_does_not_give_is_not_taken_for_removed() {
        let node = node();
        let service = Service::new(node.entities.clone());
        let (ann, bob) = (joined(&service, "ann").await, joined(&service, "bob").await);
        let faults = node.store.contents().faults();
        faults.push(Fault::ThenUnreadable);
        let draft = Draft { content: "x".repeat(3000), ..Draft::default() };
        service.post_message(&ann, Uuid::now_v7(), draft).await.unwrap();
        assert!(note_forgotten(&node.entities).await.is_err());
        faults.let_read();
        note_forgotten(&node.entities).await.unwrap();
        assert_eq!(service.unread(&bob).await.unwrap(), (1, 0));
    }
}
