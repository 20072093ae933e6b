//! The images are built from the programs beside this test and run, on a base image that the daemon has
//! (`SKEIN_TEST_BASE`), or on one of this machine's own programs. No registry is asked.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skein_tests::docker::Image;
use skein_tests::up::binary;
use tokio::process::Command;

fn dockerfiles() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/docker")
}

/// What the steps of the images need of their base.
const PROGRAMS: [&str; 5] = ["groupadd", "id", "install", "sh", "useradd"];
const FILES: &str = "/bin/sh /etc/group /etc/login.defs /etc/passwd";
/// What of `ca-certificates.crt` is looked for in the image.
const TRUSTED: &str = "-----BEGIN CERTIFICATE-----";

/// Any with glibc and `useradd` does.
enum Base {
    Given(String),
    Packed(Image),
}

impl Base {
    /// One for this program.
    async fn of(program: &Path) -> Result<Self> {
        if let Ok(given) = std::env::var("SKEIN_TEST_BASE") {
            return Ok(Self::Given(given));
        }
        let linked = Command::new("ldd").arg(program).output().await?;
        let linked = String::from_utf8(linked.stdout)?;
        let libraries = linked.split_whitespace().filter(|word| word.starts_with('/'));
        let files: Vec<&str> = FILES.split(' ').chain(libraries).collect();
        Ok(Self::Packed(Image::pack("base", &PROGRAMS, &files.join(" ")).await?))
    }

    fn name(&self) -> &str {
        match self {
            Self::Given(name) => name,
            Self::Packed(image) => image.name(),
        }
    }
}

async fn docker(arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("docker");
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
    std::fs::write(context.path().join("ca-certificates.crt"), TRUSTED)?;
    let tag = format!("{program}-test:{}", std::process::id());
    let base = Base::of(&binary(program)).await?;
    let (file, base_is) = (dockerfiles().join(file), format!("BASE={}", base.name()));
    let (file, context) = (file.to_string_lossy(), context.path().to_string_lossy());
    // Nothing is fetched, and the daemon may have no bridge.
    let arguments = ["build", "--quiet", "--network", "none", "--file", &file, "--tag", &tag];
    let given = ["--build-arg", &base_is, "--build-arg", "PROGRAM=prebuilt", &context];
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
    let network = format!("skein-test-{}", std::process::id());
    docker(&["network", "create", &network]).await?;
    let run = ["run", "--detach", "--network", &network, "--read-only", "--tmpfs", "/tmp", &image];
    let container = docker(&run).await?;
    let looked = look(&container).await;
    docker(&["rm", "--force", "--volumes", &container]).await?;
    docker(&["network", "rm", &network]).await?;
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
    // The base that is packed has none: those of the context are there then.
    let trusted = tempfile::tempdir()?;
    let place = format!("{container}:/etc/ssl/certs/ca-certificates.crt");
    docker(&["cp", &place, &trusted.path().to_string_lossy()]).await?;
    ensure!(std::fs::read_to_string(trusted.path().join("ca-certificates.crt"))?.contains(TRUSTED));
    docker(&["stop", "--time", "90", container]).await?;
    let code = docker(&["inspect", "--format", "{{.State.ExitCode}}", container]).await?;
    ensure!(code == "0", "it ended with {code}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runners_image_runs_as_nobody_in_particular() -> Result<()> {
    let image = build("skein-runner", "Dockerfile.runner").await?;
    let said = docker(&["run", "--rm", "--network", "none", &image, "--version"]).await;
    let user = docker(&["run", "--rm", "--network", "none", "--entrypoint", "id", &image, "--user"]).await;
    docker(&["rmi", "--force", &image]).await?;
    ensure!(said?.starts_with("skein-runner "));
    ensure!(user? == "10002");
    Ok(())
}
