//! Follows what happens to members.

use serde::Serialize;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::entity::Changes;
use crate::json::Json;
use crate::pool::command::{Join, Profile};
use crate::pool::event::Event;
use crate::pool::profile;
use crate::pool::state::{Member, Pool};
use crate::time::Timestamp;

impl Pool {
    pub(super) fn follow_member(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Joined { join, max_tasks, at } => self.join(join, *max_tasks, *at, changes),
            Event::Left { agent, .. } => self.leave(*agent, changes),
            Event::WentOffline { agent, at } => {
                self.change_member(*agent, *at, json!({}), changes, |member| member.offline = true);
            }
            Event::CameBack { agent, managed, at } => {
                self.change_member(*agent, *at, json!({ "emptyPollCount": 0 }), changes, |member| {
                    member.offline = false;
                    member.managed = *managed;
                    member.empty_polls = 0;
                });
            }
            Event::TookLead { agent, at } => self.take_lead(*agent, *at, changes),
            Event::CapacitySet { agent, max_tasks, at } => {
                let active = count(self.active(*agent));
                self.change_member(*agent, *at, json!({ "maxTasks": max_tasks }), changes, |member| {
                    member.max_tasks = *max_tasks;
                    member.ceiling = active.max(*max_tasks);
                });
            }
            Event::Described { agent, profile, at } => self.describe(*agent, profile, *at, changes),
            Event::PolledEmpty { agent, at } => {
                let polls = self.members.get(agent).map_or(0, |member| member.empty_polls) + 1;
                self.change_member(*agent, *at, json!({ "emptyPollCount": polls }), changes, |member| {
                    member.empty_polls = polls;
                });
            }
            _ => {}
        }
    }

    fn join(&mut self, join: &Join, max_tasks: u32, at: Timestamp, changes: &mut Changes) {
        let member = Member::of(join, max_tasks);
        let own = json!({
            "id": join.agent, "name": join.name, "isLead": join.lead, "role": join.role,
            "description": join.description, "capabilities": join.capabilities, "maxTasks": max_tasks,
            "emptyPollCount": 0, "createdAt": at.iso(),
        });
        let body = body(&member, self.active(join.agent), at, own);
        changes.create(member_key(join.agent), &member, body);
        self.take_member(join.agent, member);
        // One commit may have both a leave and this, and then changes the texts that were there before: what a new
        // member does not have is taken away by name.
        let texts = json!({
            "claudeMd": profile::claude_md(join), "soulMd": profile::soul_md(join),
            "identityMd": profile::identity_md(join), "setupScript": null, "toolsMd": null,
        });
        changes.create(profile_key(join.agent), &json!({}), texts);
    }

    /// What waits for it is that of a lead by now, so it counts as idle no more.
    fn take_lead(&mut self, agent: Uuid, at: Timestamp, changes: &mut Changes) {
        self.lead = Some(agent);
        self.change_member(agent, at, json!({ "isLead": true }), changes, |member| member.lead = true);
        self.watch(agent, at);
    }

    fn leave(&mut self, agent: Uuid, changes: &mut Changes) {
        let Some(member) = self.members.remove(&agent) else { return };
        self.names.remove(&member.name);
        if self.lead == Some(agent) {
            self.lead = None;
        }
        // Nothing is archived: whoever has a member's document is taken for a member, and by what it says for the lead.
        changes.delete(member_key(agent));
        changes.delete(profile_key(agent));
    }

    fn describe(&mut self, agent: Uuid, profile: &Profile, at: Timestamp, changes: &mut Changes) {
        let given = |fields: &[(&str, &Option<String>)]| {
            let given =
                fields.iter().filter_map(|(field, text)| Some(((*field).to_owned(), json!(text.as_ref()?))));
            given.collect::<Map<String, Value>>()
        };
        let mut body =
            given(&[("name", &profile.name), ("description", &profile.description), ("role", &profile.role)]);
        let texts = given(&[
            ("claudeMd", &profile.claude_md),
            ("soulMd", &profile.soul_md),
            ("identityMd", &profile.identity_md),
            ("setupScript", &profile.setup_script),
            ("toolsMd", &profile.tools_md),
        ]);
        if !texts.is_empty() {
            changes.put(profile_key(agent), &json!({}), Some(Value::Object(texts).into()));
        }
        if let Some(capabilities) = &profile.capabilities {
            body.insert("capabilities".to_owned(), json!(capabilities));
        }
        if let (Some(name), Some(member)) = (&profile.name, self.members.get(&agent)) {
            self.names.remove(&member.name);
            self.names.insert(name.clone(), agent);
        }
        self.change_member(agent, at, Value::Object(body), changes, |member| {
            if let Some(name) = &profile.name {
                member.name.clone_from(name);
            }
        });
    }

    /// Changes a member and writes its document, with the status that follows from it.
    fn change_member(
        &mut self,
        agent: Uuid,
        at: Timestamp,
        own: Value,
        changes: &mut Changes,
        edit: impl FnOnce(&mut Member),
    ) {
        let active = self.active(agent);
        let Some(member) = self.members.get_mut(&agent) else { return };
        edit(member);
        changes.put(member_key(agent), member, Some(body(member, active, at, own)));
    }

    /// After one of its tasks began or stopped being in progress: writes the member only if it shows, that
    /// is when it becomes busy or idle, when its empty polls are over, or when a ceiling above its capacity
    /// comes down.
    pub(super) fn settle_member(&mut self, agent: Uuid, began: bool, at: Timestamp, changes: &mut Changes) {
        let active = count(self.active(agent));
        let Some(member) = self.members.get(&agent) else { return };
        let ceiling = member.max_tasks.max(member.ceiling.min(active));
        let turned = active == u32::from(began);
        let fed = began && member.empty_polls > 0;
        if turned || fed || ceiling != member.ceiling {
            let own = if fed { json!({ "emptyPollCount": 0 }) } else { json!({}) };
            self.change_member(agent, at, own, changes, |member| {
                member.ceiling = ceiling;
                if fed {
                    member.empty_polls = 0;
                }
            });
        }
    }
}

/// What a change writes into a member's body.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    /// The fields of the event alone.
    #[serde(flatten)]
    own: Value,
    status: &'static str,
    last_updated_at: &'a str,
    last_activity_at: &'a str,
}

/// What is written into a member's body: its own, and the status that follows from how many tasks it has in progress.
fn body(member: &Member, active: usize, at: Timestamp, own: Value) -> Json {
    let status = match (member.offline, active) {
        (true, _) => "offline",
        (false, 0) => "idle",
        (false, _) => "busy",
    };
    let at = &at.iso();
    Json::of(&Body { own, status, last_updated_at: at, last_activity_at: at })
}

fn member_key(agent: Uuid) -> String {
    format!("member/{agent}")
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The member's long texts: a document of their own, for the member's is written whenever it turns busy or idle.
pub(in crate::pool) fn profile_key(agent: Uuid) -> String {
    format!("profile/{agent}")
}
