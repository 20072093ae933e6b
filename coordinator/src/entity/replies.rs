//! The answers to requests, kept so that a repeat gets the same one.

use std::collections::{HashMap, VecDeque};

use skein_shared::json::Json;
use skein_shared::limits::REPLY_KEEP;
use skein_shared::mutation::{self, Mutation};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use crate::store::StoredReply;

/// Kept by age, for [`REPLY_KEEP`].
#[derive(Debug, Default)]
pub(super) struct Replies {
    by_request: HashMap<Uuid, (u64, Json)>,
    by_age: VecDeque<(Timestamp, Uuid)>,
}

impl Replies {
    pub(super) fn restore(mut stored: Vec<StoredReply>) -> Self {
        stored.sort_by_key(|reply| reply.at);
        let mut replies = Self::default();
        for StoredReply { request, digest, at, reply } in stored {
            replies.keep(request, digest, at, reply);
        }
        replies
    }

    /// The answer to an earlier try of this request.
    ///
    /// # Errors
    /// `idempotency_key_reused` when that try had other arguments.
    pub(super) fn find(
        &self,
        request: Uuid,
        digest: u64,
        whole: impl FnOnce() -> u64,
    ) -> Result<Option<Json>, Refusal> {
        let known = self.by_request.get(&request).filter(|_| !mutation::is_on(Mutation::ForgetReplies));
        match known {
            None => Ok(None),
            Some((known, reply)) if *known == digest || *known == whole() => Ok(Some(reply.clone())),
            Some(_) => Err(Refusal::new(
                Code::KeyReused,
                "this idempotency key was used before with other arguments; use a new key for a new request",
            )),
        }
    }

    pub(super) fn keep(&mut self, request: Uuid, digest: u64, at: Timestamp, reply: Json) -> StoredReply {
        self.by_request.insert(request, (digest, reply.clone()));
        self.by_age.push_back((at, request));
        StoredReply { request, digest, at, reply }
    }

    pub(super) fn forget_before(&mut self, now: Timestamp) {
        while let Some(&(at, request)) = self.by_age.front()
            && at + REPLY_KEEP < now
        {
            self.by_age.pop_front();
            self.by_request.remove(&request);
        }
    }
}
