//! Asks a runner something, by whichever node has a stream to it.

use std::time::Duration;

use skein_shared::ask::Ask;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::Entities;
use super::remote::{NodeCall, read, write};
use crate::cluster::Outcome;
use crate::cluster::member::Member;

/// What another node may take longer than the question allows.
const WAY: Duration = Duration::from_secs(10);
/// How long another node may take to hear that nobody waits any more.
const TELL: Duration = Duration::from_secs(5);

impl Entities {
    /// Asks a runner, and gives its answer as JSON. Dropped, it tells the runner that nobody waits.
    ///
    /// # Errors
    /// `unavailable` when no node has a stream to it; `outcome_unknown` when it was asked and did not answer; its own
    /// refusals.
    pub async fn ask_runner(&self, runner: &str, ask: &Ask) -> Result<String, Refusal> {
        if let Some(streams) = self.shared().streams.get()
            && let Some(answer) = streams.ask(runner, ask).await
        {
            return answer;
        }
        // Runners hold a stream to every node, so this one is for the moments in which that to this node is broken.
        let others = self.cluster().map(|cluster| cluster.others()).unwrap_or_default();
        for member in others {
            if let Some(answer) = self.ask_by(&member, runner, ask).await? {
                return answer;
            }
        }
        let problem =
            format!("no coordinator has a connection to the runner `{runner}` now; try again in a moment");
        Err(Refusal::new(Code::Unavailable, problem).retry_after(1000))
    }

    async fn ask_by(
        &self,
        member: &Member,
        runner: &str,
        ask: &Ask,
    ) -> Result<Option<Result<String, Refusal>>, Refusal> {
        let Some(cluster) = self.cluster() else { return Ok(None) };
        let call = write(&NodeCall::Ask { runner: runner.to_owned(), ask: Box::new(ask.clone()) })?;
        let limit = Duration::from_millis(ask.timeout_ms).saturating_add(WAY);
        let open = Open { entities: self.clone(), member: member.clone(), id: ask.id, answered: false };
        match cluster.forward(member, None, limit, call).await {
            Ok(Outcome::Answer(answer)) => {
                open.over();
                // One that does not know what it is asked has not asked.
                Ok(read(&answer).unwrap_or(None))
            }
            Ok(Outcome::NotOwner { .. }) => Ok(None),
            Err(silence) => {
                let problem = format!(
                    "the runner was asked through another coordinator, which fell silent ({silence}); look before you repeat it"
                );
                Err(Refusal::new(Code::Unknown, problem).retry_after(1000))
            }
        }
    }
}

/// A question under way at another node. Dropped without an answer, it is given up there.
struct Open {
    entities: Entities,
    member: Member,
    id: Uuid,
    answered: bool,
}

impl Open {
    fn over(mut self) {
        self.answered = true;
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let (false, Ok(call)) = (self.answered, write(&NodeCall::Withdraw { id: self.id })) else { return };
        let (entities, member) = (self.entities.clone(), self.member.clone());
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                if let Some(cluster) = entities.cluster() {
                    // A node that does not hear it waits to the end of the time.
                    let _ = cluster.forward(&member, None, TELL, call).await;
                }
            });
        }
    }
}
