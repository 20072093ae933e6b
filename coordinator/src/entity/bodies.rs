//! Bodies of documents. Decisions know the heads of live ones alone: whoever is shown a document, and a command that
//! wants the words of one, gets its body here.
//!
//! The node that has the entity has most of them at hand. So it looks for them itself when another one forwards a
//! command: a change that is shown is one question to that node and none to the store.

use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::entity::Entity;
use skein_shared::id::EntityKey;
use skein_shared::json::Json;

use super::directory::{Entities, unreadable};
use super::documents::Found;
use super::request::Request;
use crate::store::{Fence, StoredDocument};

/// A body as it was come by.
enum Body {
    AtHand(Json),
    Stored(Value),
}

impl Body {
    fn value(self) -> Value {
        match self {
            Self::AtHand(body) => body.value(),
            Self::Stored(body) => body,
        }
    }

    fn text(self) -> Json {
        match self {
            Self::AtHand(body) => body,
            Self::Stored(body) => body.into(),
        }
    }
}

impl Entities {
    /// Reads the body of one document as it was last committed, whoever owns its entity. Decisions never come
    /// to this: they know the heads of live documents, and this is for what is shown and for what has ended.
    ///
    /// # Errors
    /// `unavailable` when the store cannot be read.
    pub async fn body(&self, key: &EntityKey, document: &str) -> Result<Option<Value>, Refusal> {
        Ok(self.found(key, document).await?.map(Body::value))
    }

    async fn found(&self, key: &EntityKey, document: &str) -> Result<Option<Body>, Refusal> {
        if self.shared().store.fence(key) == Fence::NONE {
            // Another node's commits do not pass by here, so nothing is kept of it.
            return Ok(self.stored(key, document).await?.map(|stored| Body::Stored(stored.body)));
        }
        let turn = match self.shared().documents.find(key, document) {
            Found::Body(body) => return Ok(Some(Body::AtHand(body))),
            Found::Nothing(turn) => turn,
        };
        Ok(self.stored(key, document).await?.map(|stored| {
            self.shared().documents.keep(turn, &stored);
            Body::Stored(stored.body)
        }))
    }

    async fn stored(&self, key: &EntityKey, document: &str) -> Result<Option<StoredDocument>, Refusal> {
        self.shared().store.document(key, document).await.map_err(unreadable)
    }

    /// Asks an entity of this node, and gives the document along that its answer shows.
    pub(super) async fn show_here<E: Entity>(
        &self,
        key: &EntityKey,
        request: Request,
        command: E::Command,
    ) -> Result<(E::Reply, Option<Value>), Refusal> {
        let (reply, _) = self.send_here::<E>(key, request, command).await?;
        let Some(document) = E::shows(&reply) else { return Ok((reply, None)) };
        // What was done is done, whether it can be shown or not.
        let body = self.body(key, &document).await.unwrap_or_default();
        Ok((reply, body))
    }

    /// Gives a command for an entity of this node the words that it wants to know.
    pub(super) async fn informed<E: Entity>(
        &self,
        key: &EntityKey,
        mut command: E::Command,
    ) -> Result<E::Command, Refusal> {
        if let Some(document) = E::consults(&command)
            && let Some(body) = self.found(key, &document).await?
        {
            E::consulted(&mut command, &body.text());
        }
        Ok(command)
    }
}
