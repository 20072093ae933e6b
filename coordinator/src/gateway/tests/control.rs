//! What operators ask.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::entity::tests::lists::arriving;
use crate::gateway::control::LONGEST_PAGE;

const RECEIPT: &str = "0190d3a0-0000-7000-8000-000000000000";

impl Bed {
    fn operator(&self) -> String {
        self.token("operator", Role::Operator, None)
    }

    /// Sends an operator's request, a POST unless there is no body.
    async fn control(&self, path: &str, body: Option<Value>) -> (u16, Value) {
        match body {
            Some(body) => self.post(path, &self.operator(), body).await,
            None => self.get(path, &self.operator()).await,
        }
    }
}

#[tokio::test]
async fn operators_alone_get_in_and_by_the_header_alone() {
    let bed = Bed::new();
    bed.define("worker").await;
    let (worker, lead) = (bed.worker("worker"), bed.token("lead", Role::Lead, None));
    for path in ["/control/status", "/control/instances", "/locks/status", "/api/stats/agents/worker/runs"] {
        let without = Request::get(path).body(Body::empty()).unwrap();
        let (status, answer) = bed.send(without).await;
        assert!(status == 401 && answer["error"].is_string(), "{path}: {answer}");
        assert_eq!(bed.get(path, "nonsense").await.0, 401, "{path}");
        for other in [&worker, &lead] {
            assert_eq!(bed.get(path, other).await.0, 403, "{path}");
        }
        assert_eq!(bed.control(path, None).await.0, 200, "{path}");
        assert_eq!(bed.control(&format!("{path}?swarm=nowhere"), None).await.0, 404, "{path}");
    }
    for path in ["/control/pause", "/control/trigger/worker", "/control/agents/worker/kill"] {
        let body = json!({ "secret": bed.operator() }).to_string();
        let in_the_body = Request::post(path).body(Body::from(body)).unwrap();
        assert_eq!(bed.send(in_the_body).await.0, 401, "{path}");
        assert_eq!(bed.post(path, &worker, json!({})).await.0, 403, "{path}");
    }
}

#[tokio::test]
async fn an_operator_whose_issuer_is_away_is_told_to_come_back() {
    let address = "http://127.0.0.1:9";
    let trust = json!({ "issuer": address, "audience": "skein", "swarm": "default", "role": "operator" });
    let issuers = Issuers::new(vec![serde_json::from_value(trust).unwrap()]).unwrap();
    let bed = Bed::trusting(issuers, Gate::default());
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let (header, claims) = (part(json!({ "alg": "EdDSA", "kid": "one" })), part(json!({ "iss": address })));
    let request =
        Request::get("/control/status").header("authorization", format!("Bearer {header}.{claims}.c2ln"));
    let response = bed.router.clone().oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    assert_eq!(response.status().as_u16(), 503, "nobody can say that the token is bad");
    assert!(response.headers().contains_key("retry-after"), "{response:?}");
}

#[tokio::test]
async fn an_operator_who_may_only_read_looks_and_changes_nothing() {
    let bed = Bed::new();
    bed.define("worker").await;
    let readonly =
        Claims { view: Some("full/readonly".parse().unwrap()), ..bed.claims("eye", Role::Operator) };
    let readonly = bed.keys.issue(readonly, bed.clock.wall()).unwrap();
    assert_eq!(bed.get("/control/status", readonly.text()).await.0, 200);
    for path in ["/control/pause", "/control/trigger/worker", "/control/agents/worker/kill"] {
        let (status, answer) = bed.post(path, readonly.text(), json!({})).await;
        assert!(status == 403 && answer.to_string().contains("may only read"), "{path}: {answer}");
    }
}

#[tokio::test]
async fn what_an_operator_says_about_a_task_is_for_a_task_that_there_is() {
    let bed = Bed::new();
    let path = format!("/control/tasks/{}/message", Uuid::from_u128(1));
    let (status, answer) = bed.control(&path, Some(json!({ "message": "stop there" }))).await;
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("task"), "{answer}");
    assert_eq!(bed.control(&path, Some(json!({}))).await.0, 400);
    assert_eq!(bed.control("/control/tasks/x/message", Some(json!({ "message": "m" }))).await.0, 400);
}

