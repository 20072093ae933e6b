use proptest::prelude::*;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::caller::Caller;
use crate::code::{Code, Refusal};
use crate::id::{EntityKey, Kind, Name};
use crate::testbed::Bench;

const LEAD: Caller = Caller { agent: Some(Uuid::from_u128(1)), lead: true };

fn bench() -> Bench<Settings> {
    Bench::new(EntityKey::of(Kind::Settings, &Name::parse("default").unwrap()))
}

fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn plain(text: &str) -> Held {
    Held::Plain(text.to_owned())
}

fn sealed(key: &str, text: &str) -> Sealed {
    Sealed { key: key.to_owned(), text: text.to_owned() }
}

fn at(by: Caller, scope: Scope, key: &str, value: Held) -> Set {
    Set { by, place: Place { key: key.to_owned(), scope }, value, description: None }
}

fn set(bench: &mut Bench<Settings>, set: Set) -> Result<(Value, bool), Refusal> {
    match bench.run(Command::Set(Box::new(set)))? {
        Reply::Set { setting, new } => Ok((setting, new)),
        other => panic!("{other:?}"),
    }
}

fn settings(bench: &mut Bench<Settings>, command: Command) -> Vec<Setting> {
    match bench.run(command).unwrap() {
        Reply::Settings(settings) => settings,
        other => panic!("{other:?}"),
    }
}

fn values(settings: &[Setting]) -> Vec<(&str, &str)> {
    let value = |setting: &Setting| setting.masked()["value"] == MASK;
    settings
        .iter()
        .map(|setting| match &setting.value {
            Held::Plain(text) => (setting.place.key.as_str(), text.as_str()),
            Held::Sealed(sealed) => {
                assert!(value(setting));
                (setting.place.key.as_str(), sealed.text.as_str())
            }
        })
        .collect()
}

#[test]
fn a_setting_has_the_shape_of_the_wire_and_hides_its_secret() {
    let mut bench = bench();
    let secret = Held::Sealed(sealed("k1", "c2VhbGVk"));
    let description = Some("for the forge".to_owned());
    let asked = Set { description, ..at(LEAD, Scope::Agent(id(7)), "TOKEN", secret) };
    let (shown, new) = set(&mut bench, asked).unwrap();
    assert!(new);
    assert_eq!((&shown["scope"], &shown["scopeId"]), (&json!("agent"), &json!(id(7))));
    assert_eq!((&shown["value"], &shown["isSecret"]), (&json!(MASK), &json!(true)));
    assert_eq!((&shown["key"], &shown["envPath"]), (&json!("TOKEN"), &Value::Null));
    assert_eq!(shown["description"], "for the forge");
    let key = format!("setting/{}", shown["id"].as_str().unwrap());
    let kept = bench.body(&key).unwrap();
    assert_eq!((&kept["value"], &kept["key"]), (&json!(MASK), &json!("TOKEN")));
}

#[test]
fn setting_it_again_changes_all_of_it_and_leaves_one() {
    let mut bench = bench();
    let described = Set {
        description: Some("first".to_owned()),
        ..at(LEAD, Scope::Global, "A", Held::Sealed(sealed("k1", "x")))
    };
    let (before, _) = set(&mut bench, described).unwrap();
    let (after, new) = set(&mut bench, at(LEAD, Scope::Global, "A", plain("open"))).unwrap();
    assert!(!new);
    assert_eq!((&after["id"], &after["createdAt"]), (&before["id"], &before["createdAt"]));
    assert_eq!((&after["value"], &after["isSecret"]), (&json!("open"), &json!(false)));
    assert_eq!(after["description"], Value::Null);
    assert_eq!(settings(&mut bench, Command::List(Wanted::default())).len(), 1);
}

