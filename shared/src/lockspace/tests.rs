mod waits;

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

use super::*;
use crate::code::Code;
use crate::fence::Token;
use crate::id::{InstanceId, Name};
use crate::limits;
use crate::testbed::Bench;

const X: &str = "github://acme/app/issues/1";
const Y: &str = "github://acme/app/issues/2";

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

fn instance(text: &str) -> InstanceId {
    InstanceId(text.to_owned())
}

fn bench() -> Bench<Lockspace> {
    Bench::new(EntityKey::of(Kind::Lockspace, &name("default")))
}

fn acquire(holder: &str, key: &str) -> Command {
    acquire_for(holder, key, None)
}

fn acquire_for(holder: &str, key: &str, ttl_ms: Option<u64>) -> Command {
    Command::Acquire { holder: instance(holder), agent: name("worker"), key: key.to_owned(), ttl_ms }
}

fn release(holder: &str, key: &str) -> Command {
    Command::Release { holder: instance(holder), key: key.to_owned() }
}

fn run(bench: &mut Bench<Lockspace>, command: Command) -> Result<Reply, Refusal> {
    let answer = bench.run(command).and_then(Reply::granted);
    assert_eq!(bench.restored(), bench.entity);
    answer
}

fn token(answer: Result<Reply, Refusal>) -> Token {
    match answer.unwrap() {
        Reply::Acquired { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

fn code(answer: Result<Reply, Refusal>) -> Code {
    answer.unwrap_err().code
}

fn locks(bench: &mut Bench<Lockspace>) -> Vec<LockView> {
    match bench.run(Command::List).unwrap() {
        Reply::Locks(locks) => locks,
        other => panic!("{other:?}"),
    }
}

fn allow(bench: &mut Bench<Lockspace>, locks_per_holder: usize) {
    let settings = Settings { locks_per_holder, ..Settings::default() };
    run(bench, Command::Configure { settings }).unwrap();
}

#[test]
fn a_held_lock_names_its_holder_and_the_time_left() {
    let mut bench = bench();
    token(run(&mut bench, acquire_for("a", X, Some(60_000))));
    let refusal = run(&mut bench, acquire("b", X)).unwrap_err();
    assert_eq!(refusal.code, Code::LockHeld);
    assert_eq!(refusal.detail["holder"], "a");
    assert_eq!(refusal.detail["remaining_ms"], 60_000);
    assert!(refusal.message.contains("held by a"), "{}", refusal.message);
    assert!(
        !refusal.message.contains("try again"),
        "an agent skips what it does not get: {}",
        refusal.message
    );
}

#[test]
fn spellings_of_one_uri_are_one_lock_and_both_are_kept() {
    let mut bench = bench();
    run(&mut bench, acquire("a", "GITHUB://acme/app/issues/1/")).unwrap();
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
    let body = bench.body(&format!("lock/{X}")).unwrap();
    assert_eq!(body["resourceKey"], X);
    assert_eq!(body["raw"], "GITHUB://acme/app/issues/1/");
    assert_eq!(run(&mut bench, release("a", X)), Ok(Reply::Released { keys: vec![X.to_owned()] }));
    assert!(bench.head(&format!("lock/{X}")).is_none());
}

#[test]
fn spellings_stay_apart_when_the_swarm_wants_so() {
    let mut bench = bench();
    let settings = Settings { normalize_keys: false, ..Settings::default() };
    run(&mut bench, Command::Configure { settings }).unwrap();
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire("b", "GITHUB://acme/app/issues/1")).unwrap();
    assert_eq!(code(run(&mut bench, acquire("c", "no uri"))), Code::InvalidArgument);
    let settings = Settings::default();
    assert_eq!(code(run(&mut bench, Command::Configure { settings })), Code::WrongState);
}

#[test]
fn ones_own_lock_is_refreshed_under_its_old_token() {
    let mut bench = bench();
    let first = token(run(&mut bench, acquire_for("a", X, Some(60_000))));
    bench.advance(Duration::from_secs(30));
    let again = run(&mut bench, acquire("a", X)).unwrap();
    let expires_at = bench.now + Duration::from_secs(60);
    let (key, raw) = (X.to_owned(), X.to_owned());
    assert_eq!(again, Reply::Acquired { key, raw, token: first, expires_at, refreshed: true });
    bench.advance(Duration::from_secs(45));
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
}

#[test]
fn a_heartbeat_keeps_the_locks_own_ttl() {
    let mut bench = bench();
    run(&mut bench, acquire_for("a", X, Some(5000))).unwrap();
    let since = locks(&mut bench)[0].held_since;
    bench.advance(Duration::from_secs(4));
    let beat =
        |holder: &str, ttl_ms| Command::Heartbeat { holder: instance(holder), key: X.to_owned(), ttl_ms };
    run(&mut bench, beat("a", None)).unwrap();
    let lock = locks(&mut bench).remove(0);
    assert_eq!((lock.held_since, lock.expires_at), (since, bench.now + Duration::from_secs(5)));
    assert_eq!(code(run(&mut bench, beat("b", None))), Code::NotHolding);
    assert_eq!(code(run(&mut bench, beat("a", Some(0)))), Code::InvalidArgument);
    run(&mut bench, beat("a", Some(60_000))).unwrap();
    assert_eq!(locks(&mut bench)[0].ttl_ms, 60_000);
}

#[test]
fn a_second_lock_is_refused_until_the_swarm_allows_it() {
    let mut bench = bench();
    run(&mut bench, acquire("a", X)).unwrap();
    let refusal = run(&mut bench, acquire("a", Y)).unwrap_err();
    assert_eq!((refusal.code, &refusal.detail["key"]), (Code::AlreadyHolding, &json!(X)));
    allow(&mut bench, 2);
    run(&mut bench, acquire("a", Y)).unwrap();
    let settings = Settings::default();
    assert_eq!(code(run(&mut bench, Command::Configure { settings })), Code::WrongState);
}

#[test]
fn a_deadlock_is_told_as_a_cycle() {
    let mut bench = bench();
    allow(&mut bench, 2);
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire("b", Y)).unwrap();
    assert_eq!(code(run(&mut bench, acquire("a", Y))), Code::LockHeld);
    let refusal = run(&mut bench, acquire("b", X)).unwrap_err();
    assert_eq!(refusal.code, Code::Deadlock);
    assert_eq!(refusal.detail["cycle"], json!(["b", X, "a", Y]));
    assert!(refusal.message.contains(&format!("{Y} → b")), "{}", refusal.message);
    assert!(refusal.message.contains("leave it alone"), "it is skipped as any other: {}", refusal.message);
}

#[test]
fn a_deadlock_is_told_before_the_limit() {
    let mut bench = bench();
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire("b", Y)).unwrap();
    assert_eq!(code(run(&mut bench, acquire("a", Y))), Code::AlreadyHolding);
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::Deadlock);
}

