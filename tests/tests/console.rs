//! The web console in a headless Chromium, as people use it.

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use skein_tests::browser::Browser;
use skein_tests::mcp::Client;
use skein_tests::stage::Stage;
use skein_tests::up::Up;

/// What an agent may write that wants to be more than a text.
const HOSTILE: &str = r#"<img src=x onerror="window.taken=1"><script>window.taken=1</script>'"><svg onload=window.taken=1> {{7*7}}"#;

/// A swarm in a browser that has logged in by the link of `skein console`.
struct Visit {
    browser: Browser,
    base: String,
}

impl Visit {
    async fn begin(up: &Up) -> Result<Self> {
        let browser = Browser::start().await?;
        let link = up.skein(&["console"]).await?;
        let link = link.trim();
        let base = link.split_once("/login").context("no link was printed")?.0.to_owned();
        // The page sends its form by itself, which leads to the overview.
        browser.open(link).await?;
        browser.arrive(&format!("{base}/console/default")).await?;
        Ok(Self { browser, base })
    }

    async fn open(&self, page: &str) -> Result<()> {
        self.browser.open(&format!("{}/console/default{page}", self.base)).await
    }

    async fn text(&self, selector: &str) -> Result<String> {
        let found =
            self.browser.eval(&format!("document.querySelector({})?.innerText", json!(selector))).await?;
        Ok(found.as_str().unwrap_or_default().to_owned())
    }

    /// Expects that no page has complained or asked another machine for anything.
    fn is_quiet(&self) -> Result<()> {
        let (problems, outside) = (self.browser.problems(), self.browser.outside());
        ensure!(problems.is_empty() && outside.is_empty(), "{problems:?} {outside:?}");
        Ok(())
    }
}

/// A lead and its workers with work of all kinds; gives the lead.
async fn furnish(up: &Up) -> Result<Client> {
    let lead = Client::new(&up.mcp, &up.token("lead", "lead").await?);
    lead.call("join-swarm", json!({ "name": "lead", "lead": true })).await?;
    let epic = lead
        .call("create-epic", json!({ "name": "Release 2", "goal": "Ship the second release without a regression", "priority": 80 }))
        .await?;
    let epic = epic["epic"]["id"].clone();
    let mut made: Vec<Value> = Vec::new();
    for (number, text) in [
        "Collect what has changed since the last release",
        "Write the release notes from the collected changes, one paragraph for each feature",
        "Run the whole suite on both architectures",
        "Build and sign the images",
        "Put the release on the page of downloads",
        "Tell the channel that it is out",
    ]
    .into_iter()
    .enumerate()
    {
        let needs: Vec<&Value> = match number {
            0 | 2 => vec![],
            1 => vec![&made[0]],
            3 => vec![&made[2]],
            4 => vec![&made[1], &made[3]],
            _ => vec![&made[4]],
        };
        let task = json!({ "task": text, "priority": 90 - number * 10, "epicId": epic, "dependsOn": needs, "tags": ["release"] });
        let sent = lead.call("send-task", task).await?;
        made.push(sent["task"]["id"].clone());
    }
    lead.call("send-task", json!({ "task": HOSTILE, "tags": ["<b>tag</b>"], "priority": 10 })).await?;
    lead.call("post-message", json!({ "content": format!("{HOSTILE} says the lead") })).await?;
    let schedule = json!({ "name": "nightly", "taskTemplate": "Look through the logs of the night", "cronExpression": "0 3 * * *" });
    lead.call("create-schedule", schedule).await?;
    for name in ["ada", "grace"] {
        let worker = Client::new(&up.mcp, &up.token("worker", name).await?);
        worker.call("join-swarm", json!({ "name": name })).await?;
        let claimed = worker.call("task_claim_next", json!({})).await?;
        let task = &claimed["task"]["id"];
        worker.call("store-progress", json!({ "taskId": task, "progress": "half of it is done" })).await?;
        if name == "ada" {
            worker
                .call("store-progress", json!({
                        "taskId": task, "status": "completed", "output": HOSTILE,
                        "costData": { "totalCostUsd": 1.25, "inputTokens": 120_000, "outputTokens": 4_000, "model": "opus" },
                    }))
                .await?;
        }
        worker
            .call(
                "acquire_lock",
                json!({ "resource_key": format!("github://acme/app/issues/{}", name.len()) }),
            )
            .await?;
    }
    Ok(lead)
}

