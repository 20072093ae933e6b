//! How events change the triggers and their documents.
//!
//! Live documents: `wait/<id>`, `subscription/<agent>`, `pause/self` and `receipt/<id>`. A receipt's body is the event
//! (`incoming`), and what it led to: `resumed`, `started`, `unclaimed:<wait>` for each wait that gave it back, and
//! `refused:<agent>` for each agent that did not take the run. One that nobody has is a dead letter, with the
//! `reason`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::command::{Incoming, Rejected};
use super::event::{Event, Outcome, Resumption};
use super::filter::Filter;
use super::state::{
    NO_MATCH, PARSE_ERROR, Pause, RATE_LIMITED, Receipt, Triggers, Wait, dedupe_id, delivery_id, speaker_id,
};
use crate::entity::{Changes, Corrupt, LiveDocument};
use crate::id::Name;
use crate::time::Timestamp;

/// The head of `subscription/<agent>`.
#[derive(Serialize, Deserialize)]
struct Subscription {
    filters: Vec<Filter>,
}

impl Triggers {
    pub(super) fn apply_event(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Received { incoming, at, replay_of, outcome } => {
                self.receive_event(incoming, *at, *replay_of, outcome, changes);
            }
            Event::HandedOn { receipt, agent, wait, outcome } => {
                self.hand_event_on(*receipt, agent, *wait, outcome, changes);
            }
            Event::Rejected { rejected, at } => self.reject_request(rejected, *at, changes),
            Event::Refused { receipt, agent, reason } => {
                self.note_run(*receipt, agent, Some(reason.as_str()), changes);
            }
            Event::TakenUp { receipt, agent } => self.note_run(*receipt, agent, None, changes),
            Event::WaitRegistered { wait, agent, instance, filter, registered_at, deadline, broadcast } => {
                let entry = Wait {
                    agent: agent.clone(),
                    instance: instance.clone(),
                    filter: filter.clone(),
                    registered_at: *registered_at,
                    deadline: *deadline,
                    broadcast: *broadcast,
                };
                changes.put(format!("wait/{wait}"), &entry, None);
                self.insert_wait(*wait, entry);
            }
            Event::WaitEnded { wait, .. } => self.end_wait(*wait, changes),
            Event::Subscribed { agent, filters } => self.set_subscription(agent, filters, changes),
            Event::Paused { paused, word } => {
                self.pause = Pause { paused: *paused, word: *word };
                changes.put("pause/self", &self.pause, None);
            }
            Event::Trimmed { receipts } => {
                for receipt in receipts {
                    self.remove_receipt(*receipt);
                    changes.delete(document(*receipt));
                }
            }
        }
    }

    pub(super) fn restore_document(&mut self, document: &LiveDocument) -> Result<(), Corrupt> {
        let uuid = |id: &str| Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()));
        match document.split() {
            ("wait", id) => self.insert_wait(uuid(id)?, document.read()?),
            ("receipt", id) => self.insert_receipt(uuid(id)?, document.read()?),
            ("subscription", agent) => {
                let agent = Name::parse(agent).map_err(|refusal| document.corrupt(refusal.message))?;
                self.subscriptions.insert(agent, document.read::<Subscription>()?.filters);
            }
            ("pause", _) => self.pause = document.read()?,
            _ => return Err(document.corrupt("triggers have no such document")),
        }
        Ok(())
    }

    fn receive_event(
        &mut self,
        incoming: &Incoming,
        at: Timestamp,
        replay_of: Option<Uuid>,
        outcome: &Outcome,
        changes: &mut Changes,
    ) {
        let mut receipt = Receipt {
            at,
            // A replay goes without, for its receipt is not the one that a repeat has to find.
            delivery: delivery_id(&incoming.source, &incoming.delivery),
            ..Receipt::default()
        };
        receipt.count(0, outcome.matched(), if outcome.limited { RATE_LIMITED } else { NO_MATCH });
        // The same receipt is written anew when a delivery is taken up again.
        if !self.is_repeated(incoming, at) {
            receipt.dedupe = dedupe_id(incoming).filter(|_| outcome.matched() > 0 || outcome.limited);
            let said = incoming.said.as_ref().filter(|said| replay_of.is_none() && said.is_request());
            receipt.speaker = said.filter(|_| outcome.heard || outcome.limited).map(|said| speaker_id(said));
        }
        self.consume(&outcome.resumed, &mut receipt, changes);
        let body = json!({
            "receiptId": incoming.receipt,
            "receivedAt": incoming.received_at.iso(),
            "source": incoming.source,
            "provider": incoming.provider,
            "event": incoming.event,
            "delivery": incoming.delivery,
            "signed": !incoming.unsigned,
            "status": receipt.status(),
            "reason": receipt.dead,
            "matched": receipt.matched,
            "replayOf": replay_of,
            "resumed": outcome.resumed,
            "started": outcome.started,
            "heard": outcome.heard,
            "incoming": incoming,
        });
        self.put_receipt(incoming.receipt, receipt, body, changes);
    }

    fn hand_event_on(
        &mut self,
        id: Uuid,
        agent: &Name,
        wait: Uuid,
        outcome: &Outcome,
        changes: &mut Changes,
    ) {
        // The receipt may have been trimmed while the agent could not be reached: the event goes on all the
        // same, and only its note is missing.
        let Some(mut receipt) = self.receipts.get(&id).cloned() else {
            return self.consume(&outcome.resumed, &mut Receipt::default(), changes);
        };
        if let Some(waits) = receipt.shared.get_mut(agent) {
            waits.remove(&wait);
            if waits.is_empty() {
                receipt.shared.remove(agent);
            }
        }
        receipt.count(1, outcome.matched(), NO_MATCH);
        self.consume(&outcome.resumed, &mut receipt, changes);
        let mut note = standing(&receipt);
        note.insert(format!("unclaimed:{wait}"), json!(outcome));
        note.extend(outcome.heard.then(|| ("heard".to_owned(), json!(true))));
        changes.put(document(id), &receipt, Some(Value::Object(note).into()));
        self.insert_receipt(id, receipt);
    }

    fn reject_request(&mut self, rejected: &Rejected, at: Timestamp, changes: &mut Changes) {
        let receipt = Receipt { at, dead: Some(PARSE_ERROR.to_owned()), ..Receipt::default() };
        let body = json!({
            "receiptId": rejected.receipt,
            "receivedAt": rejected.received_at.iso(),
            "source": rejected.source,
            "provider": rejected.provider,
            "signed": true,
            "status": receipt.status(),
            "reason": receipt.dead,
            "matched": 0,
            "problem": rejected.problem,
            "body": rejected.body,
        });
        self.put_receipt(rejected.receipt, receipt, body, changes);
    }

    /// A receipt with all that it says of what came.
    fn put_receipt(&mut self, id: Uuid, receipt: Receipt, body: Value, changes: &mut Changes) {
        if self.receipts.contains_key(&id) {
            changes.put(document(id), &receipt, Some(body.into()));
        } else {
            changes.create(document(id), &receipt, body);
        }
        self.insert_receipt(id, receipt);
    }

    /// The agent refused the run, or takes it after all.
    fn note_run(&mut self, id: Uuid, agent: &Name, refused: Option<&str>, changes: &mut Changes) {
        let Some(mut receipt) = self.receipts.get(&id).cloned() else { return };
        match refused {
            Some(reason) => receipt.count(1, 0, reason),
            None => receipt.count(0, 1, NO_MATCH),
        }
        let mut note = standing(&receipt);
        note.insert(format!("refused:{agent}"), json!(refused));
        changes.put(document(id), &receipt, Some(Value::Object(note).into()));
        self.insert_receipt(id, receipt);
    }

    /// Ends the waits that an event has resumed, and notes which of them share it.
    fn consume(&mut self, resumed: &[Resumption], receipt: &mut Receipt, changes: &mut Changes) {
        for resumption in resumed {
            self.end_wait(resumption.wait, changes);
            receipt.shared.entry(resumption.agent.clone()).or_default().insert(resumption.wait);
        }
        receipt.shared.retain(|agent, waits| {
            waits.len() > 1 || !resumed.iter().any(|resumption| resumption.agent == *agent)
        });
    }

    fn end_wait(&mut self, wait: Uuid, changes: &mut Changes) {
        if self.remove_wait(wait) {
            changes.delete(format!("wait/{wait}"));
        }
    }

    fn set_subscription(&mut self, agent: &Name, filters: &[Filter], changes: &mut Changes) {
        let key = format!("subscription/{agent}");
        if filters.is_empty() {
            self.subscriptions.remove(agent);
            return changes.delete(key);
        }
        changes.put(key, &Subscription { filters: filters.to_vec() }, None);
        self.subscriptions.insert(agent.clone(), filters.to_vec());
    }
}

/// What of a receipt's body changes after it was made.
fn standing(receipt: &Receipt) -> Map<String, Value> {
    let fields = [
        ("status", json!(receipt.status())),
        ("reason", json!(receipt.dead)),
        ("matched", json!(receipt.matched)),
    ];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) fn document(receipt: Uuid) -> String {
    format!("receipt/{receipt}")
}
