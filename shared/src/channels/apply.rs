//! How events change the channels and their documents.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use uuid::Uuid;

use super::command::{Command, Read, Reply};
use super::event::{Event, Posted};
use super::spans::Spans;
use super::state::{Channel, Channels, Mark, Purge};
use super::{GENERAL, decide, message_key};
use crate::code::Refusal;
use crate::entity::{Changes, Corrupt, Ctx, Decision, Entity, LiveDocument};
use crate::id::{EntityKey, Kind};
use crate::time::Timestamp;

impl Entity for Channels {
    const KIND: Kind = Kind::Channels;
    type Command = Command;
    type Event = Event;
    type Reply = Reply;

    /// The general channel is there before any event; its document comes with its first message.
    fn empty(key: &EntityKey) -> Self {
        let mut channels = Self {
            swarm: key.swarm.clone(),
            channels: BTreeMap::new(),
            ids: BTreeMap::new(),
            marks: BTreeMap::new(),
            purges: BTreeMap::new(),
        };
        channels.insert(Channel::general());
        channels
    }

    fn restore(&mut self, document: LiveDocument) -> Result<(), Corrupt> {
        let (kind, id) = document.split();
        match kind {
            "channel" => self.insert(document.read()?),
            "mark" => {
                let key = id.split_once('/').and_then(|(channel, agent)| {
                    Some((Uuid::try_parse(channel).ok()?, Uuid::try_parse(agent).ok()?))
                });
                let key = key.ok_or_else(|| document.corrupt("its key names no channel and agent"))?;
                self.marks.insert(key, document.read()?);
            }
            "purge" => {
                let channel = Uuid::try_parse(id).map_err(|error| document.corrupt(error.to_string()))?;
                self.purges.insert(channel, document.read()?);
            }
            _ => return Err(document.corrupt("channels have no such document")),
        }
        Ok(())
    }

    fn decide(&self, command: &Command, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        decide::decide(self, command, ctx)
    }

    fn apply(&mut self, event: &Event, changes: &mut Changes) {
        match event {
            Event::Created { channel, description, participants, creator } => {
                self.insert(channel.clone());
                let body = created_body(channel, description.as_deref(), participants, *creator);
                changes.put(Channel::key(channel.id), channel, Some(body.into()));
            }
            Event::Deleted { channel } => self.remove(*channel, changes),
            Event::Posted(posted) => self.post(posted, changes),
            Event::Marked { channel, agent, numbers } => {
                self.change_mark(*channel, *agent, changes, |mark| mark.see(numbers));
            }
            Event::Claimed { agent, channels, at } => {
                for (channel, number) in channels {
                    self.change_mark(*channel, *agent, changes, |mark| {
                        mark.claimed = *number;
                        mark.claimed_at = *at;
                    });
                }
            }
            Event::Trimmed { channel, through } => {
                if let Some(channel) = self.channels.get_mut(channel) {
                    channel.forgotten = *through;
                    changes.put(Channel::key(channel.id), channel, None);
                }
            }
            Event::Forgotten { agent, channels } => {
                channels.iter().for_each(|channel| self.remove_mark((*channel, *agent), changes));
            }
            Event::Purged { channel, through } => self.purge(*channel, *through, changes),
        }
    }

    fn next_wake(&self) -> Option<Timestamp> {
        if self.purges.is_empty() { None } else { Some(Timestamp::ZERO) }
    }

    fn tick() -> Command {
        Command::Tick
    }

    fn asked(command: &Command) -> Option<Command> {
        match command {
            Command::Read(read) => Some(Command::Read(Read { after: BTreeMap::new(), ..read.clone() })),
            Command::Post(post) => {
                let mut post = post.clone();
                post.assignees.clear();
                post.strangers.clear();
                if let Some(author) = &mut post.author {
                    author.name.clear();
                }
                Some(Command::Post(post))
            }
            _ => None,
        }
    }

    fn subject(event: &Event) -> Option<String> {
        match event {
            Event::Created { channel, .. } => Some(channel.id.to_string()),
            Event::Deleted { channel }
            | Event::Marked { channel, .. }
            | Event::Trimmed { channel, .. }
            | Event::Purged { channel, .. } => Some(channel.to_string()),
            Event::Posted(posted) => Some(posted.channel.to_string()),
            Event::Claimed { agent, .. } | Event::Forgotten { agent, .. } => Some(agent.to_string()),
        }
    }

