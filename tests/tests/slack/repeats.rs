//! What may be there already is not sent a second time.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use skein_shared::Code;
use skein_shared::slack::Thread;
use skein_shared::time::Timestamp;
use skein_tests::mcp::Client;
use skein_tests::redis::Server;
use skein_tests::slack::{Slack, Trouble, event, next_letter};
use skein_tests::up::{Folder, Up};
use uuid::Uuid;

use super::{ID, agents, node, post, workspace};

#[tokio::test]
async fn what_slack_may_have_got_is_not_posted_twice() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let thread = slack.says("C1", "U1", "do it", None);
    let since = Timestamp(thread.split('.').next().unwrap().parse::<u64>()? * 1000);
    for (id, thread) in [(ID, Some(thread.as_str())), (Uuid::from_u128(9), None)] {
        let answer = post("C1", thread, "done");
        let before = slack.written("C1").len();
        slack.trouble("chat.postMessage", Trouble::AnswerLost);
        let refusal = workspace.post(&answer, id, Some(since)).await.unwrap_err().refusal();
        ensure!(refusal.code == Code::Unknown, "{refusal:?}");
        let ts = workspace.post(&answer, id, Some(since)).await?;
        let written = slack.written("C1");
        ensure!(written.len() == before + 1 && written[before]["ts"] == ts.as_str(), "{written:?}");
        workspace.post(&answer, Uuid::new_v5(&id, b"another"), Some(since)).await?;
        let written = slack.written("C1").len();
        ensure!(written == before + 2, "another message with the same words is another message");
    }
    // What only reads is asked again.
    slack.trouble("conversations.history", Trouble::Broken);
    ensure!(workspace.history("C1", 10).await?.messages.len() == 3);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_on_its_way_is_waited_for_by_its_repeat() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let thread = slack.says("C1", "U1", "do it", None);
    for thread in [Some(thread.as_str()), None] {
        let before = slack.written("C1").len();
        let (id, other) = (Uuid::now_v7(), Uuid::now_v7());
        let (answer, another) = (post("C1", thread, "done"), post("C1", thread, "another"));
        slack.holds_back();
        slack.trouble("chat.postMessage", Trouble::Late);
        tokio::select! {
            posted = workspace.post(&answer, id, Some(Timestamp::ZERO)) => anyhow::bail!("nobody has answered it: {posted:?}"),
            () = slack.until_late(1) => {}
        }
        // The same call again. Were it not to wait, it would be there by the time that another one is.
        let meanwhile = async {
            workspace.post(&another, other, Some(Timestamp::ZERO)).await?;
            let written = slack.written("C1").len();
            slack.lets_go();
            anyhow::Ok(written)
        };
        let (again, written) = tokio::join!(workspace.post(&answer, id, Some(Timestamp::ZERO)), meanwhile);
        ensure!(
            written? == before + 1 && slack.written("C1").len() == before + 2,
            "{:?}",
            slack.written("C1")
        );
        let ts = again?;
        ensure!(slack.written("C1").iter().any(|one| one["ts"] == ts.as_str() && one["text"] == "done"));
    }
    Ok(())
}

