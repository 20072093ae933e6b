//! Commands about tasks that have ended.
//!
//! An ended task is not in memory: the pool answers `not_found`, the service reads the task's body, and
//! this rule says what is to be answered. The body cannot change any more, so nothing is lost by reading it
//! outside the decision.

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::finish;
use crate::code::{Code, Refusal};
use crate::pool::command::Finish;
use crate::text::excerpt;

/// Longest part of a reason in a refusal, characters.
const REASON: usize = 500;

/// What was tried on the ended task.
#[derive(Clone, Debug, PartialEq)]
pub enum Attempted {
    Finish {
        by: Option<Uuid>,
        finish: Finish,
    },
    /// A progress text alone: it comes too late and is dropped, which is no error.
    Progress {
        by: Option<Uuid>,
    },
    Cancel,
    /// Anything else, by the word for it: `claimed`, `released`, …
    Other(&'static str),
}

/// Answers from an ended task's body: `Ok` if the attempt repeats what has happened, so that the call
/// succeeds without a side effect.
///
/// # Errors
/// `wrong_state`, naming the status, when it contradicts the first result, which stays; `forbidden` when
/// the task was another agent's.
pub fn answer_for_ended(body: &Map<String, Value>, attempted: &Attempted) -> Result<(), Refusal> {
    let text = |field: &str| body.get(field).and_then(Value::as_str).unwrap_or_default();
    let (id, status) = (text("id"), text("status"));
    let refusal = |problem: String| {
        Err(Refusal::new(Code::WrongState, problem).with(json!({ "task": id, "status": status })))
    };
    let is = |field: &str, agent: &Uuid| text(field) == agent.to_string();
    let speaks = match attempted {
        // Its creator may have ended it, and now says so again.
        Attempted::Finish { by: Some(by), .. } => is("agentId", by) || is("creatorAgentId", by),
        Attempted::Progress { by: Some(by) } => is("agentId", by),
        _ => true,
    };
    if !speaks {
        let problem = format!("task {id} can only be reported on by the agent that it is assigned to");
        return Err(Refusal::new(Code::Forbidden, problem).with(json!({ "task": id })));
    }
    let why = why_cancelled(status, text("failureReason"));
    match attempted {
        Attempted::Finish { finish: Finish::Completed { output }, .. }
            if status == "completed" && output.as_deref().unwrap_or_default() == text("output") =>
        {
            Ok(())
        }
        Attempted::Finish { finish: Finish::Failed { reason }, .. }
            if status == "failed" && finish::failure(reason.as_deref()) == text("failureReason") =>
        {
            Ok(())
        }
        Attempted::Finish { .. } => refusal(format!(
            "task {id} is {status} already{why} and keeps its first result; send a new task for more"
        )),
        Attempted::Progress { .. } => Ok(()),
        Attempted::Cancel => refusal(format!("task {id} is {status} already and cannot be cancelled")),
        Attempted::Other(doing) => refusal(format!("task {id} is {status}{why} and cannot be {doing}")),
    }
}

/// Why it was cancelled: whoever worked on it is told by nobody else.
fn why_cancelled(status: &str, reason: &str) -> String {
    if status != "cancelled" || reason.is_empty() {
        return String::new();
    }
    format!(" (\"{}\")", excerpt(reason, REASON))
}
