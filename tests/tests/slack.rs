//! Slack, whose part a stand-in takes that checks requests as the real one would.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

#[path = "slack/deliveries.rs"]
mod deliveries;
#[path = "slack/repeats.rs"]
mod repeats;

use anyhow::{Result, ensure};
use bytes::Bytes;
use futures::{StreamExt, stream};
use serde_json::{Value, json};
use skein_coordinator::config::Workspace as Settings;
use skein_coordinator::slack::{Content, Download, Error, LARGEST, Post, Workspace};
use skein_shared::{Code, Refusal};
use skein_tests::mcp::Client;
use skein_tests::redis::until;
use skein_tests::slack::{APP, BOT, Slack, Trouble, event, next_letter};
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up};
use skein_tests::webhook::receipts;
use uuid::Uuid;

const ID: Uuid = Uuid::from_u128(7);

async fn workspace() -> Result<(Slack, Workspace)> {
    let slack = Slack::start().await?;
    let workspace = Workspace::new(&slack.settings())?;
    Ok((slack, workspace))
}

fn post<'a>(channel: &'a str, thread: Option<&'a str>, text: &'a str) -> Post<'a> {
    Post { channel, thread, text, name: Some("Lea"), icon: Some(":crown:") }
}

fn texts(messages: &[Value]) -> Vec<&str> {
    messages.iter().filter_map(|message| message["text"].as_str()).collect()
}

#[tokio::test]
async fn every_method_is_called_as_slack_wants_it() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let first = slack.says("C1", "U1", "hello & <all>", None);
    let reply = workspace.post(&post("C1", Some(&first), "hi"), ID, None).await?;
    ensure!(slack.written("C1")[1]["ts"] == reply.as_str());
    let thread = workspace.thread("C1", &first, 20).await?;
    ensure!(texts(&thread.messages) == ["hello & <all>", "hi"] && !thread.more, "{thread:?}");
    slack.says("C1", "U2", "newer", None);
    let history = workspace.history("C1", 1).await?;
    ensure!(texts(&history.messages) == ["newer"] && history.more, "{history:?}");
    // One channel a page, of which the bot is in the first and the last.
    let channels = workspace.channels(&["public_channel", "im"], 10).await?;
    ensure!(channels.iter().map(|one| &one["id"]).eq(["C1", "D1"]), "{channels:?}");
    ensure!(workspace.user("U1").await?["profile"]["display_name"] == "Ada");
    ensure!(workspace.identity().await?["user_id"] == "UBOT");
    ensure!(workspace.connection().await?.scheme() == "ws");
    let file = workspace.put("notes.txt", Bytes::from_static(b"words").into()).await?;
    ensure!(!workspace.is_shown(&file, "C1").await?);
    workspace.show(&file, "notes.txt", "C1", Some(&first), Some("here")).await?;
    ensure!(workspace.is_shown(&file, "C1").await? && !workspace.is_shown(&file, "C2").await?);
    let down = workspace.file(&file).await;
    ensure!(matches!(down, Err(Error::Garbled { .. })), "an upload has no address yet: {down:?}");
    slack.has_file("F9", "data.txt", b"content");
    let mut down = workspace.file("F9").await?;
    ensure!(down.info["name"] == "data.txt", "{down:?}");
    ensure!(down.next().await?.as_deref() == Some(b"content") && down.next().await?.is_none());
    Ok(())
}

