//! What an entity wants done outside of it, and how that is written.

use serde::{Deserialize, Serialize};

use super::{Entity, RunnerCommand};
use crate::id::{EntityKey, Name};
use crate::json::Json;
use crate::slack::Note;

/// Something to do outside the entity after the commit. It goes into the outbox within the same commit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "to", try_from = "Written")]
pub enum Effect {
    /// A command for another entity, handed over exactly once. It is text from where it is made to where it is decided.
    Entity { key: EntityKey, command: Json },
    /// A command for a runner, at least once; the runner drops repeats by the attempt token.
    Runner { runner: String, command: RunnerCommand },
    /// Words for people in Slack, at least once; the note's id tells repeats.
    Slack { swarm: Name, note: Note },
}

impl Effect {
    /// A command for another entity. The types make sure that the target understands it.
    ///
    /// # Panics
    /// Never: commands are plain data, whose JSON form always exists.
    pub fn entity<T: Entity>(key: EntityKey, command: &T::Command) -> Self {
        debug_assert_eq!(key.kind, T::KIND);
        Effect::Entity { key, command: Json::of(command) }
    }
}

/// An effect as it is read: the fields of all variants together. Serde reads a tagged enum into values of its own
/// before it knows the variant, and no [`Json`] can be read from those.
#[derive(Deserialize)]
struct Written {
    to: To,
    key: Option<EntityKey>,
    runner: Option<String>,
    swarm: Option<Name>,
    command: Option<Json>,
    note: Option<Note>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum To {
    Entity,
    Runner,
    Slack,
}

impl TryFrom<Written> for Effect {
    type Error = serde_json::Error;

