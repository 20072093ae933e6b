//! Which processes belong to an instance, read from `/proc`.
//!
//! A control group knows this better; here is what is done without one. A process belongs to an instance if it descends
//! from the first process, is in its session, runs as its user, or has the instance's id and its runner's mark in its
//! environment. The last two find those that broke away: a process in a new session whose parent has ended.
//!
//! A look that fails, for want of a file descriptor perhaps, says nothing of whether a process is there, and is an
//! error.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::sync::OnceLock;
use std::time::Duration;

use super::{Handle, mark};

/// Before a runner's mark in the environment of its processes.
const RUNNER: &str = "SKEIN_RUNNER=";

/// How often the environment of one that becomes another program is looked at, and after what time first; twice as long
/// is waited each time, for it may have to wait for a processor.
const BECOMING: (u32, Duration) = (12, Duration::from_micros(100));

/// One line of the process table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub pid: u32,
    /// `R`, `S`, `T` …, as in proc(5).
    pub state: char,
    pub parent: u32,
    pub session: u32,
    /// In clock ticks since boot.
    pub born: u64,
}

impl Process {
    /// None if there is no such process.
    ///
    /// # Errors
    /// When it could not be looked at; so of all of these.
    pub fn read(pid: u32) -> io::Result<Option<Self>> {
        let Some(text) = read(pid, "stat")? else { return Ok(None) };
        let text = String::from_utf8_lossy(&text);
        let unknown =
            || io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat says `{text}`"));
        Self::parse(pid, &text).map(Some).ok_or_else(unknown)
    }

    /// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    fn parse(pid: u32, text: &str) -> Option<Self> {
        let rest = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            // None any more for one that is gone and still in the table.
            session: fields.get(3)?.parse::<i64>().ok()?.try_into().unwrap_or(0),
            born: fields.get(19)?.parse().ok()?,
        })
    }

    /// Ended, and only not yet collected by its parent.
    pub fn is_over(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    pub fn is_stopped(&self) -> bool {
        matches!(self.state, 'T' | 't')
    }
}

/// Every process of the machine. Those that end meanwhile are left out.
pub fn all() -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse().ok()) else { continue };
        found.extend(Process::read(pid)?);
    }
    Ok(found)
}

/// The live processes of an instance, parents before children.
pub fn members(handle: &Handle) -> io::Result<Vec<Process>> {
    let processes = all()?;
    let marks = marks(&handle.runner, &handle.instance);
    let first = processes.iter().find(|process| process.pid == handle.pid);
    // Another process has the pid by now, or had it since the machine was started anew: then its session is not ours.
    let taken = first.is_some_and(|process| process.born != handle.born) || handle.boot != boot()?;
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    for process in &processes {
        let in_session = process.pid == handle.pid || process.session == handle.pid;
        let by_session = !taken && in_session && process.born >= handle.born;
        if by_session || has_user(process.pid, handle)? || has_entries(process.pid, &marks)? {
            inside.insert(process.pid);
        }
    }
    Ok(with_descendants(processes, inside))
}

/// Those of the processes that still run and are among these or descend from them, parents before children.
fn with_descendants(processes: Vec<Process>, mut inside: BTreeSet<u32>) -> Vec<Process> {
    loop {
        let before = inside.len();
        for process in &processes {
            if inside.contains(&process.parent) {
                inside.insert(process.pid);
            }
        }
        if inside.len() == before {
            break;
        }
    }
    let mut found: Vec<Process> =
        processes.into_iter().filter(|process| inside.contains(&process.pid) && !process.is_over()).collect();
    found.sort_by_key(|process| (process.born, process.pid));
    found
}

/// What stands in the environment of an instance's processes, `NAME=value`. One that an earlier build has started is
/// not known with its runner.
pub fn marks(runner: &str, instance: &str) -> Vec<String> {
    let runner = (!runner.is_empty()).then(|| format!("{RUNNER}{runner}"));
    runner.into_iter().chain([format!("SKEIN_INSTANCE={instance}")]).collect()
}

/// The processes that have the instance's id in their environment, whoever has started them, and what descends from
/// them.
pub fn marked(instance: &str) -> io::Result<Vec<Process>> {
    with_entries(&marks("", instance))
}

