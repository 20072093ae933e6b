//! How versions become documents.

use std::collections::BTreeMap;

use serde_json::json;
use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Field, Latest, Profiles};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Profiles {
    const KIND: Kind = Kind::Profiles;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, agent) = document.split();
        let agent = Uuid::try_parse(agent).ok().filter(|_| kind == "latest");
        let Some(agent) = agent else { return Err(document.corrupt("profiles have no such document")) };
        let latest: BTreeMap<Field, Latest> = document.read()?;
        self.agents.insert(agent, latest);
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        let Event::VersionKept(version) = event;
        let body = json!({
            "id": version.id,
            "agentId": version.agent,
            "field": version.field,
            "version": version.version,
            "changeSource": version.source,
            "changedByAgentId": version.by,
            "changeReason": version.reason,
            "previousVersionId": version.previous,
            "contentLength": version.text.chars().count(),
            "createdAt": version.at.iso(),
        });
        changes.create_archived(format!("version/{}", version.id), &json!({}), body);
        let text = json!({ "content": version.text });
        changes.create_archived(format!("text/{}", version.id), &json!({}), text);
        changes.put(format!("latest/{}", version.agent), self.follow(version), None);
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(event: &Event) -> Option<String> {
        let Event::VersionKept(version) = event;
        Some(version.agent.to_string())
    }

    fn check(&self) -> Result<(), String> {
        let counted = self.agents.values().flat_map(BTreeMap::values).all(|latest| latest.version > 0);
        if counted { Ok(()) } else { Err("profiles: versions count from one".to_owned()) }
    }
}
