use std::time::Duration;

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::code::{Code, Refusal};
use crate::entity::{Changes, Entity};
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;
use crate::time::Timestamp;

fn bench() -> Bench<Access> {
    Bench::new(EntityKey::of(Kind::Access, &Name::parse("default").unwrap()))
}

fn wish(name: &str) -> Command {
    Command::AddClient(Box::new(Wish {
        name: Name::parse(name).unwrap(),
        digest: "digest".to_owned(),
        agent: None,
        agent_name: Name::parse("builder").unwrap(),
        role: "worker".to_owned(),
        scope: None,
        view: None,
        lifetime_s: 900,
    }))
}

fn revoke(bench: &mut Bench<Access>, of: Of, lasts: u64) -> Result<Reply, Refusal> {
    let until = bench.now + Duration::from_secs(lasts);
    bench.run(Command::Revoke { of, by: "operator".to_owned(), until, began: Timestamp::ZERO, holder: None })
}

fn token(number: u128) -> Of {
    Of::Token(Uuid::from_u128(number))
}

/// An agent gives a token back that would have ended in a minute.
fn give_back(bench: &mut Bench<Access>, agent: u128, number: u128) -> Result<Reply, Refusal> {
    let (began, until, holder) =
        (bench.now, bench.now + Duration::from_secs(60), Some(Uuid::from_u128(agent)));
    bench.run(Command::Revoke { of: token(number), by: "worker".to_owned(), until, began, holder })
}

fn revoked(bench: &mut Bench<Access>, after: Timestamp) -> Vec<Revocation> {
    match bench.run(Command::Revoked { after }).unwrap() {
        Reply::Revoked(revoked) => revoked,
        other => panic!("{other:?}"),
    }
}

