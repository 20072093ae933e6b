//! Long sleeps: a run's processes end while it waits, and it goes on when it is woken.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use skein_tests::coder::Coder;
use skein_tests::language_model::{Model, Say, Talk};
use skein_tests::stage::Stage;

const LOCK: &str = "test://repository/1";
const KEYS: &str = "prompt = \"Count the geese.\"\nspill_after = \"1s\"\n";
/// Stands in the event, and nowhere else.
const MARK: &str = "goose-4711";

/// Takes a lock, sleeps, and gives the lock back when it is woken by a prompt.
fn sleeps(talk: &Talk) -> Result<Say> {
    let call = |tool, arguments| Ok(Say::Call(tool, arguments));
    let last = talk.results.last().map_or("", |(tool, _)| tool.as_str());
    if last == "release_lock" {
        return Ok(Say::Text("The geese are counted."));
    }
    if talk.prompt.contains("# What `wait_for_trigger` came to") {
        ensure!(talk.prompt.contains("Count the geese."), "its conversation is lost: {}", talk.prompt);
        ensure!(talk.prompt.contains(MARK), "what woke it is missing: {}", talk.prompt);
        return call("release_lock", json!({"resource_key": LOCK}));
    }
    match last {
        "" => call("join-swarm", json!({"name": "coder"})),
        "join_swarm" => call("acquire_lock", json!({"resource_key": LOCK})),
        "acquire_lock" => {
            call("wait_for_trigger", json!({"type": "webhook", "source": "github", "event": "push"}))
        }
        other => bail!("{other} came to {:?}", talk.results.last()),
    }
}

fn event() -> Value {
    json!({"ref": "refs/heads/main", "mark": MARK, "repository": {"full_name": "acme/geese"}})
}

/// Lets an agent fall asleep until it is spilled, and gives its instance.
async fn spilled(coder: Coder, model: &Model) -> Result<(Stage, String)> {
    let stage = Stage::new(1)?.coder("coder", coder, KEYS, model)?.start().await?;
    let instance = stage.ask("coder", "Begin.").await?;
    let asleep = stage.becomes(&instance, "spilled").await;
    model.talk()?;
    asleep.with_context(|| stage.output(&instance))?;
    ensure!(stage.processes(Some(&instance)).is_empty(), "it has processes");
    let locks = stage.list("locks").await?;
    ensure!(locks.len() == 1 && locks[0]["holder"].to_string().contains(&instance), "{locks:?}");
    Ok((stage, instance))
}

async fn is_spilled_and_goes_on(coder: Coder) -> Result<()> {
    let model = Model::start(sleeps).await?;
    let (stage, instance) = spilled(coder, &model).await?;
    stage.push("d-1", &event()).await?;
    let end = stage.ends(&instance).await;
    let talk = model.talk()?;
    ensure!(end? == "completed", "it ended otherwise: {}", stage.output(&instance));
    let shown = talk.prompt.matches(MARK).count();
    let results = talk.results.iter().filter(|(_, result)| result.to_string().contains(MARK)).count();
    ensure!(
        (shown, results) == (1, 0),
        "it was shown what woke it {shown} times, and {results} times as a result"
    );
    let locked = talk.results.iter().filter(|(tool, _)| tool == "acquire_lock").count();
    ensure!(locked == 1, "it began anew: {:?}", talk.results);
    ensure!(stage.list("locks").await?.is_empty(), "its lock outlived it");
    Ok(())
}

#[tokio::test]
async fn claude_code_is_spilled_and_goes_on_in_its_conversation() -> Result<()> {
    is_spilled_and_goes_on(Coder::ClaudeCode).await
}

#[tokio::test]
async fn codex_is_spilled_and_goes_on_in_its_conversation() -> Result<()> {
    is_spilled_and_goes_on(Coder::Codex).await
}

/// It cannot take a conversation up again in which tools were called.
#[tokio::test]
async fn gemini_is_spilled_and_begins_anew_with_what_woke_it() -> Result<()> {
    let model = Model::start(sleeps).await?;
    let (stage, instance) = spilled(Coder::Gemini, &model).await?;
    stage.push("d-1", &event()).await?;
    let end = stage.ends(&instance).await;
    model.talk()?;
    ensure!(end? == "completed", "it ended otherwise: {}", stage.output(&instance));
    let last = model.requests().last().context("it asked its model nothing")?["contents"].to_string();
    ensure!(last.matches(MARK).count() == 1 && last.contains("conversation from before"), "{last}");
    ensure!(last.contains("`join-swarm`") && !last.contains("Lock acquired"), "{last}");
    ensure!(stage.list("locks").await?.is_empty(), "its lock outlived it");
    Ok(())
}

#[tokio::test]
async fn opencode_is_spilled_and_goes_on_in_its_conversation() -> Result<()> {
    is_spilled_and_goes_on(Coder::Opencode).await
}

#[tokio::test]
async fn a_spilled_run_outlives_kill_9_of_its_node() -> Result<()> {
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push"}"#;
    let lock = format!(r#"acquire_lock={{"resource_key":"{LOCK}"}}"#);
    let release = format!(r#"release_lock={{"resource_key":"{LOCK}"}}"#);
    let steps = [lock.as_str(), "tree", wait, &release];
    let stage = Stage::new(1)?.agent("sleeper", "spill_after = \"1s\"\n", &steps)?.start().await?;
    let instance = stage.run("sleeper").await?;
    stage.becomes(&instance, "spilled").await?;
    ensure!(stage.processes(Some(&instance)).is_empty(), "it has processes");
    let stage = stage.kill().await?.start().await?;
    ensure!(stage.state(&instance).await? == "spilled");
    ensure!(stage.processes(Some(&instance)).is_empty(), "it was started");
    // Its slot is free for others meanwhile, and it is woken into one.
    stage.push("d-1", &event()).await?;
    ensure!(stage.ends(&instance).await? == "completed", "{}", stage.output(&instance));
    let starts = stage.answers("sleeper", "start")?;
    ensure!(starts.len() == 2 && starts.iter().all(|(of, _)| *of == instance), "{starts:?}");
    ensure!(starts[1].1["payload"]["payload"]["mark"] == MARK, "it was given {}", starts[1].1);
    ensure!(stage.answer("sleeper", "release_lock").await?["ok"] == true, "its lock was another's");
    Ok(())
}
