//! The demo, as a new user runs it: one command, real agents, a report at the end.

use anyhow::{Context, Result, ensure};
use skein_tests::up::{Folder, binary};
use std::time::Duration;
use tokio::process::Command;

/// A small repository with two parts and something left for later.
fn repository(folder: &Folder) -> Result<std::path::PathBuf> {
    let root = folder.path().join("repository");
    std::fs::create_dir_all(root.join("engine"))?;
    std::fs::create_dir_all(root.join("docs"))?;
    std::fs::write(root.join("engine/main.rs"), concat!("fn main() {}\n// TO", "DO: start\n"))?;
    std::fs::write(root.join("docs/guide.md"), "one\ntwo\nthree\n")?;
    let git = |arguments: &[&str]| -> Result<()> {
        let status = std::process::Command::new("git").arg("-C").arg(&root).args(arguments).status()?;
        ensure!(status.success(), "git {arguments:?} failed");
        Ok(())
    };
    git(&["init", "-q", "-b", "main"])?;
    git(&["add", "."])?;
    git(&["-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "first"])?;
    Ok(root)
}

#[tokio::test]
async fn a_swarm_surveys_a_repository_and_reports() -> Result<()> {
    let folder = Folder::new()?;
    let root = repository(&folder)?;
    let run = Command::new(binary("skein"))
        .args(["demo", "--repo"])
        .arg(&root)
        .current_dir(folder.path())
        .kill_on_drop(true)
        .output();
    let output =
        tokio::time::timeout(Duration::from_secs(170), run).await.context("the demo did not end")??;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "the demo ended with {}:\n{stdout}\n{stderr}", output.status);
    ensure!(stdout.contains("# Survey of the repository"), "no report:\n{stdout}\n{stderr}");
    ensure!(stdout.contains("engine/main.rs:2"), "the marker was not found:\n{stdout}");
    ensure!(stdout.contains("| docs | 1 | 3 |"), "the lines were not counted:\n{stdout}");
    ensure!(
        stdout.contains("push to `demo/repository` on `main` by skein-demo"),
        "the push is not in the report:\n{stdout}"
    );
    let path = stdout.lines().last().context("nothing was printed")?;
    ensure!(std::path::Path::new(path).is_file(), "the last line is no path of the report: {path}");
    Ok(())
}
