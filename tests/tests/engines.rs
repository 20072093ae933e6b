//! What every engine promises, asked of each of them. Containers need a Docker daemon (feature `docker-tests`).

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use skein_runner::container::shim::FAILED;
use skein_runner::container::tree::{self, Process};
use skein_runner::container::{Exec, Handle};
use skein_tests::engine::{Bed, Kind};
use skein_tests::stage::{are_frozen, are_running};

/// Five processes at least: one in a session of its own, one whose parent has ended.
const TREE: &str = "(setsid sh -c 'sleep 1000; true' &); (sleep 1000 &); echo up; sleep 1000; true";

async fn its_exit_and_all_that_it_printed_are_kept(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", "echo up; echo wrong >&2; exit 7").await?;
    let exit = bed.engine().wait(&handle).await;
    ensure!(exit.code == Some(7) && !exit.out_of_memory, "{exit:?}");
    bed.engine().kill(&handle).await?;
    bed.engine().let_go(&handle);
    let mut lines: Vec<String> = bed.log("a-1").lines().map(str::to_owned).collect();
    lines.sort();
    ensure!(lines == ["up", "wrong"], "{lines:?}");
    bed.close().await
}

async fn a_frozen_instance_stands_still_with_all_its_processes(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", TREE).await?;
    bed.until("the tree has grown", || bed.tree("a-1").len() >= 5).await?;
    for _ in 0..2 {
        bed.engine().freeze(&handle).await?;
        let tree = bed.tree("a-1");
        ensure!(tree.len() >= 5 && are_frozen(&tree), "{tree:?}");
        // Again is no fault.
        bed.engine().freeze(&handle).await?;
        bed.engine().thaw(&handle).await?;
        bed.engine().thaw(&handle).await?;
        bed.until("it runs", || are_running(&bed.tree("a-1"))).await?;
    }
    ensure!(bed.lists(&["a-1"]).await);
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    ensure!(bed.tree("a-1").is_empty(), "{:?}", bed.tree("a-1"));
    bed.close().await
}

async fn a_frozen_instance_can_be_killed(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", TREE).await?;
    bed.engine().freeze(&handle).await?;
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    bed.engine().let_go(&handle);
    ensure!(bed.tree("a-1").is_empty(), "{:?}", bed.tree("a-1"));
    // Twice is no fault.
    bed.engine().kill(&handle).await?;
    bed.close().await
}

async fn a_request_to_end_reaches_the_whole_group(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let child = r#"trap "echo asked; exit 0" TERM; echo up; while :; do sleep 0.02; done"#;
    let script = format!("trap : TERM; sh -c '{child}' & wait; wait; exit 5");
    let handle = bed.start("a-1", &script).await?;
    bed.engine().ask(&handle).await?;
    let exit = bed.engine().wait(&handle).await;
    bed.engine().kill(&handle).await?;
    ensure!(exit.code == Some(5), "{exit:?}");
    ensure!(bed.log("a-1").contains("asked"), "the child was not asked: {}", bed.log("a-1"));
    bed.close().await
}

async fn whoever_is_deaf_to_the_request_is_killed(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", "trap '' TERM; echo up; while :; do sleep 0.02; done").await?;
    bed.engine().ask(&handle).await?;
    ensure!(!bed.tree("a-1").is_empty(), "it was not deaf");
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    ensure!(bed.tree("a-1").is_empty(), "{:?}", bed.tree("a-1"));
    bed.close().await
}

async fn what_broke_away_ends_with_the_instance(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", "(setsid sleep 1000 &); echo up; exit 0").await?;
    bed.engine().wait(&handle).await;
    bed.engine().kill(&handle).await?;
    ensure!(bed.tree("a-1").is_empty(), "{:?}", bed.tree("a-1"));
    bed.close().await
}

/// A daemon whose parent has ended, in a session of its own and with nothing of its environment left.
async fn start_daemon(bed: &mut Bed, then: &str) -> Result<(Handle, impl Fn() -> Vec<Process> + use<>)> {
    // Nobody else on the machine sleeps as long.
    let time = format!("1000.{}", uuid::Uuid::new_v4().as_u128() % 1_000_000_000);
    let script = format!("(setsid env -i sleep {time} &); echo up; {then}");
    let handle = bed.start("a-1", &script).await?;
    Ok((handle, move || {
        tree::all().unwrap_or_default().into_iter().filter(|process| sleeps(process, &time)).collect()
    }))
}

fn sleeps(process: &Process, time: &str) -> bool {
    words(process) == format!("sleep {time} ")
}