/// The processes that have all these entries, `NAME=value`, in their environment, and what descends from them, parents
/// before children.
pub fn with_entries(wanted: &[String]) -> io::Result<Vec<Process>> {
    let processes = all()?;
    let mut inside = BTreeSet::new();
    for process in &processes {
        if has_entries(process.pid, wanted)? {
            inside.insert(process.pid);
        }
    }
    Ok(with_descendants(processes, inside))
}

/// The instances that have a process marked as this runner's, whatever it was called when it started them.
pub fn instances(runner: &str) -> io::Result<BTreeSet<String>> {
    let mark = format!("{RUNNER}{runner}");
    let mut found = BTreeSet::new();
    for process in all()?.iter().filter(|process| !process.is_over()) {
        let Some(environment) = environment(process.pid)? else { continue };
        if !entries(&environment).any(|entry| is_entry(entry, &mark)) {
            continue;
        }
        let instance = entries(&environment).find_map(|entry| entry.strip_prefix(b"SKEIN_INSTANCE="));
        if let Some(instance) = instance {
            found.insert(String::from_utf8_lossy(instance).into_owned());
        }
    }
    Ok(found)
}

/// Names this boot of the machine: pids and start times repeat after the next.
pub fn boot() -> io::Result<&'static str> {
    static KNOWN: OnceLock<String> = OnceLock::new();
    if let Some(known) = KNOWN.get() {
        return Ok(known);
    }
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
    Ok(KNOWN.get_or_init(|| id.trim().to_owned()))
}

fn has_entries(pid: u32, wanted: &[String]) -> io::Result<bool> {
    let Some(environment) = environment(pid)? else { return Ok(false) };
    Ok(wanted.iter().all(|wanted| entries(&environment).any(|found| is_entry(found, wanted))))
}

/// A runner's mark is known by its identity: tools of one instance have another if the runner was renamed meanwhile.
fn is_entry(found: &[u8], wanted: &str) -> bool {
    let (Some(runner), Some(found)) = (wanted.strip_prefix(RUNNER), found.strip_prefix(RUNNER.as_bytes()))
    else {
        return found == wanted.as_bytes();
    };
    std::str::from_utf8(found).is_ok_and(|found| mark::is_same(found, runner))
}

/// What a process was given when it became its program. While execve(2) is at it there is nothing to be read of either
/// program, and it is looked at again: whoever goes by one look would take it for none of the instance's.
#[expect(
    clippy::disallowed_methods,
    reason = "whoever looks at all processes does so on a thread that may block"
)]
fn environment(pid: u32) -> io::Result<Option<Vec<u8>>> {
    let (looks, mut pause) = BECOMING;
    let mut seen_without = 0;
    for _ in 0..looks {
        let Some(environment) = read_at_once(pid, "environ")? else { return Ok(None) };
        // In the midst of execve(2) it may look for an instant as if it were to have none.
        seen_without += u32::from(environment.is_empty() && has_no_environment(pid)?);
        if !environment.is_empty() || seen_without == 4 {
            return Ok(Some(environment));
        }
        std::thread::sleep(pause);
        pause *= 2;
    }
    Ok(None)
}

/// True for threads of the kernel, for what has ended, and for a program that was given no environment. By
/// proc_pid_stat(5).
fn has_no_environment(pid: u32) -> io::Result<bool> {
    let Some(text) = read(pid, "stat")? else { return Ok(true) };
    let text = String::from_utf8_lossy(&text);
    let fields: Vec<&str> = text[text.rfind(')').map_or(0, |at| at + 1)..].split_ascii_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (memory, start, end) = (field(23), field(50), field(51));
    Ok(memory == 0 || (end != 0 && start == end))
}

fn has_user(pid: u32, handle: &Handle) -> io::Result<bool> {
    let Some(user) = handle.user else { return Ok(false) };
    let Some(status) = read(pid, "status")? else { return Ok(false) };
    let status = String::from_utf8_lossy(&status);
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = user.uid.to_string();
    Ok(uids.is_some_and(|uids| uids.split_ascii_whitespace().any(|text| text == uid)))
}

