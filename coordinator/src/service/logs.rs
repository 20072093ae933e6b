//! What the runs of agents have written. It stays on the runner; here is where it is and how it is asked for.

use std::time::Duration;

use serde_json::Value;
use skein_shared::ask::{Ask, Lines, LogQuery, What};
use skein_shared::id::{InstanceId, Kind, Name};
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, LIMIT, Order, Query, Test};

/// How long a runner may take to read a log.
const READING: Duration = Duration::from_secs(20);

/// A run, as far as its log is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub instance: InstanceId,
    /// The runner that it was last on.
    pub runner: Option<String>,
    /// In a sentence: how it is, or how it ended.
    pub state: String,
    pub ended: bool,
}

impl Service {
    /// The runs whose logs are meant: an instance, or of an agent the latest run, or all that were there within the
    /// last `since`. The oldest comes first.
    ///
    /// # Errors
    /// `forbidden` unless the caller administers; `not_found` when there is none, and `unavailable` while not all nodes
    /// can be asked for one.
    pub async fn runs(
        &self,
        who: &Principal,
        of: &str,
        since: Option<Duration>,
    ) -> Result<Vec<Run>, Refusal> {
        policy::require(who, Right::Administer)?;
        let rows = match self.instances_with(who, "instance", of).await {
            Ok(named) if !named.is_empty() => named,
            // Where not everybody could be asked for an instance, the agents that could may have one of that name.
            none => match self.instances_with(who, "agent", of).await? {
                runs if runs.is_empty() => none?,
                runs => self.latest(runs, since),
            },
        };
        if rows.is_empty() {
            let swarm = &who.swarm;
            let problem = format!(
                "there is no instance `{of}` in swarm `{swarm}` and no run of an agent `{of}`; `skein instances list` shows the runs"
            );
            return Err(Refusal::new(Code::NotFound, problem));
        }
        Ok(rows.iter().rev().map(run).collect())
    }

    /// A part of a run's log, from the runner that holds it.
    ///
    /// # Errors
    /// Those of the runner; `unavailable` without it.
    pub async fn log(&self, instance: &InstanceId, runner: &str, query: LogQuery) -> Result<Lines, Refusal> {
        let timeout = READING + Duration::from_millis(query.wait_ms);
        let ask = Ask {
            id: Uuid::now_v7(),
            instance: instance.clone(),
            timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            what: What::Log(query),
        };
        let answer = self.entities.ask_runner(runner, &ask).await?;
        serde_json::from_str(&answer).map_err(|_| unexpected("the runner"))
    }

    /// Of the runs of an agent the latest, or those that were there within the last `since`.
    fn latest(&self, mut runs: Vec<Value>, since: Option<Duration>) -> Vec<Value> {
        match since {
            None => runs.truncate(1),
            Some(since) => {
                let from = (self.clock().wall() - since).iso();
                runs.retain(|row| row["endedAt"].as_str().is_none_or(|ended| ended >= from.as_str()));
            }
        }
        runs
    }

    /// The latest first.
    ///
    /// # Errors
    /// `unavailable` when there is none and not all nodes could be asked for one.
    pub(super) async fn instances_with(
        &self,
        who: &Principal,
        field: &str,
        is: &str,
    ) -> Result<Vec<Value>, Refusal> {
        if Name::parse(is).is_err() && field == "agent" {
            return Ok(Vec::new());
        }
        let mut query = Query::new(&who.swarm, Kind::Agent, "instance");
        query.filters.push(Filter::new(field, Test::Eq(is.into()))?);
        query.order = vec![Order::descending("createdAt")?, Order::descending("instance")?];
        query.limit = LIMIT;
        self.entities.look_up(query).await
    }
}

fn run(row: &Value) -> Run {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let instance = InstanceId(text(&row["instance"]).unwrap_or_default());
    let state = text(&row["state"]).unwrap_or_default();
    let exit = &row["exit"];
    let mut said = format!("{instance}: {state}");
    if let Some(code) = exit["code"].as_i64() {
        said.push_str(&format!(", exit code {code}"));
    }
    if let Some(signal) = exit["signal"].as_i64() {
        said.push_str(&format!(", signal {signal}"));
    }
    // Of a run that has completed the reason is that word again.
    if let Some(reason) = exit["reason"].as_str().filter(|reason| !reason.is_empty() && *reason != state) {
        said.push_str(&format!(": {reason}"));
    }
    Run { instance, runner: text(&row["runner"]), state: said, ended: row["endedAt"].is_string() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn how_a_run_is_stands_in_one_sentence() {
        for (row, said) in [
            (json!({"state": "running"}), "w-1: running"),
            (
                json!({"state": "completed", "exit": {"code": 0, "reason": "completed"}}),
                "w-1: completed, exit code 0",
            ),
            (
                json!({"state": "killed", "exit": {"signal": 15, "reason": "enough"}}),
                "w-1: killed, signal 15: enough",
            ),
            (
                json!({"state": "error", "exit": {"reason": "start failed: no such image"}}),
                "w-1: error: start failed: no such image",
            ),
        ] {
            let mut row = row;
            row["instance"] = json!("w-1");
            assert_eq!(run(&row).state, said);
        }
    }
}
