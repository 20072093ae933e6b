//! The rules of epics.

use uuid::Uuid;

use super::command::{Command, Create, Notice, Reply, Texts, Update};
use super::event::Event;
use super::state::{Counts, Epic, Epics, Status, extend};
use crate::caller::Caller;
use crate::channels::{self, Channels};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision, Effect};
use crate::id::{EntityKey, Kind};
use crate::which::Which;
use crate::wire;

/// Most epics of a swarm: their heads stay in memory.
const EPICS: usize = 10_000;
const NAME: usize = 200;
/// Longest path or foreign id, characters.
const SHORT: usize = 1000;

pub(super) fn decide(state: &Epics, command: &Command, ctx: &mut Ctx) -> Result<Decision<Epics>, Refusal> {
    match command {
        Command::Create(create) => state.create(create, ctx),
        Command::Update(update) => state.update(update, ctx),
        Command::Delete { which, by } => state.delete(which, *by),
        Command::Get { which } => state.find(which).map(|epic| Decision::reply(named(epic))),
        Command::TaskChanged { epic, task, from, to } => {
            // The epic may have been deleted while the pool's word was on its way.
            let known = state.epics.contains_key(epic);
            let event = Event::TaskChanged { epic: *epic, task: *task, from: from.clone(), to: to.clone() };
            Ok(Decision::new(Reply::Done, if known { vec![event] } else { Vec::new() }))
        }
        Command::ChannelRefused { channel, problem } => Ok(state.channel_refused(*channel, problem)),
        Command::News => Ok(Decision::reply(Reply::News(state.news()))),
        Command::TellNews { news } => Ok(state.tell_news(news)),
        Command::Denied(denied) => Err(denied.refusal.clone()),
        Command::Tick => Ok(Decision::reply(Reply::Done)),
    }
}

impl Epics {
    fn find(&self, which: &Which) -> Result<&Epic, Refusal> {
        let id = match which {
            Which::Id(id) => Some(id),
            Which::Name(name) => self.ids.get(name),
        };
        id.and_then(|id| self.epics.get(id)).ok_or_else(|| {
            Refusal::new(
                Code::NotFound,
                format!("there is no epic `{which}`; list-epics shows those there are"),
            )
        })
    }

    fn create(&self, create: &Create, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(&create.name, create.priority, &create.texts)?;
        if create.texts.goal.is_none() {
            return Err(Refusal::new(Code::InvalidArgument, "goal: it is missing; say what the epic is for"));
        }
        if self.ids.contains_key(&create.name) {
            return Err(exists(&create.name));
        }
        if self.epics.len() >= EPICS {
            return Err(Refusal::new(
                Code::QueueFull,
                format!("the swarm has {EPICS} epics, the most there may be; delete one first"),
            ));
        }
        let epic = Epic {
            id: ctx.id(),
            name: create.name.clone(),
            status: Status::Draft,
            priority: create.priority,
            creator: create.creator,
            lead: create.lead,
            channel: Some(ctx.id()),
            created: ctx.now,
            updated: ctx.now,
            started: None,
            completed: None,
            counts: Counts::default(),
            news: Vec::new(),
            unnamed: 0,
        };
        let mut texts = create.texts.clone();
        texts.tags.get_or_insert_default();
        let mut body = epic.body();
        extend(&mut body, texts.body());
        let effects = vec![self.channel_for(&epic)];
        let event = Event::Created { epic: Box::new(epic), texts: Box::new(texts) };
        Ok(Decision::new(Reply::Created(wire::shown(body, &[])), vec![event]).effects(effects))
    }

    /// The epic's channel. Two names may have the same slug, so the channel's name may get a suffix.
    fn channel_for(&self, epic: &Epic) -> Effect {
        let create = channels::Create {
            id: epic.channel,
            name: slug(&format!("epic {}", epic.name)),
            description: Some(format!("Channel of the epic {}", epic.name)),
            creator: epic.creator,
            suffix: true,
            ..channels::Create::default()
        };
        let key = EntityKey::of(Kind::Channels, &self.swarm);
        Effect::entity::<Channels>(key, &channels::Command::Create(create))
    }

    fn update(&self, update: &Update, ctx: &Ctx) -> Result<Decision<Self>, Refusal> {
        let before = self.find(&update.which)?;
        update.by.may_change("epic", &[before.creator, before.lead])?;
        let mut epic = before.clone();
        if let Some(name) = &update.new_name {
            if *name != before.name && self.ids.contains_key(name) {
                return Err(exists(name));
            }
            epic.name.clone_from(name);
        }
        epic.priority = update.priority.unwrap_or(epic.priority);
        epic.lead = update.lead.unwrap_or(epic.lead);
        epic.updated = ctx.now;
        if let Some(status) = update.status {
            epic.status = status;
            match status {
                Status::Active => epic.started = epic.started.or(Some(ctx.now)),
                Status::Completed => epic.completed = epic.completed.or(Some(ctx.now)),
                _ => {}
            }
        }
        check(&epic.name, epic.priority, &update.texts)?;
        let reply = named(&epic);
        let event = Event::Updated { epic: Box::new(epic), texts: Box::new(update.texts.clone()) };
        Ok(Decision::new(reply, vec![event]))
    }

