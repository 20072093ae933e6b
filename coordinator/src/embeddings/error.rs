//! What can go wrong between us and the endpoint, in words. No variant has the key in it.

use std::time::Duration;

use crate::https::Failure;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Error {
    #[error("the embeddings endpoint cannot be reached: {0}")]
    Unreachable(String),
    #[error("the embeddings endpoint gave no answer: {0}")]
    Unanswered(String),
    #[error("the embeddings endpoint's answer is of no use: {0}")]
    Garbled(String),
    /// By the status of HTTP.
    #[error("the embeddings endpoint refused with status {status}{}", because(.said))]
    Refused { status: u16, said: String },
    #[error("the embeddings endpoint is too busy")]
    Busy { pause: Option<Duration> },
    /// It failed a moment ago, and is not asked.
    #[error("the embeddings endpoint failed a moment ago")]
    Resting,
    #[error(
        "the certificates of this system cannot be read, so the embeddings endpoint cannot be told from others: {0}"
    )]
    Certificates(String),
}

fn because(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

impl Error {
    /// Whether it is the texts that the endpoint does not take, so that others may fare better.
    pub fn blames_texts(&self) -> bool {
        matches!(self, Error::Refused { status: 400 | 413 | 422, .. })
    }

    /// How long it wants to be left alone, if it says.
    pub fn pause(&self) -> Option<Duration> {
        if let Error::Busy { pause } = self { *pause } else { None }
    }
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Unreachable(problem) => Error::Unreachable(problem),
            Failure::Unanswered(problem) => Error::Unanswered(problem),
            Failure::TooLarge => Error::Garbled("it is too long".to_owned()),
        }
    }
}
