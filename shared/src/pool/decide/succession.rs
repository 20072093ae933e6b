//! What others keep for whoever leads.

use uuid::Uuid;

use crate::entity::Effect;
use crate::id::{EntityKey, Kind};
use crate::inboxes::{self, Inboxes};
use crate::pool::state::Pool;
use crate::questions::{self, Questions};

impl Pool {
    /// Whoever comes to lead gets what its predecessor's inbox has left, and hears of the questions that wait.
    pub(super) fn tell_of_new_lead(&self, lead: Uuid) -> Vec<Effect> {
        let tell = questions::Command::TellLead { lead };
        let questions = EntityKey::of(Kind::Questions, &self.swarm);
        vec![self.hand_on_inboxes(lead), Effect::entity::<Questions>(questions, &tell)]
    }

    /// A message may have come to a former lead since: so whoever leads asks for it again when it joins again.
    pub(super) fn hand_on_inboxes(&self, lead: Uuid) -> Effect {
        let inherit = inboxes::Command::Inherit { lead };
        Effect::entity::<Inboxes>(EntityKey::of(Kind::Inboxes, &self.swarm), &inherit)
    }
}
