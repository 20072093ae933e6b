//! Finds the waits that an event may end without going through all of them.
//!
//! Filters look at few places, whatever they want to find there. So waits are filed by the places that they look at,
//! and in each file by what they want: an event is looked up once for each file. An array of wanted values is one of
//! many keys, so it is left out here and judged by the filter alone.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use super::filter::{Envelope, Filter, text_of};
use super::state::Wait;
use crate::id::Name;
use crate::time::Timestamp;

/// Where a wait stands in its line: since when it waits, and its id.
pub(super) type Place = (Timestamp, Uuid);

#[derive(Debug, Default, PartialEq)]
pub(super) struct Index {
    files: BTreeMap<Shape, BTreeMap<Vec<String>, BTreeMap<Name, Line>>>,
}

/// The places that a filter looks at.
#[derive(Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    source: bool,
    event: bool,
    paths: Vec<String>,
}

/// Waits of one agent that want the same, the longest-waiting first.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Line {
    /// Those of whom an event ends one.
    pub single: BTreeSet<Place>,
    /// Those that asked for broadcast.
    pub broadcast: BTreeSet<Place>,
}

impl Line {
    fn of(&mut self, wait: &Wait) -> &mut BTreeSet<Place> {
        if wait.broadcast { &mut self.broadcast } else { &mut self.single }
    }

    fn len(&self) -> usize {
        self.single.len() + self.broadcast.len()
    }
}

impl Index {
    pub(super) fn insert(&mut self, id: Uuid, wait: &Wait) {
        let (shape, key) = filed(&wait.filter);
        let line = self.files.entry(shape).or_default().entry(key).or_default();
        line.entry(wait.agent.clone()).or_default().of(wait).insert((wait.registered_at, id));
    }

    /// Keeps nothing of what is empty: an event looks into every file.
    pub(super) fn remove(&mut self, id: Uuid, wait: &Wait) {
        let (shape, key) = filed(&wait.filter);
        let Some(file) = self.files.get_mut(&shape) else { return };
        let Some(agents) = file.get_mut(&key) else { return };
        let Some(line) = agents.get_mut(&wait.agent) else { return };
        line.of(wait).remove(&(wait.registered_at, id));
        if line.len() == 0 {
            agents.remove(&wait.agent);
        }
        if agents.is_empty() {
            file.remove(&key);
        }
        if file.is_empty() {
            self.files.remove(&shape);
        }
    }

    /// The lines in which all waits that match the event stand, beside some that do not.
    pub(super) fn lines(&self, event: &Envelope) -> impl Iterator<Item = (&Name, &Line)> {
        let keys =
            self.files.iter().flat_map(|(shape, file)| shape.keys_of(event).map(move |key| (file, key)));
        keys.filter_map(|(file, key)| file.get(&key)).flatten()
    }

    pub(super) fn has(&self, id: Uuid, wait: &Wait) -> bool {
        let (shape, key) = filed(&wait.filter);
        let line = self.files.get(&shape).and_then(|file| file.get(&key)?.get(&wait.agent));
        let place = (wait.registered_at, id);
        line.is_some_and(|line| if wait.broadcast { &line.broadcast } else { &line.single }.contains(&place))
    }

    pub(super) fn len(&self) -> usize {
        let lines = self.files.values().flat_map(BTreeMap::values).flat_map(BTreeMap::values);
        lines.map(Line::len).sum()
    }
}

impl Shape {
    /// What the event has in these places. An event has two names for its source.
    fn keys_of(&self, event: &Envelope) -> impl Iterator<Item = Vec<String>> + use<> {
        let rest = self.rest_of(event);
        let sources = match self.source {
            true => event.sources().map(|source| vec![source.to_owned()]).collect(),
            false => BTreeSet::from([Vec::new()]),
        };
        rest.into_iter().flat_map(move |rest| {
            sources.clone().into_iter().map(move |mut key| {
                key.extend(rest.iter().cloned());
                key
            })
        })
    }

    fn rest_of(&self, event: &Envelope) -> Option<Vec<String>> {
        let name = self.event.then(|| event.event_name().map(str::to_owned));
        let found = self.paths.iter().map(|path| event.find(path).and_then(text_of));
        name.into_iter().chain(found).collect()
    }
}