#[test]
fn the_narrowest_scope_wins() {
    let mut bench = bench();
    let (agent, repo) = (id(7), id(8));
    for (scope, key, value) in [
        (Scope::Global, "B", "all"),
        (Scope::Global, "A", "all"),
        (Scope::Agent(agent), "A", "agent"),
        (Scope::Agent(agent), "C", "agent"),
        (Scope::Repo(repo), "A", "repo"),
        (Scope::Agent(id(9)), "B", "other"),
    ] {
        set(&mut bench, at(LEAD, scope, key, plain(value))).unwrap();
    }
    let mut resolve = |agent: Option<Uuid>, repo: Option<Uuid>, key: Option<&str>| {
        let key = key.map(str::to_owned);
        let found = settings(&mut bench, Command::Resolve { agent, repo, key });
        values(&found).iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(resolve(None, None, None), ["A=all", "B=all"]);
    assert_eq!(resolve(Some(agent), None, None), ["A=agent", "B=all", "C=agent"]);
    assert_eq!(resolve(Some(agent), Some(repo), None), ["A=repo", "B=all", "C=agent"]);
    assert_eq!(resolve(None, Some(repo), Some("A")), ["A=repo"]);
    assert!(resolve(None, None, Some("C")).is_empty());
    // An id means what it is given for.
    assert_eq!(resolve(Some(repo), Some(agent), Some("A")), ["A=all"]);

    let mut list = |scope: Option<&str>, of: Option<Uuid>, key: Option<&str>| {
        let wanted = Wanted { scope: scope.map(str::to_owned), of, key: key.map(str::to_owned) };
        let found = settings(&mut bench, Command::List(wanted));
        values(&found).iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    assert_eq!(list(None, None, None), ["A=all", "A=agent", "A=repo", "B=all", "B=other", "C=agent"]);
    assert_eq!(list(Some("agent"), None, Some("A")), ["A=agent"]);
    assert_eq!(list(None, Some(repo), None), ["A=repo"]);
    assert_eq!(list(Some("global"), Some(repo), None).len(), 0);
}

#[test]
fn the_lead_writes_anywhere_and_an_agent_for_itself() {
    let mut bench = bench();
    let worker = Caller::agent(id(7));
    let scopes = [Scope::Global, Scope::Agent(id(7)), Scope::Agent(id(8)), Scope::Repo(id(7))];
    for by in [LEAD, Caller { agent: None, lead: false }, worker] {
        for scope in scopes {
            let own = by != worker || scope == Scope::Agent(id(7));
            let outcome = set(&mut bench, at(by, scope, "A", plain("x")));
            assert_eq!(outcome.map(|_| ()).map_err(|refusal| refusal.code), allowed(own), "{by:?} {scope:?}");
        }
    }
    for setting in settings(&mut bench, Command::List(Wanted::default())) {
        let own = setting.place.scope == Scope::Agent(id(7));
        let outcome = bench.run(Command::Delete { by: worker, id: setting.id });
        assert_eq!(outcome.map(|_| ()).map_err(|refusal| refusal.code), allowed(own), "{setting:?}");
        let unknown = bench.run(Command::Delete { by: LEAD, id: setting.id });
        assert_eq!(unknown.is_err(), own);
    }
    let gone = bench.run(Command::Delete { by: worker, id: id(99) }).unwrap_err();
    assert_eq!(gone.code, Code::NotFound);
}

fn allowed(own: bool) -> Result<(), Code> {
    if own { Ok(()) } else { Err(Code::Forbidden) }
}

#[test]
fn arguments_are_checked_and_values_never_repeated() {
    let mut bench = bench();
    let hush = "hush".repeat(VALUE);
    for (key, value, code) in [
        ("", plain("hush"), Code::InvalidArgument),
        ("api_key", plain("hush"), Code::InvalidArgument),
        ("SECRETS_ENCRYPTION_KEY", Held::Sealed(sealed("k", "hush")), Code::InvalidArgument),
        (&"x".repeat(256), plain("hush"), Code::TooLarge),
        ("A", plain(&hush), Code::TooLarge),
        ("A", Held::Sealed(sealed("k", &hush)), Code::TooLarge),
    ] {
        let refused = set(&mut bench, at(LEAD, Scope::Global, key, value)).unwrap_err();
        assert_eq!(refused.code, code, "{}", refused.message);
        assert!(!refused.message.contains("hush"), "{}", refused.message);
    }
    set(&mut bench, at(LEAD, Scope::Global, &"é".repeat(255), plain(""))).unwrap();
}

#[test]
fn what_a_swarm_keeps_is_bounded() {
    let mut bench = bench();
    let long = "x".repeat(VALUE);
    let mut kept = 0;
    let full = loop {
        match set(&mut bench, at(LEAD, Scope::Global, &format!("K{kept}"), plain(&long))) {
            Ok(_) => kept += 1,
            Err(refusal) => break refusal,
        }
    };
    assert_eq!((full.code, kept), (Code::TooLarge, 15));
    // What takes less than what it replaces has room.
    set(&mut bench, at(LEAD, Scope::Global, "K0", plain("short"))).unwrap();
    set(&mut bench, at(LEAD, Scope::Global, "K15", plain(&long))).unwrap();

    let mut bench = self::bench();
    for number in 0..1000 {
        set(&mut bench, at(LEAD, Scope::Global, &format!("K{number}"), plain(""))).unwrap();
    }
    let full = set(&mut bench, at(LEAD, Scope::Global, "one more", plain(""))).unwrap_err();
    assert_eq!(full.code, Code::QueueFull);
    set(&mut bench, at(LEAD, Scope::Global, "K7", plain("again"))).unwrap();
}

#[test]
fn only_what_has_not_changed_is_exchanged() {
    let mut bench = bench();
    let mut place = |key: &str, value: Held| -> Uuid {
        let (shown, _) = set(&mut bench, at(LEAD, Scope::Global, key, value)).unwrap();
        shown["id"].as_str().unwrap().parse().unwrap()
    };
    let old = |text: &str| sealed("old", text);
    let (a, b) = (place("A", Held::Sealed(old("a"))), place("B", Held::Sealed(old("b"))));
    let plain = place("C", plain("c"));
    let exchange = |id: Uuid, text: &str| Exchange { id, before: old(text), after: sealed("new", text) };
    let exchanges = vec![exchange(a, "a"), exchange(b, "before"), exchange(plain, "c"), exchange(id(9), "d")];
    assert_eq!(bench.run(Command::Reseal(exchanges)).unwrap(), Reply::Resealed(1));
    let held: Vec<Held> =
        settings(&mut bench, Command::List(Wanted::default())).into_iter().map(|s| s.value).collect();
    assert_eq!(held[0], Held::Sealed(sealed("new", "a")));
    assert_eq!(held[1], Held::Sealed(old("b")));
    assert_eq!(held[2], Held::Plain("c".to_owned()));
}

fn repo(name: &str) -> RepoSpec {
    let url = Some(format!("https://example.org/{name}.git"));
    RepoSpec { url, name: Some(name.to_owned()), ..RepoSpec::default() }
}

fn add(bench: &mut Bench<Settings>, repo: RepoSpec) -> Result<Value, Refusal> {
    match bench.run(Command::AddRepo { by: LEAD, repo })? {
        Reply::Repo(repo) => Ok(repo),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_repository_is_kept_as_it_was_listed_until_it_is_removed() {
    let mut bench = bench();
    let web = add(&mut bench, repo("web")).unwrap();
    let web: Uuid = web["id"].as_str().unwrap().parse().unwrap();
    add(&mut bench, repo("api")).unwrap();
    set(&mut bench, at(LEAD, Scope::Repo(web), "MODEL", plain("opus"))).unwrap();
    let change = |by, repo| Command::ChangeRepo { by, id: web, repo };
    let branch = RepoSpec { default_branch: Some("trunk".to_owned()), ..RepoSpec::default() };
    let worker = Caller::agent(id(2));
    assert_eq!(bench.run(change(worker, branch.clone())).unwrap_err().code, Code::Forbidden);
    bench.run(change(LEAD, branch)).unwrap();
    let taken = RepoSpec { name: Some("api".to_owned()), ..RepoSpec::default() };
    assert_eq!(bench.run(change(LEAD, taken)).unwrap_err().code, Code::AlreadyExists);
    bench.restart();
    let Reply::Repos(repos) = bench.run(Command::Repos).unwrap() else { panic!("no list") };
    let told: Vec<_> = repos.iter().map(|repo| (&repo["name"], &repo["defaultBranch"])).collect();
    assert_eq!(told, [(&json!("api"), &json!("main")), (&json!("web"), &json!("trunk"))]);
    bench.run(Command::RemoveRepo { by: LEAD, id: web }).unwrap();
    assert_eq!(bench.restored(), bench.entity);
    assert_eq!(bench.run(Command::RemoveRepo { by: LEAD, id: web }).unwrap_err().code, Code::NotFound);
    add(&mut bench, repo("web")).unwrap();
}

#[test]
fn an_address_with_credentials_is_no_repositorys() {
    let mut bench = bench();
    for (url, wanted) in [
        ("https://token@example.org/a.git", Err(Code::InvalidArgument)),
        ("https://x:secret@example.org/a.git", Err(Code::InvalidArgument)),
        ("ssh://git:secret@example.org/a.git", Err(Code::InvalidArgument)),
        ("  ", Err(Code::InvalidArgument)),
        ("https://example.org/a@b.git", Ok(())),
        ("ssh://git@example.org/c.git", Ok(())),
        ("git@example.org:acme/d.git", Ok(())),
    ] {
        let name = Some(url.replace('/', "-"));
        let added = add(&mut bench, RepoSpec { url: Some(url.to_owned()), name, ..RepoSpec::default() });
        assert_eq!(added.map(|_| ()).map_err(|refusal| refusal.code), wanted, "{url}");
    }
}

proptest! {
    #[test]
    fn every_place_has_one_setting_whatever_happens(
        steps in prop::collection::vec((0..5_u8, 0..3_u128, 0..3_u8, any::<bool>()), 1..60)
    ) {
        let mut bench = bench();
        for (what, number, key, secret) in steps {
            let scope = match number {
                0 => Scope::Global,
                1 => Scope::Agent(id(7)),
                _ => Scope::Repo(id(7)),
            };
            let value = if secret { Held::Sealed(sealed("k", &key.to_string())) } else { plain("x") };
            let known = settings(&mut bench, Command::List(Wanted::default()));
            let some = known.get(usize::from(key)).map_or(id(99), |setting| setting.id);
            let command = match what {
                0 | 1 => Command::Set(Box::new(at(LEAD, scope, &format!("K{key}"), value))),
                2 => Command::Delete { by: LEAD, id: some },
                3 => Command::Reseal(vec![Exchange {
                    id: some,
                    before: sealed("k", &key.to_string()),
                    after: sealed("l", &key.to_string()),
                }]),
                _ => Command::Resolve { agent: Some(id(7)), repo: None, key: None },
            };
            let _ = bench.run(command);
            prop_assert_eq!(&bench.restored(), &bench.entity);
        }
    }
}