/// Clients take 4000 characters of a reason.
#[test]
fn a_refusal_names_as_many_locks_as_a_sentence_holds_and_has_them_all_beside_it() {
    const LOCKS: usize = 20;
    let mut bench = bench();
    let long = |number: usize| format!("github://acme/app/{number:02}{}", "x".repeat(2000));
    let keys: Vec<String> = (0..LOCKS).map(long).collect();
    allow(&mut bench, LOCKS);
    for key in &keys {
        run(&mut bench, acquire("a", key)).unwrap();
    }
    let refusal = run(&mut bench, acquire("a", X)).unwrap_err();
    assert_eq!((refusal.code, &refusal.detail["held"]), (Code::AlreadyHolding, &json!(keys)));
    assert!(refusal.message.contains(&format!("{}, 19 more", keys[0])), "{}", refusal.message);
    assert!(refusal.message.len() < 4000, "{}", refusal.message.len());

    run(&mut bench, acquire("b", Y)).unwrap();
    assert_eq!(code(run(&mut bench, acquire("a", Y))), Code::AlreadyHolding);
    let refusal = run(&mut bench, acquire("b", &keys[0])).unwrap_err();
    assert_eq!(refusal.detail["cycle"], json!(["b", keys[0], "a", Y]));
    assert!(refusal.message.contains(&format!("{Y} → b;")), "{}", refusal.message);
    for (holder, key) in [("c", &keys[1]), ("d", &keys[2])] {
        run(&mut bench, release("a", key)).unwrap();
        run(&mut bench, acquire(holder, key)).unwrap();
    }
    assert_eq!(code(run(&mut bench, acquire("a", &keys[1]))), Code::LockHeld);
    assert_eq!(code(run(&mut bench, acquire("c", &keys[2]))), Code::LockHeld);
    let refusal = run(&mut bench, acquire("d", &keys[0])).unwrap_err();
    assert_eq!(refusal.detail["cycle"], json!(["d", keys[0], "a", keys[1], "c", keys[2]]));
    assert!(refusal.message.contains(" → a → 3 more → d;"), "{}", refusal.message);
    assert!(refusal.message.len() < 4000, "{}", refusal.message.len());
}

