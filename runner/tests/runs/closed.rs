//! What Landlock closes, with a user of the instance's own beside it and without, and what it leaves open.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;
use skein_proto::v1::Start;
use skein_runner::container::confine;

use super::asks::{answer, ask, text};
use super::*;

/// A user that no instance has.
const SOMEBODY: u32 = 65_534;
/// Opens what of its own it may, which is not its work folder.
const CARELESS: &str =
    "cd $TMPDIR; echo kept > file; chmod 666 file; chmod 777 .; echo done > $HOME/opened; exec sleep 1000";

fn has_landlock() {
    assert!(
        confine::has_landlock(),
        "run the suite on a kernel with Landlock: nothing else shows that its rules hold"
    );
}

/// Makes a file that every user may read and write, in a folder that every user may change.
fn leave_open(file: &Path, text: &str) {
    let folder = file.parent().unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(file, text).unwrap();
    open_to_all(folder, 0o777);
    open_to_all(file, 0o666);
}

fn open_to_all(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Whether a script succeeds that is started as an agent is, given a file.
fn succeeds(root: &Path, user: Option<u32>, script: &str, file: &str) -> bool {
    let mut agent = Command::new(env!("CARGO_BIN_EXE_skein-runner"));
    agent.args(["exec-agent", "--landlock"]);
    for (option, name) in [
        ("--close", "closed"),
        ("--close", "repository/data"),
        ("--open", "closed/own"),
        ("--open", "repository"),
        ("--read", "closed/given"),
    ] {
        agent.arg(option).arg(root.join(name));
    }
    if let Some(user) = user.map(|user| user.to_string()) {
        agent.args(["--uid", &user, "--gid", &user]);
    }
    agent.args(["--workdir", "/", "--", "sh", "-c", script]).arg(root.join(file));
    agent.output().unwrap().status.success()
}

#[test]
fn with_landlock_an_instance_writes_into_its_own_folders_alone_and_looks_into_no_closed_one() {
    has_landlock();
    let is_root = rustix::process::geteuid().is_root();
    for user in [None, Some(SOMEBODY)].into_iter().take(if is_root { 2 } else { 1 }) {
        let folder = tempfile::tempdir().unwrap();
        open_to_all(folder.path(), 0o755);
        for name in ["closed/own", "closed/given", "repository/source", "repository/data", "other", "closed"]
        {
            leave_open(&folder.path().join(name).join("file"), "text");
        }
        symlink(folder.path().join("closed"), folder.path().join("link")).unwrap();
        let run = |script: &str, file: &str| succeeds(folder.path(), user, script, file);
        let reads = |file: &str| run("cat \"$0\"", file);
        let writes = |file: &str| run("echo more >> \"$0\" && : > \"$0\"", file);
        for file in ["closed/own/file", "closed/own/new", "repository/source/file", "repository/source/new"] {
            assert!(writes(file) && reads(file), "{user:?} {file}");
        }
        for file in ["other/file", "closed/given/file"] {
            assert!(reads(file) && !writes(file), "{user:?} {file}");
        }
        for file in ["closed/file", "repository/data/file", "link/file"] {
            assert!(!reads(file) && !writes(file), "{user:?} {file}");
        }
        assert!(!run("rm \"$0\"", "other/file") && !run("mkdir \"$0\"", "other/new"));
        assert!(run("echo x > /dev/null && ls /usr /proc/self/fd /etc/passwd", "other/file"));
        assert_eq!(fs::read_to_string(folder.path().join("other/file")).unwrap(), "text");
    }
}

/// Starts what opens its files to every user, and opens more. Gives those that no other instance may touch all the
/// same, and one beside them that is nobody's.
async fn left_open(coordinator: &Coordinator, bed: &Bed) -> (Vec<String>, String) {
    let Message::Start(worker) = start(id(2), 1) else { unreachable!() };
    coordinator.say(Message::Start(Start { agent: "careless".into(), ..worker })).await;
    let (work, data) = (bed.folder.path().join("data-work"), bed.data());
    until(|| work.join("default/careless/opened").exists().then_some(())).await;
    let outputs = work.join(".outputs").join(id(2)).join("file");
    let opened = [work.join("default/careless/file"), data.join("logs/file"), data.join("file")];
    opened.iter().for_each(|file| leave_open(file, "kept\n"));
    let elsewhere = bed.folder.path().join("elsewhere/file");
    leave_open(&elsewhere, "kept\n");
    let shown = |path: &Path| path.to_str().unwrap().to_owned();
    (opened.iter().chain([&outputs]).map(|path| shown(path)).collect(), shown(&elsewhere))
}

#[tokio::test(flavor = "multi_thread")]
async fn landlock_closes_to_an_instance_and_its_tools_what_the_rights_of_its_own_user_leave_open() {
    has_landlock();
    assert_eq!(
        skein_runner::isolation(),
        Isolation::Users,
        "run the suite as root: others have no users to give"
    );
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let look = "for file in $(cat files); do cat $file && echo read $file >> seen
echo changed >> $file && echo wrote $file >> seen; done; echo done >> seen";
    let mut bed = Bed::new(&format!("while [ ! -e files ]; do sleep 0.01; done; {look}; exec sleep 1000"));
    bed.define("careless", &format!("command = ['sh', '-c', '''{CARELESS}''']\n"));
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    let (closed, elsewhere) = left_open(&coordinator, &bed).await;
    for file in closed.iter().chain([&elsewhere]) {
        let anybody =
            Command::new("sh").args(["-c", "cat $0 && : >> $0", file]).uid(SOMEBODY).gid(SOMEBODY).output();
        assert!(
            anybody.unwrap().status.success(),
            "{file} is closed by its rights, so that nothing is shown"
        );
    }

    coordinator.say(start(id(1), 1)).await;
    coordinator.reported(id(1), |what| matches!(what, What::Started(_))).await;
    let files = closed.join("\n") + "\n" + &elsewhere;
    fs::write(bed.work("next"), files).unwrap();
    open_to_all(&bed.work("next"), 0o644);
    fs::rename(bed.work("next"), bed.work("files")).unwrap();
    until(|| fs::read_to_string(bed.work("seen")).ok().filter(|seen| seen.ends_with("done\n"))).await;
    assert_eq!(bed.written("seen").await, format!("read {elsewhere}\ndone\n"));

    let mut number = 0;
    let mut call = async |tool: &str, arguments: serde_json::Value| {
        number += 1;
        coordinator.say(ask(number, number.into(), id(1), tool, &arguments)).await;
        text(&answer(&coordinator, number).await)
    };
    for file in &closed {
        let folder = Path::new(file).parent().unwrap();
        for (tool, arguments) in [
            ("read", json!({"path": file})),
            ("write", json!({"path": file, "content": "changed"})),
            ("write", json!({"path": folder.join("new"), "content": "changed"})),
            ("edit", json!({"path": file, "edits": [{"oldText": "kept", "newText": "changed"}]})),
            ("ls", json!({"path": folder})),
            ("bash", json!({"command": format!("cat {file} || echo changed >> {file}")})),
        ] {
            let told = call(tool, arguments).await.to_lowercase();
            assert!(told.contains("permission denied"), "{tool} {file}: {told}");
        }
        assert_eq!(fs::read_to_string(file).unwrap(), "kept\n", "{file}");
        assert!(!folder.join("new").exists());
    }
    bed.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_an_instances_own_stays_open_to_it_and_to_all_its_tools() {
    has_landlock();
    let coordinator = Coordinator::open(MCP, LEASE).await;
    let script = "umask > own; mktemp >> own; echo x > /tmp/$SKEIN_INSTANCE; id -u > user; exec sleep 1000";
    let mut bed = Bed::new(script);
    bed.run(&coordinator, TOKEN);
    coordinator.until("registration", |state| state.registrations.len() == 1).await;
    coordinator.say(start(id(1), 1)).await;
    bed.written("user").await;
    let temporary = bed.folder.path().join("data-work/.outputs").join(id(1));
    let own = bed.written("own").await;
    assert!(own.lines().nth(1).is_some_and(|file| Path::new(file).starts_with(&temporary)), "{own}");
    assert!(!Path::new("/tmp").join(id(1)).exists(), "it writes to a folder that all share");

    let mut number = 0;
    let mut call = async |tool: &str, arguments: serde_json::Value| {
        number += 1;
        coordinator.say(ask(number, number.into(), id(1), tool, &arguments)).await;
        text(&answer(&coordinator, number).await)
    };
    let command =
        "echo text > made && ln made linked && mv linked $TMPDIR/moved && cat $TMPDIR/moved /dev/null";
    assert_eq!(call("bash", json!({"command": command})).await, "text");
    assert_eq!(call("read", json!({"path": "made"})).await, "text\n");
    assert!(call("write", json!({"path": "new/file", "content": "x"})).await.starts_with("Wrote"));
    assert!(call("ls", json!({"path": "."})).await.contains("made"));
    if skein_runner::isolation() == Isolation::Users {
        // Each tool is restricted by itself, and what one begins another may end.
        let begin = "sleep 1000 > /dev/null 2>&1 & echo $! > number; echo begun";
        assert_eq!(call("bash", json!({"command": begin})).await, "begun");
        let end = "kill $(cat number) && while [ -e /proc/$(cat number) ]; do sleep 0.01; done; echo ended";
        assert_eq!(call("bash", json!({"command": end, "timeout": 20})).await, "ended");
    }
    bed.leave().await.unwrap();
}

/// A file there stands for a device that the system has opened to everybody.
#[test]
fn devices_are_open_as_their_modes_say_to_a_user_of_its_own_alone() {
    has_landlock();
    assert!(rustix::process::geteuid().is_root(), "run the suite as root: others cannot add a device");
    let folder = tempfile::tempdir().unwrap();
    let device = tempfile::NamedTempFile::new_in("/dev").unwrap();
    let opens = |user| succeeds(folder.path(), user, ": >> \"$0\"", device.path().to_str().unwrap());
    open_to_all(device.path(), 0o666);
    assert!(opens(Some(SOMEBODY)) && !opens(None));
    open_to_all(device.path(), 0o600);
    assert!(!opens(Some(SOMEBODY)));
}

#[test]
fn a_runner_whose_program_lies_in_a_closed_folder_runs_its_tools_all_the_same() {
    has_landlock();
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("skein-runner");
    fs::copy(env!("CARGO_BIN_EXE_skein-runner"), &program).unwrap();
    let mut tool = Command::new(&program);
    tool.args(["exec-agent", "--landlock", "--close"]).arg(folder.path()).args(["--workdir", "/"]);
    if rustix::process::geteuid().is_root() {
        tool.args(["--uid", &SOMEBODY.to_string(), "--gid", &SOMEBODY.to_string()]);
    }
    let output = tool.args(["--own", "--", "--version"]).output().unwrap();
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout.starts_with(b"skein-runner"), "{complaint}");
}
