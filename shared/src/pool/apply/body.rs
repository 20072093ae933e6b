//! A task's body: the fields that clients read, each event adding its own. They are written as JSON as they are found,
//! for every event of a task comes by here.

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use crate::json::Json;
use crate::limits;
use crate::pool::event::{Created, Event};
use crate::pool::state::{Status, Task};
use crate::time::Iso;

/// All of a new task.
pub(super) fn of(created: &Created) -> Json {
    Json::of(&New(created))
}

/// What an event changes: its own fields, and those that every write of a task says anew. A null removes
/// a field: the task has no agent, the offer is over.
pub(super) fn after(task: &Task, event: &Event) -> Json {
    Json::of(&Changed(task, event))
}

struct New<'a>(&'a Created);

/// Fields that a task's context cannot set, for they are the pool's.
const RESERVED: [&str; 19] = [
    "id",
    "agentId",
    "creatorAgentId",
    "task",
    "status",
    "source",
    "taskType",
    "tags",
    "priority",
    "dependsOn",
    "offeredTo",
    "offeredAt",
    "createdAt",
    "lastUpdatedAt",
    "epicId",
    "parentTaskId",
    "model",
    "scheduleId",
    "blockedBy",
];

impl Serialize for New<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Created { task: id, by, spec, at, .. } = self.0;
        let at = Iso(*at);
        let mut body = serializer.serialize_map(None)?;
        let context = spec
            .context
            .iter()
            .filter(|(name, value)| !value.is_null() && !RESERVED.contains(&name.as_str()));
        for (name, value) in context {
            body.serialize_entry(name, value)?;
        }
        body.serialize_entry("id", id)?;
        optional(&mut body, "agentId", self.0.agent.as_ref())?;
        optional(&mut body, "creatorAgentId", by.as_ref())?;
        body.serialize_entry("task", &spec.task)?;
        body.serialize_entry("status", &self.0.status)?;
        body.serialize_entry("source", &spec.source)?;
        optional(&mut body, "taskType", spec.task_type.as_ref())?;
        body.serialize_entry("tags", &spec.tags)?;
        body.serialize_entry("priority", &spec.priority)?;
        body.serialize_entry("dependsOn", &spec.depends_on)?;
        optional(&mut body, "offeredTo", self.0.offered_to.as_ref())?;
        optional(&mut body, "offeredAt", self.0.offered_to.map(|_| &at))?;
        body.serialize_entry("createdAt", &at)?;
        body.serialize_entry("lastUpdatedAt", &at)?;
        optional(&mut body, "epicId", spec.epic.as_ref())?;
        optional(&mut body, "parentTaskId", spec.parent.as_ref())?;
        optional(&mut body, "model", spec.model.as_ref())?;
        optional(&mut body, "scheduleId", spec.schedule.as_ref())?;
        let broken: Vec<_> = self.0.dependencies.iter().filter(|d| d.is_broken()).map(|d| d.task).collect();
        optional(&mut body, "blockedBy", (!broken.is_empty()).then_some(&broken))?;
        body.end()
    }
}

struct Changed<'a>(&'a Task, &'a Event);

impl Serialize for Changed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(task, event) = self;
        let mut body = serializer.serialize_map(None)?;
        own(event, &mut body)?;
        // What nobody works on stalls no more, and what has ended needs nobody.
        if task.stalled && task.status != Status::InProgress {
            body.serialize_entry("stalled", &())?;
        }
        if task.status.is_terminal() && task.generation >= limits::TASK_GENERATIONS {
            body.serialize_entry("needsAttention", &false)?;
        }
        body.serialize_entry("status", &task.status)?;
        body.serialize_entry("agentId", &task.agent)?;
        body.serialize_entry("lastUpdatedAt", &Iso(task.updated))?;
        body.end()
    }
}

