use http::StatusCode;
use serde_json::Value;

use crate::https::Failure;

/// Longest reason that is shown, characters.
const REASON: usize = 200;

/// Why X has not done what it was asked. No token stands in it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the system's certificates cannot be read: {0}")]
    Certificates(String),
    /// Whether it has done something is not known.
    #[error("no answer of X: {0}")]
    Unanswered(String),
    #[error("X answers {status}: {reason}")]
    Refused { status: StatusCode, reason: String },
    #[error(
        "X sends nothing to the account's `url`, which does not pass its check: see that X reaches it, and that the source has the app's consumer secret"
    )]
    Invalid,
    #[error("X's answer cannot be read: {0}")]
    Garbled(String),
}

impl Error {
    /// What X says of a refusal, in whichever of its forms.
    pub(super) fn refused(status: StatusCode, said: &Value) -> Self {
        let forms = ["/error_description", "/detail", "/errors/0/message", "/title", "/error"];
        let reason =
            forms.into_iter().find_map(|form| said.pointer(form)?.as_str()).unwrap_or("it says nothing more");
        Error::Refused { status, reason: reason.chars().take(REASON).collect() }
    }

    /// Whether X takes what it was given no more, and no other try would change that.
    pub fn is_final(&self) -> bool {
        matches!(self, Error::Refused { status, .. } if [400, 401, 403].contains(&status.as_u16()))
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        Error::Unanswered(failure.to_string())
    }
}
