//! Joining, leaving, capacity.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::Answer;
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::limits;
use crate::pool::command::{Join, Profile, Reply, Survey};
use crate::pool::event::Event;
use crate::pool::profile;
use crate::pool::state::{Member, Pool};
use crate::profiles::{self, Change, Edit, Field, Profiles};
use crate::wire;

/// Longest name and description, characters.
const NAME: usize = 200;
const DESCRIPTION: usize = 4000;
/// Longest role, characters (spec: Agent Swarm, the agent's shape).
const ROLE: usize = 100;
/// Most capabilities, and the longest of them in characters.
const CAPABILITIES: usize = 100;
const CAPABILITY: usize = 100;
/// Longest reason of a change, characters.
const REASON: usize = 1000;
/// Longest profile text, characters.
const PROFILE_TEXT: usize = 65_536;

impl Pool {
    pub(super) fn decide_join(&self, join: &Join, ctx: &mut Ctx) -> Answer {
        require_name(&join.name)?;
        require_role(join.role.as_deref())?;
        let max_tasks = join.max_tasks.unwrap_or(1);
        require_max_tasks(max_tasks)?;
        if let Some(member) = self.members.get(&join.agent) {
            return self.decide_rejoin(join, member, ctx);
        }
        self.require_free_name(&join.name)?;
        require_description(join.description.as_deref())?;
        require_capabilities(&join.capabilities)?;
        if join.lead {
            self.require_no_lead()?;
        }
        let member = Member::of(join, max_tasks);
        let view = self.member_view(join.agent, &member);
        let introduced = Join { texts: None, ..join.clone() };
        let mut events = vec![Event::Joined { join: introduced, max_tasks, at: ctx.now }];
        let mut effects = Vec::new();
        if join.lead {
            events.extend(self.news_until_now(join.agent, ctx));
            effects = self.tell_of_new_lead(join.agent);
        }
        Ok(Decision::new(Reply::Joined { member: view, existing: false }, events).effects(effects))
    }

    /// The same agent again, under the same name: it is welcome, and awake. Whoever joined as a worker and says now
    /// that it leads takes the lead's place if that is free.
    fn decide_rejoin(&self, join: &Join, member: &Member, ctx: &mut Ctx) -> Answer {
        if member.name != join.name {
            return Err(Refusal::new(
                Code::AlreadyExists,
                format!(
                    "agent {} has joined as `{}`; rename it with update-profile",
                    join.agent, member.name
                ),
            ));
        }
        let takes_lead = join.lead && !member.lead;
        if takes_lead {
            self.require_no_lead()?;
        }
        let mut view = self.member_view(join.agent, member);
        let (mut events, mut effects) = (Vec::new(), Vec::new());
        if member.offline || member.managed != join.managed || member.empty_polls > 0 {
            events.push(Event::CameBack { agent: join.agent, managed: join.managed, at: ctx.now });
            (view.offline, view.managed, view.empty_polls) = (false, join.managed, 0);
        }
        if takes_lead {
            events.push(Event::TookLead { agent: join.agent, at: ctx.now });
            let (described, versions) = self.described_as_lead(join, ctx);
            events.extend(described);
            effects.extend(versions);
            events.extend(self.news_until_now(join.agent, ctx));
            effects.extend(self.tell_of_new_lead(join.agent));
            view.lead = true;
        } else if member.lead {
            events.extend(self.pass_on(join.agent, ctx));
            effects.push(self.hand_on_inboxes(join.agent));
        }
        Ok(Decision::new(Reply::Joined { member: view, existing: true }, events).effects(effects))
    }

    /// Its texts say that it leads, where they have said that it does not.
    fn described_as_lead(&self, join: &Join, ctx: &Ctx) -> (Option<Event>, Option<Effect>) {
        let Some(before) = &join.texts else { return (None, None) };
        let profile = profile::of_new_lead(before);
        if profile == Profile::default() {
            return (None, None);
        }
        let versions = self.versions(join.agent, &profile, before, Edit::system());
        (Some(Event::Described { agent: join.agent, profile, at: ctx.now }), versions)
    }

