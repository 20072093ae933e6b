//! Who may do what (spec: Agent Swarm 1.6, with its holes closed), as a table: for each tool what each caller gets.
//! Where the entity that decides has its own tests for a rule, the table shows that the rule stands in the way of every
//! face.

use skein_shared::id::Kind;
use skein_shared::inboxes::{Command, Deliver, Inboxes, Reply, Slack, Source};

use super::*;

/// The callers, in the order of a row's letters.
const CALLERS: [&str; 7] = ["observer", "unregistered", "false-lead", "other", "creator", "worker", "lead"];

struct Scene {
    face: Face,
    callers: Vec<Agent>,
    made: std::cell::Cell<u32>,
}

impl Scene {
    async fn new() -> Self {
        let face = Face::new();
        let role = |name: &str| match name {
            "observer" => Role::Observer,
            "lead" | "false-lead" => Role::Lead,
            _ => Role::Worker,
        };
        let callers: Vec<Agent> = CALLERS.iter().map(|name| face.agent(name, role(name))).collect();
        for (name, agent) in CALLERS.iter().zip(&callers).skip(2) {
            let join = json!({ "name": name, "lead": *name == "lead", "maxTasks": 20 });
            face.facts(agent, "join-swarm", join).await;
        }
        Self { face, callers, made: std::cell::Cell::new(0) }
    }

    fn of(&self, name: &str) -> &Agent {
        let index = CALLERS.iter().position(|caller| *caller == name).unwrap();
        &self.callers[index]
    }

    fn number(&self) -> u32 {
        self.made.set(self.made.get() + 1);
        self.made.get()
    }

    /// A task of the creator's for the worker, or wherever `target` says.
    async fn task(&self, target: Value) -> Value {
        let mut task = json!({ "task": format!("task {}", self.number()), "allowDuplicate": true });
        task.as_object_mut().unwrap().extend(target.as_object().unwrap().clone());
        self.face.facts(self.of("creator"), "send-task", task).await["task"]["id"].clone()
    }

    async fn message(&self) -> Value {
        let deliver = Deliver {
            agent: self.of("lead").id,
            content: "from a person".to_owned(),
            source: Source::Slack,
            slack: Slack { channel_id: Some("C".into()), thread_ts: Some("1".into()), ..Slack::default() },
            dedupe: None,
            mail: None,
        };
        let key = EntityKey::of(Kind::Inboxes, &Name::parse("default").unwrap());
        let (request, command) = (entity::Request::once(Uuid::now_v7()), Command::Deliver(Box::new(deliver)));
        match self.face.service.entities().ask::<Inboxes>(&key, request, command).await.unwrap() {
            Reply::Delivered { message, .. } => json!(message),
            other => panic!("{other:?}"),
        }
    }

    /// A task that the lead made for the worker of what came from Slack.
    async fn delegated(&self) -> Value {
        let of = json!({
            "inboxMessageId": self.message().await, "agentId": "worker", "allowDuplicate": true,
            "taskDescription": format!("ask {}", self.number()),
        });
        self.face.facts(self.of("lead"), "inbox-delegate", of).await["task"]["id"].clone()
    }

    async fn memory(&self) -> Value {
        let learning = json!({ "agentId": "worker", "learning": "so it is", "category": "best-practice" });
        self.face.facts(self.of("lead"), "inject-learning", learning).await["memoryId"].clone()
    }

    async fn schedule(&self) -> Value {
        let schedule =
            json!({ "name": format!("s{}", self.number()), "taskTemplate": "x", "intervalMs": 60_000_000 });
        self.face.facts(self.of("creator"), "create-schedule", schedule).await["schedule"]["id"].clone()
    }

    /// An epic of the lead's that the worker leads.
    async fn epic(&self) -> Value {
        let epic = json!({ "name": format!("e{}", self.number()), "goal": "g", "leadAgentId": "worker" });
        self.face.facts(self.of("lead"), "create-epic", epic).await["epic"]["id"].clone()
    }

    async fn channel(&self) -> Value {
        let channel = json!({ "name": format!("c{}", self.number()) });
        self.face.facts(self.of("lead"), "create-channel", channel).await["channel"]["id"].clone()
    }

    async fn service(&self) -> Value {
        self.face.facts(self.of("worker"), "register-service", json!({ "script": "s" })).await["service"]["id"].clone()
    }

    async fn question(&self) -> Value {
        let question = json!({ "question": format!("really {}?", self.number()) });
        self.face.facts(self.of("worker"), "ask_human", question).await["question_id"].clone()
    }

