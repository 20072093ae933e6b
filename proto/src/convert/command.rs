//! Commands for a runner.

use serde_json::Value;
use skein_shared::entity::{Reign, RunnerCommand};
use skein_shared::fence::{Epoch, Token};
use skein_shared::limits;
use skein_shared::{Code, Refusal};

use crate::v1::coordinator_message::Message;
use crate::v1::{CoordinatorMessage, Forget, Freeze, Restore, Spill, Start, Stop, Thaw};

/// Puts a command on the wire.
///
/// `access_token` is the new instance's bearer token for the MCP face. Only a start carries it: it is made
/// as the command leaves and is never part of what is stored.
pub fn to_message(command: RunnerCommand, access_token: &str, reign: &Reign) -> CoordinatorMessage {
    let message = match command {
        RunnerCommand::Start { instance, agent, swarm, token, input } => Message::Start(Start {
            instance,
            swarm,
            agent,
            token: token.to_string(),
            input: input.to_string(),
            access_token: access_token.to_owned(),
        }),
        RunnerCommand::Freeze { instance, token } => {
            Message::Freeze(Freeze { instance, token: token.to_string() })
        }
        RunnerCommand::Thaw { instance, token } => Message::Thaw(Thaw { instance, token: token.to_string() }),
        RunnerCommand::Spill { instance, token } => {
            Message::Spill(Spill { instance, token: token.to_string() })
        }
        RunnerCommand::Restore { instance, token, input } => {
            let (token, input) = (token.to_string(), input.to_string());
            Message::Restore(Restore { instance, token, input })
        }
        RunnerCommand::Stop { instance, token, reason, grace_ms } => {
            Message::Stop(Stop { instance, token: token.to_string(), reason, grace_ms })
        }
        RunnerCommand::Forget { instance, token } => {
            Message::Forget(Forget { instance, token: token.to_string() })
        }
    };
    let (source, epoch) = (reign.source.to_string(), reign.epoch.0);
    CoordinatorMessage { message: Some(message), source, epoch, ..CoordinatorMessage::default() }
}

/// Puts something that is no command on the wire.
pub fn plain(message: Message) -> CoordinatorMessage {
    CoordinatorMessage { message: Some(message), ..CoordinatorMessage::default() }
}

/// Reads by whose command a message is.
///
/// # Errors
/// `invalid_argument` when no entity is named so.
pub fn reign(message: &CoordinatorMessage) -> Result<Reign, Refusal> {
    Ok(Reign { source: message.source.parse()?, epoch: Epoch(message.epoch) })
}

/// Reads a command, or gives the message back when it is none (a welcome, an acknowledgement …).
///
/// # Errors
/// `invalid_argument` when the token or the input cannot be read, `too_large` when the input is past the limit.
pub fn from_message(message: Message) -> Result<Result<RunnerCommand, Message>, Refusal> {
    let command = match message {
        Message::Start(start) => RunnerCommand::Start {
            token: token(&start.token)?,
            input: input(&start.input)?,
            instance: start.instance,
            agent: start.agent,
            swarm: start.swarm,
        },
        Message::Freeze(Freeze { instance, token: text }) => {
            RunnerCommand::Freeze { instance, token: token(&text)? }
        }
        Message::Thaw(Thaw { instance, token: text }) => {
            RunnerCommand::Thaw { instance, token: token(&text)? }
        }
        Message::Spill(Spill { instance, token: text }) => {
            RunnerCommand::Spill { instance, token: token(&text)? }
        }
        Message::Restore(Restore { instance, token: text, input: told }) => {
            RunnerCommand::Restore { instance, token: token(&text)?, input: input(&told)? }
        }
        Message::Stop(Stop { instance, token: text, reason, grace_ms }) => {
            RunnerCommand::Stop { instance, token: token(&text)?, reason, grace_ms }
        }
        Message::Forget(Forget { instance, token: text }) => {
            RunnerCommand::Forget { instance, token: token(&text)? }
        }
        other => return Ok(Err(other)),
    };
    Ok(Ok(command))
}

/// Reads the attempt token of a command or report.
///
/// # Errors
/// `invalid_argument` when it has another form.
pub fn token(text: &str) -> Result<Token, Refusal> {
    text.parse().map_err(|error| Refusal::new(Code::InvalidArgument, format!("token: {error}")))
}

fn input(text: &str) -> Result<Value, Refusal> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    if text.len() > limits::INPUT {
        let problem = format!("input: {} bytes are more than the {} allowed", text.len(), limits::INPUT);
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    serde_json::from_str(text)
        .map_err(|error| Refusal::new(Code::InvalidArgument, format!("input: not JSON: {error}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use skein_shared::fence::Epoch;

    use super::*;

    #[test]
    fn commands_survive_the_wire() {
        let token = Token { epoch: Epoch(1_790_000_000_000), number: 7 };
        let instance = "worker-0a0b0c0d".to_owned();
        let commands = [
            RunnerCommand::Start {
                instance: instance.clone(),
                agent: "worker".into(),
                swarm: "default".into(),
                token,
                input: json!({"reason": "manual", "prompt": "do it"}),
            },
            RunnerCommand::Freeze { instance: instance.clone(), token },
            RunnerCommand::Thaw { instance: instance.clone(), token },
            RunnerCommand::Spill { instance: instance.clone(), token },
            RunnerCommand::Restore { instance: instance.clone(), token, input: json!({"type": "resumed"}) },
            RunnerCommand::Stop { instance: instance.clone(), token, reason: "why".into(), grace_ms: 5 },
            RunnerCommand::Forget { instance, token },
        ];
        let reign = Reign { source: "agent/default/worker".parse().unwrap(), epoch: Epoch(7) };
        for command in commands {
            let sent = to_message(command.clone(), "secret", &reign);
            assert_eq!(super::reign(&sent).unwrap(), reign);
            assert_eq!(from_message(sent.message.unwrap()).unwrap().unwrap(), command);
        }
    }

    #[test]
    fn a_malformed_token_is_refused() {
        let bad = Message::Freeze(Freeze { instance: "a".into(), token: "7".into() });
        assert_eq!(from_message(bad).unwrap_err().code, Code::InvalidArgument);
    }
}