    pub(super) fn decide_leave(&self, agent: Uuid, ctx: &Ctx) -> Answer {
        self.joined(agent)?;
        let (news, returned) = self.left_by(agent);
        let parked = news.iter().map(|&task| Event::Parked { task, at: ctx.now });
        let withdrawn = returned.iter().map(|&task| Event::Withdrawn { task, at: ctx.now });
        let events = parked.chain(withdrawn).chain([Event::Left { agent, at: ctx.now }]).collect();
        Ok(Decision::new(Reply::Left { returned }, events))
    }

    pub(super) fn decide_offline(&self, agent: Uuid, ctx: &Ctx) -> Answer {
        let member = self.joined(agent)?;
        let mut view = self.member_view(agent, member);
        view.offline = true;
        let mut events: Vec<Event> =
            self.indexes.offers_to(agent).map(|task| Event::Withdrawn { task, at: ctx.now }).collect();
        if !member.offline {
            events.push(Event::WentOffline { agent, at: ctx.now });
        }
        Ok(Decision::new(Reply::Member(view), events))
    }

    /// A ping that changes nothing costs no commit: the life it shows is a signal.
    pub(super) fn decide_ping(&self, agent: Uuid, managed: bool, ctx: &Ctx) -> Answer {
        let member = self.joined(agent)?;
        let mut view = self.member_view(agent, member);
        if !member.offline && member.managed == managed {
            return Ok(Decision::reply(Reply::Member(view)));
        }
        (view.offline, view.managed, view.empty_polls) = (false, managed, 0);
        let event = Event::CameBack { agent, managed, at: ctx.now };
        Ok(Decision::new(Reply::Member(view), vec![event]))
    }

    /// Whoever gets work is at work again, whatever it has said before. Who asks in vain is not by that: it may wait
    /// and ask again under the same id, to which an answer that is kept would be the last, and may have stopped since.
    pub(super) fn awake(
        &self,
        mut asked: Decision<Self>,
        agent: Uuid,
        managed: bool,
        ctx: &Ctx,
    ) -> Decision<Self> {
        let in_vain = match &asked.reply {
            Reply::Polled { task, offers, .. } => task.is_none() && offers.is_empty(),
            Reply::Claimed { task, .. } => task.is_none(),
            _ => false,
        };
        if !in_vain && self.members.get(&agent).is_some_and(|member| member.offline) {
            asked.events.insert(0, Event::CameBack { agent, managed, at: ctx.now });
        }
        asked
    }

    pub(super) fn decide_capacity(&self, agent: Uuid, max_tasks: u32, ctx: &Ctx) -> Answer {
        let member = self.joined(agent)?;
        require_max_tasks(max_tasks)?;
        let mut view = self.member_view(agent, member);
        if member.max_tasks == max_tasks {
            return Ok(Decision::reply(Reply::Member(view)));
        }
        view.max_tasks = max_tasks;
        let event = Event::CapacitySet { agent, max_tasks, at: ctx.now };
        Ok(Decision::new(Reply::Member(view), vec![event]))
    }

    pub(super) fn decide_describe(
        &self,
        agent: Uuid,
        profile: &Profile,
        before: &Profile,
        edit: Option<&Edit>,
        ctx: &Ctx,
    ) -> Answer {
        let member = self.joined(agent)?;
        let edit = edit.cloned().unwrap_or_else(|| Edit::own(agent));
        if let Some(reason) = &edit.reason {
            wire::length("changeReason", reason, 0, REASON)?;
        }
        if *profile == Profile::default() {
            return Err(Refusal::new(
                Code::InvalidArgument,
                "no field is given; name at least one to change",
            ));
        }
        require_role(profile.role.as_deref())?;
        require_description(profile.description.as_deref())?;
        require_capabilities(profile.capabilities.as_deref().unwrap_or_default())?;
        let texts = profile.texts().into_iter().filter_map(|(_, text)| text);
        if texts.into_iter().any(|text| text.chars().count() > PROFILE_TEXT) {
            let problem = format!("a profile text has more than {PROFILE_TEXT} characters; shorten it");
            return Err(Refusal::new(Code::TooLarge, problem));
        }
        let mut view = self.member_view(agent, member);
        if let Some(name) = &profile.name {
            require_name(name)?;
            if *name != member.name {
                self.require_free_name(name)?;
            }
            view.name.clone_from(name);
        }
        let event = Event::Described { agent, profile: profile.clone(), at: ctx.now };
        let versions = self.versions(agent, profile, before, edit);
        Ok(Decision::new(Reply::Member(view), vec![event]).effects(versions.into_iter().collect()))
    }

