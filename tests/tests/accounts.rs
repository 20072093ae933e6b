//! Accounts at X, which the node subscribes as it starts.

use std::time::Duration;

use anyhow::{Result, ensure};
use skein_tests::ports;
use skein_tests::up::{Folder, Up, files_with};
use skein_tests::x::{CLIENT_SECRET, REFRESH, X};
use tokio::net::TcpStream;

#[tokio::test]
async fn a_node_has_x_send_what_happens_around_an_account_and_keeps_the_token_for_the_next_time() -> Result<()>
{
    let x = X::start().await?;
    let port = ports::free()?;
    let ingress = format!("127.0.0.1:{port}");
    let arguments = ["--no-runner", "--ingress", &ingress];
    let folder = Folder::new()?.configured(&x.configuration("bird", port))?;
    let up = Up::start_in(folder, &arguments).await?;
    x.until(1).await?;
    ensure!(x.webhooks() == [format!("http://{ingress}/webhooks/bird")], "{:?}", x.webhooks());

    // The token of the settings is used up. Its successor is among the secrets, sealed. Meanwhile X has found nobody
    // there, and one check more does not help.
    let folder = up.kill().await?;
    x.marks_invalid(2);
    ensure!(files_with(&folder.data(), "refresh-1")?.is_empty(), "a token lies about in plain text");
    let up = Up::start_in(folder, &arguments).await?;
    x.until(2).await?;
    ensure!(x.faults().is_empty(), "{:?}", x.faults());
    ensure!(x.webhooks().len() == 1, "it has made another webhook");
    ensure!(x.is_valid(), "X sends nothing");
    let log = std::fs::read_to_string(up.folder.path().join("log"))?;
    ensure!(!log.contains(REFRESH) && !log.contains("access-1"), "a token is in the log");
    Ok(())
}

#[tokio::test]
async fn a_node_that_is_asked_to_end_keeps_the_token_that_x_is_about_to_give() -> Result<()> {
    let x = X::start().await?;
    let port = ports::free()?;
    let ingress = format!("127.0.0.1:{port}");
    let arguments = ["--no-runner", "--ingress", &ingress];
    let folder = Folder::new()?.configured(&x.configuration("bird", port))?;
    x.holds_answers(true);
    let up = Up::start_in(folder, &arguments).await?;
    x.until_exchanged(1).await?;
    let answering = async {
        // Its door is closed, so all its parts have been asked to end.
        while TcpStream::connect(&ingress).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        x.holds_answers(false);
    };
    let (folder, ()) = tokio::join!(up.terminate(), answering);
    let _up = Up::start_in(folder?, &arguments).await?;
    x.until(2).await?;
    ensure!(x.faults().is_empty(), "{:?}", x.faults());
    Ok(())
}

#[tokio::test]
async fn who_has_mistyped_the_secret_of_an_app_is_told_what_x_says() -> Result<()> {
    let x = X::start().await?;
    let port = ports::free()?;
    let ingress = format!("127.0.0.1:{port}");
    let settings = x.configuration("bird", port).replace(CLIENT_SECRET, "mistyped-secret");
    let up =
        Up::start_in(Folder::new()?.configured(&settings)?, &["--no-runner", "--ingress", &ingress]).await?;
    let told = async || Ok(up.log()?.contains("the client is unknown").then_some(()));
    up.until("what X says is told", told).await?;
    let log = up.log()?;
    ensure!(log.contains("`client_secret` are the app's"), "{log}");
    ensure!(!log.contains(REFRESH) && !log.contains("mistyped-secret"), "a secret is in the log");
    Ok(())
}

#[tokio::test]
async fn an_account_is_held_to_what_x_asks_for() -> Result<()> {
    let x = X::start().await?;
    let good = x.configuration("bird", 1);
    for (spoilt, wanted) in [
        (good.replace("refresh_token = ", "# "), "`refresh_token`"),
        (good.replace("bearer_token = ", "# "), "`bearer_token`"),
        (good.replace("provider = \"twitter\"", "provider = \"github\""), "provider `twitter`"),
        (good.replace("url = \"http://127.0.0.1", "url = \"http://example.com"), "https://"),
        (good.replace("client_id", "clientid"), "did you mean `client_id`"),
    ] {
        let folder = Folder::new()?.configured(&spoilt)?;
        let Err(refused) = Up::start_in(folder, &["--no-runner"]).await else {
            anyhow::bail!("it started with {spoilt}");
        };
        let said = format!("{refused:?}");
        ensure!(said.contains(wanted) && !said.contains(REFRESH), "{said}");
    }
    Ok(())
}