#[tokio::test]
async fn what_slack_refuses_is_said_in_its_words() -> Result<()> {
    let (_slack, workspace) = workspace().await?;
    let refusal = |outcome: Result<String, Error>| outcome.unwrap_err().refusal();
    let outside = refusal(workspace.post(&post("C2", None, "x"), ID, None).await);
    ensure!(outside.code == Code::Forbidden && outside.message.contains("invite the bot"), "{outside:?}");
    let nowhere = refusal(workspace.post(&post("C9", None, "x"), ID, None).await);
    ensure!(nowhere.code == Code::NotFound && nowhere.detail["slack"] == "channel_not_found", "{nowhere:?}");
    let long = refusal(workspace.post(&post("C1", None, &"x".repeat(40_001)), ID, None).await);
    ensure!(long.code == Code::TooLarge, "{long:?}");
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_not_good_is_said_and_not_shown() -> Result<()> {
    let slack = Slack::start().await?;
    let settings: Settings = serde_json::from_value(json!({"bot_token": "xoxb-old", "api": slack.api()}))?;
    let workspace = Workspace::new(&settings)?;
    let refusal = workspace.identity().await.unwrap_err().refusal();
    ensure!(
        refusal.code == Code::SlackNotConfigured && refusal.message.contains("invalid_auth"),
        "{refusal:?}"
    );
    ensure!(matches!(workspace.connection().await, Err(Error::NoAppToken)));
    for shown in [format!("{refusal:?}"), format!("{workspace:?}"), format!("{settings:?}")] {
        ensure!(!shown.contains("xoxb-old"), "{shown}");
    }
    Ok(())
}

#[tokio::test]
async fn who_may_speak_is_looked_up_and_a_token_that_is_not_good_is_no_answer() -> Result<()> {
    let slack = Slack::start().await?;
    let open = |token: &str| {
        let settings = json!({"bot_token": token, "api": slack.api(), "allowed_users": ["U7"],
            "allowed_domains": ["acme.example"]});
        anyhow::Ok(Workspace::new(&serde_json::from_value::<Settings>(settings)?)?)
    };
    let workspace = open(BOT)?;
    for (event, user, may) in [
        ("message", Some("U1"), true),
        ("message", Some("U1"), true),
        ("message", Some("U7"), true),
        ("message", Some("U9"), false),
        ("message", Some("U9"), false),
        ("message", None, false),
        ("channel_archive", None, true),
    ] {
        ensure!(workspace.may_speak(event, user).await? == may, "{event} {user:?}");
    }
    ensure!(slack.calls("users.info").len() == 2, "what was found out is remembered");
    let revoked = open("xoxb-old")?;
    ensure!(revoked.may_speak("message", Some("U7")).await?, "nobody has to be asked");
    for _ in 0..2 {
        let refusal = revoked.may_speak("message", Some("U1")).await.unwrap_err();
        ensure!(
            refusal.code == Code::Unavailable && refusal.detail["slack"] == "invalid_auth",
            "{refusal:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_limit_is_waited_for_as_long_as_it_makes_sense() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    slack.trouble("chat.postMessage", Trouble::Limited(1));
    workspace.post(&post("C1", None, "once"), ID, None).await?;
    ensure!(slack.written("C1").len() == 1);
    slack.trouble("users.info", Trouble::Limited(3600));
    let refusal = workspace.user("U1").await.unwrap_err().refusal();
    ensure!(refusal.code == Code::RateLimited && refusal.retry_after_ms == Some(3_600_000), "{refusal:?}");
    // Who asks meanwhile is not even sent to Slack.
    let refusal = workspace.user("U2").await.unwrap_err().refusal();
    ensure!(refusal.code == Code::RateLimited && slack.calls("users.info").is_empty(), "{refusal:?}");
    ensure!(workspace.history("C1", 1).await?.messages.len() == 1, "other methods go on");
    Ok(())
}

#[tokio::test]
async fn files_and_the_token_go_between_us_and_slack_alone() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let elsewhere = Slack::start().await?;
    elsewhere.has_file("F1", "bait", b"bait");
    let foreign = format!("{}F1", elsewhere.api().replace("/api/", "/files/"));
    let refused = |outcome: Result<Download, Error>| outcome.unwrap_err().refusal().code;
    ensure!(refused(workspace.download(&foreign).await) == Code::Forbidden);
    let method = format!("{}auth.revoke", slack.api());
    ensure!(refused(workspace.download(&method).await) == Code::Forbidden);
    slack.has_file("F2", "moved", b"");
    slack.redirects("F2", &foreign);
    let own = slack.api().replace("/api/", "/files/");
    ensure!(refused(workspace.download(&format!("{own}F2")).await) == Code::Forbidden);
    ensure!(refused(workspace.download(&format!("{own}F3")).await) == Code::NotFound);
    let shown = |file: &str| (file.to_owned(), Some(format!("Bearer {BOT}")));
    ensure!(slack.downloads() == [shown("F2"), shown("F3")], "{:?}", slack.downloads());
    ensure!(elsewhere.downloads().is_empty(), "{:?}", elsewhere.downloads());
    let large = Content { length: LARGEST + 1, parts: stream::empty().boxed() };
    let large = workspace.put("large", large).await;
    ensure!(matches!(large, Err(Error::TooLarge(_))) && slack.calls("files.getUploadURLExternal").is_empty());
    Ok(())
}

#[tokio::test]
async fn a_file_that_cannot_be_read_to_its_end_is_not_sent() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let gone = Refusal::new(Code::Unavailable, "the runner has gone");
    let parts = stream::iter([Ok(Bytes::from_static(b"half")), Err(gone.clone())]).boxed();
    let sent = workspace.put("half", Content { length: 8, parts }).await;
    ensure!(sent.as_ref().err() == Some(&Error::Given(gone)), "{sent:?}");
    ensure!(slack.calls("files.completeUploadExternal").is_empty() && slack.written("C1").is_empty());
    Ok(())
}

async fn node(slack: &Slack) -> Result<Up> {
    Up::start_in(Folder::new()?.configured(&slack.configuration())?, &["--no-runner"]).await
}

#[tokio::test]
async fn agents_talk_to_people_and_no_token_is_shown() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    let (lead, worker) = agents(&up).await?;
    let posted =
        lead.call("slack-post", json!({"channelId": "C1", "message": "# News\n**all** <done>"})).await?;
    ensure!(posted["success"] == true, "{posted}");
    let written = slack.written("C1");
    ensure!(written[0]["text"] == "*News*\n*all* &lt;done&gt;", "{written:?}");
    ensure!(written[0]["username"] == "lea" && written[0]["icons"]["emoji"] == ":crown:", "{written:?}");
    ensure!(posted["messageTs"] == written[0]["ts"], "{posted}");

    slack.says("C1", "U1", "a &lt; b &amp;&amp; c", posted["messageTs"].as_str());
    let thread = json!({"channelId": "C1", "threadTs": posted["messageTs"]});
    let read = lead.call("slack-read", thread).await?;
    let people: Vec<&str> =
        read["messages"].as_array().unwrap().iter().filter_map(|m| m["username"].as_str()).collect();
    ensure!(people == ["lea", "Ada"] && read["messages"][0]["isBot"] == true, "{read}");
    ensure!(read["messages"][1]["text"] == "a < b && c", "{read}");
    let channels = worker.call("slack-list-channels", json!({"types": ["public"]})).await?;
    ensure!(
        channels["channels"]
            == json!([{"id": "C1", "name": "general", "type": "public", "isMember": true, "numMembers": 3}]),
        "{channels}"
    );

    // Files, for agents that have no instance to keep them in.
    let file =
        json!({"channelId": "C1", "content": "d29yZHM=", "filename": "a.txt", "initialComment": "look"});
    let up_file = lead.call("slack-upload-file", file).await?;
    ensure!(slack.content(up_file["fileId"].as_str().unwrap_or_default()) == b"words", "{up_file}");
    slack.has_file("F9", "data.txt", b"words");
    let down = worker.call("slack-download-file", json!({"fileId": "F9"})).await?;
    ensure!(down["content"] == "d29yZHM=" && down["fileInfo"]["name"] == "data.txt", "{down}");
    let foreign = worker.call("slack-download-file", json!({"url": "https://evil.example/x"})).await?;
    ensure!(foreign["code"] == "forbidden", "{foreign}");

    let refused = worker.call("slack-post", json!({"channelId": "C1", "message": "x"})).await;
    ensure!(refused.is_err() || refused.as_ref().is_ok_and(|one| one["success"] == false), "{refused:?}");
    let outside = lead.call("slack-post", json!({"channelId": "C2", "message": "x"})).await?;
    ensure!(outside["code"] == "forbidden" && slack.written("C2").is_empty(), "{outside}");

    let log = up.log()?;
    ensure!(!log.contains(BOT) && !log.contains(APP), "a token stands in the log:\n{log}");
    Ok(())
}

