//! Agents as people define them, and change them while their runner runs.

use std::fs;

use anyhow::{Result, ensure};
use skein_tests::stage::Stage;

#[tokio::test]
async fn agents_come_change_and_go_while_the_runner_runs() -> Result<()> {
    let stage = Stage::new(3)?.agent("one", "", &["hold"])?.start().await?;
    let first = stage.run("one").await?;

    // Another agent comes.
    let stage = stage.agent("two", "", &["hold"])?;
    stage.until("the new agent is known", async || Ok(stage.run("two").await.is_ok())).await?;
    ensure!(stage.state(&first).await? == "running", "the others are left alone");

    // One that changes does so for its next run.
    let stage = stage.agent("one", "instances = 2\nautostart = true", &["tree", "hold"])?;
    let told = |stage: &Stage| stage.log().matches("a runner has other agents").count();
    stage.until("the change is known", async || Ok(told(&stage) >= 2)).await?;
    let second = stage.run("one").await?;
    ensure!(stage.answers("one", "tree")?.len() == 1, "only the second run has a tree");

    // A mistake changes nothing.
    fs::write(stage.data().join("agents/one/agent.toml"), "comand = [\"sh\"]")?;
    stage.until("the mistake is told", async || Ok(stage.log().contains("did you mean `command`"))).await?;
    ensure!(stage.state(&second).await? == "running", "a slip of the pen ended a run");

    // An agent that goes takes its runs with it.
    fs::remove_dir_all(stage.data().join("agents/one"))?;
    for instance in [&first, &second] {
        ensure!(stage.ends(instance).await? == "killed", "{instance} was not killed");
    }
    let refused = stage.up().skein(&["agent", "run", "one"]).await.unwrap_err().to_string();
    ensure!(refused.contains("no agent one"), "{refused}");
    ensure!(stage.list("runners").await?.len() == 1, "the runner is not there any more");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_is_gone_after_a_restart_is_gone_for_good() -> Result<()> {
    let stage = Stage::new(2)?.agent("one", "", &[])?.agent("two", "", &[])?.start().await?;
    stage.run("one").await?;
    let stage = stage.terminate().await?;
    fs::remove_dir_all(stage.data().join("agents/one"))?;
    let stage = stage.start().await?;
    stage.run("two").await?;
    let refused = stage.up().skein(&["agent", "run", "one"]).await.unwrap_err().to_string();
    ensure!(refused.contains("no agent one"), "{refused}");
    Ok(())
}

#[tokio::test]
async fn an_agent_runs_at_the_times_of_its_definition() -> Result<()> {
    let keys = "schedule = \"* * * * * *\"\nparams = { team = \"core\" }";
    let stage = Stage::new(1)?.agent("clock", keys, &["environment"])?;
    fs::write(stage.data().join("agents/clock/SKILL.md"), "---\nname: clock\n---\n\nTell the time.\n")?;
    let stage = stage.start().await?;
    stage.until("it has run twice", async || Ok(stage.answers("clock", "start")?.len() >= 2)).await?;
    let (_, input) = stage.answers("clock", "start")?.remove(0);
    ensure!(input["type"] == "schedule" && input["schedule"] == "agent clock", "{input}");
    let (_, environment) = stage.answers("clock", "environment")?.remove(0);
    ensure!(environment["SKEIN_INSTRUCTIONS"] == "Tell the time.", "{environment}");
    ensure!(environment["SKEIN_PARAMS"] == r#"{"team":"core"}"#, "{environment}");
    Ok(())
}