/// Where a filter is filed, and under which key.
fn filed(filter: &Filter) -> (Shape, Vec<String>) {
    let mut shape =
        Shape { source: filter.source.is_some(), event: filter.event.is_some(), paths: Vec::new() };
    let mut key: Vec<String> = filter.source.iter().chain(&filter.event).cloned().collect();
    for (path, wanted) in &filter.matches {
        let text = if matches!(wanted, Value::Array(_)) { None } else { text_of(wanted) };
        if let Some(text) = text {
            shape.paths.push(path.clone());
            key.push(text);
        }
    }
    (shape, key)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::id::InstanceId;
    use crate::triggers::state::Triggers;
    use crate::triggers::{FilterKind, Incoming};

    fn name(number: u8) -> Name {
        Name::parse(&format!("agent{number}")).unwrap()
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(json!("open")),
            Just(json!(7)),
            Just(json!(7.0)),
            Just(json!("7")),
            Just(json!(null)),
            Just(json!(["bug", "ui"])),
            Just(json!("bug,ui")),
            Just(json!(["open", 7])),
        ]
    }

    fn predicates() -> impl Strategy<Value = BTreeMap<String, Value>> {
        let path = prop_oneof![Just("a"), Just("b"), Just("payload.a"), Just("c.d")];
        prop::collection::btree_map(path.prop_map(str::to_owned), value(), 0..3)
    }

    fn filter() -> impl Strategy<Value = Filter> {
        let source = prop::option::of(prop_oneof![Just("acme"), Just("github")]);
        let event = prop::option::of(prop_oneof![Just("push"), Just("issues")]);
        (source, event, predicates()).prop_map(|(source, event, matches)| Filter {
            kind: FilterKind::Webhook,
            source: source.map(str::to_owned),
            event: event.map(str::to_owned),
            matches,
            only: BTreeMap::new(),
            source_agent: None,
        })
    }

    fn event() -> impl Strategy<Value = Envelope> {
        let source = prop_oneof![Just("acme"), Just("github"), Just("other")];
        let event = prop_oneof![Just("push"), Just("issues")];
        (source, event, value(), value(), value()).prop_map(|(source, event, a, b, d)| {
            Envelope::webhook(&Incoming {
                receipt: Uuid::from_u128(1),
                delivery: String::new(),
                source: source.to_owned(),
                provider: "github".to_owned(),
                event: event.to_owned(),
                context: json!({ "a": a }),
                payload: json!({ "a": b, "b": b, "c": { "d": d } }),
                received_at: Timestamp(5),
                unsigned: false,
                said: None,
                letter: None,
                activity: None,
            })
        })
    }

    proptest! {
        /// Whatever waits and whatever comes, those who are woken are those whom a look at every wait would find.
        #[test]
        fn the_index_finds_whom_a_look_at_every_wait_would(
            waits in prop::collection::vec((0..3u8, filter(), any::<bool>(), any::<bool>()), 0..30),
            events in prop::collection::vec(event(), 1..5),
        ) {
            let mut triggers = Triggers::new(name(9));
            for (number, (agent, filter, broadcast, _)) in (0_u16..).zip(&waits) {
                let wait = Wait {
                    agent: name(*agent),
                    instance: InstanceId(format!("i{number}")),
                    filter: filter.clone(),
                    registered_at: Timestamp(u64::from(number % 7)),
                    deadline: Timestamp(99),
                    broadcast: *broadcast,
                };
                triggers.insert_wait(Uuid::from_u128(number.into()), wait);
            }
            for (number, (.., gone)) in (0_u16..).zip(&waits) {
                if *gone {
                    triggers.remove_wait(Uuid::from_u128(number.into()));
                }
            }
            prop_assert_eq!(triggers.broken(), None);
            for event in events {
                let mut expected: BTreeMap<&Name, Vec<(Place, bool)>> = BTreeMap::new();
                for (id, wait) in triggers.waits.iter().filter(|(_, wait)| wait.filter.matches(&event)) {
                    expected.entry(&wait.agent).or_default().push(((wait.registered_at, *id), wait.broadcast));
                }
                let expected: BTreeMap<&Name, Vec<Place>> = expected.into_iter().map(|(agent, mut line)| {
                    line.sort();
                    let woken = line.iter().enumerate().filter(|(at, (_, all))| *at == 0 || *all);
                    (agent, woken.map(|(_, (place, _))| *place).collect())
                }).collect();
                prop_assert_eq!(triggers.woken(&event, None), expected);
            }
            for (number, (.., gone)) in (0_u16..).zip(&waits) {
                if !*gone {
                    triggers.remove_wait(Uuid::from_u128(number.into()));
                }
            }
            prop_assert!(triggers.index_is_empty(), "what is gone leaves nothing behind");
        }
    }
}