#[test]
fn an_old_try_and_an_ended_holder_make_no_deadlock() {
    let mut bench = bench();
    allow(&mut bench, 2);
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire("b", Y)).unwrap();
    assert_eq!(code(run(&mut bench, acquire("a", Y))), Code::LockHeld);
    bench.now = bench.now + limits::LOCK_WAITING;
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
    assert_eq!(code(run(&mut bench, acquire("a", Y))), Code::Deadlock);
    run(&mut bench, Command::ReleaseAll { holder: instance("a"), reason: "killed".to_owned() }).unwrap();
    assert!(bench.head("edge/a").is_none());
    token(run(&mut bench, acquire("b", X)));
}

#[test]
fn trying_again_and_again_costs_one_commit_a_minute() {
    let mut bench = bench();
    run(&mut bench, acquire("a", X)).unwrap();
    let before = bench.events.len();
    for _ in 0..120 {
        assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
        bench.advance(Duration::from_secs(1));
    }
    assert_eq!(bench.events.len() - before, 2);
    bench.advance(2 * limits::LOCK_WAITING);
    assert!(bench.head("edge/b").is_none());
}

#[test]
fn release_is_for_the_holder_of_a_live_lock() {
    let mut bench = bench();
    assert_eq!(code(run(&mut bench, release("a", X))), Code::NotHolding);
    run(&mut bench, acquire_for("a", X, Some(1000))).unwrap();
    let refusal = run(&mut bench, release("b", X)).unwrap_err();
    assert!(refusal.message.starts_with("held by a"), "{}", refusal.message);
    // Expired and not swept yet.
    bench.serving_since = bench.now - Duration::from_secs(60);
    bench.now = bench.now + Duration::from_secs(1);
    let refusal = run(&mut bench, release("a", X)).unwrap_err();
    assert!(refusal.message.starts_with("lock not found"), "{}", refusal.message);
}

#[test]
fn arguments_out_of_range_are_refused() {
    let mut bench = bench();
    let longest = u64::try_from(limits::LOCK_TTL_MAX.as_millis()).unwrap();
    assert_eq!(code(run(&mut bench, acquire_for("a", X, Some(0)))), Code::InvalidArgument);
    assert_eq!(code(run(&mut bench, acquire_for("a", X, Some(longest + 1)))), Code::InvalidArgument);
    assert_eq!(code(run(&mut bench, acquire("a", "not a uri"))), Code::InvalidArgument);
    let settings = Settings { locks_per_holder: 0, ..Settings::default() };
    assert_eq!(code(run(&mut bench, Command::Configure { settings })), Code::InvalidArgument);
    run(&mut bench, acquire_for("a", X, Some(longest))).unwrap();
}

#[test]
fn a_swarm_says_how_long_its_locks_may_last() {
    let mut bench = bench();
    let of = |default_ttl_ms, max_ttl_ms| {
        let settings = Settings { default_ttl_ms, max_ttl_ms, ..Settings::default() };
        Command::Configure { settings }
    };
    run(&mut bench, of(1000, 5000)).unwrap();
    assert_eq!(code(run(&mut bench, acquire_for("a", X, Some(5001)))), Code::InvalidArgument);
    run(&mut bench, acquire_for("a", X, Some(5000))).unwrap();
    run(&mut bench, release("a", X)).unwrap();
    run(&mut bench, acquire("a", X)).unwrap();
    assert_eq!(locks(&mut bench)[0].ttl_ms, 1000);
    assert_eq!(code(run(&mut bench, of(5001, 5000))), Code::InvalidArgument);
    let month = u64::try_from(limits::LOCK_TTL_ALLOWED.as_millis()).unwrap();
    assert_eq!(code(run(&mut bench, of(1000, month + 1))), Code::InvalidArgument);
    let Reply::Settings(settings) = run(&mut bench, Command::Settings).unwrap() else {
        panic!("no settings")
    };
    assert_eq!((settings.default_ttl_ms, settings.max_ttl_ms), (1000, 5000));
}