/// Every page that stands in the menu.
const PAGES: [&str; 17] = [
    "",
    "/board",
    "/tasks",
    "/graph",
    "/epics",
    "/schedules",
    "/agents",
    "/runs",
    "/calls",
    "/costs",
    "/locks",
    "/waits",
    "/questions",
    "/messages",
    "/deliveries",
    "/cluster",
    "/trends",
];

/// What some of them show of what [`furnish`] and the agents of the test have left.
const SHOWN: [(&str, &[&str]); 13] = [
    ("", &["3 of 3", "grace", "half of it is done", "nightly", "Put the release on the page of downloads"]),
    ("/board", &["Build and sign the images", "grace"]),
    ("/graph", &["Tell the channel that it"]),
    ("/epics", &["Release 2", "Ship the second release", "17 %", "1 of 6 tasks done, 1 at work"]),
    ("/schedules", &["nightly", "0 3 * * *", "03:00"]),
    ("/agents", &["ada", "grace", "caller", "sleeper"]),
    ("/runs", &["writer", "sleeper", "frozen", "caller"]),
    ("/calls", &["caller → callee", "completed"]),
    ("/costs", &["$1.25", "ada", "opus", "US dollars a day"]),
    ("/locks", &["github://acme/app/issues/3", "ada", "github://acme/app/issues/5", "grace"]),
    ("/waits", &["webhook from github", "sleeper"]),
    ("/cluster", &["Runners", "4", "ready"]),
    ("/trends", &["Tasks that ended", "in progress"]),
];

