//! What a revocation ends, for how long, and what it leaves.

use super::*;

#[tokio::test]
async fn what_is_revoked_holds_no_more_and_what_comes_after_does() {
    let bed = Bed::new();
    let operator = bed.operator().await;
    let lasting = Duration::from_secs(3600);
    let worker = bed.token("worker", Role::Worker, Origin::default());
    let other = bed.token("other", Role::Worker, Origin::default());
    let who = bed.access.identify(&worker).await.unwrap();
    bed.access.revoke(&operator, Of::Agent(who.agent), lasting).await.unwrap();
    let refusal = bed.access.identify(&worker).await.unwrap_err();
    assert!(refusal.message.contains("revoked") && !refusal.message.contains(&worker[..20]));
    bed.access.identify(&other).await.unwrap();
    // The revocation has a moment of its own: what is issued after it is good.
    tokio::time::sleep(Duration::from_millis(3)).await;
    let fresh = bed.token("worker", Role::Worker, Origin::default());
    bed.access.identify(&fresh).await.unwrap();

    bed.access.revoke(&operator, Of::Everyone, lasting).await.unwrap();
    assert!(bed.access.identify(&fresh).await.is_err() && bed.access.identify(&other).await.is_err());
    bed.operator().await;
    let not_his = bed.access.revoke(&who, Of::Everyone, lasting).await.unwrap_err();
    assert_eq!(not_his.code, Code::Forbidden);
    // Another node reads it from the owner.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    assert!(elsewhere.identify(&other).await.is_err());
}

#[tokio::test]
async fn what_was_renewed_before_a_node_had_heard_of_a_revocation_ends_with_it() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let renewable = Some(now + Duration::from_secs(1000));
    let first = bed.token("worker", Role::Worker, Origin { renewable, ..Origin::default() });
    let who = bed.access.identify(&first).await.unwrap();
    // The copy of another node is fresh, and does not know it yet.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    elsewhere.identify(&first).await.unwrap();
    bed.access.revoke(&bed.operator().await, Of::Agent(who.agent), Duration::from_secs(3600)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(3)).await;
    let refusal = match elsewhere.exchange(&first, Narrower::default()).await {
        Ok(renewed) => bed.access.identify(renewed.issued.text()).await.unwrap_err(),
        // On a slow machine it has heard meanwhile.
        Err(refusal) => refusal,
    };
    assert!(refusal.message.contains("revoked"), "{refusal:?}");
}

fn text(token: &Value) -> &str {
    token["access_token"].as_str().unwrap()
}

#[tokio::test]
async fn what_is_revoked_stays_so_as_long_as_any_of_its_family_could_hold() {
    let bed = Bed::new();
    let hours = Duration::from_secs(7200);
    let now = bed.node.entities.clock().wall();
    let lasting = |of, role| {
        let claims = Claims { lifetime: hours, ..bed.claims(of, role) };
        bed.keys.issue(claims, now).unwrap().text().to_owned()
    };
    // A short renewal of a renewal, of one that lasts; and a worker's short token beside a longer one.
    let (first, lead) = (lasting("worker", Role::Worker), lasting("lead", Role::Lead));
    let (_, renewed) = bed.exchange(&first, &[("lifetime", "900")]).await;
    let (_, renewed) = bed.exchange(text(&renewed), &[("lifetime", "600")]).await;
    let (_, short) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "900")]).await;
    let (_, long) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "5000")]).await;
    bed.give_back(text(&renewed)).await;
    bed.give_back(text(&short)).await;
    for passes in [0, 1000] {
        bed.pass(Duration::from_secs(passes)).await;
        // A node that has just begun knows what the owner does.
        let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
        for ended in [first.as_str(), text(&long)] {
            let refusal = elsewhere.identify(ended).await.unwrap_err();
            assert!(refusal.message.contains("revoked"), "after {passes} s: {refusal:?}");
        }
        elsewhere.identify(&lead).await.unwrap();
    }
    bed.pass(hours).await;
    assert!(bed.revoked().await.is_empty(), "what no token needs any more is forgotten");
}