async fn agents(up: &Up) -> Result<(Client, Client)> {
    let (lead, worker) = (up.token("lead", "lea").await?, up.token("worker", "wim").await?);
    let (lead, worker) = (Client::new(&up.mcp, &lead), Client::new(&up.mcp, &worker));
    lead.call("join-swarm", json!({"name": "lea", "lead": true})).await?;
    worker.call("join-swarm", json!({"name": "wim"})).await?;
    Ok((lead, worker))
}

#[tokio::test]
async fn a_mention_reaches_the_lead_and_the_work_is_answered_in_its_thread_once() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    let (lead, worker) = agents(&up).await?;
    let cursor = lead.call("wait", json!({"timeout_s": 0})).await?["cursor"].clone();
    let ts = slack.says("C1", "U1", "<@UBOT> fix the **door**", None);
    let said = event("Ev1", "C1", &ts, None, "<@UBOT> fix the door");
    let envelope = slack.sends("events_api", &said);
    let (message, cursor) = next_letter(&lead, &cursor).await?;
    slack.until(|slack| slack.is_acknowledged(&envelope)).await;
    ensure!(message["content"] == "fix the door" && message["slackThreadTs"] == ts.as_str(), "{message}");
    let posts = slack.until_posted("C1", 1).await;
    ensure!(texts(&posts) == ["*lea* has this in its inbox."], "{posts:?}");
    ensure!(posts[0]["thread_ts"] == ts.as_str(), "{posts:?}");

    let answer = json!({"inboxMessageId": message["id"], "message": "wim will do it"});
    ensure!(lead.call("slack-reply", answer).await?["success"] == true);
    ensure!(slack.until_posted("C1", 2).await[1]["thread_ts"] == ts.as_str());

    // What is said next in the thread goes to whoever had it, without a mention.
    let more = slack.says("C1", "U1", "today, please", Some(&ts));
    slack.sends("events_api", &event("Ev2", "C1", &more, Some(&ts), "today, please"));
    let (message, _) = next_letter(&lead, &cursor).await?;
    let content = message["content"].as_str().unwrap_or_default();
    ensure!(content.starts_with("today, please\n\n(Said in a thread: slack-read"), "{message}");
    let wim = worker.call("my-agent-info", json!({})).await?["agentId"].clone();
    let delegated =
        lead.call("inbox-delegate", json!({"inboxMessageId": message["id"], "agentId": wim})).await?;
    ensure!(delegated["success"] == true, "{delegated}");

    // Over a crash nothing is posted twice, and what was not is.
    let polled = worker.call("poll-task", json!({})).await?;
    let task = polled["task"]["id"].clone();
    ensure!(task.is_string(), "{polled}");
    slack.until_posted("C1", 3).await;
    slack.trouble("chat.postMessage", Trouble::AnswerLost);
    let done = json!({"taskId": task, "status": "completed", "output": "The **door** is fixed."});
    ensure!(worker.call("store-progress", done).await?["success"] == true);
    slack.until_posted("C1", 4).await;
    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let again = slack.says("C1", "U1", "swarm#all thank you", Some(&ts));
    slack.sends("events_api", &event("Ev3", "C1", &again, Some(&ts), "swarm#all thank you"));
    let posts = slack.until_posted("C1", 5).await;
    let told: Vec<&str> = texts(&posts);
    ensure!(told[1] == "wim will do it" && told[2].starts_with("*wim*"), "{told:?}");
    ensure!(told[3] == "The *door* is fixed." && told[4].starts_with("*wim* has it"), "{told:?}");
    ensure!(posts[3]["username"] == "wim" && posts[3]["thread_ts"] == ts.as_str(), "{posts:?}");
    let log = up.log()?;
    ensure!(!log.contains(BOT) && !log.contains(APP), "a token stands in the log:\n{log}");
    Ok(())
}

