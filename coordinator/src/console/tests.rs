//! Pages and actions over HTTP, with entities on a store in memory behind them.

use std::time::Duration;

use axum::body::Body;
use futures::StreamExt;
use http::{HeaderMap, Request};
use http_body_util::BodyExt;
use serde_json::json;

use skein_shared::agent::{self, Agent};
use skein_shared::forge::{Activity, Bot, Forge};
use skein_shared::id::{EntityKey, InstanceId, Kind, Name};
use skein_shared::lockspace::{self, Lockspace};
use skein_shared::pool::{self, Pool};
use skein_shared::questions::{self, Questions};
use skein_shared::schedules::{self, Schedules};
use tower::ServiceExt;
use uuid::Uuid;

use super::sections::{GROUPS, SECTIONS};
use super::*;
use crate::alarms::Kind as Alarm;
use crate::auth::Role;
use crate::auth::token::{Claims, Keys};
use crate::entity::Request as Asking;
use crate::entity::tests::{Node, node};
use crate::service::access::Access;

mod lists;
mod login;

const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(1)> \"'&";

struct Bed {
    router: Router,
    keys: Keys,
    access: Access,
    service: Service,
    node: Node,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The cookies that it sets, as a browser sends them.
    fn cookies(&self) -> String {
        let set = self.headers.get_all("set-cookie").iter().filter_map(|value| value.to_str().ok());
        set.filter_map(|cookie| cookie.split(';').next()).collect::<Vec<_>>().join("; ")
    }
}

fn name(text: &str) -> Name {
    Name::parse(text).unwrap()
}

impl Bed {
    fn new() -> Self {
        Self::of(Keys::ephemeral().unwrap())
    }

    fn of(keys: Keys) -> Self {
        Self::at("http://127.0.0.1:7700", keys)
    }

    fn at(url: &str, keys: Keys) -> Self {
        let node = node();
        let service = Service::new(node.entities.clone());
        let access = Access::new(keys.clone(), node.entities.clone());
        let (trends, stop) = (Trends::default(), CancellationToken::new());
        let router = router(service.clone(), access.clone(), trends, url, stop);
        Self { router, keys, access, service, node }
    }

    fn claims(&self, role: Role) -> Claims {
        Claims {
            swarm: name("default"),
            agent: Uuid::from_u128(7),
            agent_name: name("somebody"),
            role,
            view: None,
            instance: None,
            lifetime: Duration::from_secs(900),
        }
    }

    fn token(&self, role: Role, instance: Option<&str>) -> String {
        let claims = Claims { instance: instance.map(|id| InstanceId(id.to_owned())), ..self.claims(role) };
        self.keys.issue(claims, self.service.clock().wall()).unwrap().text().to_owned()
    }

