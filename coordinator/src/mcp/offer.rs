//! What a face has to offer besides its tools: prompts, documents, and work that goes on after an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde_json::{Map, Value};
use skein_shared::{Code, Refusal};

use super::Catalogue;
use super::client::Questions;
use super::content::{Content, Document};
use super::dispatch::Context;
use super::job::Job;

/// Between two questions after what nobody can say for now.
const PAUSE: Duration = Duration::from_secs(1);

/// A prompt as it is listed.
#[derive(Clone, Debug)]
pub struct Prompt {
    pub name: &'static str,
    pub title: &'static str,
    pub about: &'static str,
    pub arguments: &'static [Argument],
}

#[derive(Clone, Debug)]
pub struct Argument {
    pub name: &'static str,
    pub about: &'static str,
    pub required: bool,
}

/// A prompt that was asked for.
#[derive(Clone, Debug)]
pub enum Written {
    Messages(Vec<Content>),
    Asks(Questions),
}

/// An address as it is listed.
#[derive(Clone, Debug, PartialEq)]
pub struct Listed {
    pub uri: String,
    pub name: String,
    pub about: String,
    pub mime_type: &'static str,
}

/// Addresses, and where the next ones begin.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub listed: Vec<Listed>,
    pub next: Option<String>,
}

/// What words are to be completed for.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    Prompt(&'a str),
    Template(&'a str),
}

/// Everything that is offered. The tools' catalogue is a part of it.
#[async_trait]
pub trait Offer: Send + Sync + 'static {
    fn tools(&self) -> &Arc<Catalogue>;

    fn prompts(&self, caller: &Context) -> Vec<Prompt>;

    async fn prompt(
        &self,
        caller: &Context,
        name: &str,
        arguments: &Map<String, Value>,
    ) -> Result<Written, Refusal>;

    async fn list(&self, caller: &Context, cursor: Option<&str>) -> Result<Page, Refusal>;

    fn templates(&self) -> Vec<Listed>;

    /// What lies at an address.
    ///
    /// # Errors
    /// `not_found`.
    async fn read(&self, caller: &Context, uri: &str) -> Result<Document, Refusal>;

    /// Resolves when what lies at an address is no longer what was seen there, whose digest is `seen`: whoever watches
    /// a large document does not keep it. Gives the digest of what lies there now.
    ///
    /// # Errors
    /// As [`Self::read`]: also when it is gone by then.
    async fn changed(&self, caller: &Context, uri: &str, seen: u64) -> Result<u64, Refusal>;

    /// Words that begin as `begun` does, at most a hundred.
    async fn complete(
        &self,
        caller: &Context,
        place: Place<'_>,
        argument: &str,
        begun: &str,
    ) -> Result<Vec<String>, Refusal>;

    async fn job(&self, caller: &Context, id: &str) -> Result<Job, Refusal>;

    async fn answer_job(
        &self,
        caller: &Context,
        id: &str,
        answers: BTreeMap<String, Value>,
    ) -> Result<(), Refusal>;

    async fn cancel_job(&self, caller: &Context, id: &str) -> Result<(), Refusal>;

    /// Whether this is what the conformance suite asks for: then log messages, which the protocol has given up, and
    /// changes of the lists of tools and prompts are announced.
    fn is_fixture(&self) -> bool {
        false
    }

    /// The lists that have become others, one after the other. One that has to be looked at is told at the first look,
    /// too: the client had its acknowledgement before, and what has changed in between is in that look.
    fn relisted(&self, caller: Context) -> BoxStream<'static, List>;
}

/// A list that has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    Tools,
    Prompts,
    Documents,
}

pub fn no_prompt(name: &str, known: &[&str]) -> Refusal {
    let shown: String = name.chars().take(60).collect();
    let problem = match known {
        [] => "there are no prompts for your role".to_owned(),
        known => format!("there is no prompt `{shown}`; there are {}", known.join(", ")),
    };
    Refusal::new(Code::NotFound, problem)
}

/// Asks until somebody can say it. Whoever watches something shall not lose sight of it because its node was away for a
/// moment.
///
/// # Errors
/// What is refused for good.
pub async fn once_it_can_be_said<T, F, R>(mut ask: F) -> Result<T, Refusal>
where
    F: FnMut() -> R,
    R: Future<Output = Result<T, Refusal>>,
{
    loop {
        match ask().await {
            Ok(said) => return Ok(said),
            Err(refusal) if refusal.code.is_passing() => {
                let pause = refusal.retry_after_ms.map_or(PAUSE, Duration::from_millis);
                tokio::time::sleep(pause.max(PAUSE)).await;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_said_for_now_is_asked_for_again() {
        let asked = async |answers: Vec<Result<u8, Code>>| {
            let mut answers = answers.into_iter();
            let said = once_it_can_be_said(|| {
                let next = answers.next().expect("it was asked once more");
                async move { next.map_err(|code| Refusal::new(code, "no")) }
            });
            let said = said.await.map_err(|refusal| refusal.code);
            (said, answers.len())
        };
        let passing = [Err(Code::Unavailable), Err(Code::NotOwner), Ok(1), Ok(2)];
        assert_eq!(asked(passing.to_vec()).await, (Ok(1), 1));
        for code in [Code::NotFound, Code::Forbidden, Code::Unauthenticated] {
            assert_eq!(asked(vec![Err(code), Ok(1)]).await, (Err(code), 1));
        }
    }
}
