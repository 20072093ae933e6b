//! What a swarm's settings are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use super::repos::Repo;
use crate::time::Timestamp;

/// What is shown in place of a secret.
pub const MASK: &str = "********";

/// All settings of a swarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Settings {
    pub(super) settings: BTreeMap<Uuid, Setting>,
    /// Which setting stands where.
    pub(super) places: BTreeMap<Place, Uuid>,
    /// What their texts take together.
    pub(super) bytes: usize,
    pub(super) repos: BTreeMap<Uuid, Repo>,
}

/// Whom a setting is for. A narrower one goes before a wider one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    Global,
    Agent(Uuid),
    Repo(Uuid),
}

/// No two settings have the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    pub key: String,
    pub scope: Scope,
}

/// One setting. It is its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setting {
    pub id: Uuid,
    pub place: Place,
    pub value: Held,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// A value as it is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    Plain(String),
    Sealed(Sealed),
}

/// A secret that only the key with this id opens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    pub key: String,
    /// In base64.
    pub text: String,
}

impl Scope {
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Global => "global",
            Scope::Agent(_) => "agent",
            Scope::Repo(_) => "repo",
        }
    }

    /// The agent or repository.
    pub fn id(self) -> Option<Uuid> {
        match self {
            Scope::Global => None,
            Scope::Agent(id) | Scope::Repo(id) => Some(id),
        }
    }
}

impl Held {
    pub(super) fn len(&self) -> usize {
        match self {
            Held::Plain(text) => text.len(),
            Held::Sealed(sealed) => sealed.key.len() + sealed.text.len(),
        }
    }
}

impl Setting {
    pub(super) fn key(id: Uuid) -> String {
        format!("setting/{id}")
    }

    /// What its texts take.
    pub(super) fn bytes(&self) -> usize {
        self.place.key.len() + self.value.len() + self.description.as_deref().map_or(0, str::len)
    }

    /// The shape `Config` of Agent Swarm, with the mask in place of a secret.
    pub fn masked(&self) -> Value {
        let (value, secret) = match &self.value {
            Held::Plain(text) => (text.as_str(), false),
            Held::Sealed(_) => (MASK, true),
        };
        json!({
            "id": self.id,
            "scope": self.place.scope.as_str(),
            "scopeId": self.place.scope.id(),
            "key": self.place.key,
            "value": value,
            "isSecret": secret,
            // Coordinators write no file for anybody.
            "envPath": null,
            "description": self.description,
            "createdAt": self.created.iso(),
            "lastUpdatedAt": self.updated.iso(),
        })
    }
}

impl Settings {
    pub(super) fn insert(&mut self, setting: Setting) {
        self.remove(setting.id);
        self.bytes += setting.bytes();
        self.places.insert(setting.place.clone(), setting.id);
        self.settings.insert(setting.id, setting);
    }

    pub(super) fn remove(&mut self, id: Uuid) {
        if let Some(setting) = self.settings.remove(&id) {
            self.bytes -= setting.bytes();
            self.places.remove(&setting.place);
        }
    }
}
