//! How reports change the costs and their documents.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{Command, Reply};
use super::decide;
use super::event::Event;
use super::state::{Costs, Sum};
use crate::code::Refusal;
use crate::day::Day;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::limits::COSTS_KEPT;
use crate::time::Timestamp;

/// A report's head: all that is decided about one is when it goes, and that its id says.
#[derive(Serialize, Deserialize)]
struct Kept {}

impl Entity for Costs {
    const KIND: Kind = Kind::Costs;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(_: &EntityKey) -> Self {
        Self::default()
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        match kind {
            "report" => {
                let id = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
                self.reports.insert(id);
            }
            "sum" => {
                let key = day_and_agent(id).ok_or_else(|| document.corrupt("no day and agent"))?;
                self.sums.insert(key, document.read()?);
            }
            _ => return Err(document.corrupt("costs have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        let Event::CostReported { id, report, at } = event;
        self.reports.insert(*id);
        changes.create(report_key(*id), &Kept {}, report.body(*id, *at));
        let (day, agent) = (Day::of(*at), report.agent);
        let sum = self.sums.entry((day, agent)).or_default();
        sum.add(&Sum::from(&**report));
        changes.put(sum_key(day, agent), sum, Some(sum.body(day, agent).into()));
        for id in self.reports_past_limit() {
            self.reports.remove(&id);
            changes.delete(report_key(id));
        }
        for (day, agent) in self.sums_past_limit() {
            self.sums.remove(&(day, agent));
            changes.delete(sum_key(day, agent));
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        None
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn subject(Event::CostReported { id, .. }: &Event) -> Option<String> {
        Some(id.to_string())
    }

    fn check(&self) -> Result<(), String> {
        if self.reports.len() > COSTS_KEPT || !self.sums_past_limit().is_empty() {
            return Err("costs: there are more than may be".to_owned());
        }
        Ok(())
    }
}

fn report_key(id: Uuid) -> String {
    format!("report/{id}")
}

fn sum_key(day: Day, agent: Uuid) -> String {
    format!("sum/{day}/{agent}")
}

fn day_and_agent(text: &str) -> Option<(Day, Uuid)> {
    let (day, agent) = text.split_once('/')?;
    Some((day.parse().ok()?, agent.parse().ok()?))
}
