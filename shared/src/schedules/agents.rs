//! Schedules that start agents: their times stand in the agents' definitions.

use uuid::Uuid;

use super::Update;
use super::check::{NAME, check};
use super::decide::{ERROR, planned, stored};
use super::event::Event;
use super::state::{Schedule, Schedules};
use super::{Create, Reply};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::id::Name;
use crate::text;

impl Schedules {
    /// Makes the schedule of an agent what the agent's definition says. What somebody has switched off stays off.
    ///
    /// # Errors
    /// `invalid_argument` when the times cannot be read, `queue_full` when the swarm has too many schedules.
    pub(super) fn follow(
        &self,
        agent: &Name,
        cron: Option<&str>,
        zone: &str,
        ctx: &mut Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        let known = self.schedule_of(agent);
        let Some(cron) = cron else {
            let ended = known.map(|known| Event::Deleted { schedule: known.id });
            return Ok(Decision::new(Reply::Done, ended.into_iter().collect()));
        };
        if let Some(known) = known {
            if known.cron.as_deref() == Some(cron) && known.zone == zone {
                return Ok(Decision::reply(Reply::Done));
            }
            let moved = Schedule {
                cron: Some(cron.to_owned()),
                zone: zone.to_owned(),
                updated: ctx.wall,
                ..known.clone()
            };
            check(&moved)?;
            return Ok(stored(planned(moved, ctx.wall, false)?, |schedule| Event::Updated { schedule }));
        }
        let id = ctx.id();
        let name = format!("agent {agent}");
        // Somebody may have a schedule of that name already.
        let name = if self.ids.contains_key(&name) { told_apart(&name, id) } else { name };
        let times = Create {
            cron: Some(cron.to_owned()),
            zone: zone.to_owned(),
            ..Create::new(name, format!("run agent {agent}"))
        };
        let new = Schedule { runs: Some(agent.clone()), ..Schedule::new(id, times, ctx.wall) };
        self.add(new, ctx.wall)
    }

    /// The agent starts no run now: somebody has disabled it, or paused the swarm. Its times stay as they are, for
    /// whoever enables it again expects the next of them.
    pub(super) fn run_refused(&self, agent: &Name, message: &str, ctx: &Ctx) -> Decision<Self> {
        let Some(schedule) = self.schedule_of(agent) else { return Decision::reply(Reply::Done) };
        let event = Event::Failed {
            schedule: schedule.id,
            at: ctx.wall,
            message: message.chars().take(ERROR).collect(),
            enabled: schedule.enabled,
            next: schedule.next_run,
            by_hand: false,
        };
        Decision::new(Reply::Done, vec![event])
    }

    fn schedule_of(&self, agent: &Name) -> Option<&Schedule> {
        self.schedules.values().find(|schedule| schedule.runs.as_ref() == Some(agent))
    }
}

/// The name with the id of its schedule behind it, of which no letter may be missing.
fn told_apart(name: &str, id: Uuid) -> String {
    let id = id.to_string();
    format!("{} {id}", text::beginning(name, NAME - id.len() - 1))
}

impl Schedule {
    /// # Errors
    /// `wrong_state` when an agent's definition has the schedule: a change here would last until the agent is defined
    /// the next time.
    pub(super) fn is_nobodys_definition(&self) -> Result<(), Refusal> {
        let Some(agent) = &self.runs else { return Ok(()) };
        Err(Refusal::new(
            Code::WrongState,
            format!(
                "the schedule `{}` is that of agent {agent}; change `schedule` in the agent's definition, or only enable and disable it here",
                self.name
            ),
        ))
    }
}

impl Update {
    /// Whether all it does is to switch the schedule on or off.
    pub(super) fn only_enables(&self) -> bool {
        let enabling = Self { enabled: self.enabled, ..Self::new(self.which.clone(), self.by) };
        *self == enabling
    }
}