/// The call may have been carried out, and its caller is told where to look.
async fn require_unknown(agent: &Client, tool: &str, call: &Value) -> Result<()> {
    let refusal = agent.call(tool, call.clone()).await.unwrap_err().to_string();
    ensure!(refusal.contains("outcome_unknown") && refusal.contains("the channel"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn what_an_agent_sends_again_under_its_key_is_there_once() -> Result<()> {
    let slack = Slack::start().await?;
    let up = node(&slack).await?;
    let (lead, _) = agents(&up).await?;
    let post = json!({"channelId": "C1", "message": "news", "idempotency_key": "k1"});
    let file =
        json!({"channelId": "C1", "content": "d29yZHM=", "filename": "a.txt", "idempotency_key": "k2"});
    for (tool, call, method, id) in [
        ("slack-post", post, "chat.postMessage", "messageTs"),
        ("slack-upload-file", file.clone(), "files.completeUploadExternal", "fileId"),
    ] {
        let (before, looks) = (slack.written("C1").len(), slack.calls("conversations.history").len());
        slack.trouble(method, Trouble::AnswerLost);
        require_unknown(&lead, tool, &call).await?;
        ensure!(slack.calls("conversations.history").len() == looks, "who sends first does not look");
        for _ in 0..2 {
            let again = lead.call(tool, call.clone()).await?;
            let written = slack.written("C1");
            ensure!(again["success"] == true && written.len() == before + 1, "{again} {written:?}");
            ensure!(
                [&written[before]["ts"], &written[before]["files"][0]["id"]].contains(&&again[id]),
                "{again}"
            );
        }
    }

    // Whether people see a file that Slack shows nowhere is for the agent to find out.
    let keyed = |key: &str| {
        let mut call = file.clone();
        call["idempotency_key"] = json!(key);
        call
    };
    slack.trouble("files.completeUploadExternal", Trouble::Broken);
    for _ in 0..2 {
        require_unknown(&lead, "slack-upload-file", &keyed("k3")).await?;
    }
    let before = slack.written("C1").len();
    ensure!(lead.call("slack-upload-file", keyed("k4")).await?["success"] == true);
    ensure!(slack.written("C1").len() == before + 1);
    // By its name a channel can be written to and not read.
    let named = json!({"channelId": "#general", "message": "hello", "idempotency_key": "k5"});
    slack.trouble("chat.postMessage", Trouble::AnswerLost);
    for _ in 0..2 {
        require_unknown(&lead, "slack-post", &named).await?;
    }
    ensure!(slack.written("C1").len() == before + 2);
    Ok(())
}

#[tokio::test]
async fn a_note_is_told_once_though_its_teller_goes_while_it_is_on_its_way() -> Result<()> {
    let (slack, workspace) = workspace().await?;
    let thread = Thread { channel: "C1".to_owned(), ts: slack.says("C1", "U1", "do it", None) };
    let note = thread.note(ID, "ended", "done");
    slack.trouble("chat.postMessage", Trouble::Late);
    tokio::select! {
        told = workspace.tell(&note) => anyhow::bail!("nobody has answered it: {told:?}"),
        () = slack.until_late(1) => {}
    }
    // The next one, for the shards have moved.
    let letting_go = async {
        // Were it not to wait, it would look and post by now.
        tokio::time::sleep(Duration::from_millis(500)).await;
        slack.lets_go();
    };
    let (told, ()) = tokio::join!(workspace.tell(&note), letting_go);
    told?;
    ensure!(slack.written("C1").len() == 2, "{:?}", slack.written("C1"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_owner_waits_for_a_note_that_the_last_one_was_telling_when_it_died() -> Result<()> {
    let (slack, redis) = (Slack::start().await?, Server::in_memory().await?);
    let folder = Folder::new()?.configured(&slack.configuration())?;
    let up = Up::serve_in(folder, &["--redis", &redis.url()]).await?;
    let (lead, worker) = agents(&up).await?;
    let cursor = lead.call("wait", json!({"timeout_s": 0})).await?["cursor"].clone();
    let ts = slack.says("C1", "U1", "<@UBOT> fix the door", None);
    slack.sends("events_api", &event("Ev1", "C1", &ts, None, "<@UBOT> fix the door"));
    let (message, _) = next_letter(&lead, &cursor).await?;
    let wim = worker.call("my-agent-info", json!({})).await?["agentId"].clone();
    // That the lead has it is told before the note that this is about.
    slack.until_posted("C1", 1).await;
    slack.trouble("chat.postMessage", Trouble::Late);
    let delegate = json!({"inboxMessageId": message["id"], "agentId": wim});
    ensure!(lead.call("inbox-delegate", delegate).await?["success"] == true);
    let task = worker.call("poll-task", json!({})).await?["task"]["id"].clone();
    slack.until_late(1).await;

    // The next one reads the outbox as it starts, when the note is not there yet.
    let up = Up::serve_in(up.kill().await?, &["--redis", &redis.url()]).await?;
    slack.lets_go();
    let done = json!({"taskId": task, "status": "completed", "output": "It is fixed."});
    ensure!(worker.at(&up.mcp).call("store-progress", done).await?["success"] == true);
    let is_told = |slack: &Slack| slack.written("C1").iter().any(|one| one["text"] == "It is fixed.");
    slack.until(is_told).await;
    let written = slack.written("C1");
    ensure!(written.iter().filter(|one| one["bot_id"].is_string()).count() == 3, "{written:?}");
    Ok(())
}
