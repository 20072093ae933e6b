//! The demo, as a new user runs it: one command, real agents, a report at the end.

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skein_tests::process::{Signal, signal};
use skein_tests::up::{Folder, binary};
use tokio::process::{Child, Command};

/// A demo takes some seconds; on a busy machine more.
const LONGEST: Duration = Duration::from_secs(170);

/// A small repository with two parts and something left for later.
fn repository(folder: &Folder) -> Result<std::path::PathBuf> {
    let root = folder.path().join("repository");
    std::fs::create_dir_all(root.join("engine"))?;
    std::fs::create_dir_all(root.join("docs"))?;
    std::fs::write(root.join("engine/main.rs"), concat!("fn main() {}\n// TO", "DO: start\n"))?;
    std::fs::write(root.join("docs/guide.md"), "one\ntwo\nthree\n")?;
    // A terminal would obey the name.
    std::fs::write(root.join("engine/odd\u{1b}[31m.txt"), "one\n")?;
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

/// A folder that every user may pass through: the demo's agents may run as users of their own.
fn stage() -> Result<Folder> {
    let folder = Folder::new()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
    std::fs::create_dir(folder.path().join("tmp"))?;
    std::fs::set_permissions(folder.path().join("tmp"), std::fs::Permissions::from_mode(0o1777))?;
    Ok(folder)
}

/// The demo with its temporary folder in the test's own.
fn demo(folder: &Folder, program: &Path) -> Command {
    let mut demo = Command::new(program);
    demo.arg("demo").current_dir(folder.path()).env("TMPDIR", folder.path().join("tmp"));
    demo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    demo
}

async fn finish(demo: Child) -> Result<(Output, String, String)> {
    let output = tokio::time::timeout(LONGEST, demo.wait_with_output()).await.context("it did not end")??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    Ok((output, stdout, stderr))
}

/// Names of what lies in a folder.
fn names(folder: &Path) -> Result<Vec<String>> {
    let mut names = std::fs::read_dir(folder)?
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()?;
    names.sort();
    Ok(names)
}

/// The process of an agent of the demo, as soon as it runs.
async fn agent(folder: &Folder, role: &str) -> Result<String> {
    let program = folder.path().join("tmp").to_string_lossy().into_owned();
    let look = async {
        loop {
            for entry in std::fs::read_dir("/proc")?.flatten() {
                let line = std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
                if line.starts_with(&program) && line.contains(&format!("\0demo-agent\0{role}")) {
                    return Ok(entry.file_name().to_string_lossy().into_owned());
                }
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONGEST, look).await.context("the agent did not start")?
}

#[tokio::test]
async fn a_swarm_surveys_a_repository_and_reports() -> Result<()> {
    let folder = stage()?;
    let root = repository(&folder)?;
    // Somebody who stands in a folder of the repository means the repository.
    let run = demo(&folder, &binary("skein")).arg("--repo").arg(root.join("docs")).spawn()?;
    let (output, stdout, stderr) = finish(run).await?;
    ensure!(output.status.success(), "the demo ended with {}:\n{stdout}\n{stderr}", output.status);
    ensure!(stdout.contains("# Survey of the repository"), "no report:\n{stdout}\n{stderr}");
    ensure!(stdout.contains("engine/main.rs:2"), "the marker was not found:\n{stdout}");
    ensure!(stdout.contains("| docs | 1 | 3 |"), "the lines were not counted:\n{stdout}");
    ensure!(
        stdout.contains("odd[31m.txt (1)") && !stdout.contains('\u{1b}'),
        "a name gives orders:\n{stdout}"
    );
    let push = "after a push to `demo/repository` on `main` by skein-demo";
    ensure!(stdout.contains(push), "the push is not in the report:\n{stdout}");
    for line in ["waits for github push", "tasks: 3 completed", "delivered to the ingress"] {
        ensure!(stderr.contains(line), "{line} was not shown:\n{stderr}");
    }
    let path = Path::new(stdout.lines().last().context("nothing was printed")?);
    ensure!(path.is_file(), "the last line is no path of the report: {}", path.display());
    let left = names(path.parent().context("a folder")?)?;
    ensure!(left == ["report.md"], "more than the report is left: {left:?}");
    Ok(())
}

#[tokio::test]
async fn it_passes_for_a_user_without_rights() -> Result<()> {
    let owner = std::fs::metadata("/proc/self")?.uid();
    if owner != 0 {
        // Then the test above has shown it.
        return Ok(());
    }
    let folder = stage()?;
    let root = repository(&folder)?;
    // What a user without rights may run has to lie where that user can read it.
    let program = folder.path().join("skein");
    std::fs::copy(binary("skein"), &program)?;
    let mut run = demo(&folder, &program);
    let run = run.arg("--repo").arg(&root).env("HOME", "/nonexistent").uid(65534).gid(65534).spawn()?;
    let (output, stdout, stderr) = finish(run).await?;
    ensure!(output.status.success(), "the demo ended with {}:\n{stdout}\n{stderr}", output.status);
    ensure!(stdout.contains("# Survey of the repository"), "no report:\n{stdout}\n{stderr}");
    Ok(())
}

#[tokio::test]
async fn kept_the_node_goes_on_and_the_printed_commands_work() -> Result<()> {
    let folder = stage()?;
    let root = repository(&folder)?;
    let run = demo(&folder, &binary("skein")).arg("--keep").arg("--repo").arg(&root).spawn()?;
    let (output, stdout, stderr) = finish(run).await?;
    ensure!(output.status.success(), "the demo ended with {}:\n{stdout}\n{stderr}", output.status);
    let between = |start: &str| {
        let rest = stderr.split_once(&format!("`{start}")).map(|(_, rest)| rest);
        rest.and_then(|rest| rest.split_once('`'))
            .map(|(found, _)| found.to_owned())
            .context(start.to_owned())
    };
    let (data, node) = (between("skein status --data ")?, between("kill ")?);
    let status = Command::new(binary("skein")).args(["status", "--json", "--data", &data]).output().await?;
    let alive = String::from_utf8_lossy(&status.stdout).into_owned();
    signal(node.parse()?, Signal::TERM)?;
    ensure!(alive.contains("\"runners\":[\"local\"]"), "the node does not answer: {alive}");
    let gone = async {
        while Path::new(&data).join("endpoint.json").exists() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONGEST, gone).await.context("the node did not end")?;
    Ok(())
}

#[tokio::test]
async fn an_agents_failure_shows_its_last_words_and_leaves_nothing() -> Result<()> {
    let folder = stage()?;
    let root = repository(&folder)?;
    let run = demo(&folder, &binary("skein")).arg("--repo").arg(&root).spawn()?;
    signal(agent(&folder, "summariser").await?.parse()?, Signal::KILL)?;
    let (output, stdout, stderr) = finish(run).await?;
    ensure!(output.status.code() == Some(1), "the demo ended with {}:\n{stdout}\n{stderr}", output.status);
    ensure!(stderr.contains("agent summariser-"), "the agent is not named:\n{stderr}");
    let left = names(&folder.path().join("tmp"))?;
    ensure!(left.is_empty(), "something is left: {left:?}");
    Ok(())
}

#[tokio::test]
async fn stopped_by_hand_it_leaves_nothing() -> Result<()> {
    let folder = stage()?;
    let root = repository(&folder)?;
    let run = demo(&folder, &binary("skein")).arg("--repo").arg(&root).spawn()?;
    agent(&folder, "lead").await?;
    signal(run.id().context("the demo ended")?, Signal::INT)?;
    let (output, _, stderr) = finish(run).await?;
    ensure!(output.status.code() == Some(1) && stderr.contains("stopped"), "{}:\n{stderr}", output.status);
    ensure!(names(&folder.path().join("tmp"))?.is_empty(), "something is left");
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_surveyed_is_said_at_once() -> Result<()> {
    let folder = stage()?;
    repository(&folder)?;
    for name in ["plain", "empty"] {
        std::fs::create_dir(folder.path().join(name))?;
    }
    let made = Command::new("git").args(["init", "-q", "empty"]).current_dir(folder.path()).status().await?;
    ensure!(made.success());
    for (repository, path, word) in [
        ("plain", None, "no git repository"),
        ("nowhere", None, "no folder nowhere"),
        ("empty", None, "no commit yet"),
        ("repository", Some("/nowhere"), "install it"),
    ] {
        let mut run = demo(&folder, &binary("skein"));
        run.args(["--repo", repository]);
        if let Some(path) = path {
            run.env("PATH", path);
        }
        let (output, stdout, stderr) = finish(run.spawn()?).await?;
        ensure!(output.status.code() == Some(1), "{repository} ended with {}", output.status);
        ensure!(stdout.is_empty() && stderr.contains(word), "{repository}: {stderr}");
    }
    ensure!(names(&folder.path().join("tmp"))?.is_empty(), "something is left");
    Ok(())
}
