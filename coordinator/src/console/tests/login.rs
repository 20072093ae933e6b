//! Who is let in, for how long, and what forms of others come to.

use skein_shared::Code;

use super::*;
use crate::auth::token::Origin;
use crate::entity::tests::poison;

#[tokio::test]
async fn nothing_but_the_login_is_shown_without_one() {
    let bed = Bed::new();
    bed.task("a secret task", Vec::new()).await;
    let bad = ["", "skein_session=", "skein_session=nonsense", "skein_session=a.b.c; other=1"];
    for cookie in bad {
        for page in pages() {
            let path = format!("/console/default{page}");
            let answer = bed.get(&path, cookie).await;
            assert_eq!(answer.status, 303, "{path}");
            assert!(answer.header("location").starts_with("/login?next="), "{path}");
            assert!(answer.text.is_empty());
        }
        assert_eq!(bed.get("/", cookie).await.header("location"), "/login");
    }
    let form = Request::post("/console/default/do/cancel-task").body(Body::from("task=x")).unwrap();
    assert_eq!(bed.send(form).await.header("location"), "/login");
    for file in ["console.css", "console.js", "icon.svg"] {
        assert_eq!(bed.get(&format!("/assets/{file}"), "").await.status, 200, "{file}");
    }
    assert_eq!(bed.get("/assets/../Cargo.toml", "").await.status, 404);
}

#[tokio::test]
async fn a_token_is_exchanged_for_a_session_that_only_the_browser_has() {
    let bed = Bed::new();
    let entered = bed.login(&bed.token(Role::Operator, None)).await;
    let set = entered.header("set-cookie");
    for part in ["skein_session=", "HttpOnly", "SameSite=Strict", "Path=/", "Max-Age="] {
        assert!(set.contains(part), "{set}");
    }
    assert!(!set.contains("Secure"), "over plain HTTP it would never be sent back");
    let runs = bed.token(Role::Worker, Some("worker-00000001"));
    for (token, said) in [
        ("nonsense", "not a JWT"),
        (runs.as_str(), "the token of a run"),
        (bed.token(Role::Runner, None).as_str(), "the role runner may not do this"),
    ] {
        let refused = bed.login(token).await;
        assert_eq!((refused.status, refused.cookies().as_str()), (403, ""));
        assert!(refused.text.contains(said) && !refused.text.contains(token), "{}", refused.text);
    }
    let elsewhere = Request::post("/login").header("sec-fetch-site", "cross-site");
    let token = bed.token(Role::Operator, None);
    let answer = bed.send(elsewhere.body(Body::from(format!("token={token}"))).unwrap()).await;
    assert_eq!((answer.status, answer.cookies().as_str()), (403, ""));
}

/// An agent's service may be below the console's own host, and could set cookies for all of its domain.
#[tokio::test]
async fn over_https_no_other_host_sets_a_session_or_has_the_console_say_something() {
    let bed = Bed::at("https://skein.example.com", Keys::ephemeral().unwrap());
    let entered = bed.login(&bed.token(Role::Operator, None)).await;
    let set = entered.header("set-cookie");
    assert!(set.starts_with("__Host-skein_session=") && set.ends_with("; Secure"), "{set}");
    assert!(
        set.contains("; Path=/;") && !set.contains("Domain"),
        "browsers take it on these terms alone: {set}"
    );
    let session = entered.cookies();
    assert_eq!(bed.get("/console/default/board", &session).await.status, 200);
    let of_another = session.strip_prefix("__Host-").unwrap();
    assert_eq!(bed.get("/console/default/board", of_another).await.status, 303);
    // A refusal: `-pay`.
    for (cookie, is_said) in [("__Host-skein_said", true), ("skein_said", false)] {
        let page = bed.get("/console/default/board", &format!("{session}; {cookie}=LXBheQ")).await;
        assert_eq!(page.text.contains("role=\"alert\">pay<"), is_said, "{cookie}: {}", page.text);
    }
}

#[tokio::test]
async fn whoever_follows_many_pages_keeps_no_operator_from_following_one() {
    let bed = Bed::new();
    let (worker, operator) = (bed.session(Role::Worker).await, bed.session(Role::Operator).await);
    let follow = async |cookie: &str| {
        let page = Request::get("/console/default/tasks").header("accept", "text/event-stream");
        let page = page.header("cookie", cookie).body(Body::empty()).unwrap();
        bed.router.clone().oneshot(page).await.unwrap()
    };
    let mut followed = Vec::new();
    let refused = loop {
        assert!(followed.len() < 1000, "there is a number of them");
        let answer = follow(&worker).await;
        if answer.status() != 200 {
            break answer.status();
        }
        followed.push(answer);
    };
    assert_eq!(refused, 503);
    assert_eq!(follow(&operator).await.status(), 200);
}