    /// Has the texts that were given kept beside what they were.
    fn versions(&self, agent: Uuid, profile: &Profile, before: &Profile, edit: Edit) -> Option<Effect> {
        let pairs = profile.texts().into_iter().zip(before.texts());
        let texts: BTreeMap<Field, Change> = pairs
            .filter_map(|((field, text), (_, before))| {
                Some((field, Change { text: text?.clone(), before: before.cloned() }))
            })
            .collect();
        if texts.is_empty() {
            return None;
        }
        let Edit { source, by, reason } = edit;
        let command = profiles::Command::Changed { agent, texts, source, by, reason };
        Some(Effect::entity::<Profiles>(EntityKey::of(Kind::Profiles, &self.swarm), &command))
    }

    /// By its name as it is written, else by the only one that differs in its letters' case alone.
    pub(super) fn decide_find(&self, name: &str) -> Answer {
        let same = |(known, _): &(&String, &Uuid)| known.to_lowercase() == name.to_lowercase();
        let alike = || {
            let mut alike = self.names.iter().filter(same);
            alike.next().filter(|_| alike.next().is_none()).map(|(_, agent)| agent)
        };
        let found = self.names.get(name).or_else(alike);
        match found.and_then(|agent| Some((agent, self.members.get(agent)?))) {
            Some((agent, member)) => Ok(Decision::reply(Reply::Member(self.member_view(*agent, member)))),
            None => Err(Refusal::new(
                Code::NotFound,
                format!("no agent of this swarm is named `{name}`; get-swarm lists their names and ids"),
            )),
        }
    }

    pub(super) fn survey(&self) -> Survey {
        let members = self.names.values().filter_map(|id| Some((id, self.members.get(id)?)));
        let members = members.map(|(id, member)| self.member_view(*id, member)).collect();
        Survey { members, claimable: self.indexes.claimable(), open: self.tasks.len() }
    }

    fn require_no_lead(&self) -> Result<(), Refusal> {
        let Some(lead) = self.lead.and_then(|lead| self.members.get(&lead)) else { return Ok(()) };
        Err(Refusal::new(
            Code::LeadExists,
            format!("{} leads this swarm already; join without lead", lead.name),
        ))
    }

    /// A name that somebody is to have from now on. Stored ones may be longer: they were taken before there was a
    /// longest.
    fn require_free_name(&self, name: &str) -> Result<(), Refusal> {
        wire::length("name", name, 1, NAME)?;
        if !self.names.contains_key(name) {
            return Ok(());
        }
        Err(Refusal::new(
            Code::AlreadyExists,
            format!("an agent named `{name}` has joined already; choose another name"),
        ))
    }
}

fn require_name(name: &str) -> Result<(), Refusal> {
    if !name.trim().is_empty() {
        return Ok(());
    }
    Err(Refusal::new(Code::InvalidArgument, "name: an agent needs a name that is not blank"))
}

fn require_description(description: Option<&str>) -> Result<(), Refusal> {
    description.map_or(Ok(()), |description| wire::length("description", description, 0, DESCRIPTION))
}

fn require_capabilities(capabilities: &[String]) -> Result<(), Refusal> {
    if capabilities.len() > CAPABILITIES {
        let count = capabilities.len();
        let problem =
            format!("capabilities: there are {count} and at most {CAPABILITIES} are kept; drop some");
        return Err(Refusal::new(Code::TooLarge, problem));
    }
    capabilities.iter().try_for_each(|capability| wire::length("capabilities", capability, 0, CAPABILITY))
}

fn require_role(role: Option<&str>) -> Result<(), Refusal> {
    if role.is_none_or(|role| role.chars().count() <= ROLE) {
        return Ok(());
    }
    Err(Refusal::new(Code::InvalidArgument, format!("role: at most {ROLE} characters; shorten it")))
}

fn require_max_tasks(max_tasks: u32) -> Result<(), Refusal> {
    if (1..=limits::CAPACITY_MAX).contains(&max_tasks) {
        return Ok(());
    }
    Err(Refusal::new(
        Code::InvalidArgument,
        format!("maxTasks: {max_tasks} is not between 1 and {}", limits::CAPACITY_MAX),
    ))
}
