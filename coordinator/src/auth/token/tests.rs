use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;

const NOW: Timestamp = Timestamp(1_790_000_000_000);
const ROTATE: Rotation = Rotation::Rotate { are_shared: false };

fn claims() -> Claims {
    Claims {
        swarm: Name::parse("default").unwrap(),
        agent: Uuid::from_u128(7),
        agent_name: Name::parse("builder").unwrap(),
        role: Role::Worker,
        view: Some(View::parse("full").unwrap()),
        instance: None,
        lifetime: Duration::from_secs(900),
    }
}

#[test]
fn a_token_says_who_holds_it() {
    let keys = Keys::ephemeral().unwrap();
    let issued = keys.issue(claims(), NOW).unwrap();
    let who = keys.verify(issued.text(), NOW).unwrap();
    assert_eq!((who.agent, who.role), (Uuid::from_u128(7), Role::Worker));
    assert_eq!(who.instance.as_str(), issued.id.to_string());
    assert!(!who.managed);

    let instance = InstanceId("builder-00000001".to_owned());
    let issued = keys.issue(Claims { instance: Some(instance.clone()), ..claims() }, NOW).unwrap();
    let who = keys.verify(issued.text(), NOW).unwrap();
    assert_eq!(who.instance, instance);
    assert!(who.managed);
}

#[test]
fn refusals_never_show_the_token() {
    let keys = Keys::ephemeral().unwrap();
    let other = Keys::ephemeral().unwrap();
    let issued = keys.issue(claims(), NOW).unwrap();
    let text = issued.text();
    let late = NOW + Duration::from_secs(10_000);
    let early = NOW - Duration::from_secs(1000);
    let mut bent = text.to_owned();
    bent.truncate(text.len() - 4);
    let refusals = [
        keys.verify(text, late).unwrap_err(),
        keys.verify(text, early).unwrap_err(),
        other.verify(text, NOW).unwrap_err(),
        keys.verify(&bent, NOW).unwrap_err(),
        keys.verify("shared-secret", NOW).unwrap_err(),
    ];
    for refusal in refusals {
        assert_eq!(refusal.code, Code::Unauthenticated);
        assert!(!refusal.message.contains(&text[..20]) && !refusal.message.contains("shared-secret"));
    }
    assert!(!format!("{issued:?} {keys:?}").contains(text));
}

#[test]
fn a_token_that_was_used_ends_all_the_same() {
    let keys = Keys::ephemeral().unwrap();
    let issued = keys.issue(claims(), NOW).unwrap();
    keys.verify(issued.text(), NOW).unwrap();
    let late = NOW + Duration::from_secs(10_000);
    let ended = keys.verify(issued.text(), late).unwrap_err();
    assert_eq!(ended.code, Code::Unauthenticated);
    // Its holder goes on as the same agent.
    assert!(ended.message.contains(&format!("--agent {}", Uuid::from_u128(7))), "{ended}");
    keys.verify(issued.text(), NOW).unwrap();
    // Other keys know nothing of it.
    let other = Keys::ephemeral().unwrap();
    assert_eq!(other.verify(issued.text(), NOW).unwrap_err().code, Code::Unauthenticated);
}

