//! The rules of settings.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::command::{Command, Exchange, Reply, Set, Wanted};
use super::event::Event;
use super::state::{Held, Place, Scope, Setting, Settings};
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::wire;

/// Longest value, bytes: a start-up script fits.
pub const VALUE: usize = 64 * 1024;
/// A sealed value is longer by its base64, nonce and tag.
const SEALED: usize = 2 * VALUE;
const KEY: usize = 255;
const DESCRIPTION: usize = 1000;
/// Most settings of a swarm, and what their texts may take together, bytes: they stay in memory, and an answer may
/// show all of them.
const SETTINGS: usize = 1000;
const ALL: usize = 1024 * 1024;
/// Names of what opens the swarm itself. Nobody shall take a setting for it.
const RESERVED: [&str; 2] = ["API_KEY", "SECRETS_ENCRYPTION_KEY"];

pub(super) fn decide(
    state: &Settings,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Settings>, Refusal> {
    match command {
        Command::Set(set) => state.set(set, ctx),
        Command::Delete { by, id } => state.delete(by, *id),
        Command::List(wanted) => Ok(Decision::reply(Reply::Settings(state.list(wanted)))),
        Command::Resolve { agent, repo, key } => {
            Ok(Decision::reply(Reply::Settings(state.resolve(*agent, *repo, key.as_deref()))))
        }
        Command::Reseal(exchanges) => Ok(state.reseal(exchanges)),
        Command::Repos => Ok(state.repos()),
        Command::AddRepo { by, repo } => state.add_repo(by, repo, ctx),
        Command::ChangeRepo { by, id, repo } => state.change_repo(by, *id, repo, ctx),
        Command::RemoveRepo { by, id } => state.remove_repo(by, *id),
        Command::Tick => Ok(Decision::reply(Reply::Done)),
    }
}

impl Settings {
    fn set(&self, set: &Set, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        may_change(&set.by, set.place.scope)?;
        check(set)?;
        let known = self.places.get(&set.place).and_then(|id| self.settings.get(id));
        let setting = Setting {
            id: known.map_or_else(|| ctx.id(), |known| known.id),
            place: set.place.clone(),
            value: set.value.clone(),
            description: set.description.clone(),
            created: known.map_or(ctx.now, |known| known.created),
            updated: ctx.now,
        };
        if known.is_none() && self.settings.len() >= SETTINGS {
            return Err(Refusal::new(
                Code::QueueFull,
                format!("the swarm has {SETTINGS} settings, the most there may be; delete one first"),
            ));
        }
        let bytes = self.bytes - known.map_or(0, Setting::bytes) + setting.bytes();
        if bytes > ALL {
            return Err(Refusal::new(
                Code::TooLarge,
                format!(
                    "the swarm's settings would take {bytes} bytes together, and {ALL} is the most; delete some, or keep long values in files"
                ),
            ));
        }
        let reply = Reply::Set { setting: setting.masked(), new: known.is_none() };
        Ok(Decision::new(reply, vec![Event::SettingSet { setting: Box::new(setting) }]))
    }

    fn delete(&self, by: &Caller, id: Uuid) -> Result<Decision<Self>, Refusal> {
        let setting = self.settings.get(&id).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("there is no setting {id}; list-config shows those there are with their ids"),
            )
        })?;
        may_change(by, setting.place.scope)?;
        let reply = Reply::Deleted(setting.place.clone());
        Ok(Decision::new(reply, vec![Event::SettingDeleted { setting: id }]))
    }

    fn list(&self, wanted: &Wanted) -> Vec<Setting> {
        let found = self.places.iter().filter(|(place, _)| wanted.includes(place));
        found.filter_map(|(_, id)| self.settings.get(id)).cloned().collect()
    }

    /// Places are ordered by key and then from wide to narrow, so the last of a key that applies is the one.
    fn resolve(&self, agent: Option<Uuid>, repo: Option<Uuid>, key: Option<&str>) -> Vec<Setting> {
        let applies = |scope: Scope| match scope {
            Scope::Global => true,
            Scope::Agent(id) => agent == Some(id),
            Scope::Repo(id) => repo == Some(id),
        };
        let mut found: BTreeMap<&str, Uuid> = BTreeMap::new();
        for (place, id) in &self.places {
            if applies(place.scope) && key.is_none_or(|key| key == place.key) {
                found.insert(&place.key, *id);
            }
        }
        found.values().filter_map(|id| self.settings.get(id)).cloned().collect()
    }

    /// A secret that was set or deleted meanwhile stays as it is.
    fn reseal(&self, exchanges: &[Exchange]) -> Decision<Self> {
        let holds = |exchange: &&Exchange| {
            let setting = self.settings.get(&exchange.id);
            setting.is_some_and(|setting| setting.value == Held::Sealed(exchange.before.clone()))
        };
        let event = |exchange: &Exchange| Event::SettingResealed {
            setting: exchange.id,
            value: exchange.after.clone(),
        };
        let events: Vec<Event> = exchanges.iter().filter(holds).map(event).collect();
        Decision::new(Reply::Resealed(events.len()), events)
    }
}

/// The lead decides for all; an agent knows best what it needs itself.
fn may_change(by: &Caller, scope: Scope) -> Result<(), Refusal> {
    let own = matches!(scope, Scope::Agent(agent) if by.agent == Some(agent));
    if own || by.lead || by.agent.is_none() {
        return Ok(());
    }
    let whose = match scope {
        Scope::Agent(_) => "another agent's settings",
        _ => "settings that others have too",
    };
    Err(Refusal::new(
        Code::Forbidden,
        format!(
            "only the lead may change {whose}; ask the lead, or set it for yourself: scope agent with your own id"
        ),
    ))
}

fn check(set: &Set) -> Result<(), Refusal> {
    let Place { key, .. } = &set.place;
    wire::length("key", key, 1, KEY)?;
    if RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(key)) {
        return Err(Refusal::new(
            Code::InvalidArgument,
            format!(
                "key: `{key}` is kept for what opens the swarm itself, which no setting changes; choose another key"
            ),
        ));
    }
    if let Some(description) = &set.description {
        wire::length("description", description, 0, DESCRIPTION)?;
    }
    match &set.value {
        Held::Plain(text) => fits(text),
        Held::Sealed(sealed) => within(sealed.key.len() + sealed.text.len(), SEALED),
    }
}

/// Whether a value is short enough. Asked before one is sealed, too: a sealed one says little of its length.
///
/// # Errors
/// `too_large`.
pub fn fits(value: &str) -> Result<(), Refusal> {
    within(value.len(), VALUE)
}

fn within(bytes: usize, most: usize) -> Result<(), Refusal> {
    if bytes <= most {
        return Ok(());
    }
    let sentence = format!(
        "value: it has {bytes} bytes, at most {most} are kept; put it into a file and set the file's path"
    );
    Err(Refusal::new(Code::TooLarge, sentence))
}