#[tokio::test]
async fn a_revocation_is_kept_longest_where_no_token_says_when_its_family_ends() {
    let bed = Bed::new();
    let begun = bed.node.entities.clock().wall();
    // Renewed ones of before. The first may have been a node's own, or another issuer's; else it has ended after a
    // year.
    let another_issuers = Uuid::new_v5(&Uuid::nil(), b"first");
    for (first, role, longest) in [
        (Uuid::now_v7(), Role::Worker, LONGEST),
        (Uuid::now_v7(), Role::Operator, OWN),
        (another_issuers, Role::Worker, OWN),
    ] {
        let older = bed.token("older", role, Origin { family: Some(first), ..Origin::default() });
        let (_, renewed) = bed.exchange(&older, &[("lifetime", "60")]).await;
        bed.give_back(text(&renewed)).await;
        let kept = bed.revoked().await.pop().unwrap();
        let last = begun + longest;
        assert!(kept.of == Of::Token(first) && around(last).contains(&kept.until), "{role}: {kept:?}");
    }

    // A client's tokens overlap: each may hand on to the same worker, and the next is fetched before this one ends.
    let secret = bed.client("boss", Role::Lead, Rights::ALL).await;
    let (_, boss) = bed.post(TOKEN, &[("grant_type", "client_credentials")], Some(("boss", &secret))).await;
    let (_, boss) = bed.exchange(text(&boss), &[("lifetime", "300")]).await;
    let (_, worker) = bed.exchange(text(&boss), &[("agent", "w1"), ("lifetime", "60")]).await;
    bed.give_back(text(&worker)).await;
    let kept = bed.revoked().await.pop().unwrap();
    let last = begun + Duration::from_secs(2 * 900 - 2);
    assert!(around(last).contains(&kept.until), "{kept:?}");
}

/// Clocks may differ a little, and the test takes a while.
fn around(last: Timestamp) -> std::ops::Range<Timestamp> {
    last..last + Duration::from_secs(100)
}

#[tokio::test]
async fn what_was_handed_on_holds_for_a_year_and_its_revocation_is_kept_no_longer() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let lasting = |of, role, origin| {
        let claims = Claims { lifetime: OWN, ..bed.claims(of, role) };
        bed.keys.issue_as(claims, origin, now).unwrap().text().to_owned()
    };
    // It holds as long as that of a run.
    let lead = lasting("lead", Role::Lead, Origin::default());
    let wanted = OWN.as_secs().to_string();
    let (_, long) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", &wanted)]).await;
    assert_eq!(long["expires_in"], json!(LONGEST.as_secs()), "{long}");
    let (_, short) = bed.exchange(&lead, &[("agent", "w1"), ("lifetime", "60")]).await;
    bed.give_back(text(&short)).await;
    assert!(bed.holder(&long).await.is_none());
    let kept = bed.revoked().await.pop().unwrap();
    assert!(around(now + LONGEST).contains(&kept.until), "{kept:?}");

    // Nor does one hold longer that a node of before has handed on for longer.
    let actor = Some(bed.keys.read(&lead, now).unwrap().as_actor());
    let older = lasting("lead-w1", Role::Worker, Origin { actor, ..Origin::default() });
    bed.keys.read(&older, now + LONGEST).unwrap();
    assert!(bed.keys.read(&older, now + LONGEST + LEEWAY + Duration::from_secs(1)).is_err());
}

#[tokio::test]
async fn what_continues_a_token_that_was_handed_on_ends_by_the_id_of_that() {
    let bed = Bed::new();
    let lead = bed.token("lead", Role::Lead, Origin::default());
    let to_a_lead = [("agent", "w1"), ("role", "lead")];
    let (_, handed) = bed.exchange(&lead, &to_a_lead).await;
    let (_, beside) = bed.exchange(&lead, &to_a_lead).await;
    let (_, renewed) = bed.exchange(text(&handed), &[]).await;
    let (_, again) = bed.exchange(text(&renewed), &[]).await;
    let (_, below) = bed.exchange(text(&again), &[("agent", "w2")]).await;
    let (_, below_renewed) = bed.exchange(text(&below), &[]).await;
    let came_of_it = [&handed, &renewed, &again, &below, &below_renewed];
    for held in came_of_it {
        assert!(bed.holder(held).await.is_some(), "{held}");
    }
    let id = bed.keys.read(text(&handed), bed.node.entities.clock().wall()).unwrap().id;
    bed.access.revoke(&bed.operator().await, Of::Token(id), OWN).await.unwrap();
    // Another node learns it by its copy.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    for ended in came_of_it {
        let refusal = elsewhere.identify(text(ended)).await.unwrap_err();
        assert!(refusal.message.contains("revoked"), "{refusal:?}");
        assert!(bed.holder(ended).await.is_none());
    }
    // An id is one token's: another one of the same worker is good, and so is the next with its renewals.
    assert!(bed.holder(&beside).await.is_some());
    let (_, next) = bed.exchange(&lead, &to_a_lead).await;
    let (_, renewed) = bed.exchange(text(&next), &[]).await;
    assert!(bed.holder(&next).await.is_some() && bed.holder(&renewed).await.is_some());
}

