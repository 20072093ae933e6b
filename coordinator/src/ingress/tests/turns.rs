//! Who waits at the door while others are let in.

use futures::StreamExt;
use tokio::task::JoinHandle;

use super::*;

/// Sends a signed event, and gives the status of its answer.
fn arrive(door: &Router, delivery: &str, body: &str) -> JoinHandle<u16> {
    let request = Request::post("/webhooks/hub")
        .header("x-hub-signature-256", sign(body))
        .header("x-github-delivery", delivery)
        .header("x-github-event", "issues")
        .body(Body::from(body.to_owned()))
        .unwrap();
    let door = door.clone();
    tokio::spawn(async move { send(&door, request).await.0 })
}

#[tokio::test(start_paused = true)]
async fn whoever_comes_while_the_store_stands_still_waits_for_a_turn() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let arrive = |delivery| arrive(&door, delivery, ISSUE);
    let stall = ledger.stalled.lock().await;
    let early = [arrive("d-1"), arrive("d-2"), arrive("d-3")];
    tokio::time::sleep(Duration::from_secs(9)).await;
    drop(stall);
    for taken in early {
        assert_eq!(taken.await.unwrap(), 200);
    }
    let stall = ledger.stalled.lock().await;
    let (held, turned_away) = (arrive("d-4"), arrive("d-5"));
    assert_eq!(turned_away.await.unwrap(), 503);
    drop(stall);
    assert_eq!(held.await.unwrap(), 200);
    assert_eq!(ledger.seen.lock().unwrap().len(), 4);
}

/// They need no more than a connection each for that, and there is one turn here.
#[tokio::test(start_paused = true)]
async fn strangers_who_send_no_body_keep_nobody_out() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let dawdler = |sent: &'static str| {
        let sent = futures::stream::iter([Ok::<_, std::io::Error>(sent)]);
        let body = Body::from_stream(sent.chain(futures::stream::pending()));
        let request = Request::post("/webhooks/hub").header("content-length", "1000").body(body).unwrap();
        let door = door.clone();
        tokio::spawn(async move { send(&door, request).await.0 })
    };
    let dawdlers = [dawdler(""), dawdler("{"), dawdler("{\"action\"")];
    tokio::task::yield_now().await;
    let began = tokio::time::Instant::now();
    let (status, answer) = send(&door, hub(ISSUE).body(Body::from(ISSUE)).unwrap()).await;
    assert_eq!((status, began.elapsed()), (200, Duration::ZERO), "{answer}");
    for dawdler in dawdlers {
        assert_eq!(dawdler.await.unwrap(), 408);
    }
}

/// Whoever's body finds no room waits for it, and is cut off for what it takes itself only.
#[tokio::test(start_paused = true)]
async fn a_body_waits_for_the_room_that_others_take() {
    let ledger = Arc::new(Ledger::default());
    let door = door(&ledger);
    let large = ISSUE.replace("opened", &"x".repeat(700));
    let arrive = |delivery| arrive(&door, delivery, &large);
    let stall = ledger.stalled.lock().await;
    let early = [arrive("d-1"), arrive("d-2")];
    tokio::time::sleep(Duration::from_secs(9)).await;
    drop(stall);
    for taken in early {
        assert_eq!(taken.await.unwrap(), 200);
    }
    let stall = ledger.stalled.lock().await;
    let (held, turned_away) = (arrive("d-3"), arrive("d-4"));
    assert_eq!(turned_away.await.unwrap(), 503);
    drop(stall);
    assert_eq!(held.await.unwrap(), 200);
}

/// However many are let in at a time: whoever fills the room is known by nobody.
#[tokio::test(start_paused = true)]
async fn all_bodies_together_fit_into_a_small_machine() {
    let limits = config::Limits::default();
    let gate = Gate::new(&[], &limits, Arc::new(Ledger::default()));
    let mut taken = Vec::new();
    while let Ok(room) = gate.room(limits.webhook_bytes, Gate::patience()).await {
        taken.push(room);
    }
    let most = 128 * 1024 * 1024 / limits.webhook_bytes;
    assert!((1..=most).contains(&taken.len()), "{} of {most}", taken.len());
}