#[test]
fn a_lock_is_renewed_for_no_longer_than_its_swarm_allows_by_now() {
    let mut bench = bench();
    for (holder, key) in [("a", X), ("b", Y)] {
        run(&mut bench, acquire_for(holder, key, Some(60_000))).unwrap();
    }
    let settings = Settings { default_ttl_ms: 1000, max_ttl_ms: 5000, ..Settings::default() };
    run(&mut bench, Command::Configure { settings }).unwrap();
    let first = locks(&mut bench).remove(0);
    assert_eq!(first.ttl_ms, 60_000, "what was granted stands");
    bench.advance(Duration::from_secs(1));
    let beat = Command::Heartbeat { holder: instance("a"), key: X.to_owned(), ttl_ms: None };
    run(&mut bench, beat).unwrap();
    run(&mut bench, acquire("b", Y)).unwrap();
    let expires = bench.now + Duration::from_secs(5);
    let renewed: Vec<_> = locks(&mut bench).iter().map(|lock| (lock.expires_at, lock.ttl_ms)).collect();
    assert_eq!(renewed, [(expires, 5000), (expires, 5000)]);
}

#[test]
fn an_expired_lock_changes_hands_under_a_higher_token() {
    let mut bench = bench();
    let first = token(run(&mut bench, acquire_for("a", X, Some(1000))));
    bench.now = bench.now + Duration::from_secs(1);
    let second = token(run(&mut bench, acquire("b", X)));
    assert!(second > first);
    run(&mut bench, acquire("a", Y)).unwrap();
}

#[test]
fn an_expired_lock_does_not_count_against_its_holder() {
    let mut bench = bench();
    run(&mut bench, acquire_for("a", X, Some(1000))).unwrap();
    bench.now = bench.now + Duration::from_secs(1);
    run(&mut bench, acquire("a", Y)).unwrap();
    assert_eq!(locks(&mut bench).len(), 1);
}

#[test]
fn no_lock_ends_right_after_a_takeover() {
    let mut bench = bench();
    let first = token(run(&mut bench, acquire_for("a", X, Some(60_000))));
    bench.now = bench.now + Duration::from_secs(600);
    bench.restart();
    assert_eq!(code(run(&mut bench, acquire("b", X))), Code::LockHeld);
    bench.advance(Duration::ZERO);
    assert_eq!(bench.entity.next_wake(), Some(bench.serving_since + limits::RUNNER_LEASE));
    assert_eq!(token(run(&mut bench, acquire("a", X))), first);
    bench.restart();
    bench.advance(Duration::from_secs(60));
    let next = token(run(&mut bench, acquire("b", X)));
    assert!(next > first && next.epoch > first.epoch);
}

#[test]
fn the_ttl_bounds_the_grace_after_a_takeover() {
    let mut bench = bench();
    run(&mut bench, acquire_for("a", X, Some(5000))).unwrap();
    bench.now = bench.now + Duration::from_secs(600);
    bench.restart();
    bench.advance(Duration::from_secs(5));
    assert!(locks(&mut bench).is_empty());
}

#[test]
fn an_operator_may_take_a_lock_away() {
    let mut bench = bench();
    let force = Command::ForceRelease { key: X.to_owned(), by: "root".to_owned() };
    assert_eq!(code(run(&mut bench, force.clone())), Code::NotHolding);
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, force).unwrap();
    let Some(Event::Released { reason, .. }) = bench.events.last() else { panic!() };
    assert_eq!(reason, "forced by root");
    token(run(&mut bench, acquire("b", X)));
}

