//! What the service has found against a command, where a repeat of the request gets the stored answer all the same.

use serde::{Deserialize, Serialize};

use crate::code::Refusal;
use crate::entity::Entity;

/// A command that the service has looked something up for, and would refuse. Whether it was done before its entity
/// alone knows, so the entity refuses it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Denied<C> {
    pub command: Box<C>,
    pub refusal: Refusal,
}

impl<C: Clone> Denied<C> {
    /// What is asked for: the same as without the refusal.
    pub(crate) fn asked<E: Entity<Command = C>>(&self) -> C {
        E::asked(&self.command).unwrap_or_else(|| C::clone(&self.command))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;
    use uuid::Uuid;

    use super::*;
    use crate::caller::Caller;
    use crate::code::Code;
    use crate::id::{EntityKey, Name};
    use crate::pool::{Create, Rules, Target, TaskSpec};
    use crate::testbed::Bench;
    use crate::which::Which;
    use crate::{epics, inboxes, memory, schedules};

    /// What of a command tells one request from another.
    fn told_apart_by<E: Entity>(command: &E::Command) -> Value {
        serde_json::to_value(E::asked(command).unwrap_or_else(|| command.clone())).unwrap()
    }

    fn is_the_same_and_refused<E: Entity>(
        command: E::Command,
        denied: impl FnOnce(Denied<E::Command>) -> E::Command,
    ) {
        let refusal = Refusal::new(Code::NotFound, "there is no such agent");
        let denied = denied(Denied { command: Box::new(command.clone()), refusal: refusal.clone() });
        assert_eq!(told_apart_by::<E>(&denied), told_apart_by::<E>(&command));
        let mut bench = Bench::<E>::new(EntityKey::of(E::KIND, &Name::parse("default").unwrap()));
        assert_eq!(bench.run(denied).unwrap_err(), refusal);
        assert!(bench.events.is_empty());
    }

    #[test]
    fn a_command_that_is_denied_is_the_same_request_and_refused() {
        let create =
            schedules::Create { interval_ms: Some(60_000), ..schedules::Create::new("sweep", "do it") };
        let create = schedules::Command::Create(Box::new(create));
        is_the_same_and_refused::<schedules::Schedules>(create, schedules::Command::Denied);

        let lead = Caller { agent: Some(Uuid::from_u128(1)), lead: true };
        let update = epics::Update::new(Which::Name("Launch".to_owned()), lead);
        let update = epics::Command::Update(Box::new(update));
        is_the_same_and_refused::<epics::Epics>(update, epics::Command::Denied);

        let remember = memory::Command::Remember(Box::new(memory::Remember {
            id: None,
            agent: Some(Uuid::from_u128(2)),
            scope: memory::Scope::Agent,
            name: "geese".to_owned(),
            content: "they swing".to_owned(),
            summary: None,
            source: memory::Source::Manual,
            source_task: None,
            source_path: None,
            tags: Vec::new(),
            chunk_index: 0,
            total_chunks: 1,
        }));
        is_the_same_and_refused::<memory::Memory>(remember, memory::Command::Denied);
        let forget = |name: Option<&str>| memory::Command::Forget {
            memory: Uuid::from_u128(4),
            name: name.map(str::to_owned),
        };
        is_the_same_and_refused::<memory::Memory>(forget(None), memory::Command::Denied);
        let (named, nameless) = (forget(Some("geese")), forget(None));
        assert_eq!(told_apart_by::<memory::Memory>(&named), told_apart_by::<memory::Memory>(&nameless));

        let target = Target::Assign { agent: Some(Uuid::from_u128(2)) };
        let (by, rules) = (None, Rules::Inbox { allow_duplicate: false });
        let task = Box::new(Create { by, spec: TaskSpec::new("help"), target, rules, facts: Vec::new() });
        let (agent, message) = (Uuid::from_u128(1), Uuid::from_u128(3));
        let delegate = inboxes::Command::Delegate { agent, message, task };
        is_the_same_and_refused::<inboxes::Inboxes>(delegate, inboxes::Command::Denied);
    }
}
