//! How events change the inboxes and their documents.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Command, Reply};
use super::event::Event;
use super::state::{Inboxes, Message, Owner, Seen, Source, Status};
use super::{decide, effects};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::json::Json;
use crate::time::Timestamp;

impl Entity for Inboxes {
    const KIND: Kind = Kind::Inboxes;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    fn empty(key: &EntityKey) -> Self {
        Self {
            swarm: key.swarm.clone(),
            messages: BTreeMap::new(),
            seen: BTreeMap::new(),
            threads: BTreeMap::new(),
            last: 0,
            lead: None,
            ends: BTreeSet::new(),
        }
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        let digest = || Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()));
        match kind {
            "message" => self.insert(document.read()?),
            "seen" => self.insert_seen(digest()?, document.read()?),
            "thread" => self.insert_thread(digest()?, document.read()?),
            "order" => self.last = document.read()?,
            "lead" => self.lead = Some(document.read()?),
            _ => return Err(document.corrupt("inboxes have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Delivered { .. } => self.deliver(event, changes),
            Event::GaveWay { message, .. } => {
                self.remove(*message);
                changes.delete(Message::key(*message));
            }
            Event::Taken { messages, at, .. } => self.set(messages, Status::Processing, *at, changes),
            Event::Released { messages, at } => self.set(messages, Status::Unread, *at, changes),
            Event::Read { messages, at } => {
                messages.iter().for_each(|id| self.end(*id, Status::Read, *at, json!({}), changes));
            }
            Event::HandedOn { lead, messages, at } => self.hand_on(*lead, messages, *at, changes),
            Event::Kept { messages, since } => {
                for id in messages {
                    let Some(mut message) = self.remove(*id) else { continue };
                    message.since = *since;
                    changes.put(Message::key(*id), &message, None);
                    self.insert(message);
                }
            }
            Event::Responded { message, text, at } => {
                self.end(*message, Status::Responded, *at, json!({ "responseText": text }), changes);
            }
            Event::Delegated { message, task, at } => {
                let fields = json!({ "delegatedToTaskId": task, "delegationRefused": null });
                self.end(*message, Status::Delegated, *at, fields, changes);
            }
            Event::Returned { message, number, agent, task, refusal, at } => {
                let mut body = ended(Status::Unread, *at);
                body["agentId"] = json!(agent);
                body["delegatedToTaskId"] = Value::Null;
                body["delegationRefused"] = json!(refusal);
                body["delegationRefused"]["taskId"] = json!(task);
                let (id, agent, number) = (*message, *agent, *number);
                // Somebody was to do something about it, so it is more than a notice.
                let message =
                    Message { id, agent, number, status: Status::Unread, since: *at, notice: false };
                changes.put(Message::key(id), &message, Some(body.into()));
                self.insert(message);
                self.last = number;
                changes.put("order/last", &number, None);
            }
            Event::Posting { .. } => {}
            Event::Forgotten { seen, threads } => {
                for digest in seen {
                    self.remove_seen(*digest);
                    changes.delete(Self::seen_key(*digest));
                }
                for digest in threads {
                    self.remove_thread(*digest);
                    changes.delete(Self::thread_key(*digest));
                }
            }
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        self.ends.first().map(|(at, _)| *at)
    }

    fn tick() -> Command {
        Command::Tick
    }

    /// Tries of one request differ in nothing else.
    fn asked(command: &Command) -> Option<Command> {
        if let Command::Denied(denied) = command {
            return Some(denied.asked::<Self>());
        }
        let Command::Post { agent, .. } = command else { return None };
        Some(Command::Post { agent: *agent, attempt: String::new() })
    }

    fn refused(_: &EntityKey, command: &Json, refusal: &Refusal) -> Option<Command> {
        effects::refused(command, refusal)
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Delivered { message, .. }
            | Event::GaveWay { message, .. }
            | Event::Responded { message, .. }
            | Event::Delegated { message, .. }
            | Event::Returned { message, .. } => Some(message.to_string()),
            Event::Taken { agent, .. } | Event::Posting { agent, .. } => Some(agent.to_string()),
            Event::Released { .. }
            | Event::Read { .. }
            | Event::HandedOn { .. }
            | Event::Kept { .. }
            | Event::Forgotten { .. } => None,
        }
    }

    fn check(&self) -> Result<(), String> {
        let processing = self.messages.values().filter(|message| message.status == Status::Processing);
        if self.ends.len() != processing.count() + self.seen.len() + self.threads.len() {
            return Err("inboxes: everything that ends by itself is waited for".to_owned());
        }
        for (id, message) in &self.messages {
            if message.id != *id || message.number > self.last {
                return Err(format!("inboxes: message {id} is numbered"));
            }
            if !matches!(message.status, Status::Unread | Status::Processing) {
                return Err(format!("inboxes: message {id} ended and left memory"));
            }
        }
        Ok(())
    }
}

