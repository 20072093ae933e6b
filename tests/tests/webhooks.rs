//! Webhooks over the real ingress: signed, written down before the answer, and taken in once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail")]

use anyhow::{Result, ensure};
use serde_json::Value;
use skein_tests::up::{Folder, Up};
use skein_tests::webhook::{self, SECRET, signature};

fn configured() -> Result<Folder> {
    let folder = Folder::new()?;
    std::fs::create_dir_all(folder.data())?;
    std::fs::write(folder.data().join("config.toml"), webhook::configuration())?;
    Ok(folder)
}

async fn push(up: &Up, delivery: &str, body: &str, signature: &str) -> Result<(u16, Value)> {
    webhook::push(&up.ingress, delivery, body, signature).await
}

#[tokio::test]
async fn a_delivery_is_taken_in_once_over_a_crash() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let (status, first) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status), "{status} {first}");
    let (status, again) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && again["duplicate"] == true, "{status} {again}");

    let up = Up::start_in(up.kill().await?, &["--no-runner"]).await?;
    let (status, replayed) = push(&up, "d-1", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && replayed["duplicate"] == true, "{status} {replayed}");
    let (status, fresh) = push(&up, "d-2", body, &signature(body)).await?;
    ensure!((200..300).contains(&status) && fresh["duplicate"] != true, "{status} {fresh}");
    Ok(())
}

#[tokio::test]
async fn forged_and_foreign_deliveries_are_refused() -> Result<()> {
    let up = Up::start_in(configured()?, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main"}"#;
    let (status, said) = push(&up, "d-1", "{\"ref\":\"x\"}", &signature(body)).await?;
    ensure!(status == 401, "a tampered body gave {status}");
    ensure!(!said.to_string().contains(SECRET), "the secret came back");
    let (status, _) = push(&up, "d-1", "{", &signature("{")).await?;
    ensure!(status == 400, "malformed JSON gave {status}");
    let unknown =
        reqwest::Client::new().post(format!("{}/webhooks/nobody", up.ingress)).body("{}").send().await?;
    ensure!(unknown.status() == 404, "an unknown source gave {}", unknown.status());
    Ok(())
}