    async fn send(&self, request: Request<Body>) -> Answer {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let text = String::from_utf8(body.collect().await.unwrap().to_bytes().to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    async fn login(&self, token: &str) -> Answer {
        let form = format!("token={token}&next=/console/default/tasks");
        self.send(Request::post("/login").body(Body::from(form)).unwrap()).await
    }

    async fn session(&self, role: Role) -> String {
        let entered = self.login(&self.token(role, None)).await;
        assert_eq!((entered.status, entered.header("location")), (303, "/console/default/tasks"));
        entered.cookies()
    }

    async fn get(&self, path: &str, cookie: &str) -> Answer {
        self.send(Request::get(path).header("cookie", cookie).body(Body::empty()).unwrap()).await
    }

    /// What the forms of this session carry.
    async fn ticket(&self, cookie: &str) -> String {
        let headers = HeaderMap::from_iter([(http::header::COOKIE, cookie.parse().unwrap())]);
        let console = Console {
            service: self.service.clone(),
            access: self.access.clone(),
            pages: Arc::new(Pages::new()),
            trends: Trends::default(),
            secure: false,
            seats: Seats::default(),
            pace: Pace::default(),
            stop: CancellationToken::new(),
        };
        console.visitor(&headers).await.unwrap_or_else(|refusal| panic!("{refusal:?}")).ticket
    }

    /// Sends a form as the pages of this session have it.
    async fn act(&self, cookie: &str, action: &str, fields: &[(&str, &str)]) -> Answer {
        let ticket = self.ticket(cookie).await;
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("ticket", &ticket)
            .append_pair("back", "/console/default/board")
            .extend_pairs(fields);
        let request = Request::post(format!("/console/default/do/{action}")).header("cookie", cookie);
        let done = self.send(request.body(Body::from(form.finish())).unwrap()).await;
        assert_eq!((done.status, done.header("location")), (303, "/console/default/board"), "{}", done.text);
        // The page that follows says what came of it, and the one after it no more.
        let said = self.get("/console/default/board", &format!("{cookie}; {}", done.cookies())).await;
        assert!(said.header("set-cookie").starts_with("skein_said=;"), "{}", said.header("set-cookie"));
        said
    }

    async fn task(&self, text: &str, depends_on: Vec<Uuid>) -> Uuid {
        let mut spec = pool::TaskSpec::new(text.to_owned());
        spec.depends_on = depends_on;
        let create = pool::Create {
            by: None,
            spec,
            target: pool::Target::Pool,
            rules: pool::Rules::Plain,
            facts: Vec::new(),
        };
        let key = EntityKey::of(Kind::Pool, &name("default"));
        let command = pool::Command::Create(Box::new(create));
        match self.node.entities.ask::<Pool>(&key, Asking::once(Uuid::now_v7()), command).await.unwrap() {
            pool::Reply::Created { task, .. } => task.id,
            other => panic!("{other:?}"),
        }
    }

    async fn lock(&self, key: &str) {
        let command = lockspace::Command::Acquire {
            holder: InstanceId("holder-00000001".to_owned()),
            agent: name("holder"),
            key: key.to_owned(),
            ttl_ms: None,
        };
        let space = EntityKey::of(Kind::Lockspace, &name("default"));
        self.node.entities.ask::<Lockspace>(&space, Asking::once(Uuid::now_v7()), command).await.unwrap();
    }
}

/// The pages of the menu, as behind the swarm in their addresses.
fn pages() -> Vec<String> {
    let pages = SECTIONS.iter().filter(|section| !section.of_one).map(|section| section.name);
    let pages: Vec<&str> = pages.collect();
    let listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
    assert!(pages.len() > 10 && listed.iter().all(|name| pages.contains(name)), "{listed:?}");
    assert!(pages.iter().all(|name| listed.contains(name)), "a page stands in no menu: {pages:?}");
    let path = |name: &str| if name.is_empty() { String::new() } else { format!("/{name}") };
    pages.into_iter().map(path).collect()
}

#[tokio::test]
async fn a_lock_is_shown_with_the_state_of_its_holder() {
    let bed = Bed::new();
    let holder = EntityKey::agent(&name("default"), &name("holder"));
    let instance = InstanceId("holder-00000001".to_owned());
    let attach = agent::Command::Attach { instance, agent_id: Uuid::from_u128(1) };
    bed.node.entities.ask::<Agent>(&holder, Asking::read(), attach).await.unwrap();
    bed.lock("file:///a").await;
    let shown = bed.get("/console/default/locks", &bed.session(Role::Observer).await).await;
    let (_, cell) = shown.text.split_once("data-label=\"Holder is\"").unwrap();
    let (cell, _) = cell.split_once("</td>").unwrap();
    assert!(cell.contains("running"), "{cell}");
}

/// The node of these tests has its store for itself.
#[tokio::test]
async fn what_is_wrong_is_shown_without_a_cluster_too() {
    let bed = Bed::new();
    let alarms = &bed.node.entities.shared().alarms;
    alarms.raise(Alarm::Clock, "store", "the clock goes its own way");
    let operator = bed.session(Role::Operator).await;
    for page in ["/console/default", "/console/default/cluster"] {
        let shown = bed.get(page, &operator).await;
        assert!(shown.text.contains("the clock goes its own way"), "{page}: {}", shown.text);
    }
}

#[tokio::test]
async fn each_page_is_shown_to_those_who_may_see_it() {
    let bed = Bed::new();
    let first = bed.task("first", Vec::new()).await;
    bed.task("second", vec![first]).await;
    bed.lock("file:///a").await;
    let (operator, observer) = (bed.session(Role::Operator).await, bed.session(Role::Observer).await);
    for page in pages() {
        let path = format!("/console/default{page}");
        let shown = bed.get(&path, &operator).await;
        assert_eq!(shown.status, 200, "{path}: {}", shown.text);
        assert_eq!(shown.text.matches("<h1").count(), 1, "{path}");
        assert!(shown.text.contains("<main id=\"main\"") && shown.text.contains("lang=\"en\""), "{path}");
        assert_eq!(shown.header("cache-control"), "no-store");
        assert!(shown.header("content-security-policy").contains("script-src 'self';"), "{path}");
        let operators = ["/runs", "/deliveries", "/cluster"].contains(&page.as_str());
        let shown = bed.get(&path, &observer).await;
        assert_eq!(shown.status, if operators { 403 } else { 200 }, "{path}: {}", shown.text);
        assert!(!shown.text.contains("/do/"), "{path} offers an observer an action");
    }
    let task = bed.get(&format!("/console/default/tasks/{first}"), &operator).await;
    assert!(task.status == 200 && task.text.contains("do/cancel-task"), "{}", task.text);
    for (path, status) in [
        ("/console/default/nothing", 404),
        ("/console/elsewhere", 404),
        ("/console/NOT A NAME", 400),
        ("/console/default/tasks/no-id", 400),
        ("/console/default/tasks/00000000-0000-4000-8000-00000000dead", 404),
        ("/console/default/members/00000000-0000-4000-8000-00000000dead", 404),
        ("/console/default/agents/nobody", 404),
        ("/console/default/runs/nobody-00000001", 404),
        ("/console/default/tasks?after=nonsense", 400),
        ("/console/default/graph?epic=nonsense", 400),
        ("/console/default/tasks?status=nonsense", 200),
    ] {
        let answer = bed.get(&path.replace(' ', "%20"), &operator).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
    }
    assert_eq!(bed.get("/console/elsewhere", &observer).await.status, 403);
    // Letters are those of the agents that they were written to.
    let letters = "/console/default/messages?inbox=1";
    assert_eq!(bed.get(letters, &operator).await.status, 200);
    assert_eq!(bed.get(letters, &observer).await.status, 403);
    assert!(!bed.get("/console/default/messages", &observer).await.text.contains("inbox=1"));
}

#[tokio::test]
async fn what_agents_write_is_never_markup() {
    let bed = Bed::new();
    let first = bed.task(HOSTILE, Vec::new()).await;
    bed.task(&format!("{HOSTILE} again"), vec![first]).await;
    let operator = bed.session(Role::Operator).await;
    let search = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect::<String>();
    let mut paths: Vec<String> = ["", "/board", "/tasks", "/graph"].map(str::to_owned).to_vec();
    paths.extend([
        format!("/tasks/{first}"),
        format!("/tasks?search={search}"),
        format!("/runs?agent={search}"),
    ]);
    for path in paths {
        let shown = bed.get(&format!("/console/default{path}"), &operator).await;
        if path != format!("/runs?agent={search}") {
            assert!(shown.text.contains("&lt;script&gt;"), "{path} does not show it");
        }
        for markup in ["<script>", "<img"] {
            assert!(!shown.text.contains(markup), "{path} has it as markup");
        }
    }
}

#[tokio::test]
async fn a_task_is_shown_with_what_its_events_say() {
    let bed = Bed::new();
    let task = bed.task("paint it", Vec::new()).await;
    let key = EntityKey::of(Kind::Pool, &name("default"));
    let why = Some("nobody wants it".to_owned());
    let cancel = pool::Command::Cancel { task, by: None, reason: why };
    bed.node.entities.ask::<Pool>(&key, Asking::once(Uuid::now_v7()), cancel).await.unwrap();
    let observer = bed.session(Role::Observer).await;
    let shown = bed.get(&format!("/console/default/tasks/{task}"), &observer).await;
    let (_, events) = shown.text.split_once("class=\"events\"").unwrap();
    assert!(events.contains("nobody wants it"), "{events}");
}

#[tokio::test]
async fn operators_act_and_are_told_what_came_of_it() {
    let bed = Bed::new();
    let operator = bed.session(Role::Operator).await;
    let task = bed.task("to be cancelled", Vec::new()).await.to_string();
    let said = bed.act(&operator, "cancel-task", &[("task", &task)]).await;
    assert!(said.text.contains("The task is cancelled."), "{}", said.text);
    let said = bed.act(&operator, "cancel-task", &[("task", &task)]).await;
    assert!(said.text.contains("role=\"alert\""), "{}", said.text);

    bed.lock("file:///a").await;
    let said = bed.act(&operator, "release-lock", &[("key", "file:///a")]).await;
    assert!(said.text.contains("file:&#x2f;&#x2f;&#x2f;a is free."), "{}", said.text);
    assert!(bed.service.held_locks(&bed.service_principal()).await.unwrap().is_empty());

    let mut create = schedules::Create::new("nightly", "look");
    create.cron = Some("0 3 * * *".to_owned());
    let key = EntityKey::of(Kind::Schedules, &name("default"));
    let command = schedules::Command::Create(Box::new(create));
    let made = bed.node.entities.ask::<Schedules>(&key, Asking::once(Uuid::now_v7()), command).await.unwrap();
    let schedules::Reply::Schedule(schedule) = made else { panic!("{made:?}") };
    let said = bed.act(&operator, "run-schedule", &[("schedule", schedule["id"].as_str().unwrap())]).await;
    assert!(said.text.contains("The schedule has made task"), "{}", said.text);
    let shown = bed.get("/console/default/schedules", &operator).await;
    assert!(shown.text.contains("0 3 * * *") && shown.text.contains("03:00"), "{}", shown.text);

    for (action, fields, said) in [
        ("steer-swarm", [("order", "pause")], "0 agents are paused"),
        ("steer-swarm", [("order", "resume")], "0 agents go on"),
        ("run-agent", [("agent", "nobody")], "nobody"),
        ("kill-run", [("instance", "nobody-00000001")], "there is no instance"),
        ("replay-letter", [("letter", "nonsense")], "letter"),
        ("replay-webhook", [("receipt", "00000000-0000-4000-8000-00000000dead")], "there is no webhook"),
        ("drain-node", [("node", "a")], "nobody to drain to"),
        ("nonsense", [("a", "b")], "there is no action"),
        ("release-lock", [("k", "b")], "key: it is missing"),
    ] {
        let answer = bed.act(&operator, action, &fields).await;
        assert!(answer.text.contains(said), "{action}: {}", answer.text);
    }
    let remove = [("agent", "nobody"), ("order", "remove")];
    let answer = bed.act(&operator, "steer-agent", &remove).await;
    assert!(answer.text.contains("there is no agent"), "{}", answer.text);
    let observer = bed.session(Role::Observer).await;
    let answer = bed.act(&observer, "release-lock", &[("key", "file:///a")]).await;
    assert!(answer.text.contains("the role observer may not do this"), "{}", answer.text);
}

#[tokio::test]
async fn operators_answer_what_agents_ask() {
    let bed = Bed::new();
    let task = bed.task("paint it", Vec::new()).await;
    let ask = |choices: &[&str]| questions::Ask {
        agent: Uuid::from_u128(8),
        name: "painter".to_owned(),
        instance: InstanceId("painter-00000001".to_owned()),
        task: Some(task),
        question: format!("{HOSTILE} or blue?"),
        choices: choices.iter().map(|choice| (*choice).to_owned()).collect(),
        open_for: None,
        at_work: None,
        lead: None,
        denied: None,
    };
    let (one, other) = (bed.question(ask(&[HOSTILE, "blue"])).await, bed.question(ask(&[])).await);
    let (operator, observer) = (bed.session(Role::Operator).await, bed.session(Role::Observer).await);
    for (path, offers) in [
        ("".to_owned(), "2 questions wait for an answer"),
        ("/questions".to_owned(), one.as_str()),
        (format!("/tasks/{task}"), one.as_str()),
        (format!("/questions/{one}"), "name=\"answer\" value=\"blue\""),
        (format!("/questions/{other}"), "<textarea id=\"answer\""),
    ] {
        let shown = bed.get(&format!("/console/default{path}"), &operator).await;
        assert!(shown.text.contains(offers), "{path}: {}", shown.text);
        assert!(!shown.text.contains("<script>") && !shown.text.contains("<img"), "{path}: {}", shown.text);
        let looked = bed.get(&format!("/console/default{path}"), &observer).await;
        assert!(looked.status == 200 && !looked.text.contains("/do/"), "{path}: {}", looked.text);
    }
    let answer = [("question", one.as_str()), ("answer", "blue")];
    let refused = bed.act(&observer, "answer-question", &answer).await;
    assert!(refused.text.contains("the role observer may not do this"), "{}", refused.text);
    let green = bed.act(&operator, "answer-question", &[("question", &one), ("answer", "green")]).await;
    assert!(green.text.contains("none of the choices"), "{}", green.text);
    let said = bed.act(&operator, "answer-question", &answer).await;
    assert!(said.text.contains("The question is answered."), "{}", said.text);
    let late = bed.act(&operator, "answer-question", &answer).await;
    assert!(late.text.contains("somebody has answered the question already"), "{}", late.text);
    let declined = bed.act(&operator, "decline-question", &[("question", &other)]).await;
    assert!(declined.text.contains("nobody answers"), "{}", declined.text);
    let over = bed.get("/console/default/questions?answered=1", &operator).await;
    assert!(over.text.contains(&one) && over.text.contains("declined"), "{}", over.text);
    let shown = bed.get(&format!("/console/default/questions/{one}"), &operator).await;
    assert!(!shown.text.contains("/do/answer-question"), "{}", shown.text);
}

impl Bed {
    async fn question(&self, ask: questions::Ask) -> String {
        let key = EntityKey::of(Kind::Questions, &name("default"));
        let (request, command) = (Asking::once(Uuid::now_v7()), questions::Command::Ask(Box::new(ask)));
        match self.node.entities.ask::<Questions>(&key, request, command).await.unwrap() {
            questions::Reply::Asked(asked) => asked.question["id"].as_str().unwrap().to_owned(),
            other @ questions::Reply::Done => panic!("{other:?}"),
        }
    }

    fn service_principal(&self) -> crate::auth::Principal {
        self.keys.verify(&self.token(Role::Operator, None), self.service.clock().wall()).unwrap()
    }
}

#[tokio::test]
async fn a_page_is_sent_anew_when_the_swarm_has_changed() {
    let bed = Bed::new();
    bed.task("there before", Vec::new()).await;
    let operator = bed.session(Role::Operator).await;
    let request = Request::get("/console/default/board").header("cookie", &operator);
    let request = request.header("accept", "text/event-stream").body(Body::empty()).unwrap();
    let response = bed.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut events = response.into_body().into_data_stream();
    let mut next = async || {
        let bytes = events.next().await.unwrap().unwrap();
        String::from_utf8(bytes.to_vec()).unwrap()
    };
    let first = next().await;
    assert!(first.contains("event: part") && first.contains("there before"), "{first}");
    assert!(!first.contains("<html"), "it is the changing part alone");
    bed.task("came since", Vec::new()).await;
    let second = next().await;
    assert!(second.contains("came since"), "{second}");
}

#[tokio::test]
async fn what_calls_brought_is_shown_to_operators_alone() {
    let bed = Bed::new();
    let boss = crate::auth::Principal::named("boss", Role::Worker);
    let refused = bed.service.call_agent(&boss, Uuid::now_v7(), "boss", "go on".to_owned()).await;
    assert_eq!(refused.unwrap_err().code, skein_shared::Code::SelfCall);
    for (role, is_shown) in [(Role::Operator, true), (Role::Observer, false)] {
        let page = bed.get("/console/default/calls", &bed.session(role).await).await;
        assert!(page.text.contains("<b>boss</b>"), "{role}: {}", page.text);
        assert_eq!(page.text.contains("self_call"), is_shown, "{role}: {}", page.text);
    }
}

#[tokio::test]
async fn an_empty_swarm_says_what_to_do_next() {
    let bed = Bed::new();
    let operator = bed.session(Role::Operator).await;
    for page in pages() {
        let shown = bed.get(&format!("/console/default{page}"), &operator).await;
        assert!(shown.text.contains("class=\"empty\""), "{page}");
    }
}

#[tokio::test]
async fn a_task_from_a_forge_leads_back_to_where_it_was_asked_for() {
    let bed = Bed::new();
    let observer = bed.session(Role::Observer).await;
    let bot = Bot { name: "skein".to_owned(), allowed_users: Vec::new() };
    let pool = EntityKey::of(Kind::Pool, &name("default"));
    for (number, url, leads) in
        [(7, "https://github.com/acme/api/pull/7", true), (8, "javascript:alert(1)", false)]
    {
        let request = json!({ "number": number, "title": "@skein", "html_url": url });
        let body =
            json!({ "action": "opened", "repository": { "full_name": "acme/api" }, "pull_request": request });
        let activity = Activity::of(Forge::Github, "pull_request", &body, &bot).unwrap();
        let command = pool::Command::Forge(Box::new(activity));
        let reply =
            bed.node.entities.ask::<Pool>(&pool, Asking::once(Uuid::now_v7()), command).await.unwrap();
        let pool::Reply::Heard { tasks } = reply else { panic!("{reply:?}") };
        let shown = bed.get(&format!("/console/default/tasks/{}", tasks[0]), &observer).await;
        assert!(shown.status == 200 && !shown.text.contains("href=\"javascript"), "{}", shown.text);
        let about = format!("acme&#x2f;api {number}");
        assert!(shown.text.contains(&about), "{}", shown.text);
        assert_eq!(shown.text.contains(&format!("rel=\"noreferrer\">{about}</a>")), leads, "{}", shown.text);
    }
}
