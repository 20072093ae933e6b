//! What the swarm's services are.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::time::Timestamp;
use crate::wire;

/// All services of a swarm.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Services {
    pub(super) services: BTreeMap<Uuid, Service>,
    /// Each agent's service.
    pub(super) of_agent: BTreeMap<Uuid, Uuid>,
    /// What the texts of all services come to, bytes.
    pub(super) bytes: usize,
}

/// One service. It is its document's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub id: Uuid,
    pub agent: Uuid,
    pub script: String,
    pub url: String,
    /// Its agent has said so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub says_url: bool,
    pub health: Health,
    pub health_path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
    pub created: Timestamp,
    pub updated: Timestamp,
}

/// What a service says of itself, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Healthy,
    Starting,
    Unhealthy,
    Stopped,
}

impl Service {
    /// Every service has the port that containers show to the world (spec: Agent Swarm 2.7).
    const PORT: u16 = 3000;

    pub(super) fn key(id: Uuid) -> String {
        format!("service/{id}")
    }

    pub(super) fn name(&self) -> String {
        self.agent.to_string()
    }

    /// A name that its agent has given it.
    pub(super) fn label(&self) -> Option<&str> {
        self.metadata.get("label").and_then(Value::as_str)
    }

    /// What its texts come to.
    pub(super) fn bytes(&self) -> usize {
        let json = |text: serde_json::Result<String>| text.map_or(0, |text| text.len());
        let texts = [&self.description, &self.cwd, &self.interpreter].into_iter().flatten();
        let texts =
            texts.chain([&self.script, &self.url, &self.health_path]).chain(self.args.iter().flatten());
        texts.map(String::len).sum::<usize>()
            + json(serde_json::to_string(&self.env))
            + json(serde_json::to_string(&self.metadata))
    }

    /// The shape `Service` of Agent Swarm, with nulls for what is absent.
    pub(super) fn body(&self) -> Value {
        json!({
            "id": self.id,
            "agentId": self.agent,
            "name": self.name(),
            "port": Self::PORT,
            "description": self.description,
            "url": self.url,
            "healthCheckPath": self.health_path,
            "status": self.health,
            "script": self.script,
            "cwd": self.cwd,
            "interpreter": self.interpreter,
            "args": self.args,
            "env": self.env,
            "metadata": self.metadata,
            "createdAt": self.created.iso(),
            "lastUpdatedAt": self.updated.iso(),
        })
    }

    /// The same as clients see it.
    pub(super) fn view(&self) -> Value {
        wire::shown(self.body(), &[])
    }
}

impl Services {
    /// Takes a service in, or what has become of it.
    pub(super) fn insert(&mut self, service: Service) {
        self.remove(service.id);
        self.bytes += service.bytes();
        self.of_agent.insert(service.agent, service.id);
        self.services.insert(service.id, service);
    }

    pub(super) fn remove(&mut self, id: Uuid) {
        if let Some(service) = self.services.remove(&id) {
            self.of_agent.remove(&service.agent);
            self.bytes -= service.bytes();
        }
    }
}