#[tokio::test]
async fn agents_are_started_steered_and_ended() {
    let bed = Bed::new();
    bed.define("worker").await;
    let (status, started) = bed.control("/control/trigger/worker", Some(json!({ "prompt": "look" }))).await;
    assert_eq!((status, &started["success"]), (200, &json!(true)), "{started}");
    let instance = started["instanceId"].as_str().unwrap().to_owned();
    let (_, listed) = bed.control("/control/instances", None).await;
    let run = &listed["instances"][0];
    assert_eq!(
        (&run["id"], &run["agentName"], &run["status"]),
        (&json!(instance), &json!("worker"), &json!("queued"))
    );
    let (_, shown) = bed.control("/control/status", None).await;
    assert_eq!((&shown["queueSizes"]["worker"], &shown["running"]), (&json!(1), &json!(0)), "{shown}");
    assert_eq!(shown["instances"][0]["id"], json!(instance));

    let (status, killed) = bed.control(&format!("/control/kill/{instance}"), Some(json!({}))).await;
    assert_eq!((status, &killed["success"]), (200, &json!(true)));
    assert_eq!(
        bed.control(&format!("/control/kill/{instance}"), Some(json!({}))).await.0,
        404,
        "it has ended"
    );
    let (_, page) = bed.control("/api/stats/agents/worker/runs?limit=1", None).await;
    assert_eq!((&page["runs"][0]["instance"], &page["limit"]), (&json!(instance), &json!(1)), "{page}");
    let (_, next) = bed.control("/api/stats/agents/worker/runs?limit=1&page=2", None).await;
    assert_eq!(next["runs"], json!([]));

    for (order, paused, enabled) in
        [("pause", true, true), ("resume", false, true), ("disable", false, false), ("enable", false, true)]
    {
        let (status, done) = bed.control(&format!("/control/agents/worker/{order}"), Some(json!({}))).await;
        assert_eq!((status, &done["success"]), (200, &json!(true)), "{order}");
        let (_, shown) = bed.control("/control/status", None).await;
        let agent = &shown["agents"][0];
        assert_eq!((&agent["paused"], &agent["enabled"]), (&json!(paused), &json!(enabled)), "{order}");
    }
    for (path, paused) in [("/control/pause", true), ("/control/resume", false)] {
        assert_eq!(bed.control(path, Some(json!({}))).await.0, 200);
        assert_eq!(bed.control("/control/status", None).await.1["agents"][0]["paused"], json!(paused));
    }
    let scale = async |scale: Value| {
        let (status, _) = bed.control("/control/project/scale", Some(json!({ "scale": scale }))).await;
        let (key, asking) = (EntityKey::fleet(&name("default")), Asking::read());
        let shown = bed.node.entities.ask::<Fleet>(&key, asking, fleet::Command::List).await.unwrap();
        let fleet::Reply::Overview(shown) = shown else { panic!("no overview") };
        (status, shown.scales.get(&name("default")).map(|scale| scale.get()))
    };
    assert_eq!(scale(json!(3)).await, (200, Some(3)));
    for wrong in [json!(0), json!(-1), json!(1.5), json!("2"), Value::Null] {
        assert_eq!(scale(wrong.clone()).await, (400, Some(3)), "{wrong}");
    }
    let (status, killed) = bed.control("/control/agents/worker/kill", Some(json!({}))).await;
    assert_eq!((status, &killed["killed"]), (200, &json!(0)), "{killed}");
    assert_eq!(bed.control("/control/agents/worker/remove", Some(json!({}))).await.0, 200);
    assert_eq!(bed.control("/control/status", None).await.1["agents"], json!([]));
    assert_eq!(bed.control("/control/agents/worker/remove", Some(json!({}))).await.0, 404, "it is gone");
}

#[tokio::test]
async fn the_scale_of_an_agent_is_said_beside_its_definition_and_shown() {
    let bed = Bed::new();
    bed.define("worker").await;
    let said = async |scale: u32| {
        let (status, done) =
            bed.control("/control/agents/worker/scale", Some(json!({ "scale": scale }))).await;
        assert_eq!((status, &done["success"]), (200, &json!(true)), "{done}");
        let (_, shown) = bed.control("/control/status", None).await;
        (shown["agents"][0]["scale"].clone(), shown["agents"][0]["scaleOverride"].clone())
    };
    assert_eq!(said(3).await, (json!(3), json!(3)));
    assert_eq!(said(1).await, (json!(1), Value::Null), "its definition says so too");
}

#[tokio::test]
async fn who_lets_an_agent_of_a_swarm_that_is_paused_go_on_is_told_so_over_http() {
    let bed = Bed::new();
    bed.define("worker").await;
    let resumed =
        async || bed.control("/control/agents/worker/resume", Some(json!({}))).await.1["message"].clone();
    bed.control("/control/pause", Some(json!({}))).await;
    let held = resumed().await.to_string();
    assert!(held.contains("worker: resume; all agents of the swarm are paused"), "{held}");
    assert!(held.contains("POST /control/resume"), "{held}");
    bed.control("/control/resume", Some(json!({}))).await;
    assert_eq!(resumed().await, "worker: resume");
}