    fn check(&self) -> Result<(), String> {
        if !self.channels.contains_key(&GENERAL) {
            return Err("channels: the general channel is there".to_owned());
        }
        if self.ids.len() != self.channels.len()
            || self.channels.values().any(|channel| self.ids.get(&channel.name) != Some(&channel.id))
        {
            return Err("channels: every name names one channel".to_owned());
        }
        if let Some(channel) = self.channels.values().find(|channel| channel.forgotten > channel.last) {
            return Err(format!("channels: what {} has forgotten was there", channel.name));
        }
        for ((channel, agent), mark) in &self.marks {
            let Some(channel) = self.channels.get(channel) else {
                return Err(format!("channels: the mark of {agent} belongs to a channel"));
            };
            let rising = |numbers: &[u64]| numbers.windows(2).all(|pair| pair[0] < pair[1]);
            let newest = [Some(mark.read), mark.seen.last(), mark.mentions.last().copied()]
                .into_iter()
                .flatten()
                .max();
            let sound = rising(&mark.mentions)
                && newest <= Some(channel.last)
                && mark.seen.first().is_none_or(|seen| seen > mark.read)
                && mark.seen.runs() <= Mark::RUNS
                && mark.mentions.len() <= Mark::MENTIONS;
            if !sound {
                return Err(format!("channels: the mark of {agent} in {} is sound", channel.name));
            }
        }
        Ok(())
    }
}

impl Channels {
    fn insert(&mut self, channel: Channel) {
        self.ids.insert(channel.name.clone(), channel.id);
        self.channels.insert(channel.id, channel);
    }

    fn remove(&mut self, id: Uuid, changes: &mut Changes) {
        let Some(channel) = self.channels.remove(&id) else { return };
        self.ids.remove(&channel.name);
        changes.delete(Channel::key(id));
        let marks: Vec<(Uuid, Uuid)> =
            self.marks.range((id, Uuid::nil())..=(id, Uuid::max())).map(|(key, _)| *key).collect();
        for key in marks {
            self.remove_mark(key, changes);
        }
        // What retention has removed is gone already.
        if channel.last > channel.forgotten {
            let purge = Purge { next: channel.forgotten + 1, last: channel.last };
            changes.put(Self::purge_key(id), &purge, None);
            self.purges.insert(id, purge);
        }
    }

    fn post(&mut self, posted: &Posted, changes: &mut Changes) {
        let Some(channel) = self.channels.get_mut(&posted.channel) else { return };
        channel.last = posted.number;
        channel.last_at = posted.at;
        // The general channel has no creation of its own to write its body.
        let body = (posted.channel == GENERAL && posted.number == 1).then(|| channel.body().into());
        changes.put(Channel::key(channel.id), channel, body);
        changes.create_archived(message_key(posted.channel, posted.number), &json!({}), posted.body());
        let author = posted.author.as_ref().map(|author| author.id);
        if let Some(author) = author {
            let own = Spans::from_iter([posted.number]);
            self.change_mark(posted.channel, author, changes, |mark| mark.see(&own));
        }
        for &agent in posted.mentions.iter().filter(|&&agent| Some(agent) != author) {
            self.change_mark(posted.channel, agent, changes, |mark| mark.mentioned(posted.number));
        }
    }

    fn change_mark(
        &mut self,
        channel: Uuid,
        agent: Uuid,
        changes: &mut Changes,
        change: impl FnOnce(&mut Mark),
    ) {
        let forgotten = self.channels.get(&channel).map_or(0, |channel| channel.forgotten);
        let mark = self.marks.entry((channel, agent)).or_default();
        mark.pass(forgotten);
        change(mark);
        changes.put(Self::mark_key(channel, agent), mark, None);
    }

    fn remove_mark(&mut self, key: (Uuid, Uuid), changes: &mut Changes) {
        self.marks.remove(&key);
        changes.delete(Self::mark_key(key.0, key.1));
    }

    fn purge(&mut self, channel: Uuid, through: u64, changes: &mut Changes) {
        let Some(purge) = self.purges.get_mut(&channel) else { return };
        for number in purge.next..=through {
            changes.delete(message_key(channel, number));
        }
        purge.next = through + 1;
        if purge.next > purge.last {
            self.purges.remove(&channel);
            changes.delete(Self::purge_key(channel));
        } else {
            changes.put(Self::purge_key(channel), purge, None);
        }
    }
}

pub(super) fn created_body(
    channel: &Channel,
    description: Option<&str>,
    participants: &[Uuid],
    creator: Option<Uuid>,
) -> Value {
    let mut body = channel.body();
    body["description"] = json!(description);
    body["createdBy"] = json!(creator);
    body["participants"] = json!(participants);
    body
}

impl Posted {
    /// The shape `ChannelMessage` of Agent Swarm, and the message's number.
    pub(super) fn body(&self) -> Value {
        json!({
            "id": self.id,
            "channelId": self.channel,
            "agentId": self.author.as_ref().map(|author| author.id),
            "agentName": self.author.as_ref().map_or("Human", |author| &author.name),
            "content": self.content,
            "replyToId": self.reply_to,
            "mentions": self.mentions,
            "createdAt": self.at.iso(),
            "number": self.number,
        })
    }
}