impl Inboxes {
    fn deliver(&mut self, event: &Event, changes: &mut Changes) {
        let Event::Delivered { message: id, number, agent, content, source, slack, mail, seen, at } = event
        else {
            return;
        };
        let message = Message {
            id: *id,
            agent: *agent,
            number: *number,
            status: Status::Unread,
            since: *at,
            notice: *source == Source::System,
        };
        let mut body = json!({
            "id": id,
            "agentId": agent,
            "content": content,
            "source": source,
            "status": Status::Unread,
            "createdAt": at.iso(),
            "lastUpdatedAt": at.iso(),
        });
        if let (Value::Object(body), Ok(Value::Object(slack))) = (&mut body, serde_json::to_value(slack)) {
            body.extend(slack);
            body.extend(mail.iter().flat_map(|ids| ids.fields()));
        }
        changes.create(Message::key(*id), &message, body);
        self.insert(message);
        self.last = *number;
        changes.put("order/last", number, None);
        if let Some(digest) = slack.thread() {
            let owner = Owner { agent: *agent, at: *at };
            changes.put(Self::thread_key(digest), &owner, None);
            self.insert_thread(digest, owner);
        }
        if let Some(digest) = seen {
            let seen = Seen { message: *id, at: *at };
            changes.put(Self::seen_key(*digest), &seen, None);
            self.insert_seen(*digest, seen);
        }
    }

    fn set(&mut self, messages: &[Uuid], status: Status, at: Timestamp, changes: &mut Changes) {
        for id in messages {
            let Some(mut message) = self.remove(*id) else { continue };
            message.status = status;
            message.since = at;
            changes.put(Message::key(*id), &message, Some(ended(status, at).into()));
            self.insert(message);
        }
    }

    fn hand_on(&mut self, lead: Uuid, messages: &[Uuid], at: Timestamp, changes: &mut Changes) {
        if self.lead != Some(lead) {
            self.lead = Some(lead);
            changes.put(Self::LEAD, &lead, None);
        }
        for id in messages {
            let Some(mut message) = self.remove(*id) else { continue };
            (message.agent, message.status, message.since) = (lead, Status::Unread, at);
            let mut body = ended(Status::Unread, at);
            body["agentId"] = json!(lead);
            changes.put(Message::key(*id), &message, Some(body.into()));
            self.insert(message);
        }
    }

    fn end(&mut self, id: Uuid, status: Status, at: Timestamp, field: Value, changes: &mut Changes) {
        let Some(mut message) = self.remove(id) else { return };
        message.status = status;
        message.since = at;
        let mut body = ended(status, at);
        if let (Value::Object(body), Value::Object(field)) = (&mut body, field) {
            body.extend(field);
        }
        changes.archive(Message::key(id), &message, Some(body.into()));
    }
}

/// The fields of the body that change with the status.
pub(super) fn ended(status: Status, at: Timestamp) -> Value {
    json!({ "status": status, "lastUpdatedAt": at.iso() })
}