#[test]
fn release_all_is_idempotent() {
    let mut bench = bench();
    allow(&mut bench, 3);
    run(&mut bench, acquire("a", X)).unwrap();
    run(&mut bench, acquire("a", Y)).unwrap();
    let all = Command::ReleaseAll { holder: instance("a"), reason: "completed".to_owned() };
    let keys = vec![X.to_owned(), Y.to_owned()];
    assert_eq!(run(&mut bench, all.clone()), Ok(Reply::Released { keys }));
    let events = bench.events.len();
    assert_eq!(run(&mut bench, all), Ok(Reply::Released { keys: vec![] }));
    assert_eq!(bench.events.len(), events);
}

#[test]
fn commands_have_their_wire_form() {
    let command = json!({"acquire": {"holder": "a-1", "agent": "a", "key": "x:y", "ttl_ms": null}});
    assert!(serde_json::from_value::<Command>(command).is_ok());
    assert_eq!(serde_json::to_value(Command::Tick).unwrap(), json!("tick"));
}

#[derive(Clone, Debug)]
enum Step {
    Run(Command),
    Sleep(u64),
    /// Time passes without the timer being served.
    Stall(u64),
    Restart,
}

fn any_step() -> impl Strategy<Value = Step> {
    let holder = || (0..4u8).prop_map(|n| instance(&format!("h{n}")));
    let key = || {
        prop_oneof![Just("x:1"), Just("X:1/"), Just("x:2"), Just("x:3"), Just("bad")].prop_map(str::to_owned)
    };
    let ttl = || prop_oneof![Just(None), (0..90_000u64).prop_map(Some)];
    let command = prop_oneof![
        8 => (holder(), key(), ttl())
            .prop_map(|(holder, key, ttl_ms)| Command::Acquire { holder, agent: name("worker"), key, ttl_ms }),
        3 => (holder(), key()).prop_map(|(holder, key)| Command::Release { holder, key }),
        2 => (holder(), key(), ttl())
            .prop_map(|(holder, key, ttl_ms)| Command::Heartbeat { holder, key, ttl_ms }),
        1 => holder().prop_map(|holder| Command::ReleaseAll { holder, reason: "ended".to_owned() }),
        1 => (holder(), 0..200_000u64, any::<bool>()).prop_map(|(holder, ms, over)| Command::Extend {
            holder,
            until: Timestamp(1_790_000_000_000 + ms),
            wait: Uuid::nil(),
            reply_to: EntityKey::agent(&name("default"), &name("worker")),
            over,
        }),
        1 => key().prop_map(|key| Command::ForceRelease { key, by: "root".to_owned() }),
        1 => (0..4usize).prop_map(|locks_per_holder| Command::Configure {
            settings: Settings { locks_per_holder, ..Settings::default() },
        }),
        1 => Just(Command::Tick),
    ];
    prop_oneof![
        12 => command.prop_map(Step::Run),
        2 => (0..70_000u64).prop_map(Step::Sleep),
        1 => (0..70_000u64).prop_map(Step::Stall),
        1 => Just(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn locks_are_exclusive_and_tokens_rise(steps in prop::collection::vec(any_step(), 1..80)) {
        let mut bench = bench();
        for step in steps {
            let before = locks(&mut bench);
            match step {
                Step::Run(command) => {
                    let answer = bench.run(command.clone()).and_then(Reply::granted);
                    if let (Command::Acquire { holder, .. }, Ok(Reply::Acquired { key, token, .. })) =
                        (&command, answer)
                    {
                        let held = before.iter().find(|lock| lock.key == key);
                        prop_assert!(held.is_none_or(|lock| lock.holder == *holder && lock.token == token));
                    }
                }
                Step::Sleep(ms) => bench.advance(Duration::from_millis(ms)),
                Step::Stall(ms) => bench.now = bench.now + Duration::from_millis(ms),
                Step::Restart => bench.restart(),
            }
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
        let granted: Vec<Token> = bench.events.iter().filter_map(|event| match event {
            Event::Acquired { token, .. } => Some(*token),
            _ => None,
        }).collect();
        prop_assert!(granted.is_sorted());
        prop_assert_eq!(granted.iter().collect::<BTreeSet<_>>().len(), granted.len());
    }
}