#[tokio::test]
async fn what_slack_refuses_until_an_operator_has_mended_it_is_told_then() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    let (lead, worker) = agents(&up).await?;
    let cursor = lead.call("wait", json!({"timeout_s": 0})).await?["cursor"].clone();
    let ts = slack.says("C1", "U1", "<@UBOT> fix the door", None);
    slack.sends("events_api", &event("Ev1", "C1", &ts, None, "<@UBOT> fix the door"));
    let (message, _) = next_letter(&lead, &cursor).await?;
    slack.until_posted("C1", 1).await;
    for word in ["token_revoked", "missing_scope", "message_limit_exceeded"] {
        slack.trouble("chat.postMessage", Trouble::Refused(word));
    }
    let wim = worker.call("my-agent-info", json!({})).await?["agentId"].clone();
    let delegated =
        lead.call("inbox-delegate", json!({"inboxMessageId": message["id"], "agentId": wim})).await?;
    ensure!(delegated["success"] == true, "{delegated}");
    let polled = worker.call("poll-task", json!({})).await?;
    ensure!(polled["task"]["id"].is_string(), "{polled}");
    let posts = slack.until_posted("C1", 2).await;
    ensure!(texts(&posts)[1].starts_with("*wim*") && posts[1]["thread_ts"] == ts.as_str(), "{posts:?}");
    up.has_logged("what people are to be told in Slack waits").await?;
    let log = up.log()?;
    ensure!(log.contains("token_revoked") && !log.contains("became a dead letter"), "{log}");
    Ok(())
}

