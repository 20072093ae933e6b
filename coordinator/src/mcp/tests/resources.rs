//! What has an address: how it is read and listed, and that changes of the list are told.

use std::collections::BTreeSet;

use super::sessions::next;
use super::*;
use crate::auth::token::Claims;

impl Face {
    async fn read(&self, agent: &Agent, uri: &str) -> Result<Value, Value> {
        let (_, answer) = self.send("/mcp", &agent.token, "resources/read", json!({ "uri": uri })).await;
        match answer["result"]["contents"][0]["text"].as_str() {
            Some(text) => Ok(serde_json::from_str(text).unwrap()),
            None => Err(answer["error"].clone()),
        }
    }

    /// Listens to changes, behind the acknowledgement.
    async fn listen(&self, agent: &Agent, notifications: Value) -> Body {
        let heard = listening(agent, notifications);
        let mut stream = self.router.clone().oneshot(heard).await.unwrap().into_body();
        let begun = next(&mut stream).await;
        assert_eq!(begun["method"], "notifications/subscriptions/acknowledged", "{begun}");
        stream
    }
}

#[tokio::test]
async fn a_resource_shows_what_its_reader_may_see() {
    let (face, lead, worker) = swarm().await;
    let sent = face.facts(&lead, "send-task", json!({ "task": "fly" })).await;
    let uri = format!("skein://tasks/{}", sent["task"]["id"].as_str().unwrap());
    assert_eq!(face.read(&worker, &uri).await.unwrap()["task"]["task"], "fly");
    // No address has such a name.
    let lead_uri = format!("skein://agents/{}", lead.id);
    assert_eq!(face.read(&worker, &lead_uri).await.unwrap()["agent"]["name"], "Lead");
    assert_eq!(face.read(&worker, "skein://tasks").await.unwrap()["tasks"][0]["task"], "fly");
    let forbidden = face.read(&worker, "skein://runs").await.unwrap_err();
    assert_eq!(forbidden["data"]["code"], "forbidden", "{forbidden}");
    for nothing in
        ["skein://tasks/0199aaaa-0000-7000-8000-000000000001", "skein://locks", "file:///etc/passwd"]
    {
        let missing = face.read(&lead, nothing).await.unwrap_err();
        assert_eq!((&missing["code"], &missing["data"]["uri"]), (&json!(-32602), &json!(nothing)));
    }
    let elsewhere = face.issued(Claims {
        swarm: Name::parse("other").unwrap(),
        agent: Uuid::new_v4(),
        agent_name: Name::parse("stranger").unwrap(),
        role: Role::Lead,
        view: None,
        instance: None,
        lifetime: Duration::from_secs(900),
    });
    assert_eq!(face.read(&elsewhere, &uri).await.unwrap_err()["code"], -32602);
}

#[tokio::test]
async fn the_resource_of_long_tasks_shows_the_beginning_of_each() {
    let (face, lead, worker) = swarm().await;
    for number in 0..3 {
        let text = format!("{number} {}", "long ".repeat(12_000));
        face.facts(&lead, "task-action", json!({ "action": "create", "task": text })).await;
    }
    let list = face.read(&worker, "skein://tasks").await.unwrap();
    assert!(list.to_string().len() < 64 * 1024 && list["warning"].is_string(), "{list}");
    let uri = format!("skein://tasks/{}", list["tasks"][2]["id"].as_str().unwrap());
    let whole = face.read(&worker, &uri).await.unwrap();
    assert_eq!(whole["task"]["task"].as_str().map(str::len), Some(60_002));
}

#[tokio::test]
async fn epics_and_runs_have_addresses_and_their_readers() {
    let (face, lead, worker) = swarm().await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let epic = epic["epic"]["id"].as_str().unwrap().to_owned();
    face.facts(&lead, "send-task", json!({ "task": "fly", "epicId": epic })).await;
    let read = face.read(&worker, &format!("skein://epics/{epic}")).await.unwrap();
    assert_eq!((&read["epic"]["name"], &read["tasks"][0]["task"]), (&json!("Launch"), &json!("fly")));
    assert_eq!(face.read(&worker, "skein://epics").await.unwrap()["epics"][0]["id"], epic);
    let listed = face.send("/mcp", &worker.token, "resources/list", json!({})).await.1;
    let listed = listed["result"]["resources"].as_array().unwrap().clone();
    assert!(
        listed.iter().any(|one| one["uri"] == format!("skein://epics/{epic}") && one["name"] == "Launch")
    );

    let (instance, run) = face.run("coder").await;
    let uri = format!("skein://runs/{instance}");
    let operator = face.agent("operator", Role::Operator);
    for reader in [&run, &operator] {
        assert_eq!(face.read(reader, &uri).await.unwrap()["run"]["instance"], json!(instance));
    }
    let runs = face.read(&operator, "skein://runs").await.unwrap();
    assert_eq!(runs["runs"][0]["instance"], json!(instance), "{runs}");
    assert_eq!(face.read(&worker, &uri).await.unwrap_err()["data"]["code"], "not_found");
    // What they were asked and what came of it stands beside the agent, too.
    let observer = face.agent("observer", Role::Observer);
    for (reader, theirs) in
        [(&run, true), (&operator, true), (&worker, false), (&lead, false), (&observer, false)]
    {
        let agent = face.read(reader, "skein://agents/coder").await.unwrap()["runs"].clone();
        assert!(agent["queued"].is_number() && agent["definition"].is_object(), "{agent}");
        for part in ["instances", "queue", "waits"] {
            assert_eq!(agent.get(part).is_some(), theirs, "{part}: {agent}");
        }
    }
}