fn known(bench: &mut Bench<Access>, name: &str) -> Option<Box<Client>> {
    match bench.run(Command::Client { name: Name::parse(name).unwrap() }).unwrap() {
        Reply::Client(client) => client,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_ends_with_its_tokens() {
    let mut bench = bench();
    let Reply::Added(shown) = bench.run(wish("ci")).unwrap() else { panic!() };
    assert!(shown["agentId"].is_string() && !shown.to_string().contains("digest"));
    assert_eq!(bench.run(wish("ci")).unwrap_err().code, Code::AlreadyExists);
    let id = known(&mut bench, "ci").unwrap().id;
    let (name, until) = (Name::parse("ci").unwrap(), bench.now + Duration::from_secs(900));
    let remove = Command::RemoveClient { name, by: "operator".to_owned(), until };
    bench.run(remove.clone()).unwrap();
    assert!(known(&mut bench, "ci").is_none());
    assert_eq!(revoked(&mut bench, Timestamp::ZERO)[0].of, Of::Token(id));
    assert_eq!(bench.run(remove).unwrap_err().code, Code::NotFound);
    // A new one of the name is another one.
    bench.run(wish("ci")).unwrap();
    assert_ne!(known(&mut bench, "ci").unwrap().id, id);
}

#[test]
fn what_was_revoked_is_asked_for_by_its_moment() {
    let mut bench = bench();
    let (first, second) = (Of::Agent(Uuid::from_u128(1)), Of::Everyone);
    revoke(&mut bench, first, 60).unwrap();
    revoke(&mut bench, second, 60).unwrap();
    let all = revoked(&mut bench, Timestamp::ZERO);
    assert_eq!(all.iter().map(|one| one.of).collect::<Vec<_>>(), [first, second]);
    // Both were made in one millisecond, and the second can be asked for all the same.
    assert_eq!(revoked(&mut bench, all[0].at), all[1..]);
    // Revoked once more, it concerns later tokens too.
    bench.now = bench.now + Duration::from_secs(10);
    revoke(&mut bench, first, 5).unwrap();
    let again = revoked(&mut bench, all[1].at);
    assert_eq!((again.len(), again[0].of), (1, first));
    assert_eq!(again[0].until, all[0].until, "it is not forgotten sooner than before");
}

#[test]
fn a_revocation_is_no_older_than_the_tokens_of_its_moment() {
    let mut bench = bench();
    let mut ctx = bench.ctx();
    ctx.wall = ctx.now + Duration::from_secs(10);
    let until = ctx.wall + Duration::from_secs(60);
    let revoke = Command::Revoke {
        of: Of::Everyone,
        by: "operator".to_owned(),
        until,
        began: Timestamp::ZERO,
        holder: None,
    };
    let decision = bench.entity.decide(&revoke, &mut ctx).unwrap();
    let [Event::TokensRevoked { revocation }] = decision.events.as_slice() else {
        panic!("{:?}", decision.events)
    };
    assert!(revocation.at >= ctx.wall, "a token of the last ten seconds would outlive it");
}

#[test]
fn a_revocation_lasts_as_long_as_its_tokens_though_the_wall_clock_was_set_back() {
    let mut bench = bench();
    let mut ctx = bench.ctx();
    ctx.wall = ctx.now - Duration::from_secs(7200);
    let until = ctx.wall + Duration::from_secs(900);
    let revoke = Command::Revoke {
        of: Of::Everyone,
        by: "operator".to_owned(),
        until,
        began: Timestamp::ZERO,
        holder: None,
    };
    let decision = bench.entity.decide(&revoke, &mut ctx).unwrap();
    decision.events.iter().for_each(|event| bench.entity.apply(event, &mut Changes::default()));
    bench.run(Command::Tick).unwrap();
    bench.advance(Duration::from_secs(899));
    assert_eq!(revoked(&mut bench, Timestamp::ZERO).len(), 1, "its tokens would hold again");
    bench.advance(Duration::from_secs(1));
    assert!(revoked(&mut bench, Timestamp::ZERO).is_empty());
}

#[test]
fn a_token_that_is_given_back_ends_however_far_its_clock_was_ahead() {
    let mut bench = bench();
    let (began, until) = (bench.now + Duration::from_secs(20), bench.now + Duration::from_secs(60));
    let of = Of::Token(Uuid::from_u128(1));
    bench.run(Command::Revoke { of, by: "worker".to_owned(), until, began, holder: None }).unwrap();
    let at = revoked(&mut bench, Timestamp::ZERO)[0].at;
    assert!(at >= began, "the token would outlive it");
    // A copy that knows this one asks for what came after it, and has to get the next.
    revoke(&mut bench, Of::Everyone, 60).unwrap();
    assert_eq!(revoked(&mut bench, at).iter().map(|one| one.of).collect::<Vec<_>>(), [Of::Everyone]);
    // Nodes of before say nothing of it.
    let older = serde_json::json!({ "revoke": { "of": "everyone", "by": "operator", "until": 1 } });
    let read: Command = serde_json::from_value(older).unwrap();
    assert!(matches!(read, Command::Revoke { began: Timestamp::ZERO, .. }), "{read:?}");
}

#[test]
fn holders_who_give_their_tokens_back_leave_the_operator_room() {
    let mut bench = bench();
    bench.run(wish("ci")).unwrap();
    // A hundred tokens of each.
    let give_back = |bench: &mut Bench<Access>, number: u128| give_back(bench, number / 100, number);
    for number in 0..10_000 {
        give_back(&mut bench, number).unwrap();
    }
    let full = give_back(&mut bench, 10_000).unwrap_err();
    assert_eq!(full.code, Code::QueueFull);
    give_back(&mut bench, 1).unwrap();
    // One that was stolen is known by its id alone, perhaps.
    revoke(&mut bench, token(10_000), 60).unwrap();
    revoke(&mut bench, Of::Agent(Uuid::from_u128(1)), 60).unwrap();
    revoke(&mut bench, Of::Everyone, 60).unwrap();
    let (name, until) = (Name::parse("ci").unwrap(), bench.now + Duration::from_secs(60));
    bench.run(Command::RemoveClient { name, by: "operator".to_owned(), until }).unwrap();
    bench.advance(Duration::from_secs(61));
    give_back(&mut bench, 10_001).unwrap();
}

#[test]
fn one_who_gives_tokens_back_without_end_leaves_the_others_room() {
    let mut bench = bench();
    let (greedy, other) = (1, 2);
    let given = (0..).find(|number| give_back(&mut bench, greedy, *number).is_err()).unwrap();
    assert_eq!(given, 5000);
    let refused = give_back(&mut bench, greedy, given).unwrap_err();
    assert_eq!(refused.code, Code::QueueFull);
    assert!(refused.message.contains("5000 tokens of this agent"), "{refused}");
    give_back(&mut bench, greedy, 7).unwrap();
    for number in 0..100 {
        give_back(&mut bench, other, 10_000 + number).unwrap();
    }
    assert_eq!(give_back(&mut bench, other, 20_000).unwrap_err().code, Code::QueueFull);
    give_back(&mut bench, 3, 20_000).unwrap();
    bench.advance(Duration::from_secs(61));
    give_back(&mut bench, greedy, given).unwrap();
}

#[test]
fn revocations_of_before_say_nothing_of_their_holders() {
    let before = serde_json::json!({ "of": "everyone", "at": 1, "until": 2, "by": "operator" });
    let read: Revocation = serde_json::from_value(before.clone()).unwrap();
    assert_eq!((read.holder, serde_json::to_value(&read).unwrap()), (None, before));
}

#[test]
fn revocations_are_forgotten_with_the_tokens() {
    let mut bench = bench();
    revoke(&mut bench, Of::Everyone, 60).unwrap();
    revoke(&mut bench, Of::Token(Uuid::from_u128(1)), 120).unwrap();
    bench.advance(Duration::from_secs(60));
    assert_eq!(revoked(&mut bench, Timestamp::ZERO).len(), 1);
    bench.advance(Duration::from_secs(60));
    assert!(revoked(&mut bench, Timestamp::ZERO).is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A node that asks for what is new, whenever it does, knows all that holds.
    #[test]
    fn a_copy_that_asks_now_and_then_lacks_nothing(
        steps in prop::collection::vec((0u128..6, 1u64..100, 0u64..40, any::<bool>()), 1..40)
    ) {
        let mut bench = bench();
        let mut copy = std::collections::BTreeMap::new();
        let mut newest = Timestamp::ZERO;
        let look = |bench: &mut Bench<Access>, copy: &mut std::collections::BTreeMap<Of, Revocation>, newest: &mut Timestamp| {
            for one in revoked(bench, *newest) {
                *newest = one.at;
                copy.insert(one.of, one);
            }
        };
        for (number, lasts, pause, looks) in steps {
            let of = match number {
                0 => Of::Everyone,
                1 | 2 => Of::Agent(Uuid::from_u128(number)),
                _ => Of::Token(Uuid::from_u128(number)),
            };
            revoke(&mut bench, of, lasts).unwrap();
            bench.advance(Duration::from_secs(pause));
            if looks {
                look(&mut bench, &mut copy, &mut newest);
            }
        }
        look(&mut bench, &mut copy, &mut newest);
        let now = bench.now;
        for one in revoked(&mut bench, Timestamp::ZERO) {
            prop_assert_eq!(copy.get(&one.of), Some(&one));
        }
        copy.retain(|_, one| one.until > now);
        prop_assert_eq!(copy.len(), revoked(&mut bench, Timestamp::ZERO).len());
    }
}
