//! What the swarm's work cost.

use serde_json::Value;
use skein_shared::Refusal;
use skein_shared::costs::{Command, Costs, Reply, Report, Sums, Wanted};
use skein_shared::id::Kind;
use skein_shared::time::Timestamp;
use skein_shared::wire;
use uuid::Uuid;

use super::lists::{List, Page};
use super::{Service, unexpected};
use crate::auth::{Principal, Right, policy};
use crate::projection::{Filter, Order, Query, Test};

/// Which reports a list shows. All conditions must hold.
#[derive(Clone, Debug, Default)]
pub struct Reports {
    pub agent: Option<Uuid>,
    pub task: Option<Uuid>,
    /// From this moment on.
    pub from: Option<Timestamp>,
    /// Before this one.
    pub before: Option<Timestamp>,
    pub page: Page,
}

impl Service {
    /// Notes what a session of an agent cost: of the caller's own, or, for operators, of any member's.
    ///
    /// # Errors
    /// `forbidden` for another agent's; `not_joined` if the agent is no member; `invalid_argument` for what is no cost.
    pub async fn report_cost(
        &self,
        who: &Principal,
        request: Uuid,
        report: Report,
    ) -> Result<Value, Refusal> {
        let own = report.agent == who.agent;
        policy::require(who, if own { Right::Work } else { Right::Administer })?;
        if self.member(who, report.agent).await?.is_none() {
            return Err(super::read::not_joined());
        }
        let command = Command::Report(Box::new(report));
        match self.change::<Costs>(&who.entity(Kind::Costs), request, command).await? {
            Reply::Reported(report) => Ok(report),
            _ => Err(unexpected("the costs")),
        }
    }

    /// Reports of what work cost, the latest first.
    ///
    /// # Errors
    /// `invalid_argument` for a cursor that is none.
    pub async fn list_costs(&self, who: &Principal, wanted: Reports) -> Result<List, Refusal> {
        policy::require(who, Right::Read)?;
        let mut query = reports(who)?;
        for (field, test) in [
            ("agentId", wanted.agent.map(|agent| Test::Eq(agent.to_string().into()))),
            ("taskId", wanted.task.map(|task| Test::Eq(task.to_string().into()))),
            ("createdAt", wanted.from.map(|from| Test::AtLeast(from.iso().into()))),
            ("createdAt", wanted.before.map(|before| Test::Below(before.iso().into()))),
        ] {
            query.filters.extend(test.map(|test| Filter::new(field, test)).transpose()?);
        }
        let mut list = self.list_page(&who.entity(Kind::Costs), query, wanted.page).await?;
        list.rows = list.rows.into_iter().map(|row| wire::shown(row, &["taskId"])).collect();
        Ok(list)
    }

    /// What work came to.
    ///
    /// # Errors
    /// `forbidden` for whoever may not look.
    pub async fn sum_costs(&self, who: &Principal, wanted: Wanted) -> Result<Sums, Refusal> {
        policy::require(who, Right::Read)?;
        match self.ask::<Costs>(&who.entity(Kind::Costs), Command::Sum(wanted)).await? {
            Reply::Sums(sums) => Ok(sums),
            _ => Err(unexpected("the costs")),
        }
    }
}

/// Single reports, the latest first.
pub(super) fn reports(who: &Principal) -> Result<Query, Refusal> {
    let mut query = Query { live: Some(true), ..Query::new(&who.swarm, Kind::Costs, "report") };
    query.order = vec![Order::descending("createdAt")?, Order::ascending("id")?];
    Ok(query)
}

/// The sums of each day by agent, the latest day first.
pub(super) fn by_day(who: &Principal) -> Result<Query, Refusal> {
    let mut query = Query { live: Some(true), ..Query::new(&who.swarm, Kind::Costs, "sum") };
    query.order = vec![Order::descending("date")?, Order::ascending("agentId")?];
    Ok(query)
}
