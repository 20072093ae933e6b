use std::os::unix::fs::symlink;

use super::*;

fn open(root: &Path) -> Result<(Folders, Lock), Error> {
    open_with(root, "data")
}

fn open_with(root: &Path, data: &str) -> Result<(Folders, Lock), Error> {
    Folders::open(&root.join(data), Some(&root.join("work")), Isolation::Landlock)
}

/// The next one clears away what its ledger does not know.
#[test]
fn a_work_folder_that_another_runner_has_is_refused_until_that_is_gone() {
    let root = tempfile::tempdir().unwrap();
    let (folders, lock) = open_with(root.path(), "one").unwrap();
    fs::create_dir(folders.lent("worker-1")).unwrap();
    let refused = open_with(root.path(), "other").unwrap_err();
    assert!(matches!(refused, Error::WorkInUse(_)) && refused.to_string().contains("--work"), "{refused}");
    assert!(matches!(open_with(root.path(), "one"), Err(Error::InUse(_))), "both are taken, its data first");
    assert!(folders.lent("worker-1").exists());
    assert_eq!(folders.borrowers(), ["worker-1"], "the file is nobody's");
    let file = fs::metadata(root.path().join("work").join(WORK_LOCK)).unwrap();
    assert_eq!(file.mode() & 0o777, 0o600, "an agent could keep it taken");
    drop(lock);
    open_with(root.path(), "other").unwrap();
}

#[test]
fn a_work_folder_that_others_can_change_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let work = root.path().join("work");
    fs::create_dir(&work).unwrap();
    fs::set_permissions(&work, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = open(root.path()).unwrap_err().to_string();
    assert!(refused.contains("--work"), "{refused}");
    assert_eq!(fs::metadata(&work).unwrap().mode() & 0o777, 0o777, "it was left alone");

    fs::set_permissions(&work, fs::Permissions::from_mode(0o755)).unwrap();
    open(root.path()).unwrap();
    assert_eq!(fs::metadata(&work).unwrap().mode() & 0o777, 0o700);
}

/// The tests run as root, as a runner that gives its instances users of their own.
#[test]
fn a_work_folder_that_instances_are_in_is_not_closed_to_them_by_the_next() {
    let root = tempfile::tempdir().unwrap();
    let (folders, _lock) = open(root.path()).unwrap();
    let user = Some(User { uid: 1_900_000_007, gid: 1_900_000_003 });
    let about = || {
        let about = fs::metadata(folders.work("s", "a", user).unwrap()).unwrap();
        assert_eq!((about.gid(), about.mode() & 0o7777), (1_900_000_003, 0o2770));
        (about.ctime(), about.ctime_nsec())
    };
    // Whatever is changed of a folder changes that time.
    assert_eq!(about(), about());
    fs::set_permissions(folders.work("s", "a", user).unwrap(), fs::Permissions::from_mode(0o755)).unwrap();
    about();
}

#[test]
fn what_each_instance_is_given_is_closed_to_the_others_from_the_start() {
    let root = tempfile::tempdir().unwrap();
    let (folders, _lock) = open(root.path()).unwrap();
    let closed = folders.closed();
    let own = [
        folders.lent("worker-1"),
        folders.input("worker-1"),
        folders.outputs("worker-1"),
        folders.kept("worker-1").home,
        folders.open_joined("worker-1").unwrap(),
    ];
    let work = folders.work("s", "a", None).unwrap();
    for given in own.into_iter().chain([folders.ledger(), work]) {
        assert!(closed.iter().any(|shut| given.starts_with(shut) && shut.is_dir()), "{}", given.display());
    }
}