#[tokio::test]
async fn the_list_of_resources_has_each_once_page_by_page() {
    const EACH: usize = 105;
    let (face, lead, _) = swarm().await;
    for number in 0..EACH {
        let name = format!("goose-{number}");
        face.facts(&face.agent(&name, Role::Worker), "join-swarm", json!({ "name": name })).await;
        let epic = json!({ "name": format!("flight {number}"), "goal": "south" });
        face.facts(&lead, "create-epic", epic).await;
    }
    face.facts(&lead, "send-task", json!({ "task": "fly" })).await;
    let (mut seen, mut params) = (BTreeSet::new(), json!({}));
    loop {
        let page = face.send("/mcp", &lead.token, "resources/list", params).await.1["result"].clone();
        for resource in page["resources"].as_array().unwrap() {
            assert!(seen.insert(resource["uri"].to_string()), "twice: {resource}");
        }
        match page["nextCursor"].as_str() {
            Some(next) => params = json!({ "cursor": next }),
            None => break,
        }
    }
    // The four lists have addresses, too.
    assert_eq!(seen.len(), 4 + (EACH + 2) + EACH + 1);
    let wrong = json!({ "cursor": "agents x" });
    let refused = face.send("/mcp", &lead.token, "resources/list", wrong).await.1;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
    let epics = face.read(&lead, "skein://epics").await.unwrap();
    assert!(epics["more"].as_str().unwrap().contains("list-epics"), "{epics}");
    assert!(face.read(&lead, "skein://agents").await.unwrap().get("more").is_none());
    let goose = face.read(&lead, "skein://agents/goose-104").await.unwrap();
    assert_eq!(goose["agent"]["name"], "goose-104", "{goose}");
}

fn listening(agent: &Agent, notifications: Value) -> Request<Body> {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "0" },
    });
    let params = json!({ "notifications": notifications, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params });
    let request = Request::post("/mcp")
        .header("host", "127.0.0.1")
        .header("authorization", format!("Bearer {}", agent.token))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "subscriptions/listen");
    request.body(Body::from(body.to_string())).unwrap()
}

/// What comes behind the first page of members is one of the list as well, be it another member or an epic.
#[tokio::test]
async fn each_change_of_the_list_of_resources_is_told_however_long_it_is() {
    let (face, lead, _) = swarm().await;
    let join = async |name: String| {
        face.facts(&face.agent(&name, Role::Worker), "join-swarm", json!({ "name": name })).await;
    };
    for number in 0..100 {
        join(format!("goose-{number}")).await;
    }
    let mut stream = face.listen(&lead, json!({ "resourcesListChanged": true })).await;
    let mut is_told = async || {
        let told = tokio::time::timeout(Duration::from_secs(60), next(&mut stream)).await.unwrap();
        assert_eq!(told["method"], "notifications/resources/list_changed", "{told}");
    };
    is_told().await;
    face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    is_told().await;
    join("zebra".to_owned()).await;
    is_told().await;
}

/// The acknowledgement is out before the first look, and what has changed in between is in that.
#[tokio::test]
async fn whoever_listens_is_told_at_once_and_then_of_each_change() {
    let (face, lead, _) = swarm().await;
    let sent = face.facts(&lead, "send-task", json!({ "task": "fly" })).await;
    let task = sent["task"]["id"].as_str().unwrap();
    let uri = format!("skein://tasks/{task}");
    let wanted = json!({ "resourcesListChanged": true, "resourceSubscriptions": [uri] });
    let mut stream = face.listen(&lead, wanted).await;
    let mut is_told = async || {
        let mut told = BTreeSet::new();
        while told.len() < 2 {
            let one = tokio::time::timeout(Duration::from_secs(60), next(&mut stream)).await.unwrap();
            let of = one["params"]["uri"].as_str().unwrap_or("the list").to_owned();
            told.insert((one["method"].as_str().unwrap().to_owned(), of));
        }
        let named = |method: &str, of: &str| (format!("notifications/resources/{method}"), of.to_owned());
        assert_eq!(told, BTreeSet::from([named("list_changed", "the list"), named("updated", &uri)]));
    };
    is_told().await;
    face.facts(&lead, "cancel-task", json!({ "taskId": task })).await;
    is_told().await;
}

#[tokio::test]
async fn that_what_is_listened_to_is_gone_is_told() {
    let (face, lead, _) = swarm().await;
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let epic = epic["epic"]["id"].clone();
    let uri = format!("skein://epics/{}", epic.as_str().unwrap());
    let mut stream = face.listen(&lead, json!({ "resourceSubscriptions": [uri] })).await;
    let mut is_told = async || {
        let told = tokio::time::timeout(Duration::from_secs(60), next(&mut stream)).await.unwrap();
        assert_eq!(told["method"], "notifications/resources/updated", "{told}");
        assert_eq!(told["params"]["uri"], json!(uri), "{told}");
    };
    is_told().await;
    face.facts(&lead, "delete-epic", json!({ "epicId": epic })).await;
    is_told().await;
    assert_eq!(face.read(&lead, &uri).await.unwrap_err()["data"]["code"], "not_found");
}

#[tokio::test]
async fn reading_resources_is_bounded() {
    let limits = crate::mcp::quota::Limits { reads_per_second: 1, ..Default::default() };
    let face = Face::with(Config { gate: crate::mcp::Gate::new(limits), ..Config::default() });
    let lead = face.agent("lead", Role::Lead);
    let mut refused = Value::Null;
    for _ in 0..50 {
        if let Err(error) = face.read(&lead, "skein://tasks").await {
            refused = error;
            break;
        }
    }
    assert_eq!(refused["data"]["code"], "rate_limited", "{refused}");
}