    /// The tasks and the channel live on; whoever shows one leaves out an epic that is gone.
    fn delete(&self, which: &Which, by: Caller) -> Result<Decision<Self>, Refusal> {
        let epic = self.find(which)?;
        by.may_change("epic", &[epic.creator])?;
        let reply = Reply::Deleted { id: epic.id, name: epic.name.clone(), channel: epic.channel };
        Ok(Decision::new(reply, vec![Event::Deleted { epic: epic.id }]))
    }

    /// An epic that is gone by now needs none.
    fn channel_refused(&self, channel: Uuid, problem: &str) -> Decision<Self> {
        let of = self.epics.values().find(|epic| epic.channel == Some(channel));
        let event = of.map(|epic| Event::ChannelRefused { epic: epic.id, problem: problem.to_owned() });
        Decision::new(Reply::Done, event.into_iter().collect())
    }

    fn news(&self) -> Vec<Notice> {
        let active = self.epics.values().filter(|epic| epic.status == Status::Active);
        let notice = |epic: &Epic| Notice {
            epic: epic.id,
            name: epic.name.clone(),
            progress: epic.counts.progress(),
            tasks: epic.news.clone(),
            unnamed: epic.unnamed,
        };
        active.filter(|epic| !epic.news.is_empty() || epic.unnamed > 0).map(notice).collect()
    }

    /// What was told meanwhile is no news.
    fn tell_news(&self, news: &[Notice]) -> Decision<Self> {
        let untold = |notice: &Notice| {
            let epic = self.epics.get(&notice.epic)?;
            let known = notice.tasks.iter().copied().filter(|task| epic.news.contains(task));
            let (tasks, unnamed): (Vec<Uuid>, _) = (known.collect(), notice.unnamed.min(epic.unnamed));
            (!tasks.is_empty() || unnamed > 0).then(|| Notice { tasks, unnamed, ..notice.clone() })
        };
        let told: Vec<Notice> = news.iter().filter_map(untold).collect();
        if told.is_empty() {
            return Decision::reply(Reply::News(told));
        }
        let epics = told.iter().map(|notice| notice.epic).collect();
        let tasks = told.iter().flat_map(|notice| notice.tasks.iter().copied()).collect();
        let unnamed = told.iter().filter(|notice| notice.unnamed > 0);
        let unnamed = unnamed.map(|notice| (notice.epic, notice.unnamed)).collect();
        Decision::new(Reply::News(told), vec![Event::NewsTaken { epics, tasks, unnamed }])
    }
}

fn named(epic: &Epic) -> Reply {
    Reply::Epic { id: epic.id, name: epic.name.clone(), status: epic.status }
}

fn exists(name: &str) -> Refusal {
    Refusal::new(
        Code::AlreadyExists,
        format!("an epic named `{name}` exists; choose another name or update that one"),
    )
}

fn check(name: &str, priority: u8, texts: &Texts) -> Result<(), Refusal> {
    wire::length("name", name, 1, NAME)?;
    wire::priority(priority)?;
    for (field, text) in texts.long() {
        if let Some(text) = text {
            wire::text(field, text, usize::from(field == "goal"))?;
        }
    }
    for (field, text) in texts.short() {
        if let Some(text) = text {
            wire::length(field, text, 0, SHORT)?;
        }
    }
    texts.tags.as_deref().map_or(Ok(()), wire::tags)
}

/// Lower case, with every run of other characters as one hyphen, cut so that a channel's name holds it.
fn slug(name: &str) -> String {
    const LONGEST: usize = 80;
    let mut slug = String::new();
    for c in name.chars().flat_map(char::to_lowercase) {
        if c.is_alphanumeric() {
            slug.push(c);
        } else if !slug.is_empty() && !slug.ends_with('-') {
            slug.push('-');
        }
    }
    let cut: String = slug.chars().take(LONGEST).collect();
    cut.trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod slugs {
    use super::slug;

    #[test]
    fn slugs_are_lower_case_words() {
        assert_eq!(slug("Ship: the   Thing!"), "ship-the-thing");
        assert_eq!(slug("Übung 2"), "übung-2");
        assert_eq!(slug("!!!"), "");
        assert!(slug(&"a!".repeat(200)).len() <= 80);
    }
}