/// The fields of one event alone.
fn own<M: SerializeMap>(event: &Event, body: &mut M) -> Result<(), M::Error> {
    match event {
        Event::Progressed { text, .. } => {
            body.serialize_entry("progress", text)?;
            body.serialize_entry("stalled", &())
        }
        Event::Started { .. } => body.serialize_entry("stalled", &()),
        Event::SessionNoted { session, .. } => body.serialize_entry("claudeSessionId", session),
        Event::EpicSet { epic, .. } => body.serialize_entry("epicId", epic),
        Event::Stalled { .. } => body.serialize_entry("stalled", &true),
        Event::Accepted { at, .. } => body.serialize_entry("acceptedAt", &Iso(*at)),
        Event::Rejected { reason, .. } => {
            no_offer(body)?;
            body.serialize_entry("rejectionReason", reason)
        }
        Event::OfferExpired { .. } | Event::Withdrawn { .. } => no_offer(body),
        Event::LeaseLost { generation, reason, .. } => {
            body.serialize_entry("generation", generation)?;
            body.serialize_entry("returnReason", reason)?;
            body.serialize_entry("needsAttention", &(*generation >= limits::TASK_GENERATIONS))
        }
        Event::Finished { output, reason, cost, at, .. } => {
            body.serialize_entry("finishedAt", &Iso(*at))?;
            optional(body, "output", output.as_ref())?;
            optional(body, "failureReason", reason.as_ref())?;
            optional(body, "costData", cost.as_ref())
        }
        _ => Ok(()),
    }
}

fn no_offer<M: SerializeMap>(body: &mut M) -> Result<(), M::Error> {
    body.serialize_entry("offeredTo", &())?;
    body.serialize_entry("offeredAt", &())
}

/// A field that only some tasks have.
fn optional<M: SerializeMap>(
    body: &mut M,
    name: &str,
    value: Option<&impl Serialize>,
) -> Result<(), M::Error> {
    value.map_or(Ok(()), |value| body.serialize_entry(name, value))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::{Value, json};
    use uuid::Uuid;

    use super::*;
    use crate::json::Fields;
    use crate::pool::creation::TaskSpec;
    use crate::pool::dependency::Dependency;
    use crate::pool::state::Outcome;
    use crate::time::Timestamp;

    /// A task whose context names all fields of the pool, and one more.
    fn created() -> Created {
        let mut spec = TaskSpec::new("write");
        spec.context = RESERVED.iter().map(|name| ((*name).to_owned(), json!("theirs"))).collect();
        spec.context.insert("githubRepo".to_owned(), json!("acme/web"));
        spec.context.insert("slackUserId".to_owned(), Value::Null);
        Created {
            task: Uuid::from_u128(1),
            by: None,
            spec,
            status: Status::Unassigned,
            agent: None,
            offered_to: None,
            dependencies: Vec::new(),
            until: None,
            sketch: None,
            news: false,
            at: Timestamp(1_790_000_000_000),
        }
    }

    fn names(body: &Json) -> Vec<String> {
        Fields::of(body).iter().map(|(name, _)| name.to_owned()).collect()
    }

    #[test]
    fn a_context_sets_no_field_of_the_pool() {
        let body = of(&created());
        let shown = [
            "githubRepo",
            "id",
            "task",
            "status",
            "source",
            "tags",
            "priority",
            "dependsOn",
            "createdAt",
            "lastUpdatedAt",
        ];
        assert_eq!(names(&body), shown);
        assert_eq!(body.value()["task"], "write");
    }

    #[test]
    fn every_field_of_the_pool_is_reserved() {
        let mut full = created();
        let id = Some(Uuid::from_u128(2));
        (full.by, full.agent, full.offered_to) = (id, id, id);
        full.dependencies = vec![Dependency { task: Uuid::from_u128(3), outcome: Some(Outcome::Failed) }];
        let spec = &mut full.spec;
        (spec.epic, spec.parent, spec.schedule) = (id, id, id);
        (spec.task_type, spec.model) = (Some("chore".to_owned()), Some("small".to_owned()));
        let names = names(&of(&full));
        let own: BTreeSet<&str> =
            names.iter().map(String::as_str).filter(|name| *name != "githubRepo").collect();
        assert_eq!(own, BTreeSet::from(RESERVED));
        assert_eq!(names.len(), RESERVED.len() + 1, "none is there twice");
    }
}