#[tokio::test]
async fn pages_open_without_complaint_at_any_width_and_show_hostile_text_as_text() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push"}"#;
    let call = r#"call_agent={"target_agent":"callee","context":"look at it"}"#;
    let stage = Stage::new(4)?
        .agent("caller", "", &[call, "result", "hold"])?
        .agent("callee", "", &[r#"return_value={"value":"<i>looked</i>"}"#])?
        .agent("sleeper", "", &[wait])?
        .script(
            "writer",
            "",
            "echo '<img src=x onerror=window.taken=1> written'; echo second line; sleep 600",
        )?
        .start()
        .await?;
    let up = stage.up();
    furnish(up).await?;
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    stage.run("caller").await?;
    stage.answer("caller", "result").await?;
    let writer = stage.ask("writer", "").await?;
    stage.becomes(&writer, "running").await?;

    let visit = Visit::begin(up).await?;
    let browser = &visit.browser;
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    pages.extend(["/messages?inbox=1".to_owned(), "/agents/caller".to_owned(), format!("/runs/{writer}")]);
    for (list, link) in [("/tasks", "tasks/"), ("/epics", "epics/"), ("/agents", "members/")] {
        visit.open(list).await?;
        let first = format!("document.querySelector('#live a[href*=\"{link}\"]').getAttribute('href')");
        let path = browser.eval(&first).await?;
        pages.push(path.as_str().context("no link")?.trim_start_matches("/console/default").to_owned());
    }
    let pictures = std::env::var("SKEIN_TEST_PICTURES").ok().map(PathBuf::from);
    for (width, height, scheme) in
        [(1440, 900, "light"), (1440, 900, "dark"), (380, 800, "light"), (380, 800, "dark")]
    {
        browser.size(width, height).await?;
        browser.scheme(scheme).await?;
        for page in &pages {
            visit.open(page).await?;
            // What comes by the stream is what is looked at, not only what came with the page.
            browser.until("document.getElementById('live').dataset.parts > 0").await?;
            let wide = browser.eval("document.documentElement.scrollWidth").await?;
            ensure!(
                wide.as_u64().is_some_and(|wide| wide <= u64::from(width)),
                "{page} is {wide} wide at {width}"
            );
            let headings = browser.eval("document.querySelectorAll('h1').length").await?;
            ensure!(headings == json!(1), "{page} has {headings} headings");
            if let Some(folder) = &pictures {
                let name = page.trim_matches('/').replace(['/', '?', '='], "-");
                let name = if name.is_empty() { "overview" } else { &name };
                browser.picture(&folder.join(format!("{name}-{width}-{scheme}.png"))).await?;
            }
        }
    }
    let mut missing = Vec::new();
    for (page, texts) in SHOWN {
        visit.open(page).await?;
        let shown = visit.text("#live").await?;
        missing.extend(
            texts.iter().filter(|text| !shown.contains(**text)).map(|text| (page, *text, shown.clone())),
        );
    }
    ensure!(missing.is_empty(), "{missing:#?}");
    ensure!(browser.eval("document.querySelectorAll('#live .chart svg').length > 0").await? == json!(true));
    let mut colours = Vec::new();
    for scheme in ["light", "dark"] {
        browser.scheme(scheme).await?;
        colours.push(browser.eval("getComputedStyle(document.body).backgroundColor").await?);
    }
    ensure!(colours[0] != colours[1], "dark is as light: {colours:?}");
    visit.open(&format!("/runs/{sleeper}")).await?;
    ensure!(visit.text("#live").await?.contains("webhook, until"), "{}", visit.text("#live").await?);
    visit.open(&format!("/runs/{writer}")).await?;
    browser.until("document.getElementById('log').innerText.includes('second line')").await?;
    ensure!(
        visit.text("#log").await?.contains("<img src=x onerror=window.taken=1> written"),
        "the log is cut"
    );
    visit.open("/messages").await?;
    ensure!(visit.text("#live").await?.contains(HOSTILE), "what was said is not shown as it was said");
    ensure!(browser.eval("window.taken === undefined").await? == json!(true), "a text has run");
    visit.is_quiet()
}

#[tokio::test]
async fn what_changes_is_shown_without_loading_the_page_again() -> Result<()> {
    let up = Up::start().await?;
    let lead = furnish(&up).await?;
    let visit = Visit::begin(&up).await?;
    visit.open("/board").await?;
    visit.browser.eval("window.before = 1").await?;
    visit.browser.until("document.getElementById('live').dataset.parts > 0").await?;
    visit.browser.eval("document.querySelector('.card a').focus()").await?;
    let focused = visit.browser.eval("document.activeElement.id").await?;
    lead.call("send-task", json!({ "task": "Something that was not there before", "priority": 5 })).await?;
    visit.browser.until("document.body.innerText.includes('Something that was not there before')").await?;
    ensure!(visit.browser.eval("window.before").await? == json!(1), "the page was loaded again");
    ensure!(visit.browser.eval("document.activeElement.id").await? == focused, "the focus was lost");
    visit.is_quiet()
}

/// A browser connects again by itself, and each time the node begins with the last lines.
#[tokio::test]
async fn the_log_of_a_run_has_each_line_once_however_often_its_stream_begins() -> Result<()> {
    let stage = Stage::new(1)?.script("writer", "", "echo first line; sleep 600")?.start().await?;
    let writer = stage.ask("writer", "").await?;
    stage.becomes(&writer, "running").await?;
    let visit = Visit::begin(stage.up()).await?;
    visit.open(&format!("/runs/{writer}")).await?;
    visit.browser.until("document.getElementById('log').innerText.includes('first line')").await?;
    // The page opens its streams anew when it is seen again; the one of the log is held on to.
    let hold_on = "(() => {
        const log = document.getElementById('log').dataset.log;
        window.EventSource = class extends EventSource {
            constructor(url) { super(url); if (url === log) window.source = this; }
        };
        for (const hidden of [true, false]) {
            Object.defineProperty(document, 'hidden', { value: hidden, configurable: true });
            document.dispatchEvent(new Event('visibilitychange'));
        }
        return !!window.source;
    })()";
    ensure!(visit.browser.eval(hold_on).await? == json!(true), "the log is not followed");
    let twice = "(() => {
        const data = JSON.stringify({ lines: ['the last line'], note: '' });
        for (let time = 0; time < 2; time++) {
            window.source.dispatchEvent(new Event('open'));
            window.source.dispatchEvent(new MessageEvent('lines', { data }));
        }
        const rows = [...document.getElementById('log').children];
        return rows.filter(row => row.textContent === 'the last line').length;
    })()";
    ensure!(visit.browser.eval(twice).await? == json!(1), "{}", visit.text("#log").await?);
    visit.is_quiet()
}

