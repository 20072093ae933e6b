use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::code::{Code, Refusal};
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;
use crate::which::Which;

fn bench() -> Bench<Services> {
    Bench::new(EntityKey::of(Kind::Services, &Name::parse("default").unwrap()))
}

fn agent(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn web(number: u128) -> Register {
    Register::new(agent(number), "serve.js", format!("https://{}.localhost", agent(number)))
}

fn register(bench: &mut Bench<Services>, register: Register) -> Result<(Value, bool), Refusal> {
    match bench.run(Command::Register(Box::new(register)))? {
        Reply::Registered { service, new } => Ok((service, new)),
        other => panic!("{other:?}"),
    }
}

fn list(bench: &mut Bench<Services>, wanted: Wanted) -> Vec<Value> {
    match bench.run(Command::List(wanted)).unwrap() {
        Reply::List { services, .. } => services,
        other => panic!("{other:?}"),
    }
}

fn set(bench: &mut Bench<Services>, by: u128, name: &str, health: Health) -> Result<Reply, Refusal> {
    bench.run(Command::SetHealth { by: agent(by), which: Which::Name(name.to_owned()), health })
}

#[test]
fn a_service_has_the_shape_of_the_wire() {
    let mut bench = bench();
    let args = Some(vec!["--port".to_owned(), "3000".to_owned()]);
    let (service, new) = register(&mut bench, Register { args, ..web(1) }).unwrap();
    assert!(new);
    assert_eq!(service["name"], agent(1).to_string());
    assert_eq!((service["port"].as_u64(), service["status"].as_str()), (Some(3000), Some("starting")));
    assert_eq!(service["healthCheckPath"], "/health");
    assert_eq!(service["args"], json!(["--port", "3000"]));
    assert!(service.get("cwd").is_none() && service["metadata"].is_object());
    let key = format!("service/{}", service["id"].as_str().unwrap());
    let kept = Value::Object(bench.body(&key).unwrap().clone());
    assert_eq!(crate::wire::shown(kept, &[]), service);
}

#[test]
fn what_tells_of_a_service_stays_and_what_starts_it_does_not() {
    let mut bench = bench();
    let first = Register {
        description: Some("the site".to_owned()),
        cwd: Some("/srv".to_owned()),
        env: Some([("A".to_owned(), "1".to_owned())].into()),
        metadata: Some(json!({"label": "site"}).as_object().unwrap().clone()),
        ..web(1)
    };
    let (before, _) = register(&mut bench, first).unwrap();
    set(&mut bench, 1, "site", Health::Healthy).unwrap();
    let (after, new) = register(&mut bench, web(1)).unwrap();
    assert!(!new);
    assert_eq!((&after["id"], &after["description"]), (&before["id"], &before["description"]));
    assert_eq!((after["status"].as_str(), &after["metadata"]), (Some("healthy"), &before["metadata"]));
    assert!(after.get("cwd").is_none() && after.get("env").is_none());
}

#[test]
fn where_a_service_is_reached_stays_once_its_agent_has_said_it() {
    let mut bench = bench();
    let usual = |domain: &str| Register { url: format!("https://{}.{domain}", agent(1)), ..web(1) };
    let said = |url: &str| Register { url: url.to_owned(), says_url: true, ..web(1) };
    register(&mut bench, usual("localhost")).unwrap();
    let (service, _) = register(&mut bench, usual("example.com")).unwrap();
    assert_eq!(service["url"], format!("https://{}.example.com", agent(1)), "the usual place has changed");
    for url in ["https://site.example.com", "https://shop.example.com"] {
        register(&mut bench, said(url)).unwrap();
        bench.restart();
        let (service, _) = register(&mut bench, usual("localhost")).unwrap();
        assert_eq!(service["url"], url);
    }
}

#[test]
fn only_its_agent_changes_a_service() {
    let mut bench = bench();
    let metadata = Some(json!({"label": "site"}).as_object().unwrap().clone());
    let (service, _) = register(&mut bench, Register { metadata, ..web(1) }).unwrap();
    let id = Which::Id(service["id"].as_str().unwrap().parse().unwrap());
    let end = |by| Command::Unregister { by: agent(by), which: id.clone(), lead: false };
    assert_eq!(bench.run(end(2)).unwrap_err().code, Code::Forbidden);
    // A name is looked for among the caller's own.
    assert_eq!(set(&mut bench, 2, "site", Health::Stopped).unwrap_err().code, Code::NotFound);
    set(&mut bench, 1, "site", Health::Stopped).unwrap();
    set(&mut bench, 1, &agent(1).to_string(), Health::Stopped).unwrap();
    assert_eq!(bench.events.len(), 2, "what changes nothing is no event");
    bench.run(end(1)).unwrap();
    assert_eq!(bench.run(end(1)).unwrap_err().code, Code::NotFound);
    assert!(list(&mut bench, Wanted::default()).is_empty());
}

#[test]
fn the_lead_takes_a_service_out_whose_agent_is_gone() {
    let mut bench = bench();
    let (service, _) = register(&mut bench, web(1)).unwrap();
    let id = Which::Id(service["id"].as_str().unwrap().parse().unwrap());
    let end = Command::Unregister { by: agent(2), which: id, lead: true };
    assert_eq!(bench.run(end).unwrap(), Reply::Service(service));
    assert!(list(&mut bench, Wanted::default()).is_empty());
}

#[test]
fn the_healthiest_come_first() {
    let mut bench = bench();
    for (number, health) in [(1, Health::Stopped), (2, Health::Unhealthy), (3, Health::Healthy)] {
        register(&mut bench, web(number)).unwrap();
        set(&mut bench, number, &agent(number).to_string(), health).unwrap();
    }
    register(&mut bench, web(4)).unwrap();
    let agents = |services: Vec<Value>| -> Vec<u128> {
        let id = |service: &Value| service["agentId"].as_str().unwrap().parse::<Uuid>().unwrap().as_u128();
        services.iter().map(id).collect()
    };
    assert_eq!(agents(list(&mut bench, Wanted::default())), [3, 4, 2, 1]);
    let except = Wanted { except: Some(agent(3)), ..Wanted::default() };
    assert_eq!(agents(list(&mut bench, except)), [4, 2, 1]);
    let unwell = Wanted { health: Some(Health::Unhealthy), ..Wanted::default() };
    assert_eq!(agents(list(&mut bench, unwell)), [2]);
    let named = Wanted { name: Some("0004".to_owned()), ..Wanted::default() };
    assert_eq!(agents(list(&mut bench, named)), [4]);
    let of = Wanted { agent: Some(agent(1)), ..Wanted::default() };
    assert_eq!(agents(list(&mut bench, of)), [1]);
}

#[test]
fn a_list_has_an_end_and_says_how_many_more_there_are() {
    let mut bench = bench();
    register(&mut bench, web(0)).unwrap();
    let known = bench.entity.services.values().next().unwrap().clone();
    for number in 1..1003 {
        bench.entity.insert(Service { id: agent(number), agent: agent(number), ..known.clone() });
    }
    match bench.run(Command::List(Wanted::default())).unwrap() {
        Reply::List { services, left_out } => assert_eq!((services.len(), left_out), (1000, 3)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_texts_of_all_services_have_a_bound() {
    let mut bench = bench();
    register(&mut bench, web(1)).unwrap();
    let room = (64 << 20) - 2 * bench.entity.bytes;
    // As if others had it.
    bench.entity.bytes += room;
    let longer = Register { description: Some("x".to_owned()), ..web(2) };
    let refusal = register(&mut bench, longer).unwrap_err();
    assert_eq!(refusal.code, Code::QueueFull);
    assert!(refusal.message.contains("shorten env"), "{}", refusal.message);
    bench.entity.bytes -= room;
    register(&mut bench, web(2)).unwrap();
}

#[test]
fn arguments_are_checked() {
    let mut bench = bench();
    let long = "x".repeat(70_000);
    for (bad, code) in [
        (Register { script: String::new(), ..web(1) }, Code::InvalidArgument),
        (Register { script: "x".repeat(4001), ..web(1) }, Code::TooLarge),
        (Register { health_path: Some(String::new()), ..web(1) }, Code::InvalidArgument),
        (Register { cwd: Some("x".repeat(1001)), ..web(1) }, Code::TooLarge),
        (Register { args: Some(vec![String::new(); 101]), ..web(1) }, Code::TooLarge),
        (Register { env: Some([("A".to_owned(), long)].into()), ..web(1) }, Code::TooLarge),
    ] {
        let shown = format!("{bad:?}").chars().take(200).collect::<String>();
        assert_eq!(register(&mut bench, bad).unwrap_err().code, code, "{shown}");
    }
}

proptest! {
    #[test]
    fn every_agent_has_one_service_whatever_happens(
        steps in prop::collection::vec((0..4_u8, 0..4_u128, any::<bool>()), 1..60)
    ) {
        let mut bench = bench();
        for (what, number, label) in steps {
            let metadata = label.then(|| json!({"label": "same"}).as_object().unwrap().clone());
            let which = Which::Name(if label { "same".to_owned() } else { agent(number).to_string() });
            let command = match what {
                0 => Command::Register(Box::new(Register { metadata, ..web(number) })),
                1 => Command::Unregister { by: agent(number), which, lead: false },
                2 => Command::SetHealth { by: agent(number), which, health: Health::Healthy },
                _ => Command::List(Wanted::default()),
            };
            let _ = bench.run(command);
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
