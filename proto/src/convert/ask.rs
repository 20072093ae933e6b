//! Questions to a runner.

use skein_shared::ask::{Ask, LogQuery, What};
use skein_shared::id::InstanceId;
use skein_shared::{Code, Refusal, limits};
use uuid::Uuid;

use crate::v1::ask::What as Asked;
use crate::v1::{self, ReadLog, Refused, UseTool};

/// Puts a question on the wire.
pub fn to_wire(ask: Ask, number: u64) -> v1::Ask {
    let what = match ask.what {
        What::Tool { name, arguments } => Asked::Tool(UseTool { name, arguments: arguments.to_string() }),
        What::Log(LogQuery { after, lines, grep, wait_ms }) => {
            Asked::Log(ReadLog { after, lines, grep, wait_ms })
        }
    };
    v1::Ask {
        number,
        id: ask.id.to_string(),
        instance: ask.instance.0,
        timeout_ms: ask.timeout_ms,
        what: Some(what),
    }
}

/// Reads a question.
///
/// # Errors
/// `invalid_argument` for one that this program does not know.
pub fn from_wire(ask: v1::Ask) -> Result<Ask, Refusal> {
    let unknown = |problem: String| Refusal::new(Code::InvalidArgument, problem);
    let what = match ask.what {
        Some(Asked::Tool(UseTool { name, arguments })) => {
            if arguments.len() > limits::FILE {
                return Err(Refusal::new(Code::TooLarge, "the arguments are too large; write less at once"));
            }
            let arguments = serde_json::from_str(&arguments);
            What::Tool { name, arguments: arguments.map_err(|error| unknown(format!("arguments: {error}")))? }
        }
        Some(Asked::Log(ReadLog { after, lines, grep, wait_ms })) => {
            What::Log(LogQuery { after, lines, grep, wait_ms })
        }
        None => return Err(unknown("this runner does not know what it is asked; update it".to_owned())),
    };
    let id = Uuid::try_parse(&ask.id).map_err(|error| unknown(format!("id: {error}")))?;
    Ok(Ask { id, instance: InstanceId(ask.instance), timeout_ms: ask.timeout_ms, what })
}

/// Puts a refusal on the wire.
pub fn refused(refusal: &Refusal) -> Refused {
    Refused { code: refusal.code.as_str().to_owned(), message: refusal.message.clone() }
}

/// Reads a refusal; one with a code that this program does not know is an internal failure.
pub fn refusal(refused: Refused) -> Refusal {
    let code = Code::ALL.iter().find(|code| code.as_str() == refused.code).copied();
    Refusal::new(code.unwrap_or(Code::Internal), refused.message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn questions_survive_the_wire() {
        let log = LogQuery { after: Some(7), lines: 3, grep: Some("x".into()), wait_ms: 5 };
        for what in [
            What::Tool { name: "bash".into(), arguments: json!({"command": "true"}) },
            What::Log(log),
            What::Log(LogQuery::default()),
        ] {
            let id = Uuid::from_u128(1);
            let ask = Ask { id, instance: InstanceId("worker-00000001".into()), timeout_ms: 9, what };
            assert_eq!(from_wire(to_wire(ask.clone(), 1)).unwrap(), ask);
        }
        assert_eq!(from_wire(v1::Ask::default()).unwrap_err().code, Code::InvalidArgument);
        let refused_before = Refusal::new(Code::WrongState, "it is frozen");
        assert_eq!(refusal(refused(&refused_before)), refused_before);
    }
}
