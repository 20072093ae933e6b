//! Events go to the triggers of the source's swarm, and questions of people to its pool.

use async_trait::async_trait;
use skein_shared::id::{EntityKey, Kind, Name};
use skein_shared::pool::{self, Pool, Survey};
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Command, Incoming, Rejected, Reply, Triggers};
use skein_shared::{Code, Refusal};

use super::gate::{Intake, Taken};
use crate::entity::{Entities, Request};

#[async_trait]
impl Intake for Entities {
    fn now(&self) -> Timestamp {
        self.clock().now()
    }

    fn wall(&self) -> Timestamp {
        self.clock().wall()
    }

    async fn deliver(&self, swarm: &Name, incoming: Incoming) -> Result<Taken, Refusal> {
        let key = EntityKey::of(Kind::Triggers, swarm);
        // The triggers tell repeats by the delivery's id; a stored answer would only cost room.
        let command = Command::Deliver { incoming };
        match self.ask::<Triggers>(&key, Request::read(), command).await? {
            Reply::Delivered { receipt, duplicate, resumed, started, heard } => {
                let matched = resumed.len() + started.len() + usize::from(heard);
                Ok(Taken { receipt, duplicate, matched })
            }
            _ => Err(Refusal::new(Code::Internal, "the triggers did not answer the delivery; report this")),
        }
    }

    async fn survey(&self, swarm: &Name) -> Result<Survey, Refusal> {
        let key = EntityKey::of(Kind::Pool, swarm);
        match self.ask::<Pool>(&key, Request::read(), pool::Command::Survey).await? {
            pool::Reply::Surveyed(survey) => Ok(survey),
            _ => Err(Refusal::new(Code::Internal, "the pool did not say how it stands; report this")),
        }
    }

    async fn reject(&self, swarm: &Name, rejected: Rejected) -> Result<(), Refusal> {
        let key = EntityKey::of(Kind::Triggers, swarm);
        self.ask::<Triggers>(&key, Request::read(), Command::Reject { rejected }).await.map(|_| ())
    }
}