#[tokio::test]
async fn a_task_is_cancelled_by_keyboard() -> Result<()> {
    let up = Up::start().await?;
    furnish(&up).await?;
    let visit = Visit::begin(&up).await?;
    let browser = &visit.browser;
    browser.size(380, 800).await?;
    // `g` and `t` lead to the tasks, `/` to their search.
    browser.press("g").await?;
    browser.loading(async || browser.press("t").await).await?;
    ensure!(browser.eval("location.pathname").await? == "/console/default/tasks", "g t leads elsewhere");
    browser.press("/").await?;
    for letter in "images".chars() {
        browser.press(&letter.to_string()).await?;
    }
    browser.loading(async || browser.press("Enter").await).await?;
    browser.tab_to("it.matches('a') && it.innerText.includes('Build and sign the images')").await?;
    browser.loading(async || browser.press("Enter").await).await?;
    browser.tab_to("it.matches('summary') && it.innerText.startsWith('Cancel')").await?;
    browser.press("Enter").await?;
    browser.tab_to("it.matches('button') && it.innerText === 'Cancel this task'").await?;
    browser.loading(async || browser.press("Enter").await).await?;
    ensure!(visit.text("[role=status].said").await?.contains("cancelled"), "{}", visit.text("main").await?);
    ensure!(visit.text("#live .status").await? == "cancelled", "{}", visit.text("#live").await?);
    let listed = up.skein(&["tasks", "list", "--json"]).await?;
    let cancelled = listed.lines().filter(|line| line.contains("\"cancelled\"")).count();
    ensure!(cancelled == 1, "{listed}");
    browser.press("?").await?;
    ensure!(browser.eval("document.getElementById('keys').open").await? == json!(true), "no list of keys");
    visit.is_quiet()
}

#[tokio::test]
async fn a_question_is_answered_by_keyboard() -> Result<()> {
    let up = Up::start().await?;
    let worker = Client::new(&up.mcp, &up.token("worker", "painter").await?);
    worker.call("join-swarm", json!({ "name": "painter" })).await?;
    let question = json!({ "question": format!("Red or blue? {HOSTILE}"), "choices": [HOSTILE, "blue"] });
    let asked = worker.call("ask_human", question).await?;
    let visit = Visit::begin(&up).await?;
    let browser = &visit.browser;
    browser.size(1440, 900).await?;
    ensure!(visit.text(".troubles").await?.contains("1 question waits"), "{}", visit.text("main").await?);
    browser.press("g").await?;
    browser.loading(async || browser.press("q").await).await?;
    browser.tab_to("it.matches('a') && it.innerText.includes('Red or blue?')").await?;
    browser.loading(async || browser.press("Enter").await).await?;
    browser.tab_to("it.matches('button') && it.innerText === 'blue'").await?;
    browser.loading(async || browser.press("Enter").await).await?;
    ensure!(visit.text("[role=status].said").await?.contains("answered"), "{}", visit.text("main").await?);
    let wait = json!({ "for": ["questions"], "cursor": asked["cursor"], "format": "rows" });
    let told = worker.call("wait", wait).await?;
    ensure!(told["changed"][0]["answer"] == "blue", "{told}");
    ensure!(browser.eval("window.taken === undefined").await? == json!(true), "a text has run");
    visit.is_quiet()
}

#[tokio::test]
async fn pages_work_without_their_script() -> Result<()> {
    let up = Up::start().await?;
    furnish(&up).await?;
    let client = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?;
    let base = up.mcp.trim_end_matches("/mcp");
    let token = up.token("observer", "onlooker").await?;
    let entered = client.post(format!("{base}/login")).body(format!("token={token}")).send().await?;
    ensure!(entered.status() == 303, "{}", entered.status());
    let cookie = entered.headers()["set-cookie"].to_str()?.to_owned();
    ensure!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let session = cookie.split(';').next().unwrap_or_default().to_owned();
    for page in ["", "/board", "/tasks", "/graph", "/epics", "/locks", "/waits", "/messages", "/schedules"] {
        let shown =
            client.get(format!("{base}/console/default{page}")).header("cookie", &session).send().await?;
        ensure!(shown.status() == 200, "{page}: {}", shown.status());
        ensure!(
            shown.headers()["content-security-policy"].to_str()?.contains("default-src 'none'"),
            "{page}"
        );
        let text = shown.text().await?;
        ensure!(!text.contains("<img src=x") && !text.contains("<script>"), "{page} has the text as it is");
        ensure!(!text.contains("/do/"), "{page} offers an onlooker an action");
    }
    // What a webhook said is the operators' to see, and an onlooker changes nothing.
    for page in ["/deliveries", "/runs", "/cluster"] {
        let shown =
            client.get(format!("{base}/console/default{page}")).header("cookie", &session).send().await?;
        ensure!(shown.status() == 403, "{page}: {}", shown.status());
    }
    Ok(())
}