/// The command line of a process, with a space behind each word.
fn words(process: &Process) -> String {
    let words = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
    String::from_utf8_lossy(&words).replace('\0', " ")
}

async fn a_daemon_is_frozen_and_killed_with_the_instance(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let (handle, daemons) = start_daemon(&mut bed, "sleep 1000; true").await?;
    bed.until("it runs", || daemons().len() == 1).await?;
    bed.engine().freeze(&handle).await?;
    ensure!(are_frozen(&daemons()), "{:?}", daemons());
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    ensure!(daemons().is_empty(), "{:?}", daemons());
    bed.close().await
}

async fn a_daemon_ends_with_the_first_process(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let script = "trap 'exit 3' TERM; while :; do sleep 0.02; done";
    let (handle, daemons) = start_daemon(&mut bed, script).await?;
    bed.until("it runs", || daemons().len() == 1).await?;
    bed.engine().ask(&handle).await?;
    let exit = bed.engine().wait(&handle).await;
    ensure!(exit.code == Some(3), "{exit:?}");
    bed.engine().kill(&handle).await?;
    ensure!(daemons().is_empty(), "{:?}", daemons());
    bed.close().await
}

async fn the_next_process_of_the_runner_takes_over(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", TREE).await?;
    bed.engine().freeze(&handle).await?;
    bed.restart().await?;
    ensure!(bed.lists(&["a-1"]).await);
    ensure!(bed.engine().adopt(&handle, &bed.log_file("a-1")).await, "it was given up");
    ensure!(are_frozen(&bed.tree("a-1")), "it was woken");
    bed.engine().thaw(&handle).await?;
    bed.until("it runs", || are_running(&bed.tree("a-1"))).await?;
    bed.until("its log is there, once", || bed.log("a-1") == "up\n").await?;
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    bed.engine().let_go(&handle);
    bed.restart().await?;
    ensure!(!bed.engine().adopt(&handle, &bed.log_file("a-1")).await, "it was taken over when it was gone");
    bed.close().await
}

async fn what_is_known_by_its_id_alone_is_swept(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", TREE).await?;
    bed.start("a-2", TREE).await?;
    bed.engine().freeze(&handle).await?;
    bed.restart().await?;
    ensure!(bed.lists(&["a-1", "a-2"]).await);
    bed.engine().sweep(&bed.id("a-1")).await?;
    ensure!(bed.tree("a-1").is_empty() && !bed.tree("a-2").is_empty(), "one of them");
    bed.engine().sweep(&bed.id("a-2")).await?;
    ensure!(bed.tree("a-2").is_empty());
    bed.close().await
}

async fn what_is_known_by_its_id_alone_is_found_and_taken_over(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", TREE).await?;
    bed.until("it is up", || bed.log("a-1") == "up\n").await?;
    bed.restart().await?;
    let found = bed.engine().find(&bed.id("a-1"), handle.user).await?.context("it is not found")?;
    // A bed may have left it out, so that the daemon freezes.
    let found = Handle { cgroup: handle.cgroup.clone(), ..found };
    ensure!(found == handle, "{found:?} is not {handle:?}");
    ensure!(bed.engine().find(&bed.id("a-2"), None).await?.is_none(), "nobody started it");
    ensure!(bed.engine().adopt(&handle, &bed.log_file("a-1")).await, "it was given up");
    bed.until("its log is there, once", || bed.log("a-1") == "up\n").await?;
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    bed.engine().let_go(&handle);
    ensure!(bed.engine().find(&bed.id("a-1"), handle.user).await?.is_none(), "it is gone");
    bed.close().await
}

async fn a_start_that_fails_leaves_nothing(kind: Kind) -> Result<()> {
    let bed = Bed::new(kind).await?;
    let mut spec = bed.spec("a-1", "echo up");
    spec.command[0] = "no-such-program".to_owned();
    if let Some(container) = &mut spec.container {
        // The image's own program would be missing only to the process that reaps.
        container.image = "skein-test-no-such-image".to_owned();
    }
    bed.engine().door(spec.container.as_ref()).await?;
    let Err(problem) = bed.engine().start(&spec).await else { anyhow::bail!("it started") };
    ensure!(problem.to_string().contains("no-such"), "{problem}");
    ensure!(problem.to_string().contains("; "), "it does not say what to do: {problem}");
    bed.close().await
}

