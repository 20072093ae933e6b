//! By what senders are believed, as their vendors sign.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::*;

fn signers() -> impl Iterator<Item = Provider> {
    Provider::ALL.into_iter().filter(|provider| *provider != Provider::Test)
}

#[test]
fn what_is_signed_verifies_and_nothing_else_does() {
    let body = br#"{"a":1}"#;
    for provider in signers() {
        let sent = Sent { headers: signed(provider, body), body: body.to_vec(), at: NOW };
        assert!(sent.is_good(provider, &secret(provider)), "{provider:?}");
        assert!(
            !sent.is_good(provider, &secret(provider).replace(['h', '0'], "1")),
            "{provider:?}: other secret"
        );
        assert!(!Sent::new(&[], *body).is_good(provider, &secret(provider)), "{provider:?}: no headers");
        if provider != Provider::Gitlab {
            let tampered = Sent { headers: sent.headers.clone(), body: br#"{"a":2}"#.to_vec(), at: NOW };
            assert!(!tampered.is_good(provider, &secret(provider)), "{provider:?}: other body");
        }
        for at in 0..sent.headers[0].1.len() {
            let mut headers = sent.headers.clone();
            let letter = headers[0].1.remove(at);
            headers[0].1.insert(at, if letter == '0' { '1' } else { '0' });
            let off = Sent { headers: headers.clone(), body: body.to_vec(), at: NOW };
            assert!(!off.is_good(provider, &secret(provider)), "{provider:?}: letter {at}");
            headers[0].1.remove(at);
            let short = Sent { headers, body: body.to_vec(), at: NOW };
            assert!(!short.is_good(provider, &secret(provider)), "{provider:?}: without letter {at}");
        }
    }
}

#[test]
fn a_recording_is_refused_where_the_time_is_signed() {
    for provider in [Provider::Agentmail, Provider::Slack, Provider::Discord] {
        for (at, good) in [(NOW + 300, true), (NOW + 301, false), (NOW - 300, true), (NOW - 301, false)] {
            let sent = Sent { headers: signed(provider, b"{}"), body: b"{}".to_vec(), at };
            assert_eq!(sent.is_good(provider, &secret(provider)), good, "{provider:?} {at}");
        }
    }
}

/// Linear repeats what it sent for hours, and names it in a header that anybody can write.
#[test]
fn a_recording_of_linear_is_a_repeat_and_refused_after_a_day() {
    let sent = |body: Value, id: &str, at: u64| {
        let body = body.to_string().into_bytes();
        let mut headers = signed(Provider::Linear, &body);
        headers.push(("linear-delivery", id.to_owned()));
        Sent { headers, body, at }
    };
    let event = |created: &str, stamp: u64| json!({"type": "Issue", "organizationId": "o", "createdAt": created, "webhookTimestamp": stamp * 1000});
    const DAY: u64 = 86_400;
    for (at, good) in [(NOW, true), (NOW + DAY, true), (NOW + DAY + 1, false), (NOW - DAY - 1, false)] {
        assert_eq!(sent(event("a", NOW), "l", at).is_good(Provider::Linear, SECRET), good, "{at}");
    }
    assert!(
        sent(json!({"type": "Issue"}), "l", NOW).is_good(Provider::Linear, SECRET),
        "not all are stamped"
    );
    let id = |sent: &Sent| sent.event(Provider::Linear).1;
    let first = id(&sent(event("a", NOW), "l", NOW));
    assert_eq!(id(&sent(event("a", NOW), "forged", NOW)), first);
    assert_eq!(id(&sent(event("a", NOW + 60), "l", NOW + 60)), first, "stamped anew");
    assert_ne!(id(&sent(event("b", NOW), "l", NOW)), first);
}

#[test]
fn mintlify_signs_under_either_of_its_names() {
    let digest = hex(&mac(SECRET.as_bytes(), &[b"{}"]));
    for name in ["x-mintlify-signature", "mintlify-signature"] {
        assert!(Sent::new(&[(name, &digest)], "{}").is_good(Provider::Mintlify, SECRET), "{name}");
        assert!(!Sent::new(&[(name, &digest)], "{}").is_good(Provider::Mintlify, "other"), "{name}");
        assert!(!Sent::new(&[(name, &digest)], "[]").is_good(Provider::Mintlify, SECRET), "{name}");
    }
}

/// From Slack's page on verifying requests.
#[test]
fn the_published_example_of_slack_verifies() {
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
        &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
        &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN\
        &trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    let headers = [
        ("x-slack-signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"),
        ("x-slack-request-timestamp", "1531420618"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    let sent = Sent { at: 1_531_420_618, ..Sent::new(&headers, body) };
    assert!(sent.is_good(Provider::Slack, "8f742231b10e8888abcd99yyyzzz85a5"));
    let (event, id, context) = sent.event(Provider::Slack);
    assert_eq!((event.as_str(), id.split('.').next()), ("slash_command", Some("398738663015")));
    assert_eq!((&context["action"], &context["sender"]), (&json!("/webhook-collect"), &json!("U2CERLKJA")));
}

/// From the libraries of the Standard Webhooks, by which GitLab signs.
#[test]
fn the_published_example_of_the_standard_webhooks_verifies() {
    let headers = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ];
    let sent = Sent { at: 1_614_265_330, ..Sent::new(&headers, r#"{"test": 2432232314}"#) };
    let token = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    assert!(sent.is_good(Provider::Gitlab, token));
    assert!(
        !Sent { at: 1_614_265_330 + 301, ..Sent::new(&headers, r#"{"test": 2432232314}"#) }
            .is_good(Provider::Gitlab, token)
    );
    // Whoever signs is not believed for a token that is only shown, nor by an empty key.
    assert!(!Sent::new(&[("x-gitlab-token", token)], "{}").is_good(Provider::Gitlab, token));
    let by_nothing = format!("v1,{}", STANDARD.encode(mac(b"", &[b"..{}"])));
    assert!(!Sent::new(&[("webhook-signature", &by_nothing)], "{}").is_good(Provider::Gitlab, "whsec_"));
}

#[test]
fn a_sender_unknown_to_skein_may_sign_by_the_standard() {
    let body = r#"{"type":"build.done","repo":"acme/api"}"#;
    let key = STANDARD.encode("hush");
    let signed = |id: &str, body: &str| {
        format!("v1,{}", STANDARD.encode(mac(b"hush", &[id.as_bytes(), b".1614265330.", body.as_bytes()])))
    };
    let (signature, secret) = (signed("msg_1", body), format!("whsec_{key}"));
    let by = |id: &'static str, event: &'static str| {
        [
            ("webhook-id", id),
            ("webhook-timestamp", "1614265330"),
            ("webhook-signature", signature.as_str()),
            ("x-event", event),
        ]
    };
    let (mine, others) = (by("msg_1", "forged"), by("msg_2", "forged"));
    let sent = Sent { at: 1_614_265_330, ..Sent::new(&mine, body) };
    assert!(sent.is_good(Provider::Generic, &secret));
    let (event, id, context) = sent.event(Provider::Generic);
    assert_eq!((event.as_str(), id.as_str(), &context["repo"]), ("build.done", "msg_1", &json!("acme/api")));
    // Neither under another id, nor later, nor by the plain signature, which says nothing of either.
    assert!(!Sent { at: 1_614_265_330, ..Sent::new(&others, body) }.is_good(Provider::Generic, &secret));
    assert!(!Sent { at: 1_614_265_330 + 301, ..Sent::new(&mine, body) }.is_good(Provider::Generic, &secret));
    let plain = format!("sha256={}", hex(&mac(secret.as_bytes(), &[body.as_bytes()])));
    assert!(!Sent::new(&[("x-signature-256", &plain)], body).is_good(Provider::Generic, &secret));
    // What is not named in the body has no name that is signed.
    let signature = signed("msg_3", "{}");
    let unnamed = [
        ("webhook-id", "msg_3"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", signature.as_str()),
    ];
    assert_eq!(Sent::new(&unnamed, "{}").event(Provider::Generic).0, "webhook");
}

#[test]
fn domains_are_those_of_addresses_whatever_stands_around_them() {
    let wanted = ["Example.org".to_owned(), " agentmail.to".to_owned()];
    for (address, good) in [
        ("ada@example.org", true),
        ("Ada L. <ada@EXAMPLE.ORG>", true),
        ("\"x@evil.net\" <ada@example.org>", true),
        ("dev@agentmail.to", true),
        ("\"ada@example.org\" <x@evil.net>", false),
        ("ada@example.org.evil.net", false),
        ("ada@sub.example.org", false),
        ("example.org", false),
        ("", false),
    ] {
        assert_eq!(is_at(address, &wanted), good, "{address}");
        assert!(is_at(address, &[]));
    }
}

#[test]
fn the_owner_of_a_secret_is_proven_to_x() {
    let proof = sender(Provider::Twitter).prove("token", SECRET.as_bytes()).unwrap();
    let digest = STANDARD.encode(mac(SECRET.as_bytes(), &[b"token"]));
    assert_eq!(proof, json!({"response_token": format!("sha256={digest}")}));
    assert!(
        signers().filter(|other| *other != Provider::Twitter).all(|p| sender(p).prove("t", b"s").is_none())
    );
}
