//! The rules of services.

use uuid::Uuid;

use super::command::{Command, Register, Reply, Wanted};
use super::event::Event;
use super::state::{Health, Service, Services};
use crate::code::{Code, Refusal};
use crate::entity::{Ctx, Decision};
use crate::which::Which;
use crate::wire;

/// Most services of a swarm: they stay in memory.
const SERVICES: usize = 10_000;
/// What their texts may come to, bytes.
const TEXTS: usize = 64 << 20;
/// Most that a list shows.
const LISTED: usize = 1000;
const SCRIPT: usize = 4000;
const DESCRIPTION: usize = 4000;
/// Longest path, URL, interpreter or argument, characters.
const SHORT: usize = 1000;
const ARGS: usize = 100;
/// What environment and metadata may come to, bytes of JSON.
const LONG: usize = 64 * 1024;

pub(super) fn decide(
    state: &Services,
    command: &Command,
    ctx: &mut Ctx,
) -> Result<Decision<Services>, Refusal> {
    match command {
        Command::Register(register) => state.register(register, ctx),
        Command::Unregister { by, which, lead } => {
            let service = state.own(*by, *lead, which)?;
            let event = Event::ServiceUnregistered { service: service.id };
            Ok(Decision::new(Reply::Service(service.view()), vec![event]))
        }
        Command::SetHealth { by, which, health } => state.set_health(*by, which, *health, ctx),
        Command::List(wanted) => Ok(Decision::reply(state.list(wanted))),
        Command::Tick => Ok(Decision::reply(Reply::Done)),
    }
}

impl Services {
    /// An agent's service is made anew or changed: what tells others of it stays where nothing is said, what it is
    /// started by does not (spec: Agent Swarm 2.7).
    fn register(&self, register: &Register, ctx: &mut Ctx) -> Result<Decision<Self>, Refusal> {
        check(register)?;
        let known = self.of_agent.get(&register.agent).and_then(|id| self.services.get(id));
        if known.is_none() && self.services.len() >= SERVICES {
            return Err(Refusal::new(
                Code::QueueFull,
                format!("the swarm has {SERVICES} services, the most there may be; unregister one first"),
            ));
        }
        let said = known.filter(|known| known.says_url && !register.says_url);
        let register = register.clone();
        let service = Service {
            id: known.map_or_else(|| ctx.id(), |known| known.id),
            agent: register.agent,
            script: register.script,
            url: said.map_or(register.url, |known| known.url.clone()),
            says_url: register.says_url || said.is_some(),
            health: known.map_or(Health::Starting, |known| known.health),
            health_path: register
                .health_path
                .or_else(|| known.map(|known| known.health_path.clone()))
                .unwrap_or_else(|| "/health".to_owned()),
            description: register.description.or_else(|| known.and_then(|known| known.description.clone())),
            cwd: register.cwd,
            interpreter: register.interpreter,
            args: register.args,
            env: register.env,
            metadata: register
                .metadata
                .or_else(|| known.map(|known| known.metadata.clone()))
                .unwrap_or_default(),
            created: known.map_or(ctx.now, |known| known.created),
            updated: ctx.now,
        };
        self.has_room(known.map_or(0, Service::bytes), service.bytes())?;
        let reply = Reply::Registered { service: service.view(), new: known.is_none() };
        let service = Box::new(service);
        let event = match known {
            None => Event::ServiceRegistered { service },
            Some(_) => Event::ServiceChanged { service },
        };
        Ok(Decision::new(reply, vec![event]))
    }

    fn has_room(&self, before: usize, after: usize) -> Result<(), Refusal> {
        if after <= before || self.bytes - before + after <= TEXTS {
            return Ok(());
        }
        let message = format!(
            "the texts of the swarm's services would come to more than {TEXTS} bytes; shorten env or metadata, or unregister a service first"
        );
        Err(Refusal::new(Code::QueueFull, message))
    }

    fn set_health(
        &self,
        by: Uuid,
        which: &Which,
        health: Health,
        ctx: &Ctx,
    ) -> Result<Decision<Self>, Refusal> {
        let service = self.own(by, false, which)?;
        if service.health == health {
            return Ok(Decision::reply(Reply::Service(service.view())));
        }
        let after = Service { health, updated: ctx.now, ..service.clone() };
        let event = Event::ServiceHealth { service: service.id, health, at: ctx.now };
        Ok(Decision::new(Reply::Service(after.view()), vec![event]))
    }

    /// A service that the caller keeps, or any for the `lead`: of its own ones the name, or the label in the metadata,
    /// is enough.
    fn own(&self, by: Uuid, lead: bool, which: &Which) -> Result<&Service, Refusal> {
        let found = match which {
            Which::Id(id) => self.services.get(id),
            Which::Name(name) => {
                let own = self.of_agent.get(&by).and_then(|id| self.services.get(id));
                own.filter(|own| own.name() == *name || own.label() == Some(name))
            }
        };
        let Some(found) = found else {
            let sentence =
                format!("there is no service `{which}` of yours; list-services shows those there are");
            return Err(Refusal::new(Code::NotFound, sentence));
        };
        if lead || found.agent == by {
            return Ok(found);
        }
        Err(Refusal::new(
            Code::Forbidden,
            "only the agent that keeps a service may change it, and the lead take it out of the list; ask one of them",
        ))
    }

    fn list(&self, wanted: &Wanted) -> Reply {
        let called = |service: &Service, part: &String| {
            service.name().contains(part) || service.label().is_some_and(|label| label.contains(part))
        };
        let mut found: Vec<&Service> = self
            .services
            .values()
            .filter(|service| wanted.agent.is_none_or(|agent| agent == service.agent))
            .filter(|service| wanted.except != Some(service.agent))
            .filter(|service| wanted.health.is_none_or(|health| health == service.health))
            .filter(|service| wanted.name.as_ref().is_none_or(|part| called(service, part)))
            .collect();
        found.sort_by_key(|service| (service.health, service.agent));
        let services = found.iter().take(LISTED).map(|service| service.view()).collect();
        Reply::List { services, left_out: found.len().saturating_sub(LISTED) }
    }
}

fn check(register: &Register) -> Result<(), Refusal> {
    wire::length("script", &register.script, 1, SCRIPT)?;
    wire::length("url", &register.url, 1, SHORT)?;
    if let Some(description) = &register.description {
        wire::length("description", description, 0, DESCRIPTION)?;
    }
    let short = [
        ("healthCheckPath", &register.health_path),
        ("cwd", &register.cwd),
        ("interpreter", &register.interpreter),
    ];
    for (field, text) in short {
        if let Some(text) = text {
            wire::length(field, text, 1, SHORT)?;
        }
    }
    let args = register.args.iter().flatten();
    for arg in args.clone() {
        wire::length("args", arg, 0, SHORT)?;
    }
    if args.count() > ARGS {
        return Err(Refusal::new(Code::TooLarge, format!("args: give {ARGS} at most")));
    }
    let bytes = |text: serde_json::Result<String>| text.map_or(usize::MAX, |text| text.len());
    for (field, bytes) in [
        ("env", bytes(serde_json::to_string(&register.env))),
        ("metadata", bytes(serde_json::to_string(&register.metadata))),
    ] {
        if bytes > LONG {
            let sentence = format!("{field} has {bytes} bytes as JSON, at most {LONG} are taken");
            return Err(Refusal::new(Code::TooLarge, sentence));
        }
    }
    Ok(())
}