#[tokio::test]
async fn whoever_asks_for_pages_without_end_is_held_up_and_operators_are_not() {
    let bed = Bed::new();
    let (worker, operator) = (bed.session(Role::Worker).await, bed.session(Role::Operator).await);
    let mut pages = 0;
    let refused = loop {
        assert!(pages < 1000, "there is a number of them");
        let answer = bed.get("/", &worker).await;
        if answer.status != 303 {
            break answer;
        }
        pages += 1;
    };
    assert!(pages > 50, "a person with all their tabs has asked for as many: {pages}");
    assert_eq!((refused.status, refused.header("retry-after")), (429, "1"));
    assert!(refused.text.contains("too many pages at a time"), "{}", refused.text);
    for _ in 0..2 * pages {
        assert_eq!(bed.get("/", &operator).await.status, 303);
    }
    // They may go all the same.
    let form = format!("ticket={}", bed.ticket(&worker).await);
    let leave = Request::post("/logout").header("cookie", &worker).body(Body::from(form)).unwrap();
    assert_eq!(bed.send(leave).await.header("location"), "/login");
}

#[tokio::test]
async fn after_the_login_nobody_is_led_elsewhere() {
    let bed = Bed::new();
    let token = bed.token(Role::Operator, None);
    for next in
        ["https://evil.example", "//evil.example", "/\\evil.example", "/console/\r\nx: y", "javascript:1"]
    {
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("token", &token).append_pair("next", next);
        let entered = bed.send(Request::post("/login").body(Body::from(form.finish())).unwrap()).await;
        assert_eq!((entered.status, entered.header("location")), (303, "/"), "{next}");
    }
}

#[tokio::test]
async fn a_link_that_ends_soon_begins_a_session_of_a_working_day() {
    let bed = Bed::new();
    let now = bed.service.clock().wall();
    let claims = Claims { lifetime: Duration::from_secs(300), ..bed.claims(Role::Operator) };
    let link = Origin { renewable: Some(now + SESSION), ..Origin::default() };
    let link = bed.keys.issue_as(claims, link, now).unwrap();
    let session = bed.login(link.text()).await.cookies();
    let session = session.strip_prefix("skein_session=").unwrap();
    assert!(bed.keys.verify(session, now + Duration::from_secs(7 * 3600)).is_ok());
    // Nobody's session outlasts what it was begun with, nor does its cookie.
    let entered = bed.login(&bed.token(Role::Operator, None)).await;
    let age = entered.header("set-cookie").split_once("Max-Age=").unwrap().1.parse::<u64>().unwrap();
    assert!(age <= 900, "{age}");
}

#[tokio::test]
async fn whoever_logs_out_ends_the_session_and_not_the_token() {
    let bed = Bed::new();
    let token = bed.token(Role::Operator, None);
    let session = bed.login(&token).await.cookies();
    let text = session.strip_prefix("skein_session=").unwrap();
    let form = Body::from(format!("ticket={}", bed.ticket(&session).await));
    let left = bed.send(Request::post("/logout").header("cookie", &session).body(form).unwrap()).await;
    assert_eq!((left.status, left.header("location")), (303, "/login"));
    assert_eq!(bed.access.visitor(text).await.unwrap_err().code, Code::Unauthenticated);
    bed.access.identify(&token).await.unwrap();
}

/// Their session goes on: without its cookie they would take it for ended.
#[tokio::test]
async fn who_cannot_be_logged_out_is_told_so() {
    let bed = Bed::new();
    let session = bed.session(Role::Observer).await;
    let form = format!("ticket={}", bed.ticket(&session).await);
    // A node of the same cluster that cannot hear from the swarm's owner what was revoked.
    let deaf = Bed::of(bed.keys.clone());
    poison(&deaf.node, EntityKey::of(Kind::Access, &name("default"))).await;
    let logout = |cookie: &str| {
        Request::post("/logout").header("cookie", cookie).body(Body::from(form.clone())).unwrap()
    };
    let left = deaf.send(logout(&session)).await;
    assert_eq!((left.status, left.header("set-cookie")), (503, ""), "{}", left.text);
    assert!(left.text.contains("nobody can say yet which tokens"), "{}", left.text);
    for ended in ["", "skein_session=nonsense"] {
        let left = deaf.send(logout(ended)).await;
        assert_eq!((left.status, left.header("location")), (303, "/login"), "{ended}");
    }
}

