//! A runner at a door that is not for runners.

use anyhow::{Context, Result};
use skein_tests::runner::Place;
use skein_tests::up::{Folder, Up};

#[tokio::test]
async fn a_runner_at_the_door_for_agents_says_which_one_is_its_own() -> Result<()> {
    let (place, up) = (Place::new("far")?, Up::start_in(Folder::new()?, &["--no-runner"]).await?);
    let agents = up.mcp.strip_prefix("http://").and_then(|url| url.strip_suffix("/mcp"));
    let agents = agents.context("the door for agents has no address")?;
    let _runner = place.start(&[agents], &up.token("runner", "far").await?)?;
    let told = "this address is no coordinator's door for runners; it is the one of `--grpc`";
    up.until("the runner says so", async || Ok(place.log().contains(told).then_some(()))).await
}
