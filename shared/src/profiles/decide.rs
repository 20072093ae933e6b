//! Which texts are new.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::command::{Change, Command, Edit, Reply};
use super::event::{Event, Version};
use super::state::{Field, Latest, Profiles, digest};
use crate::code::Refusal;
use crate::entity::{Ctx, Decision};

pub(super) fn decide(
    state: &Profiles,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Profiles>, Refusal> {
    match command {
        Command::Changed { agent, texts, source, by, reason } => {
            let edit = Edit { source: *source, by: *by, reason: reason.clone() };
            let events = texts.iter().flat_map(|(field, change)| {
                let known = state.agents.get(agent).and_then(|fields| fields.get(field));
                versions((*agent, *field), known, change, &edit, ctx)
            });
            Ok(Decision::new(Reply::Done, events.collect()))
        }
        Command::Latest { agent } => {
            let latest = state.agents.get(agent).cloned().unwrap_or_default();
            Ok(Decision::reply(Reply::Latest(latest)))
        }
        Command::Tick => Ok(Decision::reply(Reply::Done)),
    }
}

/// The version that a change makes, if it changes anything, and before it the one of what was there until then.
fn versions(
    (agent, field): (Uuid, Field),
    known: Option<&Latest>,
    change: &Change,
    edit: &Edit,
    ctx: &mut Ctx,
) -> Vec<Event> {
    let mut latest = known.copied();
    let mut events = Vec::new();
    let first = change.before.as_ref().filter(|before| latest.is_none() && !before.is_empty());
    let steps = [first.map(|text| (text, Edit::system())), Some((&change.text, edit.clone()))];
    for (text, Edit { source, by, reason }) in steps.into_iter().flatten() {
        if latest.is_some_and(|latest| latest.says(text)) {
            continue;
        }
        let digest = digest(text);
        let (version, previous) = latest.map_or((1, None), |latest| (latest.version + 1, Some(latest.id)));
        let id = ctx.id();
        latest = Some(Latest { id, version, digest });
        let (text, at) = (text.clone(), ctx.now);
        let kept = Version { id, agent, field, version, previous, source, by, reason, text, at };
        events.push(Event::VersionKept(Box::new(kept)));
    }
    events
}

impl Profiles {
    pub(super) fn follow(&mut self, version: &Version) -> &BTreeMap<Field, Latest> {
        let Version { id, version: number, .. } = *version;
        let fields = self.agents.entry(version.agent).or_default();
        fields.insert(version.field, Latest { id, version: number, digest: digest(&version.text) });
        fields
    }
}
