//! What a lead is told, and who reads it when it has left.

use std::time::Duration;

use super::*;
use crate::entity::{Changes, Ctx};
use crate::fence::Epoch;
use crate::pool::event::Created;

const NEXT: Uuid = Uuid::from_u128(0xa3);

/// Ann ends a task, of which the lead is told.
fn told(swarm: &mut Swarm) -> Uuid {
    swarm.0.advance(Duration::from_secs(1));
    let task = swarm.assigned(ANN);
    swarm.finish(task, ANN, completed("done")).unwrap();
    match swarm.0.events.last() {
        Some(Event::Created(news)) => news.task,
        other => panic!("{other:?}"),
    }
}

fn leads(agent: Uuid, name: &str) -> Command {
    Command::Join(join(agent, name, true))
}

#[test]
fn what_a_lead_has_not_read_waits_for_the_next_one() {
    let mut swarm = Swarm::new();
    let (read, begun, unread) = (told(&mut swarm), told(&mut swarm), told(&mut swarm));
    swarm.0.advance(Duration::from_secs(1));
    let work = swarm.assigned(LEAD);
    assert_eq!(swarm.poll(LEAD).0.unwrap().id, read);
    swarm.finish(read, LEAD, completed("seen")).unwrap();
    assert_eq!(swarm.poll(LEAD).0.unwrap().id, begun);
    let left = swarm.run(Command::Leave { agent: LEAD }).unwrap();
    assert_eq!(left, Reply::Left { returned: vec![work] }, "that alone is for everybody");
    for news in [begun, unread] {
        assert_eq!((swarm.status(news), swarm.head(news).agent), (Status::Backlog, None));
        assert!(!swarm.body(news).contains_key("agentId"));
        assert_eq!(swarm.refused(claim(BOB, news)), Code::WrongState);
    }
    assert_eq!(swarm.0.restored(), swarm.0.entity);
    swarm.0.restart();
    swarm.run(leads(NEXT, "next")).unwrap();
    assert_eq!(swarm.body(unread)["agentId"], NEXT.to_string());
    for news in [begun, unread] {
        assert_eq!(swarm.poll(NEXT).0.unwrap().id, news);
        swarm.finish(news, NEXT, completed("seen")).unwrap();
    }
    assert!(swarm.poll(NEXT).0.is_none());
    swarm.run(claim(BOB, work)).unwrap();
}

#[test]
fn a_worker_that_takes_the_leads_place_is_woken_for_what_waits() {
    let mut swarm = Swarm::new();
    let news = told(&mut swarm);
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    let passed = Event::PassedOn { task: news, agent: BOB, at: swarm.0.now };
    assert!(swarm.0.entity.concerned(&passed).is_superset(&[news, BOB].into()));
    swarm.run(leads(BOB, "bob")).unwrap();
    assert_eq!(swarm.0.events.last(), Some(&passed));
    assert_eq!(swarm.poll(BOB).0.unwrap().id, news);
    assert_eq!(swarm.0.restored(), swarm.0.entity);
}

#[test]
fn what_was_given_to_the_workers_is_news_no_more() {
    let mut swarm = Swarm::new();
    let (given, parked) = (told(&mut swarm), told(&mut swarm));
    swarm.run(Command::Release { agent: LEAD, task: given }).unwrap();
    swarm.run(Command::ToBacklog { task: given, by: Some(ANN) }).unwrap();
    swarm.run(Command::Leave { agent: LEAD }).unwrap();
    swarm.run(Command::FromBacklog { task: parked, by: Some(ANN) }).unwrap();
    swarm.run(leads(NEXT, "next")).unwrap();
    assert_eq!((swarm.status(given), swarm.status(parked)), (Status::Backlog, Status::Unassigned));
    swarm.run(claim(BOB, parked)).unwrap();
}

/// What follows from it has to be written at once.
#[test]
fn however_much_waits_somebody_can_lead() {
    const ALL: u128 = 10_500;
    let Swarm(Bench { entity: mut pool, now, .. }) = Swarm::new();
    for number in 0..ALL {
        let created = Created {
            task: Uuid::from_u128(0x1_0000 + number),
            by: None,
            spec: TaskSpec::new("a task has ended"),
            status: Status::Pending,
            agent: Some(LEAD),
            offered_to: None,
            dependencies: Vec::new(),
            until: None,
            sketch: None,
            news: true,
            at: now,
        };
        pool.apply(&Event::Created(Box::new(created)), &mut Changes::default());
    }
    let mut passed_on_by = |command: Command| {
        let mut ctx = Ctx::new(now, now, now, Epoch(1), Uuid::nil());
        let events = pool.decide(&command, &mut ctx).unwrap().events;
        events.iter().for_each(|event| pool.apply(event, &mut Changes::default()));
        events.iter().filter(|event| matches!(event, Event::PassedOn { .. })).count() as u128
    };
    assert_eq!(passed_on_by(Command::Leave { agent: LEAD }), 0);
    let first = passed_on_by(leads(BOB, "bob"));
    assert!(0 < first && first < ALL, "{first} at once");
    assert_eq!(first + passed_on_by(leads(BOB, "bob")), ALL);
    assert_eq!((passed_on_by(leads(BOB, "bob")), pool.check()), (0, Ok(())));
}