/// Whether this user may look into a process and signal it. Those of a container are another user's, as a rule, also
/// where this one had the daemon start them.
pub fn is_in_reach(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok()
}

/// What the kernel says of a process, by proc_pid(5). None if it has ended, or is not to be seen by this user: then it
/// is nothing that this user has started, outside of containers.
fn read(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    unless_gone(fs::read(format!("/proc/{pid}/{file}")))
}

/// The same in a single read(2), for a file that ends in the middle when its process becomes another program.
fn read_at_once(pid: u32, file: &str) -> io::Result<Option<Vec<u8>>> {
    let mut room = 64 << 10;
    loop {
        let read = File::open(format!("/proc/{pid}/{file}")).and_then(|mut file| {
            let mut text = vec![0; room];
            let length = file.read(&mut text)?;
            text.truncate(length);
            Ok(text)
        });
        let Some(text) = unless_gone(read)? else { return Ok(None) };
        if text.len() < room {
            return Ok(Some(text));
        }
        room *= 2;
    }
}

fn unless_gone(read: io::Result<Vec<u8>>) -> io::Result<Option<Vec<u8>>> {
    match read {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) => {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

fn entries(environment: &[u8]) -> impl Iterator<Item = &[u8]> {
    environment.split(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_the_number_of_a_process_of_an_earlier_boot_is_not_the_instances() {
        let mut session = std::process::Command::new("setsid").args(["sleep", "100"]).spawn().unwrap();
        // It is the leader of its session once it has become its program.
        let is_leader = |process: &Process| process.session == process.pid;
        while !Process::read(session.id()).unwrap().as_ref().is_some_and(is_leader) {
            std::thread::yield_now();
        }
        let first = Process::read(session.id()).unwrap().unwrap();
        let handle = |born: u64, boot: &str| Handle {
            instance: "nobody-00000000".to_owned(),
            runner: String::new(),
            pid: first.pid,
            born,
            boot: boot.to_owned(),
            cgroup: None,
            user: None,
            container: None,
        };
        let found = [
            members(&handle(first.born, boot().unwrap())),
            members(&handle(first.born, "an earlier one")),
            members(&handle(first.born + 1, boot().unwrap())),
        ];
        session.kill().unwrap();
        session.wait().unwrap();
        assert_eq!(found.map(|members| members.unwrap().len()), [1, 0, 0]);
    }

    #[test]
    fn one_that_becomes_another_program_is_found_all_the_while() {
        let again = r#"test "$1" = 0 || exec /bin/sh -c "$0" "$0" $(($1 - 1)); exec sleep 100"#;
        let mut restless = std::process::Command::new("/bin/sh")
            .args(["-c", again, again, "2000"])
            .env("SKEIN_INSTANCE", "restless-00000000")
            .spawn()
            .unwrap();
        let wanted = ["SKEIN_INSTANCE=restless-00000000".to_owned()];
        let (mut looks, mut missed) = (0, 0);
        while fs::read(format!("/proc/{}/comm", restless.id())).unwrap() != b"sleep\n" {
            missed += u32::from(!has_entries(restless.id(), &wanted).unwrap());
            looks += 1;
        }
        restless.kill().unwrap();
        restless.wait().unwrap();
        assert!(looks > 100 && missed == 0, "{missed} of {looks}");
    }

    #[test]
    fn what_has_no_environment_is_nobodys() {
        let mut bare = std::process::Command::new("/bin/sleep").arg("100").env_clear().spawn().unwrap();
        let found = environment(bare.id());
        bare.kill().unwrap();
        bare.wait().unwrap();
        assert_eq!(found.unwrap(), Some(Vec::new()));
    }

    #[test]
    fn a_program_name_may_hold_parentheses() {
        let text = "7 (a) b (c) S 3 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let process = Process::parse(7, text).unwrap();
        assert_eq!((process.parent, process.session, process.born, process.state), (3, 5, 4242, 'S'));
    }

    #[test]
    fn what_is_gone_and_still_in_the_table_is_over() {
        let text = "7 (sh) X 0 -1 -1 0 -1 4227340 789 0 0 0 0 0 0 0 20 0 0 0 7781126 0 0";
        assert!(Process::parse(7, text).is_some_and(|process| process.is_over()));
    }
}