#[tokio::test]
async fn a_run_is_shown_by_its_id_and_its_log_as_far_as_there_is_one() {
    let bed = Bed::new();
    bed.define("worker").await;
    bed.define("other").await;
    let (_, started) = bed.control("/control/trigger/worker", Some(json!({}))).await;
    let instance = started["instanceId"].as_str().unwrap().to_owned();
    let (status, shown) = bed.control(&format!("/api/stats/agents/worker/runs/{instance}"), None).await;
    let run = &shown["run"];
    assert_eq!(
        (status, &run["instance"], &run["state"]),
        (200, &json!(instance), &json!("queued")),
        "{shown}"
    );
    for path in ["/api/logs/agents/worker".to_owned(), format!("/api/logs/agents/worker/{instance}")] {
        let (status, log) = bed.control(&path, None).await;
        assert_eq!((status, &log["instance"], &log["entries"]), (200, &json!(instance), &json!([])), "{log}");
        assert!(log["hasMore"] == true && log["state"].as_str().unwrap().contains("queued"), "{log}");
        assert_eq!(bed.get(&path, &bed.worker("worker")).await.0, 403);
        assert_eq!(bed.control(&format!("{path}?lines=0"), None).await.0, 400);
    }
    for path in [
        format!("/api/stats/agents/other/runs/{instance}"),
        format!("/api/logs/agents/other/{instance}"),
        "/api/logs/agents/other".to_owned(),
        "/api/logs/agents/worker/worker-00000000".to_owned(),
    ] {
        let (status, answer) = bed.control(&path, None).await;
        assert!(status == 404 && answer["error"].is_string(), "{path}: {status} {answer}");
    }
    assert_eq!(bed.control(&format!("/control/kill/{instance}"), Some(json!({}))).await.0, 200);
    let (_, log) = bed.control(&format!("/api/logs/agents/worker/{instance}"), None).await;
    assert!(log["hasMore"] == false && log["state"].as_str().unwrap().contains("killed"), "{log}");
}

#[tokio::test]
async fn what_goes_on_and_what_has_been_is_listed_for_all_agents() {
    let bed = Bed::new();
    let begin = async |agent: &str| {
        bed.define(agent).await;
        let (_, started) = bed.control(&format!("/control/trigger/{agent}"), Some(json!({}))).await;
        started["instanceId"].clone()
    };
    let (ended, waits) = (begin("worker").await, begin("idle").await);
    let kill = format!("/control/kill/{}", ended.as_str().unwrap());
    assert_eq!(bed.control(&kill, Some(json!({}))).await.0, 200);
    let listed = async |path: &str| {
        let (status, shown) = bed.control(path, None).await;
        assert_eq!(status, 200, "{path}: {shown}");
        shown
    };
    let ids = |rows: &Value| -> Vec<Value> {
        rows.as_array().unwrap().iter().map(|row| row["instanceId"].clone()).collect()
    };
    let jobs = listed("/api/stats/jobs").await;
    assert_eq!(
        (ids(&jobs["jobs"]), &jobs["total"]),
        (vec![waits.clone(), ended.clone()], &json!(2)),
        "{jobs}"
    );
    let first = &jobs["jobs"][0];
    assert_eq!((&first["status"], &first["triggerType"]), (&json!("pending"), &json!("manual")), "{first}");
    assert_eq!(ids(&listed("/api/stats/activity?status=killed,error").await["activity"]), [ended]);
    assert_eq!(ids(&listed("/api/stats/activity?agent=idle").await["activity"]), [waits]);
    let page = listed("/api/stats/triggers?limit=1&page=2").await;
    assert_eq!((ids(&page["triggers"]).len(), &page["total"]), (1, &json!(2)), "{page}");

    bed.control("/control/agents/idle/disable", Some(json!({}))).await;
    let dead = listed("/api/stats/activity?status=dead-letter").await;
    let letter = &dead["activity"][0];
    assert_eq!(
        (&letter["agentName"], &letter["reason"]),
        (&json!("idle"), &json!("agent_disabled")),
        "{dead}"
    );
    assert_eq!(listed("/api/stats/jobs?status=dead-letter").await["total"], 0);
    for (path, total) in [("/api/stats/triggers", 2), ("/api/stats/triggers?all=1", 3)] {
        assert_eq!(listed(path).await["total"], total, "{path}");
    }
    assert_eq!(bed.control("/api/stats/jobs?offset=x", None).await.0, 400);
    assert_eq!(bed.get("/api/stats/activity", &bed.worker("worker")).await.0, 403);
}