    /// The arguments of a row, with what they name made anew.
    async fn arguments(&self, template: &str) -> Value {
        let number = self.number();
        let text = template.replace("#N", &number.to_string());
        let mut arguments: Value = serde_json::from_str(&text).unwrap();
        for value in arguments.as_object_mut().unwrap().values_mut() {
            let made = match value.as_str() {
                Some("$task") => self.task(json!({ "agentId": "worker" })).await,
                Some("$pool") => self.task(json!({})).await,
                Some("$backlog") => {
                    let task = self.task(json!({})).await;
                    let park = json!({ "action": "to_backlog", "taskId": task });
                    self.face.facts(self.of("worker"), "task-action", park).await;
                    task
                }
                Some("$offer") => self.task(json!({ "agentId": "worker", "offerMode": true })).await,
                Some("$epictask") => {
                    let epic = self.epic().await;
                    self.task(json!({ "epicId": epic })).await
                }
                Some("$message") => self.message().await,
                Some("$delegated") => self.delegated().await,
                Some("$memory") => self.memory().await,
                Some("$schedule") => self.schedule().await,
                Some("$epic") => self.epic().await,
                Some("$channel") => self.channel().await,
                Some("$service") => self.service().await,
                Some("$question") => self.question().await,
                _ => continue,
            };
            *value = made;
        }
        arguments
    }
}

/// One letter for what a caller gets.
fn letter(result: &Value) -> char {
    match result["structuredContent"]["code"].as_str() {
        None => '+',
        // The rule lets it pass, and no workspace is connected here.
        Some("slack_not_configured") => '+',
        Some("forbidden") => 'f',
        Some("not_joined") => 'j',
        Some("not_found") => 'n',
        Some(other) => panic!("{other}: {result}"),
    }
}