/// What the exchange of tokens says to this one.
async fn exchanged(bed: &Bed, token: &str, more: &[(&str, &str)]) -> (u16, String) {
    let form = url::form_urlencoded::Serializer::new(String::new())
        .append_pair("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange")
        .append_pair("subject_token_type", "urn:ietf:params:oauth:token-type:access_token")
        .append_pair("subject_token", token)
        .extend_pairs(more)
        .finish();
    let request = Request::post("/oauth/token")
        .header("host", "skein.test")
        .header("content-type", "application/x-www-form-urlencoded");
    let oauth = crate::oauth::router(bed.access.clone(), None);
    let response = oauth.oneshot(request.body(Body::from(form)).unwrap()).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

/// Whoever has come by the cookie may log its holder out, and no more.
#[tokio::test]
async fn a_session_that_is_given_back_ends_alone() {
    let bed = Bed::new();
    let token = bed.token(Role::Operator, None);
    let [session, other] = [bed.login(&token).await.cookies(), bed.login(&token).await.cookies()];
    let text = |session: &str| session.strip_prefix("skein_session=").unwrap().to_owned();
    bed.access.give_back(&text(&session)).await.unwrap();
    assert_eq!(bed.access.visitor(&text(&session)).await.unwrap_err().code, Code::Unauthenticated);
    bed.access.identify(&token).await.unwrap();
    bed.access.visitor(&text(&other)).await.unwrap();
}

/// What it could be exchanged for would outlast its eight hours and its logout.
#[tokio::test]
async fn a_session_opens_the_console_alone_and_makes_no_token() {
    let bed = Bed::new();
    let now = bed.service.clock().wall();
    let renewable = Origin { renewable: Some(now + 30 * SESSION), ..Origin::default() };
    let token = bed.keys.issue_as(bed.claims(Role::Lead), renewable, now).unwrap();
    let cookie = bed.login(token.text()).await.cookies();
    let session = cookie.strip_prefix("skein_session=").unwrap();
    for more in [Vec::new(), vec![("agent", "helper")]] {
        let (status, said) = exchanged(&bed, session, &more).await;
        assert_eq!(status, 400, "{said}");
        assert!(said.contains("invalid_grant") && said.contains("session of the console"), "{said}");
        let (status, said) = exchanged(&bed, token.text(), &more).await;
        assert_eq!(status, 200, "{said}");
    }
    assert_eq!(bed.access.identify(session).await.unwrap_err().code, Code::Unauthenticated);
    let again = bed.login(session).await;
    assert_eq!((again.status, again.cookies().as_str()), (403, ""));
    assert!(again.text.contains("session of the console"), "{}", again.text);
    assert_eq!(bed.get("/console/default/tasks", &cookie).await.status, 200);
    // Nor is a token a session, without a login that could have refused it.
    let token = format!("skein_session={}", token.text());
    assert_eq!(bed.get("/console/default/tasks", &token).await.status, 303);
}

#[tokio::test]
async fn a_token_that_may_only_read_does_nothing() {
    let bed = Bed::new();
    let claims = Claims { view: Some("full/readonly".parse().unwrap()), ..bed.claims(Role::Operator) };
    let token = bed.keys.issue(claims, bed.service.clock().wall()).unwrap();
    let reader = bed.login(token.text()).await.cookies();
    bed.lock("file:///a").await;
    let shown = bed.get("/console/default/locks", &reader).await;
    assert!(shown.status == 200 && !shown.text.contains("/do/"), "{}", shown.text);
    let said = bed.act(&reader, "release-lock", &[("key", "file:///a")]).await;
    assert!(said.text.contains("may only read"), "{}", said.text);
    assert_eq!(bed.service.held_locks(&bed.service_principal()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_cookie_of_another_server_breaks_no_page() {
    let bed = Bed::new();
    let operator = bed.session(Role::Operator).await;
    for said in ["w6Q", "", "_", "Kw"] {
        let cookies = format!("{operator}; skein_said={said}");
        assert_eq!(bed.get("/console/default", &cookies).await.status, 200, "{said}");
    }
}

#[tokio::test]
async fn forms_of_other_sites_and_sessions_do_nothing() {
    let bed = Bed::new();
    let task = bed.task("stays", Vec::new()).await;
    let operator = bed.session(Role::Operator).await;
    let path = "/console/default/do/cancel-task";
    let form = |ticket: &str| Body::from(format!("task={task}&ticket={ticket}"));
    let others = bed.ticket(&bed.session(Role::Operator).await).await;
    for ticket in ["", "nonsense", others.as_str()] {
        let request = Request::post(path).header("cookie", &operator).body(form(ticket)).unwrap();
        assert_eq!(bed.send(request).await.status, 403);
    }
    for (header, value) in [
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
        ("origin", "https://evil.example"),
    ] {
        let request = Request::post(path).header("cookie", &operator).header("host", "127.0.0.1:7700");
        let own = bed.ticket(&operator).await;
        let answer = bed.send(request.header(header, value).body(form(&own)).unwrap()).await;
        assert!(answer.status == 403 && answer.text.contains("another site"), "{header}: {value}");
    }
    let shown = bed.get(&format!("/console/default/tasks/{task}"), &operator).await;
    assert!(shown.text.contains("do/cancel-task"), "it is over");
}

#[tokio::test]
async fn a_form_that_never_ends_or_is_too_long_is_refused() {
    let bed = Bed::new();
    let operator = bed.session(Role::Operator).await;
    tokio::time::pause();
    for path in ["/login", "/logout", "/console/default/do/cancel-task"] {
        let endless = futures::stream::pending::<Result<axum::body::Bytes, std::io::Error>>();
        let long = "x".repeat(64 * 1024 + 1);
        for (body, status, said) in
            [(Body::from_stream(endless), 408, "send it again"), (Body::from(long), 413, "send less")]
        {
            let request = Request::post(path).header("cookie", &operator).body(body).unwrap();
            let answered = tokio::time::timeout(Duration::from_secs(60), bed.send(request)).await;
            let answer = answered.expect(path);
            assert!(answer.status == status && answer.text.contains(said), "{path}: {}", answer.text);
        }
    }
}
