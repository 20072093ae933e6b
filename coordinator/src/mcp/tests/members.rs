//! What members say of themselves and of the services they keep.

use super::*;

/// The versions of the worker's texts, once there are so many.
async fn versions(face: &Face, worker: &Agent, count: usize) -> Vec<Value> {
    let look = async {
        loop {
            let history = face.facts(worker, "context-history", json!({ "field": "soulMd" })).await;
            let versions = history["versions"].as_array().unwrap().clone();
            if versions.len() == count {
                return versions;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), look).await.unwrap()
}

#[tokio::test]
async fn what_a_profile_said_before_is_kept() {
    let (face, lead, worker) = swarm().await;
    for soul in ["calm\nkind", "brave\nkind"] {
        face.facts(&worker, "update-profile", json!({ "soulMd": soul, "name": "worker" })).await;
    }
    // The first of them is the text that every member starts with.
    let versions = versions(&face, &worker, 3).await;
    let numbers: Vec<_> = versions.iter().map(|version| version["version"].as_u64().unwrap()).collect();
    assert_eq!(numbers, [3, 2, 1]);
    assert_eq!(
        (&versions[0]["changeSource"], &versions[2]["changeSource"]),
        (&json!("self_edit"), &json!("system"))
    );
    assert_eq!((&versions[0]["contentLength"], &versions[0]["changeReason"]), (&json!(10), &Value::Null));

    let diff = face.facts(&worker, "context-diff", json!({ "versionId": versions[0]["id"] })).await;
    assert_eq!((diff["fromVersion"].as_u64(), diff["toVersion"].as_u64()), (Some(2), Some(3)));
    assert_eq!(
        diff["diff"],
        "--- old\n+++ new\n@@ -1,2 +1,2 @@\n-calm\n+brave\n kind\n\\ No newline at end of file\n"
    );
    let first = face.facts(&lead, "context-diff", json!({ "versionId": versions[2]["id"] })).await;
    assert_eq!(first["fromVersion"], 0);
    let both = json!({ "versionId": versions[1]["id"], "compareToVersionId": versions[1]["id"] });
    assert_eq!(face.facts(&worker, "context-diff", both).await["diff"], "(no differences)");

    let all = face.facts(&lead, "context-history", json!({ "agentId": worker.id, "limit": 2 })).await;
    assert_eq!(all["versions"].as_array().unwrap().len(), 2);
    for (tool, foreign, code) in [
        ("context-history", json!({ "agentId": lead.id }), "forbidden"),
        ("context-diff", json!({ "versionId": Uuid::from_u128(9) }), "not_found"),
    ] {
        let refused = face.call(&worker, tool, foreign).await;
        assert_eq!(refused["structuredContent"]["code"], code);
    }
}

/// Those of one moment have ids that say nothing of their order, so there are some of them.
#[tokio::test]
async fn the_newest_version_of_a_text_comes_first_though_two_are_of_one_moment() {
    let (face, lead, _) = swarm().await;
    let fields = ["claudeMd", "soulMd", "identityMd"];
    for name in ["ann", "bob", "carl", "dora", "eve"] {
        let agent = face.agent(name, Role::Worker);
        face.facts(&agent, "join-swarm", json!({ "name": name })).await;
        let texts: Value = fields.iter().map(|field| (*field, json!("anew"))).collect();
        face.facts(&agent, "update-profile", texts).await;
        let history = face.facts(&lead, "context-history", json!({ "agentId": agent.id })).await;
        let versions = history["versions"].as_array().unwrap();
        assert_eq!(versions.len(), 2 * fields.len(), "{versions:?}");
        for field in fields {
            let of_field = versions.iter().filter(|version| version["field"] == field);
            let numbers: Vec<_> = of_field.map(|version| version["version"].as_u64().unwrap()).collect();
            assert_eq!(numbers, [2, 1], "{name}, {field}");
        }
    }
}

#[tokio::test]
async fn who_forgot_to_join_as_the_lead_does_what_the_refusal_says() {
    let face = Face::new();
    let (lead, other) = (face.agent("lead", Role::Lead), face.agent("other", Role::Lead));
    let worker = face.agent("worker", Role::Worker);
    let said = |told: &Value| told["message"].as_str().unwrap_or_default().to_owned();
    for (agent, name) in [(&lead, "lead"), (&other, "other"), (&worker, "worker")] {
        let joined = face.facts(agent, "join-swarm", json!({ "name": name })).await;
        assert!(said(&joined).contains(&format!("as worker `{name}`")), "{joined}");
    }
    let epic = json!({ "name": "Harvest", "goal": "all of it is in" });
    let refused = face.call(&lead, "create-epic", epic.clone()).await["structuredContent"].clone();
    assert_eq!(refused["code"], "forbidden");
    assert!(said(&refused).contains("call join-swarm with lead: true"), "{refused}");

    let joined = face.facts(&lead, "join-swarm", json!({ "name": "lead", "lead": true })).await;
    assert!(said(&joined).contains("as its lead `lead`"), "{joined}");
    let info = face.facts(&lead, "my-agent-info", json!({})).await;
    assert!(info["yourAgentInfo"]["isLead"] == true && said(&info).contains("the lead of swarm"), "{info}");
    face.facts(&lead, "create-epic", epic).await;
    for (agent, name, code) in [(&other, "other", "lead_exists"), (&worker, "worker", "forbidden")] {
        let refused = face.call(agent, "join-swarm", json!({ "name": name, "lead": true })).await;
        assert_eq!(refused["structuredContent"]["code"], code, "{name}");
    }
}

#[tokio::test]
async fn a_lead_that_comes_later_hears_of_the_questions_that_wait() {
    let face = Face::new();
    let (worker, lead) = (face.agent("worker", Role::Worker), face.agent("lead", Role::Lead));
    face.facts(&worker, "join-swarm", json!({ "name": "Worker" })).await;
    let asked = face.facts(&worker, "ask_human", json!({ "question": "Blue?" })).await;
    let question = asked["question_id"].as_str().unwrap();
    face.facts(&lead, "join-swarm", json!({ "name": "Lead", "lead": true })).await;
    let look = async {
        loop {
            let read = face.facts(&lead, "read-messages", json!({ "mentionsOnly": true })).await;
            if let Some(told) = read["messages"].as_array().and_then(|messages| messages.first()) {
                return told.clone();
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let told = tokio::time::timeout(Duration::from_secs(60), look).await.expect("the lead hears of nothing");
    assert!(told["content"].as_str().unwrap().contains(question), "{told}");
    let answer = json!({ "question_id": question, "answer": "yes" });
    face.facts(&lead, "answer_question", answer).await;
}

#[tokio::test]
async fn the_swarm_knows_what_its_members_keep_running() {
    let (face, lead, worker) = swarm().await;
    let site = json!({ "script": "serve.js", "env": { "PORT": 3000 }, "metadata": { "label": "site" } });
    let service = face.facts(&worker, "register-service", site).await["service"].clone();
    assert_eq!((&service["status"], &service["env"]["PORT"]), (&json!("starting"), &json!("3000")));
    assert_eq!(service["url"], format!("https://{}.localhost", worker.id));
    let well = json!({ "name": "site", "status": "healthy" });
    assert_eq!(
        face.facts(&worker, "update-service-status", well.clone()).await["service"]["status"],
        "healthy"
    );
    let foreign = json!({ "serviceId": service["id"], "status": "stopped" });
    let refused = face.call(&lead, "update-service-status", foreign).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden");

    let listed = face.facts(&lead, "list-services", json!({ "status": "healthy" })).await;
    assert_eq!((&listed["count"], &listed["services"][0]["agentName"]), (&json!(1), &json!("Worker")));
    assert_eq!(face.facts(&worker, "list-services", json!({ "includeOwn": false })).await["count"], 0);
    let nameless = face.call(&worker, "unregister-service", json!({})).await;
    assert_eq!(nameless["structuredContent"]["code"], "not_found");
    face.facts(&worker, "unregister-service", json!({ "name": "site" })).await;
    assert_eq!(face.facts(&lead, "list-services", json!({})).await["count"], 0);

    let elsewhere = face.service.clone().serving_below("swarm.example.com");
    let face = face.beside(elsewhere);
    let anew = face.facts(&worker, "register-service", json!({ "script": "serve.js" })).await;
    assert_eq!(anew["service"]["url"], format!("https://{}.swarm.example.com", worker.id));
    let url = "https://site.example.com";
    face.facts(&worker, "register-service", json!({ "script": "serve.js", "url": url })).await;
    let again = face.facts(&worker, "register-service", json!({ "script": "serve.js" })).await;
    assert_eq!(again["service"]["url"], url, "it stays as it was said");
    let nested = json!({ "script": "serve.js", "env": { "A": {} } });
    let refused = face.call(&worker, "register-service", nested).await;
    assert_eq!(refused["structuredContent"]["code"], "invalid_argument");
}
