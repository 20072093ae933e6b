//! What always holds, by name. Checked in tests, in simulation and in production.

use crate::pool::index::Indexes;
use crate::pool::state::{Pool, Status, Task};

impl Pool {
    pub(in crate::pool) fn invariants(&self) -> Result<(), String> {
        self.one_lead()?;
        self.names_are_unique()?;
        self.capacity_is_kept()?;
        self.indexes_agree()?;
        self.deadlines_agree()?;
        if !self.knows_the_idle() {
            return Err("idle_agrees".to_owned());
        }
        for (id, task) in self.tasks.iter() {
            if task.news && task.agent.is_some() && task.agent != self.lead {
                return Err(format!("news_are_the_leads: task {id}"));
            }
            sound(&task).map_err(|broken| format!("{broken}: task {id}"))?;
        }
        Ok(())
    }

    fn one_lead(&self) -> Result<(), String> {
        let leads: Vec<_> = self.members.iter().filter(|(_, m)| m.lead).map(|(id, _)| *id).collect();
        if leads.len() <= 1 && leads.first().copied() == self.lead {
            Ok(())
        } else {
            Err(format!("one_lead: {leads:?}"))
        }
    }

    fn names_are_unique(&self) -> Result<(), String> {
        let named = |(id, member): (_, &crate::pool::Member)| self.names.get(&member.name) == Some(id);
        if self.names.len() == self.members.len() && self.members.iter().all(named) {
            return Ok(());
        }
        Err("unique_names".to_owned())
    }

    fn capacity_is_kept(&self) -> Result<(), String> {
        for (id, member) in &self.members {
            let active = self.active(*id);
            if active > member.ceiling as usize {
                return Err(format!("capacity: {id} has {active} of {}", member.ceiling));
            }
        }
        Ok(())
    }

    fn indexes_agree(&self) -> Result<(), String> {
        let mut indexes = Indexes::default();
        for (id, task) in self.tasks.iter() {
            indexes.add(id, &task);
        }
        if indexes == self.indexes { Ok(()) } else { Err("indexes_agree".to_owned()) }
    }

    /// Each promise about time has its deadline, and none earlier than was promised.
    fn deadlines_agree(&self) -> Result<(), String> {
        let mut promises = 0;
        for (id, task) in self.tasks.iter() {
            let Some((term, until)) = task.term().zip(task.until) else { continue };
            promises += 1;
            if self.deadlines.get(id).is_none_or(|(kept, end)| kept != term || end < until) {
                return Err(format!("deadlines_agree: task {id}"));
            }
        }
        if promises == self.deadlines.len() {
            Ok(())
        } else {
            Err("deadlines_agree: one too many".to_owned())
        }
    }
}

fn sound(task: &Task) -> Result<(), &'static str> {
    if task.status.is_terminal() {
        return Err("terminal_is_not_live");
    }
    let owned = matches!(task.status, Status::Pending | Status::InProgress | Status::Paused);
    if owned != task.agent.is_some() {
        return Err("owned_has_an_agent");
    }
    if task.news && !owned && task.status != Status::Backlog {
        return Err("news_wait_in_the_backlog");
    }
    if task.status.is_offer() != task.offered_to.is_some() {
        return Err("offer_has_an_offeree");
    }
    let started = task.status == Status::InProgress;
    if started != task.instance.is_some() {
        return Err("started_has_an_instance");
    }
    let leased = started || task.status == Status::Paused || task.status.is_offer();
    if leased && task.until.is_none() {
        return Err("started_or_offered_ends");
    }
    if started && !task.is_ready() {
        return Err("started_after_its_dependencies");
    }
    if (started || task.generation > 0) && task.attempt == 0 {
        return Err("attempts_rise");
    }
    if task.generation > task.attempt {
        return Err("attempts_rise");
    }
    Ok(())
}