#[tokio::test]
async fn a_worker_whose_token_was_revoked_is_handed_another_that_holds() {
    let bed = Bed::new();
    let lead = bed.token("lead", Role::Lead, Origin::default());
    let (_, first) = bed.exchange(&lead, &[("agent", "w1")]).await;
    let before = bed.holder(&first).await.unwrap();
    // The copy of another node is fresh, and does not know it yet.
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    elsewhere.identify(text(&first)).await.unwrap();
    bed.give_back(text(&first)).await;
    tokio::time::sleep(Duration::from_millis(3)).await;
    let refusal = match elsewhere.exchange(text(&first), Narrower::default()).await {
        Ok(renewed) => bed.access.identify(renewed.issued.text()).await.unwrap_err(),
        // On a slow machine it has heard meanwhile.
        Err(refusal) => refusal,
    };
    assert!(refusal.message.contains("revoked"), "{refusal:?}");

    let (_, next) = bed.exchange(&lead, &[("agent", "w1")]).await;
    let after = bed.holder(&next).await.unwrap();
    assert_eq!((before.agent, &before.instance), (after.agent, &after.instance));
    let (status, renewed) = bed.exchange(text(&next), &[]).await;
    assert_eq!(status, StatusCode::OK, "{renewed}");
    assert!(bed.holder(&renewed).await.is_some() && bed.holder(&first).await.is_none());
    // It ends like the first one, whichever of its renewals is given back.
    bed.give_back(text(&renewed)).await;
    assert!(bed.holder(&next).await.is_none() && bed.holder(&renewed).await.is_none());
}

#[tokio::test]
async fn a_token_of_a_clock_that_is_ahead_ends_when_it_is_revoked() {
    let bed = Bed::new();
    let now = bed.node.entities.clock().wall();
    let issue = |of, origin, ahead| {
        let claims = bed.claims(of, Role::Worker);
        bed.keys.issue_as(claims, origin, now + Duration::from_secs(ahead)).unwrap()
    };
    let lead = bed.keys.issue(bed.claims("lead", Role::Lead), now).unwrap();
    let from = bed.keys.read(lead.text(), now).unwrap();
    let (family, actor) = (Some(Uuid::now_v7()), Some(from.as_actor()));
    let worker = issue("worker", Origin { family, actor, ..Origin::default() }, 10);
    let (_, renewed) = bed.exchange(worker.text(), &[]).await;
    bed.give_back(text(&renewed)).await;
    assert!(bed.access.identify(worker.text()).await.is_err() && bed.holder(&renewed).await.is_none());

    // By its id alone nobody knows when it began.
    let first = issue("other", Origin::default(), 20);
    let (_, renewed) = bed.exchange(first.text(), &[]).await;
    assert!(bed.holder(&renewed).await.is_some());
    let operator = bed.keys.issue(bed.claims("operator", Role::Operator), now).unwrap();
    let operator = bed.access.identify(operator.text()).await.unwrap();
    bed.access.revoke(&operator, Of::Token(first.id), OWN).await.unwrap();
    assert!(bed.access.identify(first.text()).await.is_err() && bed.holder(&renewed).await.is_none());
}

#[tokio::test]
async fn a_clients_token_ends_with_the_one_that_it_was_renewed_from() {
    let bed = Bed::new();
    let secret = bed.client("ci", Role::Worker, Rights::ALL).await;
    let form = [("grant_type", "client_credentials")];
    let (_, first) = bed.post(TOKEN, &form, Some(("ci", &secret))).await;
    let (_, other) = bed.post(TOKEN, &form, Some(("ci", &secret))).await;
    let text = first["access_token"].as_str().unwrap();
    let (_, renewed) = bed.exchange(text, &[]).await;
    assert!(bed.holder(&renewed).await.is_some());
    bed.post(REVOKE, &[("token", text)], None).await;
    assert!(bed.holder(&renewed).await.is_none() && bed.holder(&other).await.is_some());
    let mut last = other;
    for _ in 0..=STEPS {
        let (status, next) = bed.exchange(last["access_token"].as_str().unwrap(), &[]).await;
        if status == StatusCode::BAD_REQUEST {
            return;
        }
        last = next;
    }
    panic!("a token must not grow without end");
}

#[tokio::test]
async fn a_node_finds_out_about_what_others_revoke() {
    let bed = Bed::new();
    let elsewhere = Access::new(bed.keys.clone(), bed.node.entities.clone());
    let worker = bed.token("worker", Role::Worker, Origin::default());
    elsewhere.identify(&worker).await.unwrap();
    bed.post(REVOKE, &[("token", &worker)], None).await;
    let found_out = async {
        while elsewhere.identify(&worker).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), found_out).await.unwrap();
}