#[tokio::test]
async fn what_comes_over_a_connection_is_acknowledged_once_it_cannot_be_lost() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    slack.until(|slack| slack.connections() == 1).await;
    let ids = [
        slack.sends("events_api", &event("Ev1", "C1", "1.0", None, "hello")),
        slack.sends(
            "slash_commands",
            &json!({"command": "/go", "text": "x", "channel_id": "C1", "user_id": "U1",
            "trigger_id": "t1", "token": "old"}),
        ),
        slack.sends(
            "interactive",
            &json!({"type": "block_actions", "trigger_id": "t2", "user": {"id": "U1"},
            "actions": [{"action_id": "ok", "value": "v"}]}),
        ),
        // Neither can be read, and no repeat would help.
        slack.sends("events_api", &json!({"nothing": true})),
    ];
    for id in &ids {
        slack.until(|slack| slack.is_acknowledged(id)).await;
    }
    let events = async || -> Result<Vec<String>> {
        let rows = receipts(&up).await?;
        let mut events: Vec<String> =
            rows.iter().map(|row| row["event"].as_str().unwrap_or("?").to_owned()).collect();
        events.sort();
        Ok(events)
    };
    ensure!(events().await? == ["?", "block_actions", "message", "slash_command"], "{:?}", events().await?);

    // Slack asks for another connection; then it breaks off, and what comes meanwhile comes again.
    slack.retires_connections();
    slack.until(|slack| slack.connections() == 2).await;
    slack.cuts_connections();
    let id = slack.sends("events_api", &event("Ev2", "C1", "2.0", None, "again"));
    slack.until(|slack| slack.is_acknowledged(&id)).await;
    // The same event once more is the same event.
    let id = slack.sends("events_api", &event("Ev2", "C1", "2.0", None, "again"));
    slack.until(|slack| slack.is_acknowledged(&id)).await;
    ensure!(events().await?.iter().filter(|event| *event == "message").count() == 2);
    Ok(())
}

