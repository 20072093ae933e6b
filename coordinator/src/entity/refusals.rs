//! What callers are told when an entity cannot answer for itself.

use skein_shared::id::EntityKey;
use skein_shared::{Code, Refusal};

use crate::store::CommitError;

/// To those whose command was certainly not executed.
pub(super) fn restarting(key: &EntityKey) -> Refusal {
    let problem = format!("{key} is restarting and nothing was written; try again in a moment");
    Refusal::new(Code::Unavailable, problem).retry_after(200)
}

/// To those who found it restarting, before anything of theirs was looked at.
pub(super) fn unavailable(key: &EntityKey) -> Refusal {
    Refusal::new(Code::Unavailable, format!("{key} is restarting; try again in a moment")).retry_after(200)
}

/// Of a delivery that is no command of the entity, which cannot refuse it then: it leaves no mark, and its source is
/// not told. So it must not pass for delivered.
pub(super) fn unknown_to(key: &EntityKey) -> impl Fn(serde_json::Error) -> Refusal {
    move |error| {
        let problem = format!(
            "{key} does not know what it was sent: {error}; a later program has sent it: run that on all nodes, and do again \
             what it was for"
        );
        Refusal::new(Code::Internal, problem)
    }
}

/// While the entity goes to another node. Nothing was written.
pub(super) fn moving(key: &EntityKey) -> Refusal {
    let problem =
        format!("{key} is moving to another coordinator and nothing was written; try again in a moment");
    Refusal::new(Code::NotOwner, problem).retry_after(500)
}

pub(super) fn panicked(key: &EntityKey) -> Refusal {
    let problem = format!("{key} failed at this request, of which nothing was written; report this");
    Refusal::new(Code::Internal, problem)
}

/// To those whose commit failed, or may have.
pub(super) fn failed(key: &EntityKey, problem: &CommitError) -> Refusal {
    match problem {
        CommitError::Unknown(_) => Refusal::new(
            Code::Unknown,
            "the store's answer was lost; repeat the request with the same idempotency key",
        ),
        CommitError::Fenced(_) => moving(key),
        _ => Refusal::new(Code::Unavailable, format!("nothing was written: {problem}; try again"))
            .retry_after(500),
    }
}

/// The other node may have done it: the same request finds out, as the router does while there is time.
pub(super) fn unanswered(key: &EntityKey, problem: &str) -> Refusal {
    let problem = format!("{key}: {problem}; repeat the request with the same idempotency key");
    Refusal::new(Code::Unknown, problem).retry_after(500)
}