#[test]
fn logs_are_bounded_and_those_of_live_instances_stay() {
    let root = tempfile::tempdir().unwrap();
    let (folders, _lock) = open(root.path()).unwrap();
    let old = std::time::SystemTime::UNIX_EPOCH;
    for number in 0..=LOGS {
        fs::write(folders.log(&format!("worker-{number}")), "done\n").unwrap();
    }
    for instance in ["asleep", "gone"] {
        let log = fs::File::create(folders.log(instance)).unwrap();
        log.set_modified(old).unwrap();
        for beside in ["said", COPIED] {
            fs::write(folders.log(instance).with_extension(beside), "").unwrap();
        }
    }
    let endless = folders.log("worker-0");
    fs::File::options().write(true).open(&endless).unwrap().set_len(5 * LOG).unwrap();
    tend_logs(&root.path().join("data/logs"), &BTreeSet::from([folders.log("asleep")]), |_| Harness::Command)
        .unwrap();
    for beside in ["log", "said", COPIED] {
        let is_there = |instance: &str| folders.log(instance).with_extension(beside).exists();
        assert!(is_there("asleep"), "it wakes some day");
        assert!(!is_there("gone"), "its {beside} has stayed");
    }
    assert_eq!(fs::metadata(&endless).unwrap().len(), 0);
    let older = fs::metadata(endless.with_extension("log.1")).unwrap();
    assert_eq!((older.len(), older.mode() & 0o777), (LOG, 0o600));
}

/// As on a full disk: what frees it must not wait for room on it.
#[test]
fn a_log_of_which_no_part_can_be_kept_is_emptied_and_keeps_no_other_from_its_bound() {
    let root = tempfile::tempdir().unwrap();
    let (folders, _lock) = open(root.path()).unwrap();
    let logs = ["worker-1", "worker-2", "worker-3"].map(|instance| folders.log(instance));
    for log in &logs {
        fs::File::create(log).unwrap().set_len(2 * LOG).unwrap();
    }
    // No file can be written there.
    fs::create_dir(logs[1].with_extension("log.1")).unwrap();
    tend_logs(&root.path().join("data/logs"), &logs.clone().into(), |_| Harness::Codex).unwrap_err();
    assert!(logs.iter().all(|log| fs::metadata(log).unwrap().len() == 0));
}

/// Root may look everywhere, so that this shows little where the tests run as root.
#[test]
fn what_an_instance_has_closed_to_itself_is_removed_and_nothing_that_it_has_linked() {
    let (root, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (folders, _lock) = open(root.path()).unwrap();
    let closed = folders.outputs("worker-1").join("cache/closed");
    fs::create_dir_all(&closed).unwrap();
    fs::write(closed.join("file"), "").unwrap();
    fs::write(other.path().join("file"), "").unwrap();
    symlink(other.path(), folders.outputs("worker-1").join("link")).unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o555)).unwrap();
    open_all(&folders.outputs("worker-1")).unwrap();
    assert_eq!(fs::metadata(&closed).unwrap().mode() & 0o777, 0o700);
    let joined = folders.open_joined("worker-1").unwrap();
    fs::create_dir(&joined).unwrap();
    symlink(other.path(), joined.join("link")).unwrap();
    folders.take_files_back("worker-1");
    assert!(!folders.outputs("worker-1").exists() && other.path().join("file").exists());
    assert!(!joined.parent().unwrap().exists());
}

/// Only root may give a file away: what another has put there is made by it.
#[test]
fn a_work_folder_that_another_put_there_is_refused() {
    let (root, target) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (work, stranger) = (root.path().join("work"), Some(12_345));
    fs::create_dir(&work).unwrap();
    chown(&work, stranger, None).unwrap();
    assert!(open(root.path()).is_err());

    fs::remove_dir(&work).unwrap();
    fs::set_permissions(target.path(), fs::Permissions::from_mode(0o755)).unwrap();
    symlink(target.path(), &work).unwrap();
    std::os::unix::fs::lchown(&work, stranger, None).unwrap();
    assert!(open(root.path()).is_err());
    assert_eq!(fs::metadata(target.path()).unwrap().mode() & 0o777, 0o755, "it was left alone");
    std::os::unix::fs::lchown(&work, Some(rustix::process::geteuid().as_raw()), None).unwrap();
    open(root.path()).unwrap();
}