    fn try_from(written: Written) -> Result<Self, Self::Error> {
        let Written { to, key, runner, swarm, command, note } = written;
        Ok(match to {
            To::Entity => {
                Effect::Entity { key: required(key, "key")?, command: required(command, "command")? }
            }
            To::Runner => Effect::Runner {
                runner: required(runner, "runner")?,
                command: required(command, "command")?.read()?,
            },
            To::Slack => Effect::Slack { swarm: required(swarm, "swarm")?, note: required(note, "note")? },
        })
    }
}

fn required<T>(field: Option<T>, name: &'static str) -> serde_json::Result<T> {
    field.ok_or_else(|| serde::de::Error::missing_field(name))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::fence::{Epoch, Token};
    use crate::id::{InstanceId, Kind};
    use crate::lockspace::{Command, Lockspace};

    const ENTITY: &str = r#"{"to":"entity","key":"lockspace/default","command":{"release":{"holder":"worker-00000001","key":"file:///a"}}}"#;
    const RUNNER: &str = r#"{"to":"runner","runner":"r1","command":{"do":"freeze","instance":"worker-00000001","token":"1790000000000-0000000042"}}"#;
    const SLACK: &str = r#"{"to":"slack","swarm":"default","note":{"id":"00000000-0000-0000-0000-000000000007","channel":"C1","thread":"1.0","text":"done"}}"#;

    fn swarm() -> Name {
        Name::parse("default").unwrap()
    }

    fn locks() -> EntityKey {
        EntityKey::of(Kind::Lockspace, &swarm())
    }

    fn each() -> [(Effect, &'static str); 3] {
        let instance = "worker-00000001".to_owned();
        let release = Command::Release { holder: InstanceId(instance.clone()), key: "file:///a".to_owned() };
        let token = Token { epoch: Epoch(1_790_000_000_000), number: 42 };
        let note = Note {
            id: Uuid::from_u128(7),
            channel: "C1".to_owned(),
            thread: "1.0".to_owned(),
            text: "done".to_owned(),
            name: None,
            edits: false,
        };
        let freeze = RunnerCommand::Freeze { instance, token };
        [
            (Effect::entity::<Lockspace>(locks(), &release), ENTITY),
            (Effect::Runner { runner: "r1".to_owned(), command: freeze }, RUNNER),
            (Effect::Slack { swarm: swarm(), note }, SLACK),
        ]
    }

    /// Stores hold these texts, and other programs of the cluster read them.
    #[test]
    fn each_variant_has_its_text_and_is_read_back() {
        for (effect, text) in each() {
            assert_eq!(serde_json::to_string(&effect).unwrap(), text);
            assert_eq!(serde_json::from_str::<Effect>(text).unwrap(), effect);
            assert_eq!(serde_json::from_slice::<Effect>(text.as_bytes()).unwrap(), effect);
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::from_value::<Effect>(value).unwrap(), effect);
        }
    }

    #[test]
    fn a_command_keeps_its_text_in_whatever_order_the_fields_come() {
        let text =
            r#"{"later":[1],"command":{"b":2.50,"a":[ null ]},"key":"lockspace/default","to":"entity"}"#;
        let effect: Effect = serde_json::from_str(text).unwrap();
        let Effect::Entity { key, command } = &effect else { panic!("{effect:?}") };
        assert_eq!((key, command.text()), (&locks(), r#"{"b":2.50,"a":[ null ]}"#));
        let again = serde_json::to_string(&effect).unwrap();
        assert_eq!(again, r#"{"to":"entity","key":"lockspace/default","command":{"b":2.50,"a":[ null ]}}"#);
        let command = r#"{"token":"1790000000000-0000000042","instance":"worker-00000001","do":"freeze"}"#;
        let text = format!(r#"{{"command":{command},"runner":"r1","to":"runner"}}"#);
        assert_eq!(serde_json::from_str::<Effect>(&text).unwrap(), each()[1].0);
    }

    #[test]
    fn what_is_no_effect_is_refused() {
        let refused = [
            (r#"{"to":"nobody"}"#, "unknown variant `nobody`, expected one of `entity`, `runner`, `slack`"),
            (r#"{"key":"lockspace/default","command":1}"#, "missing field `to`"),
            (r#"{"to":"entity","to":"slack"}"#, "duplicate field `to`"),
            (r#"{"to":"entity","command":"tick"}"#, "missing field `key`"),
            (r#"{"to":"entity","key":"lockspace/default"}"#, "missing field `command`"),
            (r#"{"to":"entity","key":"lockspace/default","command":{]}"#, "key must be a string"),
            (r#"{"to":"entity","key":"nothing/default","command":"tick"}"#, "nothing"),
            (r#"{"to":"runner","command":{"do":"freeze"}}"#, "missing field `runner`"),
            (r#"{"to":"runner","runner":"r1","command":{"do":"dance"}}"#, "unknown variant `dance`"),
            (r#"{"to":"runner","runner":"r1","command":{"do":"freeze"}}"#, "missing field `instance`"),
            (r#"{"to":"slack","note":null}"#, "missing field `swarm`"),
            (r#"{"to":"slack","swarm":"default"}"#, "missing field `note`"),
            (r#""entity""#, "invalid type"),
        ];
        for (text, problem) in refused {
            let told = serde_json::from_str::<Effect>(text).unwrap_err().to_string();
            assert!(told.contains(problem), "{text}: {told}");
        }
    }

    #[test]
    fn effects_within_other_things_are_read_too() {
        #[derive(Debug, PartialEq, Serialize, Deserialize)]
        enum Line {
            Effect { at: u64, effect: Effect },
        }
        for (effect, text) in each() {
            let line = Line::Effect { at: 1, effect };
            let written = serde_json::to_string(&line).unwrap();
            assert_eq!(written, format!(r#"{{"Effect":{{"at":1,"effect":{text}}}}}"#));
            assert_eq!(serde_json::from_str::<Line>(&written).unwrap(), line);
        }
        assert_eq!(
            serde_json::to_value(&each()[0].0).unwrap()["command"]["release"]["key"],
            json!("file:///a")
        );
    }
}