#[test]
fn keys_are_made_once_and_kept_private() {
    let dir = tempfile::tempdir().unwrap();
    let issued = Keys::load_or_create(dir.path()).unwrap().issue(claims(), NOW).unwrap();
    assert!(Keys::load_or_create(dir.path()).unwrap().verify(issued.text(), NOW).is_ok());

    let path = KeyFile::path(dir.path());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(Keys::load_or_create(dir.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
}

/// A token with a header and claims of the test's own, signed by the keys.
fn forged(keys: &Keys, header: &Header, change: impl Fn(&mut serde_json::Value)) -> String {
    let good = keys.issue(claims(), NOW).unwrap();
    let body = URL_SAFE_NO_PAD.decode(good.text().split('.').nth(1).unwrap()).unwrap();
    let mut claims: serde_json::Value = serde_json::from_slice(&body).unwrap();
    change(&mut claims);
    jsonwebtoken::encode(header, &claims, &keys.inner.load().signing).unwrap()
}

#[test]
fn bad_tokens_of_every_kind_are_refused() {
    let documents = signing::ephemeral().unwrap();
    let keys = Keys::with(&documents).unwrap();
    let inner = keys.inner.load();
    let header = || Header { kid: Some(inner.current.clone()), ..Header::new(Algorithm::EdDSA) };
    keys.verify(&forged(&keys, &header(), |_| ()), NOW).unwrap();
    let claims = |change: fn(&mut serde_json::Value)| forged(&keys, &header(), change);
    let good = claims(|_| ());
    let (rest, signature) = good.rsplit_once('.').unwrap();
    let body = rest.split_once('.').unwrap().1;
    let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let kid = &inner.current;
    let none = part(serde_json::json!({ "alg": "none", "kid": kid }));
    // Whoever knows the public key signs with it as if it were a secret.
    let hs256 = Header { kid: Some(kid.clone()), ..Header::new(Algorithm::HS256) };
    let public = identified(&documents[0]).unwrap().1;
    let confused = jsonwebtoken::encode(
        &hs256,
        &serde_json::from_slice::<serde_json::Value>(&URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap(),
        &EncodingKey::from_secret(&public),
    );
    for bad in [
        String::new(),
        "x".to_owned(),
        "..".to_owned(),
        format!("{none}.{body}."),
        format!("{none}.{body}.{signature}"),
        confused.unwrap(),
        format!("{}.{body}.{signature}", part(serde_json::json!({ "alg": "EdDSA", "kid": "another" }))),
        forged(&keys, &Header::new(Algorithm::EdDSA), |_| ()),
        format!("{rest}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
        claims(|claims| claims["aud"] = serde_json::json!("another")),
        claims(|claims| claims["aud"] = serde_json::Value::Null),
        claims(|claims| claims["exp"] = serde_json::Value::Null),
        claims(|claims| claims["exp"] = serde_json::json!(1)),
        claims(|claims| claims["exp"] = serde_json::json!("tomorrow")),
        claims(|claims| claims["role"] = serde_json::json!("god")),
        claims(|claims| claims["swarm"] = serde_json::json!("../default")),
        claims(|claims| claims["scope"] = serde_json::json!("swarm:all")),
        claims(|claims| claims["sub"] = serde_json::json!("somebody")),
    ] {
        assert_eq!(keys.verify(&bad, NOW).unwrap_err().code, Code::Unauthenticated, "{bad}");
    }
}

#[test]
fn clocks_may_differ_by_half_a_minute_and_no_more() {
    let keys = Keys::ephemeral().unwrap();
    let issued = keys.issue(claims(), NOW).unwrap();
    let ends = NOW + Duration::from_secs(900);
    keys.verify(issued.text(), ends + LEEWAY).unwrap();
    keys.verify(issued.text(), NOW - LEEWAY).unwrap();
    assert!(keys.verify(issued.text(), ends + LEEWAY + Duration::from_millis(1)).is_err());
    assert!(keys.verify(issued.text(), NOW - LEEWAY - Duration::from_millis(1)).is_err());
}

#[test]
fn a_token_keeps_the_scopes_that_it_was_left_with() {
    let keys = Keys::ephemeral().unwrap();
    let rights = "swarm:read swarm:admin".parse().unwrap();
    let issued = keys.issue_as(claims(), Origin { rights, ..Origin::default() }, NOW).unwrap();
    let who = keys.verify(issued.text(), NOW).unwrap();
    assert_eq!(who.rights.to_string(), "swarm:read", "a scope gives nothing that the role does not");
    let refusal = crate::auth::policy::require(&who, crate::auth::Right::Work).unwrap_err();
    assert_eq!((refusal.code, &refusal.detail["scope"]), (Code::Forbidden, &serde_json::json!("swarm:work")));
}

#[test]
fn old_tokens_hold_under_a_new_key_until_theirs_is_taken_out() {
    let dir = tempfile::tempdir().unwrap();
    let keys = Keys::load_or_create(dir.path()).unwrap();
    let elsewhere = Keys::load_or_create(dir.path()).unwrap();
    let old = keys.issue(claims(), NOW).unwrap();
    let change = |step| Keys::change(dir.path(), step).unwrap();

    // Everybody knows the next key before the first signs with it.
    let shared = Rotation::Rotate { are_shared: true };
    let refused = Keys::change(dir.path(), shared).unwrap_err().to_string();
    assert!(refused.contains("--prepare"), "{refused}");
    let first = change(Rotation::Prepare);
    assert_eq!((first.len(), change(Rotation::Prepare)), (2, first.clone()));
    assert!(elsewhere.reload(dir.path()).unwrap() && !elsewhere.reload(dir.path()).unwrap());
    let turned = change(shared);
    assert_eq!(turned, [first[1].clone(), first[0].clone()]);
    assert!(keys.reload(dir.path()).unwrap());
    let new = keys.issue(claims(), NOW).unwrap();
    for keys in [&keys, &elsewhere] {
        keys.verify(old.text(), NOW).unwrap();
        keys.verify(new.text(), NOW).unwrap();
    }
    // An old token ends when it says so.
    assert!(keys.verify(old.text(), NOW + Duration::from_secs(1000)).is_err());

    assert_eq!(change(Rotation::Retire), turned[..1]);
    keys.reload(dir.path()).unwrap();
    assert!(keys.verify(old.text(), NOW).is_err(), "also one that was verified before");
    keys.verify(new.text(), NOW).unwrap();
    assert_eq!(fs::metadata(KeyFile::path(dir.path())).unwrap().permissions().mode() & 0o777, 0o600);

    // A file that cannot be read changes nothing.
    fs::write(KeyFile::path(dir.path()), "{}").unwrap();
    assert!(keys.reload(dir.path()).is_err());
    keys.verify(new.text(), NOW).unwrap();
}

#[test]
fn keys_do_not_pile_up() {
    let dir = tempfile::tempdir().unwrap();
    Keys::load_or_create(dir.path()).unwrap();
    let turned = (0..20).take_while(|_| Keys::change(dir.path(), ROTATE).is_ok()).count();
    assert!((5..10).contains(&turned), "{turned}");
    Keys::change(dir.path(), Rotation::Retire).unwrap();
    Keys::change(dir.path(), ROTATE).unwrap();
}
