//! Configuration: who may set and read what, and what of a secret is ever shown.

use super::*;
use crate::vault::Vault;

const HUSH: &str = "hush-hush";

fn set(scope: &str, of: Option<Uuid>, key: &str, value: &str, secret: bool) -> Value {
    let mut arguments = json!({ "scope": scope, "key": key, "value": value, "isSecret": secret });
    if let Some(of) = of {
        arguments["scopeId"] = json!(of);
    }
    arguments
}

/// `KEY=value` of each.
fn values(answer: &Value) -> Vec<String> {
    let configs = answer["configs"].as_array().unwrap();
    assert_eq!(answer["count"], configs.len());
    let text = |config: &Value, field: &str| config[field].as_str().unwrap().to_owned();
    configs.iter().map(|config| format!("{}={}", text(config, "key"), text(config, "value"))).collect()
}

#[tokio::test]
async fn the_narrowest_value_applies_and_each_stands_in_the_list() {
    let (face, lead, worker) = swarm().await;
    let repo = Uuid::from_u128(9);
    let made = face.facts(&lead, "set-config", set("global", None, "MODEL", "haiku", false)).await;
    assert_eq!((&made["config"]["scopeId"], &made["config"]["envPath"]), (&Value::Null, &Value::Null));
    assert_eq!((&made["config"]["value"], &made["yourAgentId"]), (&json!("haiku"), &json!(lead.id)));
    let again = face.facts(&lead, "set-config", set("global", Some(repo), "MODEL", "sonnet", false)).await;
    assert_eq!(again["config"]["id"], made["config"]["id"]);
    face.facts(&worker, "set-config", set("agent", Some(worker.id), "MODEL", "opus", false)).await;
    face.facts(&lead, "set-config", set("repo", Some(repo), "MODEL", "local", false)).await;

    for (arguments, wanted) in [
        (json!({}), "MODEL=sonnet"),
        (json!({ "agentId": worker.id }), "MODEL=opus"),
        (json!({ "agentId": worker.id, "repoId": repo, "key": "MODEL" }), "MODEL=local"),
        (json!({ "agentId": lead.id, "key": "MODEL" }), "MODEL=sonnet"),
    ] {
        assert_eq!(
            values(&face.facts(&worker, "get-config", arguments.clone()).await),
            [wanted],
            "{arguments}"
        );
    }
    let all = face.facts(&worker, "list-config", json!({})).await;
    assert_eq!(values(&all), ["MODEL=sonnet", "MODEL=opus", "MODEL=local"]);
    let own = face.facts(&worker, "list-config", json!({ "scope": "agent", "scopeId": worker.id })).await;
    assert_eq!(values(&own), ["MODEL=opus"]);
    // An agent has a name as well, a repository only an id.
    for named in [json!({ "scope": "agent", "scopeId": "Worker" }), json!({ "scopeId": "Worker" })] {
        assert_eq!(face.facts(&worker, "list-config", named).await, own);
    }
    let same = json!({ "scope": "agent", "scopeId": "Worker", "key": "MODEL", "value": "opus" });
    let same = face.facts(&worker, "set-config", same).await;
    assert_eq!(
        (&same["config"]["scopeId"], &same["config"]["id"]),
        (&json!(worker.id), &own["configs"][0]["id"])
    );
    let repo = json!({ "scope": "repo", "scopeId": "Worker", "key": "MODEL", "value": "local" });
    let refused = face.call(&lead, "set-config", repo).await;
    assert_eq!(refused["structuredContent"]["code"], "invalid_argument", "{refused}");
    let id = own["configs"][0]["id"].clone();
    face.facts(&worker, "delete-config", json!({ "id": id })).await;
    let gone = face.call(&worker, "delete-config", json!({ "id": id })).await;
    assert_eq!(gone["structuredContent"]["code"], "not_found");
    assert_eq!(
        values(&face.facts(&worker, "get-config", json!({ "agentId": worker.id })).await),
        ["MODEL=sonnet"]
    );
}

