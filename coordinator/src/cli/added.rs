//! What becomes of an agent that was added: a runner reads its folder a moment later, and tells the node.

use std::time::Duration;

use skein_proto::v1::{AgentRequest, StatusRequest};
use skein_shared::id::Name;
use skein_shared::{Code, Refusal};

use super::{Common, table};
use crate::api::{bearer, client};

/// How long a runner may take: it waits itself until nothing changes in the folder any more, and registers then.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the node is asked. Nobody is told by it that an agent was defined.
const LOOK: Duration = Duration::from_millis(100);

/// What the node knows of the agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    Known,
    /// Not within the time that it takes.
    NotYet,
    /// Nobody is connected who could bring it.
    NoRunner,
    NoNode,
}

/// Waits until the node of the data directory knows an agent that was added there, so that it can be run by the next
/// command, and says on standard error whether it does. The agent is there in any case, so this is no failure.
pub(super) async fn tell(common: &Common, swarm: &str, agent: &Name) {
    let asked = tokio::time::timeout(PATIENCE, ask(common, swarm, agent)).await;
    match asked.unwrap_or(Ok(Heard::NotYet)) {
        Ok(heard) => {
            let folder = common.agents().display().to_string();
            if let Some(sentence) = sentence(heard, &folder, swarm, agent) {
                table::note(format_args!("skein: {sentence}"));
            }
        }
        Err(refusal) => {
            table::note(format_args!(
                "skein: nobody can say whether a runner has {agent} yet: {}",
                refusal.message
            ));
        }
    }
}

async fn ask(common: &Common, swarm: &str, agent: &Name) -> Result<Heard, Refusal> {
    let mut admin = match common.admin().await {
        Err(refusal) if refusal.code == Code::Unavailable => return Ok(Heard::NoNode),
        reached => reached?,
    };
    let status = admin.status(StatusRequest {}).await.map_err(client::untold)?.into_inner();
    if client::read(&status.json)?["runners"].as_array().is_some_and(Vec::is_empty) {
        return Ok(Heard::NoRunner);
    }
    let request = AgentRequest { swarm: swarm.to_owned(), agent: agent.to_string() };
    while !knows(admin.show_agents(request.clone()).await)? {
        tokio::time::sleep(LOOK).await;
    }
    Ok(Heard::Known)
}

/// Whether an answer shows that a runner has defined the agent. Until then there may be nothing of its name, and not
/// even its swarm; and who has it may be away for a moment. Without the node nobody can say it.
fn knows(answer: client::Answer) -> Result<bool, Refusal> {
    let is_broken = answer.as_ref().is_err_and(bearer::is_broken);
    match client::shown(answer) {
        Ok(shown) => Ok(!shown["definition"].is_null()),
        Err(refusal) if !is_broken && matches!(refusal.code, Code::NotFound | Code::Unavailable) => Ok(false),
        Err(refusal) => Err(refusal),
    }
}

/// What there is to say. Nothing where no node runs, for a folder is also filled before the first start.
fn sentence(heard: Heard, folder: &str, swarm: &str, agent: &Name) -> Option<String> {
    match heard {
        Heard::Known => Some(format!("the node knows {agent}, so it can be run")),
        Heard::NotYet => Some(format!(
            "no runner has {agent} yet, so it cannot be run; see that one reads {folder} and serves the swarm {swarm}, and \
             whether its log says what is wrong with the agent"
        )),
        Heard::NoRunner => Some(format!(
            "no runner is connected to the node, so {agent} cannot be run yet; start the node without --no-runner by `skein \
             up`, or start skein-runner with --agents {folder}"
        )),
        Heard::NoNode => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use serde_json::{Value, json};
    use skein_proto::v1::Document;
    use tonic::{Response, Status};

    use super::*;

    #[test]
    fn an_agent_is_known_once_a_runner_has_defined_it() {
        let shows = |document: Value| Ok(Response::new(Document { json: document.to_string() }));
        let refused = |code| Err(bearer::status(&Refusal::new(code, "no")));
        assert!(knows(shows(json!({"definition": {"scale": 1}}))).unwrap());
        // Runs of one that was there before, or of one that calls itself so.
        assert!(!knows(shows(json!({"definition": null, "instances": [{}]}))).unwrap());
        for code in [Code::NotFound, Code::Unavailable] {
            assert!(!knows(refused(code)).unwrap(), "{code:?}");
        }
        // Another try would change nothing.
        assert_eq!(knows(refused(Code::Unauthenticated)).unwrap_err().code, Code::Unauthenticated);
        let broken = Status::from_error(Box::new(io::Error::from(io::ErrorKind::BrokenPipe)));
        assert_eq!(knows(Err(broken)).unwrap_err().code, Code::Unavailable, "it says nothing of runners");
    }

    #[test]
    fn whoever_adds_an_agent_that_cannot_be_run_is_told_what_to_do() {
        let agent = Name::parse("reviewer").unwrap();
        let said = |heard| sentence(heard, "d/agents", "build", &agent);
        assert_eq!(said(Heard::NoNode), None);
        assert!(said(Heard::Known).unwrap().contains("knows reviewer"));
        for word in ["no runner has reviewer yet", "d/agents", "the swarm build"] {
            assert!(said(Heard::NotYet).unwrap().contains(word), "{word}");
        }
        for word in ["no runner is connected", "--no-runner", "--agents d/agents"] {
            assert!(said(Heard::NoRunner).unwrap().contains(word), "{word}");
        }
    }
}
