//! What an entity wants an operator to look after, as an alarm of this node. It is over when the entity leaves: whoever
//! has it next says so anew.

use skein_shared::id::EntityKey;

use crate::alarms::{Alarms, Kind};

pub(super) struct Notice {
    alarms: Alarms,
    subject: String,
    raised: bool,
}

impl Notice {
    pub(super) fn new(alarms: Alarms, key: &EntityKey) -> Self {
        Self { alarms, subject: key.to_string(), raised: false }
    }

    pub(super) fn tell(&mut self, problem: Option<String>) {
        let is_one = problem.is_some();
        match problem {
            Some(problem) => self.alarms.raise(Kind::Unclaimed, &self.subject, &problem),
            None if self.raised => self.alarms.clear(Kind::Unclaimed, &self.subject),
            None => {}
        }
        self.raised = is_one;
    }
}

impl Drop for Notice {
    fn drop(&mut self) {
        self.tell(None);
    }
}
