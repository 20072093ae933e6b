//! What the swarm remembers.

use serde_json::{Value, json};
use skein_shared::id::Kind;
use skein_shared::memory::{Command, Memory, Remember, Reply, Scope};
use skein_shared::{Code, Refusal, wire};
use uuid::Uuid;

use super::lists::List;
use super::{Service, step, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Query, Test};

/// Which learnings a search looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Visible {
    /// The caller's own and the swarm's.
    #[default]
    All,
    /// The caller's own private ones.
    Agent,
    Swarm,
}

/// A learning, and how well it fits the query.
#[derive(Clone, Debug)]
pub struct Recalled {
    pub memory: Value,
    /// Between 0 and 1, comparable within one search.
    pub similarity: f64,
}

impl Service {
    /// Learnings that have any of the query's words, the best first. The lead sees those of all agents.
    pub async fn search_memory(
        &self,
        who: &Principal,
        query: &str,
        visible: Visible,
        source: Option<String>,
        limit: usize,
    ) -> Result<List<Recalled>, Refusal> {
        policy::require(who, Right::Read)?;
        let sees_all = self.caller(who).await?.lead;
        let mut filters = Vec::new();
        if let Some(source) = source {
            filters.push(Filter::new("source", Test::Eq(json!(source)))?);
        }
        match visible {
            Visible::Swarm => filters.push(Filter::new("scope", Test::Eq(json!("swarm")))?),
            Visible::Agent => filters.push(Filter::new("scope", Test::Eq(json!("agent")))?),
            Visible::All => {}
        }
        // Whose a learning is cannot be said in one conjunction: more are fetched, and the others dropped.
        const FETCHED: usize = 200;
        let (hits, freshness) =
            self.entities.search(&who.entity(Kind::Memory), query, filters, FETCHED).await?;
        let best = hits.first().map_or(1.0, |hit| hit.score.max(f64::MIN_POSITIVE));
        let rows = hits
            .into_iter()
            .filter(|hit| sees_all || is_visible(who, &hit.body))
            .take(limit)
            .map(|hit| Recalled { similarity: (hit.score / best).clamp(0.0, 1.0), memory: shape(hit.body) })
            .collect();
        Ok(List { rows, freshness })
    }

    /// The newest learnings that the caller may see.
    pub async fn recent_memory(&self, who: &Principal, limit: usize) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let sees_all = self.caller(who).await?.lead;
        let query = Query::new(&who.swarm, Kind::Memory, "memory");
        let mut list = self.list(&who.entity(Kind::Memory), query).await?;
        list.rows.retain(|body| sees_all || is_visible(who, body));
        list.rows.sort_by(|a, b| b["createdAt"].as_str().cmp(&a["createdAt"].as_str()));
        list.rows.truncate(limit);
        Ok(list)
    }

    /// A learning with its content.
    ///
    /// # Errors
    /// `not_found`, also for private learnings of others.
    pub async fn get_memory(&self, who: &Principal, request: Uuid, memory: Uuid) -> Result<Value, Refusal> {
        policy::require(who, Right::Read)?;
        let key = who.entity(Kind::Memory);
        let body = self.body(&key, &format!("memory/{memory}")).await?;
        let sees_all = self.caller(who).await?.lead;
        let body = body.filter(|body| body["id"].is_string() && (sees_all || is_visible(who, body)));
        let Some(body) = body else {
            return Err(Refusal::new(
                Code::NotFound,
                format!("there is no memory {memory} that you may read; memory-search finds them"),
            ));
        };
        // Noting the time of the read is a change, which those who may only look do not make.
        if policy::allows(who.role, Right::Work) && policy::require_writable(who).is_ok() {
            self.change::<Memory>(&key, request, Command::Touch { memory }).await?;
        }
        Ok(shape(body))
    }

    /// Writes a learning down for an agent. Only the lead does.
    ///
    /// # Errors
    /// `forbidden`; `not_found` for an unknown agent.
    pub async fn remember(
        &self,
        who: &Principal,
        request: Uuid,
        remember: Remember,
    ) -> Result<Value, Refusal> {
        self.require_lead(who).await?;
        self.must_be_member(who, remember.agent).await?;
        let remember = Remember { id: Some(step(request, "memory")), ..remember };
        let command = Command::Remember(Box::new(remember));
        match self.change::<Memory>(&who.entity(Kind::Memory), request, command).await? {
            Reply::Remembered(memory) => Ok(memory),
            Reply::Done => Err(unexpected("the memory")),
        }
    }
}

/// The caller's own, whatever their scope, and the swarm's.
fn is_visible(who: &Principal, body: &Value) -> bool {
    body["agentId"] == json!(who.agent) || body["scope"] == json!(Scope::Swarm)
}

fn shape(body: Value) -> Value {
    wire::shown(body, &["agentId", "summary", "sourceTaskId", "sourcePath"])
}