#[tokio::test]
async fn a_secret_is_shown_to_those_who_may_read_it_and_asked_for_it() {
    let (face, lead, worker) = swarm().await;
    let other = face.agent("other", Role::Worker);
    let observer = face.agent("observer", Role::Observer);
    face.facts(&lead, "set-config", set("global", None, "ALL", HUSH, true)).await;
    let own = face.facts(&worker, "set-config", set("agent", Some(worker.id), "OWN", HUSH, true)).await;
    assert_eq!((&own["config"]["value"], &own["config"]["isSecret"]), (&json!("********"), &json!(true)));

    let resolved = json!({ "agentId": worker.id });
    for agent in [&lead, &worker, &other, &observer] {
        let masked = face.facts(agent, "get-config", resolved.clone()).await;
        assert_eq!(values(&masked), ["ALL=********", "OWN=********"]);
    }
    let asked = json!({ "agentId": worker.id, "includeSecrets": true });
    for (agent, wanted, said) in [
        (&lead, ["ALL=hush-hush", "OWN=hush-hush"], "2 values."),
        (&worker, ["ALL=********", "OWN=hush-hush"], "1 secret masked"),
        (&other, ["ALL=********", "OWN=********"], "2 secrets masked"),
        (&observer, ["ALL=********", "OWN=********"], "2 secrets masked"),
    ] {
        let shown = face.facts(agent, "get-config", asked.clone()).await;
        assert_eq!(values(&shown), wanted);
        assert!(shown["message"].as_str().unwrap().contains(said), "{shown}");
    }
    let listed = face.facts(&worker, "list-config", json!({ "includeSecrets": true })).await;
    assert_eq!(values(&listed), ["ALL=********", "OWN=hush-hush"]);
    // What the role may is not what the token was left with.
    for narrowed in [Role::Operator, Role::Worker].map(|role| face.narrowed("worker", role, "swarm:read")) {
        assert_eq!(
            values(&face.facts(&narrowed, "get-config", asked.clone()).await),
            ["ALL=********", "OWN=********"]
        );
    }
    let operator = face.agent("operator", Role::Operator);
    let all = face.facts(&operator, "get-config", asked.clone()).await;
    assert_eq!(values(&all), ["ALL=hush-hush", "OWN=hush-hush"]);
    // Who has a lead's token and does not lead the swarm is an agent as any other.
    let second = face.agent("second", Role::Lead);
    assert_eq!(values(&face.facts(&second, "get-config", asked).await), ["ALL=********", "OWN=********"]);
}

#[tokio::test]
async fn refusals_say_what_to_do_and_never_the_value() {
    let (face, lead, worker) = swarm().await;
    let observer = face.agent("observer", Role::Observer);
    let mut with_file = set("global", None, "A", HUSH, true);
    with_file["envPath"] = json!("/etc/profile");
    let long = format!("{HUSH}{}", "x".repeat(70_000));
    for (agent, arguments, code) in [
        (&worker, set("global", None, "A", HUSH, true), "forbidden"),
        (&worker, set("agent", Some(lead.id), "A", HUSH, true), "forbidden"),
        (&worker, set("repo", Some(worker.id), "A", HUSH, true), "forbidden"),
        (&observer, set("agent", Some(observer.id), "A", HUSH, true), "forbidden"),
        (&lead, set("agent", None, "A", HUSH, true), "invalid_argument"),
        (&lead, set("global", None, "API_KEY", HUSH, true), "invalid_argument"),
        (&lead, set("global", None, "secrets_encryption_key", HUSH, false), "invalid_argument"),
        (&lead, set("everywhere", None, "A", HUSH, true), "invalid_argument"),
        (&lead, set("global", None, "A", &long, true), "invalid_argument"),
        (&lead, with_file, "invalid_argument"),
    ] {
        let refused = face.call(agent, "set-config", arguments.clone()).await;
        let found = refused.to_string();
        assert_eq!(refused["structuredContent"]["code"], code, "{found}");
        assert!(!found.contains(HUSH), "{found}");
    }
    let made = face.facts(&lead, "set-config", set("global", None, "A", HUSH, true)).await;
    let theirs = face.call(&worker, "delete-config", json!({ "id": made["config"]["id"] })).await;
    assert_eq!(theirs["structuredContent"]["code"], "forbidden");
}

#[tokio::test]
async fn a_repeat_of_a_secret_is_the_same_request_on_every_coordinator() {
    let (face, lead, _) = swarm().await;
    let keyed = |value: &str| {
        let mut arguments = set("global", None, "A", value, true);
        arguments["idempotency_key"] = json!("once");
        arguments
    };
    let first = face.facts(&lead, "set-config", keyed(HUSH)).await;
    // Each gate remembers the arguments by itself; the settings alone know them for all coordinators.
    let service = face.service.clone();
    let elsewhere = face.beside(service);
    assert_eq!(elsewhere.facts(&lead, "set-config", keyed(HUSH)).await, first);
    let other = elsewhere.call(&lead, "set-config", keyed("other")).await;
    assert_eq!(other["structuredContent"]["code"], "idempotency_key_reused");
}

#[tokio::test]
async fn a_value_that_no_key_opens_says_so_and_hides_no_other() {
    let (face, lead, _) = swarm().await;
    face.facts(&lead, "set-config", set("global", None, "OLD", HUSH, true)).await;
    let stranger = face.service.clone().keeping_secrets(Vault::ephemeral().unwrap());
    let face = face.beside(stranger);
    face.facts(&lead, "set-config", set("global", None, "NEW", HUSH, true)).await;
    let shown = face.facts(&lead, "get-config", json!({ "includeSecrets": true })).await;
    assert_eq!(values(&shown), ["NEW=hush-hush", "OLD=********"]);
    let problem = shown["configs"][1]["problem"].as_str().unwrap();
    assert!(problem.contains("put that key back"), "{problem}");
    assert!(shown["message"].as_str().unwrap().contains("1 secret cannot be read"), "{shown}");

    let resealed = face.service.reseal().await.unwrap();
    assert_eq!((resealed.exchanged, resealed.unreadable), (0, 1));
    let keys = face.service.secret_keys().await.unwrap();
    let states: Vec<_> =
        keys.iter().map(|key| (key["state"].as_str().unwrap(), key["secrets"].as_u64())).collect();
    assert_eq!(states, [("seals", Some(1)), ("missing", Some(1))]);
}