/// Who got no answer sends it again.
#[tokio::test]
async fn an_operators_request_with_a_key_is_done_once() {
    let bed = Bed::new();
    bed.define("worker").await;
    let operator = bed.operator();
    let started = async |key: &str, prompt: &str| {
        let request = Request::post("/control/trigger/worker")
            .header("authorization", format!("Bearer {operator}"))
            .header("idempotency-key", key);
        let body = json!({ "prompt": prompt }).to_string();
        bed.send(request.body(Body::from(body)).unwrap()).await
    };
    let (status, first) = started("one", "look").await;
    assert_eq!((status, &first["success"]), (200, &json!(true)), "{first}");
    assert_eq!(started("one", "look").await, (200, first.clone()));
    assert_ne!(started("two", "look").await.1["instanceId"], first["instanceId"]);
    assert_eq!(started("one", "look elsewhere").await.0, 409);
    assert_eq!(started("", "look").await.0, 400);
    let (_, shown) = bed.control("/control/status", None).await;
    assert_eq!(shown["queueSizes"]["worker"], 2, "{shown}");
}

#[tokio::test]
async fn a_run_that_lives_is_shown_behind_many_that_have_ended() {
    let bed = Bed::new();
    bed.define("worker").await;
    let begin = async || {
        let (_, started) = bed.control("/control/trigger/worker", Some(json!({}))).await;
        started["instanceId"].as_str().unwrap().to_owned()
    };
    let lives = begin().await;
    for _ in 0..=LONGEST_PAGE {
        let ended = begin().await;
        assert_eq!(bed.control(&format!("/control/kill/{ended}"), Some(json!({}))).await.0, 200);
    }
    let (_, shown) = bed.control("/control/status", None).await;
    let ids: Vec<_> = shown["instances"].as_array().unwrap().iter().map(|run| run["id"].clone()).collect();
    assert_eq!((ids, &shown["rebuilding"]), (vec![json!(lives)], &json!(false)));
}

#[tokio::test]
async fn lists_of_runs_say_that_they_have_gaps() {
    let bed = Bed::new();
    let hold = arriving(&bed.node, "worker-1").await;
    tokio::time::pause();
    for path in ["/control/instances", "/api/stats/agents/worker/runs"] {
        let (_, shown) = bed.control(path, None).await;
        assert_eq!(shown["rebuilding"], json!(true), "{path}: {shown}");
    }
    tokio::time::resume();
    drop(hold);
    let (_, shown) = bed.control("/control/instances", None).await;
    assert_eq!((&shown["instances"][0]["id"], &shown["rebuilding"]), (&json!("worker-1"), &json!(false)));
}

#[tokio::test]
async fn what_there_is_not_or_cannot_be_is_refused() {
    let bed = Bed::new();
    bed.define("idle").await;
    bed.control("/control/agents/idle/disable", Some(json!({}))).await;
    for (path, body, wanted) in [
        ("/control/trigger/nobody", Some(json!({})), 404),
        ("/control/trigger/idle", Some(json!({})), 409),
        ("/control/trigger/idle", Some(json!({ "prompt": 7 })), 400),
        ("/control/kill/nobody-00000000", Some(json!({})), 404),
        ("/control/agents/nobody/pause", Some(json!({})), 404),
        ("/control/agents/nobody/kill", Some(json!({})), 404),
        ("/control/agents/nobody/scale", Some(json!({ "scale": 2 })), 404),
        ("/control/agents/idle/scale", Some(json!({ "scale": 0 })), 400),
        ("/control/agents/idle/scale", Some(json!({ "scale": 10_001 })), 400),
        ("/control/agents/idle/scale", Some(json!({})), 400),
        ("/control/agents/idle/rescale", Some(json!({ "scale": 2 })), 404),
        ("/api/stats/agents/idle/runs?page=0", None, 400),
        ("/api/stats/agents/idle/runs?page=9999&limit=100", None, 400),
        ("/api/stats/webhooks/nonsense", None, 400),
        (&format!("/api/stats/webhooks/{RECEIPT}"), None, 404),
        (&format!("/api/webhooks/{RECEIPT}/replay"), Some(json!({})), 404),
    ] {
        let (status, answer) = bed.control(path, body).await;
        assert!(status == wanted && answer["error"].is_string(), "{path}: {status} {answer}");
    }
}

#[tokio::test]
async fn an_operator_sees_every_lock() {
    let bed = Bed::new();
    let (instance, token) = bed.run("worker").await;
    bed.post("/locks/acquire", &token, json!({ "resourceKey": KEY })).await;
    let (status, shown) = bed.control("/locks/status", None).await;
    let lock = &shown["locks"][0];
    assert_eq!(
        (status, &lock["resourceKey"], &lock["agentName"], &lock["holder"]),
        (200, &json!(KEY), &json!("worker"), &json!(instance))
    );
    assert!(lock["heldSince"].is_u64() && lock["expiresAt"].is_u64(), "{lock}");
}