async fn what_begins_says_so_first_and_does_not_begin_if_it_cannot(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let unbegun = bed.unbegun("a-1");
    std::fs::write(&unbegun, "")?;
    let handle = bed.start("a-1", "echo up; sleep 1000; true").await?;
    ensure!(!unbegun.exists(), "it has begun, and nothing says so");
    bed.engine().kill(&handle).await?;

    // A folder is no file that could be taken away.
    std::fs::create_dir(bed.unbegun("a-2"))?;
    let spec = bed.spec("a-2", "echo up");
    bed.engine().door(spec.container.as_ref()).await?;
    let problem = match bed.engine().start(&spec).await {
        Ok(handle) => {
            let exit = bed.engine().wait(&handle).await;
            ensure!(exit.code == Some(i32::from(FAILED)), "{exit:?}");
            bed.engine().kill(&handle).await?;
            std::fs::read_to_string(bed.log_file("a-2"))?
        }
        Err(problem) => problem.to_string(),
    };
    ensure!(problem.contains("that it begins could not be written down"), "{problem}");
    ensure!(!problem.contains("up\n"), "it began: {problem}");
    bed.close().await
}

/// The runner's own program, which becomes a shell in the instance.
fn shell(bed: &Bed, script: &str) -> Exec {
    let arguments = ["exec-agent", "--workdir", "/", "--", "sh", "-c", script];
    Exec {
        spec: bed.spec("a-1", ""),
        arguments: arguments.map(str::to_owned).to_vec(),
        input: b"what it is told".to_vec(),
        limit: Duration::from_secs(30),
        most: 100,
    }
}

async fn the_runners_own_program_runs_inside_beside_the_first_process(kind: Kind) -> Result<()> {
    let mut bed = Bed::new(kind).await?;
    let handle = bed.start("a-1", "echo up; sleep 1000; true").await?;
    let has_its_child = || bed.tree("a-1").iter().any(|process| sleeps(process, "1000"));
    bed.until("it has its child", has_its_child).await?;
    let done = bed.engine().exec(&handle, &shell(&bed, "cat; echo wrong >&2; exit 3")).await?;
    ensure!(done.exit.code == Some(3) && !done.timed_out, "{done:?}");
    ensure!(done.output == b"what it is told" && done.errors == "wrong\n", "{done:?}");
    // What it prints beyond the bound is heard and dropped.
    let done = bed.engine().exec(&handle, &shell(&bed, "yes | head -c 1000000; exit 0")).await?;
    ensure!(done.exit.code == Some(0) && done.output.len() == 100, "{done:?}");
    let late = Exec { limit: Duration::from_millis(300), ..shell(&bed, "sleep 2000 & sleep 2000") };
    let done = bed.engine().exec(&handle, &late).await?;
    ensure!(done.timed_out && done.left.is_none(), "{done:?}");
    let is_left = || bed.tree("a-1").iter().any(|process| words(process).contains("sleep 2000"));
    bed.until("it was killed", || !is_left()).await?;
    ensure!(has_its_child(), "the first process was killed with it");
    bed.engine().kill(&handle).await?;
    bed.engine().wait(&handle).await;
    bed.close().await
}

macro_rules! promised_by {
    ($module:ident, $kind:expr, $($promise:ident),+ $(,)?) => {
        mod $module {
            use super::*;
            $(
                #[tokio::test(flavor = "multi_thread")]
                async fn $promise() -> Result<()> {
                    super::$promise($kind).await
                }
            )+
        }
    };
}

macro_rules! promised {
    ($($module:ident: $kind:expr),+ $(,)?) => {
        $(promised_by!(
            $module,
            $kind,
            its_exit_and_all_that_it_printed_are_kept,
            a_frozen_instance_stands_still_with_all_its_processes,
            a_frozen_instance_can_be_killed,
            a_request_to_end_reaches_the_whole_group,
            whoever_is_deaf_to_the_request_is_killed,
            what_broke_away_ends_with_the_instance,
            a_daemon_is_frozen_and_killed_with_the_instance,
            a_daemon_ends_with_the_first_process,
            the_next_process_of_the_runner_takes_over,
            what_is_known_by_its_id_alone_is_swept,
            what_is_known_by_its_id_alone_is_found_and_taken_over,
            a_start_that_fails_leaves_nothing,
            what_begins_says_so_first_and_does_not_begin_if_it_cannot,
            the_runners_own_program_runs_inside_beside_the_first_process,
        );)+
    };
}

promised!(groups: Kind::Groups, signals: Kind::Signals);
#[cfg(feature = "docker-tests")]
promised!(docker: Kind::Docker, pause: Kind::Pause);