/// For `observer, unregistered, false-lead, other, creator, worker, lead`: `+` may, `f` is forbidden, `j` has to join
/// first, `n` is told that there is no such thing. A false lead has a lead's token and is none.
const TABLE: &[(&str, &str, &str)] = &[
    // No identity is needed beyond that of a token.
    ("get-swarm", "{}", "+++++++"),
    ("get-tasks", "{}", "+++++++"),
    ("get-task-details", r#"{"taskId":"$task"}"#, "+++++++"),
    ("list-channels", "{}", "+++++++"),
    ("list-epics", "{}", "+++++++"),
    ("get-epic-details", r#"{"epicId":"$epic"}"#, "+++++++"),
    // Registration is not checked.
    ("my-agent-info", "{}", "+++++++"),
    ("send-task", r#"{"task":"new #N","allowDuplicate":true}"#, "f++++++"),
    ("task-action", r#"{"action":"create","task":"new #N"}"#, "f++++++"),
    ("list-services", "{}", "+++++++"),
    ("create-schedule", r#"{"name":"n#N","taskTemplate":"x","intervalMs":60000000}"#, "f++++++"),
    ("list-schedules", "{}", "+++++++"),
    ("memory-search", r#"{"query":"anything"}"#, "+++++++"),
    // Registered agents.
    ("create-channel", r#"{"name":"n#N"}"#, "fj+++++"),
    ("post-message", r#"{"content":"hello"}"#, "fj+++++"),
    ("read-messages", "{}", "fj+++++"),
    ("register-service", r#"{"script":"s"}"#, "fj+++++"),
    ("update-profile", r#"{"description":"d#N"}"#, "fj+++++"),
    ("slack-list-channels", "{}", "+j+++++"),
    ("slack-download-file", r#"{"fileId":"F"}"#, "fj+++++"),
    ("task-action", r#"{"action":"claim","taskId":"$pool"}"#, "fj+++++"),
    ("task-action", r#"{"action":"to_backlog","taskId":"$pool"}"#, "fj+++++"),
    ("task-action", r#"{"action":"from_backlog","taskId":"$backlog"}"#, "fj+++++"),
    ("ask_human", r#"{"question":"q #N?"}"#, "fj+++++"),
    ("list_questions", "{}", "+++++++"),
    // The lead.
    ("answer_question", r#"{"question_id":"$question","answer":"yes"}"#, "ffffff+"),
    ("answer_question", r#"{"question_id":"$question","declined":""}"#, "ffffff+"),
    ("create-epic", r#"{"name":"n#N","goal":"g"}"#, "ffffff+"),
    ("assign-task-to-epic", r#"{"taskId":"$pool","epicId":"$epic"}"#, "ffffff+"),
    ("unassign-task-from-epic", r#"{"taskId":"$epictask"}"#, "ffffff+"),
    ("delete-channel", r#"{"channelId":"$channel"}"#, "ffffff+"),
    (
        "inbox-delegate",
        r#"{"inboxMessageId":"$message","agentId":"worker","allowDuplicate":true,"taskDescription":"t #N"}"#,
        "ffffff+",
    ),
    ("slack-post", r#"{"channelId":"C","message":"m"}"#, "ffffff+"),
    ("slack-read", r#"{"channelId":"C"}"#, "fjffff+"),
    ("slack-upload-file", r#"{"channelId":"C","content":"eA==","filename":"f"}"#, "fjffff+"),
    ("inject-learning", r#"{"agentId":"worker","learning":"l","category":"preference"}"#, "ffffff+"),
    ("get-inbox-message", r#"{"inboxMessageId":"$message"}"#, "ffffff+"),
    ("get-inbox-message", "{}", "ffffff+"),
    // The lead or the creator.
    ("cancel-task", r#"{"taskId":"$task"}"#, "fjff+f+"),
    ("task_steer", r#"{"task_id":"$task","message":"m"}"#, "fjff+f+"),
    ("update-schedule", r#"{"scheduleId":"$schedule","priority":60}"#, "ffff+f+"),
    ("delete-schedule", r#"{"scheduleId":"$schedule"}"#, "ffff+f+"),
    ("run-schedule-now", r#"{"scheduleId":"$schedule"}"#, "ffff+f+"),
    ("update-epic", r#"{"epicId":"$epic","plan":"p"}"#, "fffff++"),
    ("delete-epic", r#"{"epicId":"$epic"}"#, "ffffff+"),
    // The lead or the owner.
    ("unregister-service", r#"{"serviceId":"$service"}"#, "fffff++"),
    // The owner, the assignee, the offeree.
    ("update-service-status", r#"{"serviceId":"$service","status":"healthy"}"#, "fffff+f"),
    ("withdraw_question", r#"{"question_id":"$question"}"#, "fffff+f"),
    ("task-action", r#"{"action":"release","taskId":"$task"}"#, "fffff+f"),
    ("task-action", r#"{"action":"accept","taskId":"$offer"}"#, "fffff+f"),
    ("task-action", r#"{"action":"reject","taskId":"$offer"}"#, "fffff+f"),
    ("slack-reply", r#"{"inboxMessageId":"$message","message":"m"}"#, "fjnnnn+"),
    ("slack-read", r#"{"inboxMessageId":"$message"}"#, "fjnnnn+"),
    // The assignee or the creator.
    ("slack-reply", r#"{"taskId":"$delegated","message":"m"}"#, "fjfff++"),
    ("slack-read", r#"{"taskId":"$delegated"}"#, "fjfff++"),
    ("slack-upload-file", r#"{"taskId":"$delegated","content":"eA==","filename":"f"}"#, "fjfff++"),
    // What was open to everybody: progress is the assignee's, an end also the lead's, and the creator's before it
    // began.
    ("store-progress", r#"{"taskId":"$task","progress":"p"}"#, "fffff+f"),
    ("store-progress", r#"{"taskId":"$task","status":"completed"}"#, "ffff+++"),
    ("memory-get", r#"{"memoryId":"$memory"}"#, "nnnnn++"),
    // Oneself, or the lead for others.
    ("context-history", r#"{"agentId":"worker"}"#, "fffff++"),
];

#[tokio::test]
async fn the_table_of_permissions_is_kept() {
    let scene = Scene::new().await;
    let mut wrong = Vec::new();
    for (tool, template, wanted) in TABLE {
        let mut found = String::new();
        for caller in &scene.callers {
            let arguments = scene.arguments(template).await;
            found.push(letter(&scene.face.call(caller, tool, arguments).await));
        }
        if found != *wanted {
            wrong.push(format!("{tool} {template}: {found}, and ought to be {wanted}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What arranges work and does none. People call it by Agent Swarm's routes too.
const ARRANGES: [(&str, &str); 11] = [
    ("send-task", r#"{"task":"new #N","allowDuplicate":true}"#),
    ("cancel-task", r#"{"taskId":"$task"}"#),
    ("post-message", r#"{"content":"hello"}"#),
    ("create-channel", r#"{"name":"people#N"}"#),
    ("create-schedule", r#"{"name":"people#N","taskTemplate":"x","intervalMs":60000000}"#),
    ("update-schedule", r#"{"scheduleId":"$schedule","priority":60}"#),
    ("run-schedule-now", r#"{"scheduleId":"$schedule"}"#),
    ("delete-schedule", r#"{"scheduleId":"$schedule"}"#),
    ("update-epic", r#"{"epicId":"$epic","plan":"p"}"#),
    ("delete-epic", r#"{"epicId":"$epic"}"#),
    ("set-config", r#"{"scope":"global","key":"TONE","value":"short"}"#),
];

#[tokio::test]
async fn an_operator_arranges_work_by_the_scope_to_lead_alone_and_does_none() {
    let scene = Scene::new().await;
    let face = &scene.face;
    let operator = face.agent("operator", Role::Operator);
    let looker = face.agent_with("looker", Role::Operator, Some("full/readonly"));
    let reader = face.narrowed("reader", Role::Operator, "swarm:read swarm:admin");
    for (tool, template) in ARRANGES {
        let arguments = scene.arguments(template).await;
        let asked = json!({ "name": tool, "arguments": arguments });
        assert_eq!(face.send("/mcp", &reader.token, "tools/call", asked).await.0, 403, "{tool}");
        for (agent, wanted) in [(&looker, 'f'), (&operator, '+')] {
            let found = face.call(agent, tool, arguments.clone()).await;
            assert_eq!(letter(&found), wanted, "{tool}: {found}");
        }
    }
    let said = face.facts(&operator, "post-message", json!({ "content": "hello" })).await;
    assert_eq!((&said["posted"]["agentId"], &said["posted"]["agentName"]), (&Value::Null, &json!("Human")));
    for (tool, arguments) in [("poll-task", json!({})), ("join-swarm", json!({ "name": "operator" }))] {
        assert_eq!(letter(&face.call(&operator, tool, arguments).await), 'f', "{tool}");
    }
}

#[tokio::test]
async fn a_lead_polls_like_a_worker() {
    let scene = Scene::new().await;
    let task = scene.task(json!({ "agentId": "worker" })).await;
    let end = json!({ "taskId": task, "status": "completed" });
    scene.face.facts(scene.of("worker"), "store-progress", end).await;
    let topics = ["tasks", "messages", "calls", "triggers"];
    let waits = json!({ "for": topics, "ids": [task], "cursor": "0", "format": "rows" });
    let seen = scene.face.facts(scene.of("lead"), "wait", waits).await;
    let end = seen["changed"].as_array().unwrap().iter().find(|change| change["event"] == "finished");
    assert_eq!(end.unwrap()["outcome"], "completed");
    let polled = scene.face.facts(scene.of("lead"), "poll-task", json!({})).await;
    assert_eq!(polled["task"]["taskType"], "follow-up");
}

#[tokio::test]
async fn what_a_wait_came_to_is_told_to_its_own_agent_alone() {
    let (face, lead, worker) = swarm().await;
    let observer = face.agent("observer", Role::Observer);
    face.facts(&worker, "set_status", json!({ "text": "here" })).await;
    face.facts(&lead, "call_agent", json!({ "target_agent": "worker", "context": "secret plan" })).await;
    let told = face.facts(&worker, "wait_for_trigger", json!({ "type": "agent_trigger" })).await;
    assert_eq!(told["payload"]["context"], "secret plan");
    let all = json!({ "for": ["calls", "triggers"], "cursor": "0", "format": "rows" });
    for reader in [&observer, &lead] {
        let seen = face.facts(reader, "wait", all.clone()).await;
        let changed = seen["changed"].as_array().unwrap();
        assert!(changed.iter().any(|change| change["event"] == "wait_ended"), "{seen}");
        assert!(!seen.to_string().contains("secret plan"), "{seen}");
    }
}

#[tokio::test]
async fn agents_are_named_by_id_or_by_name() {
    let scene = Scene::new().await;
    let worker = json!(scene.of("worker").id);
    for name in [worker.clone(), json!("worker"), json!("Worker")] {
        let task = json!({ "task": "for you", "agentId": name, "allowDuplicate": true });
        let sent = scene.face.facts(scene.of("lead"), "send-task", task).await;
        assert_eq!(sent["task"]["agentId"], worker);
    }
    let said = json!({ "content": "hello", "mentions": ["worker", scene.of("other").id] });
    let posted = scene.face.facts(scene.of("lead"), "post-message", said).await;
    assert_eq!(posted["posted"]["mentions"], json!([worker, scene.of("other").id]));
    let unknown = json!({ "task": "for whom?", "agentId": "nobody" });
    let refused = scene.face.call(scene.of("lead"), "send-task", unknown).await;
    assert_eq!(refused["structuredContent"]["code"], "not_found");
    assert!(refused["structuredContent"]["message"].as_str().unwrap().contains("get-swarm"));
    // Wherever a tool takes an agent it says so, or names would do in some places and not in others.
    for tool in catalogue().unwrap().tools() {
        let taken: Vec<_> = tool.args.agents().collect();
        for name in tool.args.names() {
            let agents =
                ["agentId", "targetAgentId", "leadAgentId", "createdByAgentId", "mentions", "participants"];
            assert_eq!(agents.contains(&name), taken.contains(&name), "{}: {name}", tool.name);
        }
    }
}

#[tokio::test]
async fn what_is_said_about_a_task_comes_with_the_next_result_of_its_agent_once() {
    let scene = Scene::new().await;
    let (face, worker, lead) = (&scene.face, scene.of("worker"), scene.of("lead"));
    let task = scene.task(json!({ "agentId": "worker" })).await;
    face.facts(worker, "poll-task", json!({})).await;
    let steer = json!({ "task_id": task, "message": "in English, please" });
    let steered = face.facts(lead, "task_steer", steer).await;
    assert_eq!(steered["status"], "in_progress");
    let quiet = face.call(scene.of("other"), "get-swarm", json!({})).await;
    let facts = quiet["content"].as_array().unwrap().last().unwrap()["text"].as_str().unwrap();
    assert_eq!(facts, quiet["structuredContent"].to_string(), "for clients that show texts alone");
    assert_eq!(quiet["content"].as_array().unwrap().len(), 2);
    let told = face.call(worker, "acquire_lock", json!({ "resource_key": "file:///report" })).await;
    let text = told["content"][1]["text"].as_str().unwrap();
    assert!(text.contains("in English, please") && text.contains("lead"), "{told}");
    assert_eq!(told["structuredContent"]["steering"][0]["taskId"], task);
    let after = face.call(worker, "get-swarm", json!({})).await;
    assert!(
        after["structuredContent"].get("steering").is_none()
            && after["content"].as_array().unwrap().len() == 2
    );
    let details = face.facts(lead, "get-task-details", json!({ "taskId": task })).await;
    let logged = details["logs"].to_string();
    assert!(logged.contains("steered") && logged.contains("steering_taken"), "{logged}");
}

/// Such as a dashboard with a second token of the worker. What is said is given once, and is for the agent.
#[tokio::test]
async fn what_is_said_about_a_task_is_not_taken_by_who_may_only_read() {
    let scene = Scene::new().await;
    let (face, worker, lead) = (&scene.face, scene.of("worker"), scene.of("lead"));
    let task = scene.task(json!({ "agentId": "worker" })).await;
    face.facts(worker, "poll-task", json!({})).await;
    face.facts(lead, "task_steer", json!({ "task_id": task, "message": "in English, please" })).await;
    let left_to_read = face.narrowed("worker", Role::Worker, "swarm:read");
    let readonly = face.agent_with("worker", Role::Worker, Some("core/readonly"));
    for (onlooker, address) in [
        (&left_to_read, "/mcp"),
        (&readonly, "/mcp"),
        (worker, "/mcp/readonly"),
        (&left_to_read, "/mcp/full"),
    ] {
        let seen = face.call_at(address, onlooker, "get-swarm", json!({})).await;
        assert_eq!((&seen["isError"], onlooker.id), (&json!(false), worker.id), "{seen}");
        assert!(seen["structuredContent"].get("steering").is_none(), "{address}: {seen}");
    }
    let told = face.facts(worker, "get-swarm", json!({})).await;
    assert_eq!(told["steering"][0]["content"], "in English, please", "{told}");
}

/// A dashboard goes on looking when the agent has died, and would keep its task for ever.
#[tokio::test]
async fn a_look_of_who_may_only_read_is_no_sign_of_life() {
    let scene = Scene::new().await;
    let (face, worker, lead) = (&scene.face, scene.of("worker"), scene.of("lead"));
    let left_to_read = face.narrowed("worker", Role::Worker, "swarm:read");
    let task = scene.task(json!({ "agentId": "worker" })).await;
    face.facts(worker, "poll-task", json!({})).await;
    let agent = vec![(worker, "/mcp")];
    let onlookers = vec![(&left_to_read, "/mcp"), (worker, "/mcp/readonly")];
    for (lookers, is_kept) in [(agent, true), (onlookers, false)] {
        for _ in 0..3 {
            tokio::time::pause();
            tokio::time::sleep(limits::TASK_LEASE_AGENT / 2).await;
            tokio::time::resume();
            for &(looker, address) in &lookers {
                let seen = face.call_at(address, looker, "get-tasks", json!({})).await;
                assert_eq!(seen["isError"], false, "{seen}");
            }
        }
        let shown = face.facts(lead, "get-task-details", json!({ "taskId": task })).await;
        assert_eq!(shown["task"]["status"] == "in_progress", is_kept, "{shown}");
    }
}
