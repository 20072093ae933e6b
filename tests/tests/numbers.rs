//! What a node says of itself in numbers, to whoever asks over HTTP.

use anyhow::{Result, ensure};
use serde_json::Value;
use skein_tests::cluster::number;
use skein_tests::stage::Stage;
use skein_tests::up::{Folder, Up};
use skein_tests::webhook::{configuration, event, push, signature};

#[tokio::test]
async fn health_and_numbers_are_served_to_anybody() -> Result<()> {
    let source = "[[ingress.source]]\nname = \"hub\"\nprovider = \"github\"\nsecret = \"a secret\"\n";
    let up = Up::start_in(Folder::new()?.configured(source)?, &["--no-runner"]).await?;
    up.skein(&["task", "create", "x"]).await?;
    let base = up.mcp.trim_end_matches("/mcp");
    let get = async |path: &str| -> Result<(u16, String)> {
        let response = reqwest::get(format!("{base}{path}")).await?;
        Ok((response.status().as_u16(), response.text().await?))
    };
    for path in ["/healthz", "/readyz"] {
        let (status, text) = get(path).await?;
        ensure!(status == 200, "{path} gave {status}: {text}");
    }
    let (status, numbers) = get("/metrics").await?;
    ensure!(status == 200, "/metrics gave {status}");
    for name in [
        "skein_entity_commits_total",
        "skein_entity_commands_total",
        "skein_entity_deaths_total",
        "skein_store_flushes_total",
        "skein_store_generations_total",
        "skein_store_lost_writes_total",
        "skein_webhooks_total",
        "skein_http_requests_total",
        "skein_outbox_lag_seconds",
        "skein_outbox_effects",
        "skein_projection_lag",
        "skein_waits_open",
        "skein_calls_open",
        "skein_locks_held",
        "skein_work_queue_depth",
        "skein_slots",
        "skein_slots_used",
    ] {
        ensure!(numbers.contains(&format!("# HELP {name} ")), "{name} has no help:\n{numbers}");
        ensure!(numbers.contains(&format!("# TYPE {name} ")), "{name} has no type:\n{numbers}");
    }
    ensure!(!numbers.contains("skein_entity_commits_total 0\n"), "a commit was not counted:\n{numbers}");
    // What has not happened yet: a rate needs a zero.
    for counter in [
        "skein_entity_deaths_total",
        "skein_store_generations_total",
        "skein_store_lost_writes_total",
        "skein_webhooks_total{source=\"hub\",outcome=\"accepted\"}",
        "skein_webhooks_total{source=\"hub\",outcome=\"validation_failed\"}",
    ] {
        ensure!(numbers.contains(&format!("\n{counter} 0\n")), "{counter} is not zero:\n{numbers}");
    }
    Ok(())
}

/// The URL of a kind leads to several sources.
#[tokio::test]
async fn webhooks_are_counted_by_the_source_that_signed_them() -> Result<()> {
    let first = "[[ingress.source]]\nname = \"first\"\nprovider = \"github\"\nsecret = \"another secret\"\n";
    let hub = configuration().replace("name = \"github\"", "name = \"hub\"");
    let folder = Folder::new()?.configured(&format!("{first}{hub}"))?;
    let up = Up::start_in(folder, &["--no-runner"]).await?;
    let body = r#"{"ref":"refs/heads/main","repository":{"full_name":"acme/app"}}"#;
    let (status, answer) = push(&up.ingress, "d-1", body, &signature(body)).await?;
    ensure!(status == 200, "{status}: {answer}");
    let (status, answer) = push(&up.ingress, "d-2", body, &signature("something else")).await?;
    ensure!(status == 401, "{status}: {answer}");
    for (source, outcome, expected) in [
        ("hub", "accepted", 1.0),
        ("first", "accepted", 0.0),
        ("hub", "validation_failed", 0.0),
        ("first", "validation_failed", 1.0),
    ] {
        let name = format!("skein_webhooks_total{{source=\"{source}\",outcome=\"{outcome}\"}} ");
        let counted = number(&up, &name).await?;
        ensure!(counted == expected, "{name}{counted}");
    }
    let numbers = reqwest::get(up.mcp.replace("/mcp", "/metrics")).await?.text().await?;
    ensure!(!numbers.contains("source=\"github\""), "no source has this name:\n{numbers}");
    Ok(())
}

/// The numbers of what is held, waited for and asked for, and of a lock how its holder is.
#[tokio::test]
async fn numbers_and_locks_follow_what_agents_do() -> Result<()> {
    let lock = r#"acquire_lock={"resource_key":"test://a"}"#;
    let wait = r#"wait_for_trigger={"type":"webhook","source":"github","event":"push","timeout":"1h"}"#;
    let call = r#"call_agent={"target_agent":"callee","context":"look at it"}"#;
    let stage = Stage::new(2)?
        .agent("sleeper", "", &[lock, wait, "hold"])?
        .agent("caller", "", &[call, "hold"])?
        .agent("callee", "", &[])?
        .start()
        .await?;
    let numbers = async |wanted: &[(&str, f64)]| {
        let are_so = async || {
            for (name, value) in wanted {
                if number(stage.up(), &format!("{name} ")).await.ok() != Some(*value) {
                    return Ok(false);
                }
            }
            Ok(true)
        };
        stage.until(&format!("the numbers are {wanted:?}"), are_so).await
    };
    let lock = async |state: &str| {
        let of_row = async || Ok(stage.list("locks").await?.iter().any(|row| row["holderState"] == state));
        stage.until(&format!("the lock is held by a {state} instance"), of_row).await
    };
    let sleeper = stage.run("sleeper").await?;
    stage.becomes(&sleeper, "frozen").await?;
    numbers(&[("skein_waits_open", 1.0), ("skein_locks_held", 1.0), ("skein_slots", 2.0)]).await?;
    numbers(&[("skein_slots_used", 0.0), ("skein_work_queue_depth", 0.0), ("skein_calls_open", 0.0)]).await?;
    lock("waiting").await?;
    let table = stage.up().skein(&["locks", "list"]).await?;
    ensure!(table.contains("HOLDER IS") && table.contains("AGE") && table.contains("waiting"), "{table}");
    let operator = std::fs::read_to_string(stage.data().join("operator.token"))?;
    let status = stage.up().mcp.replace("/mcp", "/locks/status");
    let listed = reqwest::Client::new().get(status).bearer_auth(operator.trim()).send().await?;
    let listed: Value = listed.json().await?;
    let held = &listed["locks"][0];
    ensure!(held["holderState"] == "waiting" && held["ageMs"].is_u64(), "{listed}");

    // Its wait is over, and its run is still on.
    stage.push("d-1", &event(1)).await?;
    stage.answer("sleeper", "wait_for_trigger").await?;
    numbers(&[("skein_waits_open", 0.0), ("skein_slots_used", 1.0), ("skein_webhook_seconds_count", 1.0)])
        .await?;
    ensure!(stage.list("waits").await?.is_empty(), "a wait that is over is listed");
    lock("running").await?;

    // Its call finds no slot.
    stage.run("caller").await?;
    numbers(&[("skein_slots_used", 2.0), ("skein_calls_open", 1.0), ("skein_work_queue_depth", 1.0)]).await?;
    stage.go("sleeper")?;
    numbers(&[("skein_locks_held", 0.0), ("skein_calls_open", 0.0), ("skein_work_queue_depth", 0.0)]).await?;
    Ok(())
}
