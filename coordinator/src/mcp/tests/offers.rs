//! What there is besides tools and resources: prompts, questions, tasks of the protocol.

use skein_shared::time::Timestamp;

use super::waits::calling;
use super::*;

const TASKS: &str = "io.modelcontextprotocol/tasks";

/// Whether a task that is over is kept for so long from its end on, and told so, as ever, from its beginning on.
fn is_kept_for(over: &Value, span: Duration) -> bool {
    let at = |field: &str| Timestamp::parse_iso(over[field].as_str().unwrap()).unwrap();
    let kept = (at("lastUpdatedAt") + span).since(at("createdAt"));
    over["ttlMs"].as_u64().map(Duration::from_millis) == Some(kept)
}

impl Face {
    /// The tool as a client calls it that can do this, with what it has answered.
    async fn asked(&self, agent: &Agent, abilities: &Value, tool: &str, mut call: Value) -> Value {
        call["name"] = json!(tool);
        let answer = self.send_able(abilities, "/mcp", &agent.token, "tools/call", call).await.1;
        answer["result"].clone()
    }
}

#[tokio::test]
async fn a_prompt_is_for_its_role() {
    let (face, lead, worker) = swarm().await;
    let observer = face.agent("observer", Role::Observer);
    let listed = async |agent: &Agent| {
        let (_, answer) = face.send("/mcp", &agent.token, "prompts/list", json!({})).await;
        let prompts = answer["result"]["prompts"].as_array().unwrap().clone();
        prompts.iter().map(|prompt| prompt["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(listed(&lead).await, ["lead", "worker"]);
    assert_eq!(listed(&worker).await, ["worker"]);
    assert!(listed(&observer).await.is_empty());
    let wanted = json!({ "name": "lead", "arguments": { "goal": "count the birds" } });
    let (_, written) = face.send("/mcp", &lead.token, "prompts/get", wanted.clone()).await;
    let text = written["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(text.contains("count the birds") && text.contains("2 agents, 2 idle"), "{text}");
    let (_, refused) = face.send("/mcp", &worker.token, "prompts/get", wanted).await;
    assert_eq!(refused["error"]["code"], -32602, "{refused}");
}

#[tokio::test]
async fn who_cannot_do_its_task_does_what_the_prompt_says() {
    let (face, lead, worker) = swarm().await;
    let wanted = json!({ "name": "worker", "arguments": {} });
    let (_, written) = face.send("/mcp", &worker.token, "prompts/get", wanted).await;
    let prompt = written["result"]["messages"][0]["content"]["text"].as_str().unwrap();
    assert!(prompt.contains("task-action `release`") && prompt.contains("end it as `failed`"), "{prompt}");
    let given = async || {
        let task = json!({ "task": "fetch the moon", "agentId": worker.id, "allowDuplicate": true });
        face.facts(&lead, "send-task", task).await;
        face.facts(&worker, "poll-task", json!({})).await["task"]["id"].clone()
    };

    let task = given().await;
    let reject = json!({ "action": "reject", "taskId": task, "reason": "too far" });
    let refused = face.call(&worker, "task-action", reject).await["structuredContent"].clone();
    let advice = refused["message"].as_str().unwrap_or_default();
    assert_eq!(refused["code"], "wrong_state");
    assert!(advice.contains("task-action `release`") && advice.contains("as failed"), "{advice}");
    let release = json!({ "action": "release", "taskId": task });
    assert_eq!(face.facts(&worker, "task-action", release).await["task"]["status"], "unassigned");
    let failed = json!({ "taskId": given().await, "status": "failed", "failureReason": "too far" });
    assert_eq!(face.facts(&worker, "store-progress", failed).await["task"]["status"], "failed");
}

#[tokio::test]
async fn ids_and_names_are_completed_as_far_as_the_asker_may_see() {
    let (face, lead, worker) = swarm().await;
    let sent = face.facts(&lead, "send-task", json!({ "task": "fly" })).await;
    let task = sent["task"]["id"].as_str().unwrap().to_owned();
    let epic = face.facts(&lead, "create-epic", json!({ "name": "Launch", "goal": "ship it" })).await;
    let epic = epic["epic"]["id"].as_str().unwrap().to_owned();
    let (instance, run) = face.run("coder").await;
    let instance = instance.to_string();
    face.facts(&face.agent("goose", Role::Worker), "join-swarm", json!({ "name": "goose" })).await;
    let operator = face.agent("operator", Role::Operator);
    let complete = async |agent: &Agent, of: Value, name: &str, begun: &str| {
        let params = json!({ "ref": of, "argument": { "name": name, "value": begun } });
        let (_, answer) = face.send("/mcp", &agent.token, "completion/complete", params).await;
        answer["result"]["completion"]["values"].clone()
    };
    let template = |uri: &str| json!({ "type": "ref/resource", "uri": uri });
    let (tasks, epics) = (template("skein://tasks/{id}"), template("skein://epics/{id}"));
    let (agents, runs) = (template("skein://agents/{name}"), template("skein://runs/{instance}"));
    let prompt = json!({ "type": "ref/prompt", "name": "lead" });
    for (agent, of, name, begun, wanted) in [
        (&worker, &tasks, "id", &task[..9], json!([task])),
        (&worker, &tasks, "id", "none", json!([])),
        (&worker, &epics, "id", &epic[..9], json!([epic])),
        (&lead, &prompt, "epic", &epic[..9], json!([epic])),
        (&worker, &agents, "name", "go", json!(["goose"])),
        // No address has the name `Lead`.
        (&worker, &agents, "name", &lead.id.to_string()[..9], json!([lead.id])),
        (&operator, &runs, "instance", "co", json!([instance])),
        (&run, &runs, "instance", "", json!([instance])),
        (&run, &runs, "instance", "other", json!([])),
        (&operator, &runs, "id", "", json!([])),
    ] {
        assert_eq!(complete(agent, of.clone(), name, begun).await, wanted, "{of} {name} {begun}");
    }
}

#[tokio::test]
async fn a_person_is_asked_where_the_client_can() {
    let (face, _, worker) = swarm().await;
    let able = json!({ "elicitation": {} });
    let question = json!({ "question": "Red or blue?", "choices": ["red", "blue"] });
    let asked = face.asked(&worker, &able, "ask_human", json!({ "arguments": question })).await;
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    let params = &asked["inputRequests"]["answer"]["params"];
    assert_eq!(
        (&params["message"], &params["requestedSchema"]["properties"]["answer"]["enum"]),
        (&json!("Red or blue?"), &json!(["red", "blue"]))
    );
    for (answer, outcome) in [
        (json!({ "action": "accept", "content": { "answer": "blue" } }), "answered"),
        (json!({ "action": "decline" }), "declined"),
        (json!({ "action": "cancel" }), "cancelled"),
    ] {
        let call = json!({ "arguments": question, "inputResponses": { "answer": answer } });
        let told = face.asked(&worker, &able, "ask_human", call).await;
        assert_eq!(told["structuredContent"]["outcome"], outcome, "{told}");
    }
    let odd = json!({ "arguments": question, "inputResponses": { "answer": 7 } });
    assert_eq!(face.asked(&worker, &able, "ask_human", odd).await["resultType"], "input_required");
}

#[tokio::test]
async fn an_answer_that_does_not_fit_is_asked_for_once_more() {
    let (face, _, worker) = swarm().await;
    let able = json!({ "elicitation": {} });
    let chosen = json!({ "question": "Red or blue?", "choices": ["red", "blue"] });
    for (question, unfit) in [(&chosen, "green"), (&chosen, ""), (&json!({ "question": "Where to?" }), "  ")]
    {
        let say = async |answer: &str, state: Option<&Value>| {
            let form = json!({ "action": "accept", "content": { "answer": answer } });
            let mut call = json!({ "arguments": question, "inputResponses": { "answer": form } });
            if let Some(state) = state {
                call["requestState"] = state.clone();
            }
            face.asked(&worker, &able, "ask_human", call).await
        };
        let again = say(unfit, None).await;
        assert_eq!(again["resultType"], "input_required", "{again}");
        let shown = again["inputRequests"]["answer"]["params"]["message"].as_str().unwrap();
        assert!(shown.starts_with(question["question"].as_str().unwrap()), "{shown}");
        assert!(shown.contains("answer: it is"), "{shown}");
        let state = Some(&again["requestState"]);
        let fits = say(" blue ", state).await;
        assert_eq!(fits["structuredContent"]["answer"], "blue", "{fits}");
        let refused = say(unfit, state).await;
        assert_eq!(refused["structuredContent"]["code"], "wrong_state", "{refused}");
    }
}

/// The change of a question that a wait tells of.
async fn next_change(face: &Face, agent: &Agent, mut wait: Value) -> (Value, Value) {
    wait["format"] = json!("rows");
    let told = face.facts(agent, "wait", wait).await;
    assert_eq!(told["changed"].as_array().unwrap().len(), 1, "{told}");
    (told["changed"][0].clone(), told["cursor"].clone())
}

#[tokio::test]
async fn what_the_client_cannot_ask_is_filed_and_its_answer_waited_for_by_cursor() {
    let (face, lead, worker) = swarm().await;
    let task = face.facts(&lead, "send-task", json!({ "task": "paint it", "agentId": worker.id })).await;
    let task = task["task"]["id"].clone();
    face.facts(&worker, "poll-task", json!({})).await;
    let begin = face.facts(&lead, "wait", json!({ "for": ["messages"], "timeout_s": 0 })).await;
    let question =
        json!({ "question": "Red or blue?", "choices": ["red", "blue"], "idempotency_key": "once" });
    let asked = face.facts(&worker, "ask_human", question.clone()).await;
    assert_eq!(asked["outcome"], "asked", "{asked}");
    // Some send the person to an address and show no forms.
    let able = json!({ "elicitation": { "url": {} } });
    let same = face.asked(&worker, &able, "ask_human", json!({ "arguments": question })).await;
    assert_eq!(same["structuredContent"]["question_id"], asked["question_id"], "{same}");
    let id = asked["question_id"].clone();

    // The lead is told, and so is whoever looks at the task.
    face.facts(&lead, "wait", json!({ "for": ["messages"], "cursor": begin["cursor"] })).await;
    let read = face.facts(&lead, "read-messages", json!({})).await;
    let said = read["messages"][0]["content"].as_str().unwrap();
    assert!(said.contains("Red or blue?") && said.contains("red | blue"), "{said}");
    assert!(said.contains(id.as_str().unwrap()), "{said}");
    let details =
        async || face.facts(&lead, "get-task-details", json!({ "taskId": task })).await["task"].clone();
    let waiting = details().await;
    assert_eq!((&waiting["status"], &waiting["waitsForInput"][0]["id"]), (&json!("in_progress"), &id));
    let open = face.facts(&lead, "list_questions", json!({ "format": "rows" })).await;
    assert_eq!(open["questions"][0]["taskId"], task, "{open}");

    let wrong = face.call(&lead, "answer_question", json!({ "question_id": id, "answer": "green" })).await;
    assert_eq!(wrong["structuredContent"]["detail"]["choices"], json!(["red", "blue"]), "{wrong}");
    // It is answered before its asker waits, and nothing is lost for that.
    face.facts(&lead, "answer_question", json!({ "question_id": id, "answer": "blue" })).await;
    let wait = json!({ "for": ["questions"], "ids": [id], "cursor": asked["cursor"] });
    let (change, cursor) = next_change(&face, &worker, wait).await;
    assert_eq!(
        (&change["id"], &change["event"], &change["answer"], &change["by"]),
        (&id, &json!("answered"), &json!("blue"), &json!("lead"))
    );
    let after = json!({ "for": ["questions"], "cursor": cursor, "timeout_s": 0, "format": "rows" });
    assert_eq!(face.facts(&worker, "wait", after).await["changed"], json!([]), "it is told twice");
    assert!(details().await.get("waitsForInput").is_none(), "it waits no more");
    let again = face.facts(&worker, "ask_human", question).await;
    assert_eq!((&again["outcome"], &again["answer"]), (&json!("answered"), &json!("blue")), "{again}");
    let second = face.call(&lead, "answer_question", json!({ "question_id": id, "answer": "red" })).await;
    assert_eq!(second["structuredContent"]["code"], "wrong_state", "{second}");
    let own = face
        .facts(&worker, "list_questions", json!({ "answered": true, "mine": true, "format": "rows" }))
        .await;
    assert_eq!(own["questions"][0]["answer"], "blue", "{own}");
}

#[tokio::test]
async fn a_question_names_a_task_of_its_asker_and_ends_without_an_answer_too() {
    let (face, lead, worker) = swarm().await;
    let others = face.facts(&lead, "send-task", json!({ "task": "fly" })).await["task"]["id"].clone();
    let refused = face.call(&worker, "ask_human", json!({ "question": "where?", "task_id": others })).await;
    assert_eq!(refused["structuredContent"]["code"], "forbidden", "{refused}");
    let asked = face.facts(&worker, "ask_human", json!({ "question": "where?" })).await;
    let id = &asked["question_id"];
    for bad in [json!({}), json!({ "answer": "there", "declined": "no" })] {
        let mut bad = bad;
        bad["question_id"] = id.clone();
        let refused = face.call(&lead, "answer_question", bad).await;
        assert_eq!(refused["structuredContent"]["code"], "invalid_argument", "{refused}");
    }
    face.facts(&lead, "answer_question", json!({ "question_id": id, "declined": "nobody knows" })).await;
    let wait = json!({ "for": ["questions"], "cursor": asked["cursor"] });
    let (change, cursor) = next_change(&face, &worker, wait).await;
    assert_eq!((&change["event"], &change["reason"]), (&json!("declined"), &json!("nobody knows")));
    // The lead may ask as well: operators answer it.
    let own = face.facts(&lead, "ask_human", json!({ "question": "may we?" })).await;
    let (change, _) = next_change(&face, &lead, json!({ "for": ["questions"], "cursor": cursor })).await;
    assert_eq!((&change["id"], &change["event"]), (&own["question_id"], &json!("asked")));
    let operator = face.agent("boss", Role::Operator);
    let answer = json!({ "question_id": own["question_id"], "answer": "yes" });
    assert_eq!(
        face.call(&lead, "answer_question", answer.clone()).await["structuredContent"]["code"],
        "forbidden"
    );
    let answered = face.facts(&operator, "answer_question", answer).await;
    assert_eq!(answered["question"]["answeredBy"], "boss", "{answered}");
}

#[tokio::test]
async fn a_question_is_a_task_that_waits_for_input_to_a_client_that_can_follow_it() {
    let (face, lead, worker) = swarm().await;
    let able = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
    let follow = async |method: &str, agent: &Agent, mut params: Value, id: &Value| {
        params["taskId"] = id.clone();
        face.send_able(&able, "/mcp", &agent.token, method, params).await.1
    };
    let ask = async || {
        let question = json!({ "question": "Red or blue?", "choices": ["red", "blue"] });
        let begun = face.asked(&worker, &able, "ask_human", json!({ "arguments": question })).await;
        assert_eq!(
            (&begun["resultType"], &begun["status"]),
            (&json!("task"), &json!("input_required")),
            "{begun}"
        );
        begun["taskId"].clone()
    };
    let over = async |id: &Value| follow("tasks/get", &worker, json!({}), id).await["result"].clone();
    let form = |answer: &str| json!({ "inputResponses": { "answer": { "action": "accept", "content": { "answer": answer } } } });

    // By the person in front of the client.
    let task = ask().await;
    let open = over(&task).await;
    let shown = &open["inputRequests"]["answer"]["params"];
    assert_eq!(
        (&open["status"], &shown["message"]),
        (&json!("input_required"), &json!("Red or blue?")),
        "{open}"
    );
    assert_eq!(shown["requestedSchema"]["properties"]["answer"]["enum"], json!(["red", "blue"]));
    assert!(open["ttlMs"].is_null(), "nobody knows when it is answered: {open}");
    let closed = json!({ "inputResponses": { "answer": { "action": "cancel" } } });
    assert_eq!(follow("tasks/update", &worker, closed, &task).await["result"]["resultType"], "complete");
    assert_eq!(over(&task).await["status"], "input_required", "others may still answer");
    assert_eq!(
        follow("tasks/update", &worker, form("green"), &task).await["error"]["data"]["code"],
        "invalid_argument"
    );
    assert_eq!(follow("tasks/update", &lead, form("red"), &task).await["error"]["code"], -32602);
    // At an address that only reads nothing is answered.
    let mut reads = form("red");
    reads["taskId"] = task.clone();
    let refused = face.send_able(&able, "/mcp/readonly", &worker.token, "tasks/update", reads).await.1;
    assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
    assert!(refused["error"]["message"].as_str().unwrap().contains("without /readonly"), "{refused}");
    assert_eq!(over(&task).await["status"], "input_required");
    assert_eq!(follow("tasks/update", &worker, form("red"), &task).await["result"]["resultType"], "complete");
    let done = over(&task).await;
    assert_eq!(
        (&done["status"], &done["result"]["structuredContent"]["answer"]),
        (&json!("completed"), &json!("red")),
        "{done}"
    );
    assert!(is_kept_for(&done, limits::QUESTION_KEEP), "{done}");

    // By the lead, who was told of it too.
    let task = ask().await;
    let open =
        face.facts(&lead, "list_questions", json!({ "format": "rows" })).await["questions"][0]["id"].clone();
    face.facts(&lead, "answer_question", json!({ "question_id": open, "answer": "blue" })).await;
    let done = over(&task).await;
    let result = &done["result"]["structuredContent"];
    assert_eq!((&result["answer"], &result["answered_by"]), (&json!("blue"), &json!("lead")), "{done}");
    assert_eq!(
        follow("tasks/update", &worker, form("red"), &task).await["error"]["data"]["code"],
        "wrong_state"
    );

    let task = ask().await;
    assert_eq!(follow("tasks/cancel", &worker, json!({}), &task).await["result"]["resultType"], "complete");
    assert_eq!(over(&task).await["status"], "cancelled");
    assert_eq!(
        face.facts(&lead, "list_questions", json!({ "format": "rows" })).await["questions"],
        json!([])
    );
}

#[tokio::test]
async fn a_call_is_a_task_to_a_client_that_can_follow_it() {
    let (face, lead, worker) = swarm().await;
    let able = json!({ "extensions": { TASKS: {} } });
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    let follow = async |method: &str, agent: &Agent, id: &Value| {
        face.send_able(&able, "/mcp", &agent.token, method, json!({ "taskId": id })).await.1
    };
    let begin = async || {
        let call = json!({ "arguments": { "target_agent": "worker", "context": "sum 1 and 2" } });
        let begun = face.asked(&lead, &able, "call_agent", call).await;
        assert_eq!((&begun["resultType"], &begun["status"]), (&json!("task"), &json!("working")), "{begun}");
        begun["taskId"].clone()
    };
    let task = begin().await;
    let working = follow("tasks/get", &lead, &task).await["result"].clone();
    assert!(working["status"] == "working" && working["ttlMs"].is_null(), "{working}");
    face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    face.facts(&worker, "return_value", json!({ "value": "three" })).await;
    let over = follow("tasks/get", &lead, &task).await["result"].clone();
    assert_eq!(over["status"], "completed", "{over}");
    assert_eq!(over["result"]["structuredContent"]["return_value"], "three", "{over}");
    // It is kept from its end on, however late somebody looks.
    assert!(is_kept_for(&over, limits::CALL_KEEP), "{over}");
    let again = follow("tasks/get", &lead, &task).await["result"].clone();
    assert_eq!((&again["lastUpdatedAt"], &again["ttlMs"]), (&over["lastUpdatedAt"], &over["ttlMs"]));

    let given_up = begin().await;
    // What was not cancelled is not said to be.
    let reads = json!({ "taskId": given_up });
    let refused = face.send_able(&able, "/mcp/readonly", &lead.token, "tasks/cancel", reads).await.1;
    assert_eq!(refused["error"]["data"]["code"], "forbidden", "{refused}");
    assert_eq!(follow("tasks/get", &lead, &given_up).await["result"]["status"], "working");
    assert_eq!(follow("tasks/cancel", &lead, &given_up).await["result"]["resultType"], "complete");
    let cancelled = follow("tasks/get", &lead, &given_up).await["result"].clone();
    assert_ne!(cancelled["status"], "working", "{cancelled}");

    assert_eq!(follow("tasks/get", &worker, &task).await["error"]["code"], -32602);
    assert_eq!(follow("tasks/get", &lead, &json!("none")).await["error"]["code"], -32602);
    let (_, unable) = face.send("/mcp", &lead.token, "tasks/get", json!({ "taskId": task })).await;
    assert_eq!(unable["error"]["code"], -32021, "{unable}");
}

#[tokio::test]
async fn what_a_tool_has_put_down_comes_back_unchanged_or_not_at_all() {
    let face = Face::with(Config { fixture: true, ..Config::default() });
    let (one, other) = (face.agent("one", Role::Lead), face.agent("other", Role::Lead));
    let able = json!({ "elicitation": {} });
    let tool = "test_input_required_result_request_state";
    let asked = face.asked(&one, &able, tool, json!({ "arguments": {} })).await;
    let state = asked["requestState"].as_str().unwrap();
    let with = |state: &str| {
        let answers = json!({ "confirm": { "action": "accept", "content": { "ok": true } } });
        json!({ "name": tool, "arguments": {}, "inputResponses": answers, "requestState": state })
    };
    let send = async |agent: &Agent, call: Value| {
        face.send_able(&able, "/mcp", &agent.token, "tools/call", call).await.1
    };
    assert_eq!(send(&one, with(state)).await["result"]["content"][0]["text"], "state-ok");
    assert_eq!(send(&one, with(&format!("{state}x"))).await["error"]["code"], -32602);
    assert_eq!(send(&other, with(state)).await["error"]["code"], -32602);
    let mut elsewhere = with(state);
    elsewhere["name"] = json!("test_input_required_result_tampered_state");
    assert_eq!(send(&one, elsewhere).await["error"]["code"], -32602);
}

/// A runner's endpoint sends a request once more on fail-over, with its key.
#[tokio::test]
async fn an_answer_to_a_task_that_is_sent_again_with_its_key_is_one_answer() {
    let (face, _, worker) = swarm().await;
    let able = json!({ "elicitation": {}, "extensions": { TASKS: {} } });
    let question = json!({ "arguments": { "question": "Red or blue?" } });
    let task = face.asked(&worker, &able, "ask_human", question).await["taskId"].clone();
    let update = async |key: &str, answer: &str| {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": able,
        });
        let form = json!({ "answer": { "action": "accept", "content": { "answer": answer } } });
        let params = json!({ "taskId": task, "inputResponses": form, "_meta": meta });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tasks/update", "params": params });
        let mut request = calling(&worker, None, "", json!({})).map(|_| Body::from(body.to_string()));
        let name = task.as_str().unwrap();
        for (header, value) in [("mcp-method", "tasks/update"), ("mcp-name", name), ("idempotency-key", key)]
        {
            request.headers_mut().insert(header, value.parse().unwrap());
        }
        face.raw(request).await.1
    };
    for _ in 0..2 {
        let answered = update("once", "red").await;
        assert_eq!(answered["result"]["resultType"], "complete", "{answered}");
    }
    for (key, answer, code) in [
        ("twice", "red", "wrong_state"),
        ("once", "blue", "idempotency_key_reused"),
        ("", "red", "invalid_argument"),
    ] {
        let refused = update(key, answer).await;
        assert_eq!(refused["error"]["data"]["code"], code, "{refused}");
    }
}
