//! The images are built from the programs beside this test, on a base image that the daemon has (`SKEIN_TEST_BASE`),
//! and run. No registry is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skein_tests::up::binary;

fn dockerfiles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker")
}

/// A base image that the daemon has. Any with glibc and `useradd` does.
fn base() -> String {
    std::env::var("SKEIN_TEST_BASE").unwrap_or_else(|_| "debian:bookworm-slim".to_owned())
}

async fn docker(arguments: &[&str]) -> Result<String> {
    let mut command = tokio::process::Command::new("docker");
    // The program is in the context, so the stage that compiles it must be left out, which BuildKit alone does.
    let output = command.env("DOCKER_BUILDKIT", "1").args(arguments).output().await;
    let output = output.context("docker cannot be run; on Debian: apt-get install docker.io")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker {}: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

async fn build(program: &str, file: &str) -> Result<String> {
    let context = tempfile::tempdir()?;
    std::fs::copy(binary(program), context.path().join(program))?;
    let tag = format!("{program}-test:{}", std::process::id());
    let (file, base) = (dockerfiles().join(file), format!("BASE={}", base()));
    let (file, context) = (file.to_string_lossy(), context.path().to_string_lossy());
    let arguments = ["build", "--quiet", "--file", &file, "--tag", &tag];
    let given = ["--build-arg", &base, "--build-arg", "PROGRAM=prebuilt", &context];
    docker(&[&arguments[..], &given[..]].concat()).await?;
    Ok(tag)
}

async fn healthy(container: &str) -> Result<()> {
    loop {
        let health = docker(&["inspect", "--format", "{{.State.Health.Status}}", container]).await?;
        match health.as_str() {
            "healthy" => return Ok(()),
            "starting" => tokio::time::sleep(Duration::from_millis(200)).await,
            other => anyhow::bail!("it is {other}: {}", docker(&["logs", container]).await?),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coordinators_image_answers_and_drains() -> Result<()> {
    let image = build("skein", "Dockerfile.coordinator").await?;
    let container = docker(&["run", "--detach", "--read-only", "--tmpfs", "/tmp", &image]).await?;
    let looked = look(&container).await;
    docker(&["rm", "--force", "--volumes", &container]).await?;
    docker(&["rmi", "--force", &image]).await?;
    looked
}

async fn look(container: &str) -> Result<()> {
    tokio::time::timeout(Duration::from_secs(120), healthy(container)).await??;
    let format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
    let address = docker(&["inspect", "--format", format, container]).await?;
    for (port, path) in [(7700, "/healthz"), (7700, "/readyz"), (7702, "/healthz")] {
        let answer = reqwest::get(format!("http://{address}:{port}{path}")).await?;
        ensure!(answer.status().is_success(), "{path} at {port} is answered with {}", answer.status());
    }
    ensure!(docker(&["exec", container, "id", "--user"]).await? == "10001");
    docker(&["stop", "--time", "90", container]).await?;
    let code = docker(&["inspect", "--format", "{{.State.ExitCode}}", container]).await?;
    ensure!(code == "0", "it ended with {code}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runners_image_runs_as_nobody_in_particular() -> Result<()> {
    let image = build("skein-runner", "Dockerfile.runner").await?;
    let said = docker(&["run", "--rm", &image, "--version"]).await;
    let user = docker(&["run", "--rm", "--entrypoint", "id", &image, "--user"]).await;
    docker(&["rmi", "--force", &image]).await?;
    ensure!(said?.starts_with("skein-runner "));
    ensure!(user? == "10002");
    Ok(())
}