#[tokio::test]
async fn what_somebody_says_whom_slack_does_not_tell_of_comes_again() -> Result<()> {
    let slack = Slack::start().await?;
    let settings = format!("{}allowed_domains = [\"acme.example\"]\n", slack.configuration());
    let up = Up::start_in(Folder::new()?.configured(&settings)?, &["--no-runner"]).await?;
    slack.until(|slack| slack.connections() == 1).await;
    slack.trouble("users.info", Trouble::Refused("a_word_that_nobody_knows"));
    let first = slack.sends("events_api", &event("Ev1", "C1", "1.0", None, "hello"));
    let second = slack.sends("events_api", &event("Ev2", "C1", "2.0", None, "again"));
    // One is settled after the other.
    slack.until(|slack| slack.is_acknowledged(&second)).await;
    ensure!(!slack.is_acknowledged(&first), "what was not written down is lost");
    slack.cuts_connections();
    slack.until(|slack| slack.is_acknowledged(&first)).await;
    let kept = up.skein(&["webhooks", "list", "--json"]).await?;
    ensure!(kept.lines().count() == 2, "{kept}");
    Ok(())
}

/// Else whoever is known to be allowed would wait behind each of them.
#[tokio::test]
async fn while_slack_does_not_say_who_somebody_is_nobody_waits_behind_strangers() -> Result<()> {
    let slack = Slack::start().await?;
    let settings = json!({"bot_token": BOT, "api": slack.api(), "allowed_users": ["U7"], "allowed_domains": ["acme.example"]});
    let workspace = Workspace::new(&serde_json::from_value::<Settings>(settings)?)?;
    slack.trouble("users.info", Trouble::Late);
    for stranger in ["U1", "U9", "U1"] {
        let refusal = workspace.may_speak("message", Some(stranger)).await.unwrap_err();
        ensure!(refusal.code == Code::Unavailable, "{refusal:?}");
    }
    ensure!(workspace.may_speak("message", Some("U7")).await?);
    // The first is on its way still, and nobody else was looked up.
    slack.until_late(1).await;
    ensure!(slack.calls("users.info").is_empty(), "each of them was looked up");
    Ok(())
}

/// Else a Slack that takes so long for everybody would let no stranger in, however often they speak.
#[tokio::test]
async fn what_slack_says_late_of_somebody_counts_when_they_speak_again() -> Result<()> {
    let slack = Slack::start().await?;
    let settings = json!({"bot_token": BOT, "api": slack.api(), "allowed_domains": ["acme.example"]});
    let workspace = Workspace::new(&serde_json::from_value::<Settings>(settings)?)?;
    slack.trouble("users.info", Trouble::Late);
    let refusal = workspace.may_speak("message", Some("U1")).await.unwrap_err();
    ensure!(refusal.code == Code::Unavailable, "{refusal:?}");
    slack.lets_go();
    until("it is known who they are", async || Ok(workspace.may_speak("message", Some("U1")).await?)).await?;
    ensure!(slack.calls("users.info").len() == 1, "the answer was thrown away, and they were looked up anew");
    Ok(())
}

