//! How much one commit may carry.

use skein_shared::limits;
use skein_shared::time::Timestamp;
use skein_shared::triggers::{Command, Incoming, Reply, Triggers};

use super::*;

fn triggers() -> EntityKey {
    EntityKey::of(Kind::Triggers, &swarm())
}

/// An event with a body of so many bytes.
fn event(bytes: usize) -> Command {
    let incoming = Incoming {
        receipt: Uuid::now_v7(),
        delivery: String::new(),
        source: "hub".to_owned(),
        provider: "github".to_owned(),
        event: "push".to_owned(),
        context: json!({}),
        payload: json!("x".repeat(bytes)),
        received_at: Timestamp(1),
        unsigned: false,
        said: None,
        letter: None,
        activity: None,
    };
    Command::Deliver { incoming }
}

async fn ask(entities: &Entities, command: Command) -> Result<Reply, Refusal> {
    entities.ask::<Triggers>(&triggers(), Request::read(), command).await
}

#[tokio::test]
async fn what_is_long_does_not_share_its_commit() {
    let node = node();
    let gate = Gate::default();
    node.store.contents().faults().push(Fault::Slow(gate.clone()));
    let deliver = |bytes| {
        let entities = node.entities.clone();
        tokio::spawn(async move { ask(&entities, event(bytes)).await })
    };
    let asked: Vec<_> = (0..8).map(|_| deliver(3 << 20)).chain((0..8).map(|_| deliver(8))).collect();
    while node.entities.in_memory().iter().map(|(_, waiting)| waiting).sum::<usize>() < asked.len() {
        tokio::task::yield_now().await;
    }
    gate.open();
    for answer in asked {
        answer.await.unwrap().unwrap();
    }
    let version = node.store.load(&triggers()).await.unwrap().version.0;
    assert!((8..=11).contains(&version), "8 long ones and 8 short ones took {version} commits");
}

/// Whatever the store, for one of them could not write it without standing still.
#[tokio::test]
async fn what_no_commit_can_carry_is_refused_and_nothing_of_it_happens() {
    let node = node();
    for number in 0..8 {
        let agent = Name::parse(&format!("worker-{number}")).unwrap();
        let filters = vec![serde_json::from_value(json!({ "kind": "webhook", "source": "hub" })).unwrap()];
        ask(&node.entities, Command::Subscribe { agent, filters }).await.unwrap();
    }
    let before = node.store.load(&triggers()).await.unwrap().version;
    let refused = ask(&node.entities, event(limits::WEBHOOK)).await.unwrap_err();
    assert_eq!(refused.code, Code::TooLarge);
    assert!(refused.message.contains("send less, or to fewer"), "{refused}");
    let answered = ask(&node.entities, event(limits::WEBHOOK / 2)).await.unwrap();
    assert!(matches!(&answered, Reply::Delivered { started, .. } if started.len() == 8), "{answered:?}");
    assert_eq!(node.store.load(&triggers()).await.unwrap().version, Version(before.0 + 1));
}