#[tokio::test]
async fn people_ask_how_the_swarm_stands_and_may_not_say_too_much_at_a_time() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    agents(&up).await?;
    slack.until(|slack| slack.connections() == 1).await;
    let asked = async |command: &str| {
        let typed = json!({"command": command, "channel_id": "C1", "user_id": "U1", "trigger_id": command});
        let id = slack.sends("slash_commands", &typed);
        slack.until(|slack| slack.is_acknowledged(&id)).await;
        slack.is_shown(&id)
    };
    let status = asked("/agent-swarm-status").await.unwrap_or_default();
    ensure!(status["response_type"] == "ephemeral", "{status}");
    let lines: Vec<&str> = status["text"].as_str().unwrap_or_default().lines().collect();
    ensure!(lines.len() == 3 && lines[1].starts_with("• lea (lead): idle · `swarm#"), "{lines:?}");
    let help = asked("/skein-help").await.unwrap_or_default();
    ensure!(help["text"].as_str().is_some_and(|text| text.contains("swarm#all")), "{help}");
    ensure!(asked("/deploy").await.is_none(), "that is an agent's business");

    for number in 1..=12 {
        let text = format!("swarm#all part {number}");
        let ts = slack.says("C1", "U1", &text, None);
        let id = slack.sends("events_api", &event(&format!("Ev{number}"), "C1", &ts, None, &text));
        slack.until(|slack| slack.is_acknowledged(&id)).await;
    }
    // Ten are told that wim has it, the eleventh that there are too many, and whoever else speaks is heard.
    slack.until_posted("C1", 11).await;
    let ts = slack.says("C1", "U2", "swarm#all part 13", None);
    slack.sends(
        "events_api",
        &json!({"type": "event_callback", "team_id": "T1", "event_id": "Ev13", "event": {
        "type": "message", "channel": "C1", "user": "U2", "ts": ts, "text": "swarm#all part 13"}}),
    );
    let posts = slack.until_posted("C1", 12).await;
    let (too_much, taken): (Vec<&str>, Vec<&str>) =
        texts(&posts).into_iter().partition(|text| text.contains("more than 10 messages"));
    ensure!(taken.len() == 11 && too_much.len() == 1, "{posts:?}");
    let listed = up.skein(&["webhooks", "list", "--json"]).await?;
    ensure!(listed.matches("rate_limited").count() == 2, "{listed}");
    Ok(())
}

#[tokio::test]
async fn files_go_between_slack_and_the_instance_of_an_agent() -> Result<()> {
    let slack = Slack::start().await?;
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    slack.has_file("F9", "it's.bin", &content);
    slack.has_file("F8", "half.bin", &content);
    slack.trouble("files/F8", Trouble::AnswerLost);
    let steps = [
        r#"join-swarm={"name":"smith","lead":true}"#,
        r#"slack-download-file={"fileId":"F9","savePath":"in/"}"#,
        r#"slack-upload-file={"channelId":"C1","filePath":"in/it's.bin"}"#,
        r#"slack-upload-file={"channelId":"C1","filePath":"nowhere"}"#,
        r#"slack-download-file={"fileId":"F8","savePath":"cut/half.bin"}"#,
        r#"bash={"command":"while ls -A cut | grep -qv half.bin; do sleep 0.05; done; cmp in/it*s.bin cut/half.bin && echo whole"}"#,
        "hold",
    ];
    let stage = Stage::new(1)?
        .with_settings(&slack.configuration())?
        .agent("smith", "role = \"lead\"", &steps)?
        .start()
        .await?;
    stage.run("smith").await?;
    stage.until("both uploads", async || Ok(stage.answers("smith", "slack-upload-file")?.len() == 2)).await?;
    let uploads = stage.answers("smith", "slack-upload-file")?;
    let down = &stage.answers("smith", "slack-download-file")?[0].1;
    ensure!(down["savedPath"] == "in/it's.bin", "{down}");
    let done = &uploads[0].1;
    ensure!(slack.content(done["fileId"].as_str().unwrap_or_default()) == content, "{done}");
    let refused = &uploads[1].1;
    ensure!(refused["success"] == false && refused["code"] == "invalid_argument", "{refused}");
    // What breaks off leaves nothing, and the agent asks for it once more with the same key.
    let left = stage.answer("smith", "bash").await?.to_string();
    ensure!(left.contains("whole"), "{left}");
    ensure!(slack.calls("files.info").len() == 3, "it did not break off");
    Ok(())
}
