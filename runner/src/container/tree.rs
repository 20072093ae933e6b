//! Which processes belong to an instance, read from `/proc`.
//!
//! A control group knows this better; here is what is done without one. A process belongs to an instance if
//! it descends from the first process, is in its session, runs as its user, or has the instance's id and its runner's mark
//! in its environment. The last two find those that broke away: a process in a new session whose parent has ended.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::Handle;

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
    pub fn read(pid: u32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        Self::parse(pid, &text)
    }

    /// The second field is the program's name in parentheses and may itself hold spaces and parentheses.
    fn parse(pid: u32, text: &str) -> Option<Self> {
        let rest = &text[text.rfind(')')? + 1..];
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        Some(Self {
            pid,
            state: fields.first()?.chars().next()?,
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
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
pub fn all() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    pids.filter_map(Process::read).collect()
}

/// The live processes of an instance, parents before children.
pub fn members(handle: &Handle) -> Vec<Process> {
    let processes = all();
    let marks = marks(&handle.runner, &handle.instance);
    let first = processes.iter().find(|process| process.pid == handle.pid);
    // Another process has the pid by now, or had it since the machine was started anew: then its session is not ours.
    let taken = first.is_some_and(|process| process.born != handle.born) || handle.boot != boot();
    let mut inside: BTreeSet<u32> = BTreeSet::new();
    for process in &processes {
        let in_session = process.pid == handle.pid || process.session == handle.pid;
        let by_session = !taken && in_session && process.born >= handle.born;
        if by_session || has_user(process.pid, handle) || has_entries(process.pid, &marks) {
            inside.insert(process.pid);
        }
    }
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
    let mut members: Vec<Process> =
        processes.into_iter().filter(|process| inside.contains(&process.pid) && !process.is_over()).collect();
    members.sort_by_key(|process| (process.born, process.pid));
    members
}

/// What stands in the environment of an instance's processes, `NAME=value`. One that an earlier build has started is not
/// known with its runner.
pub fn marks(runner: &str, instance: &str) -> Vec<String> {
    let runner = (!runner.is_empty()).then(|| format!("SKEIN_RUNNER={runner}"));
    runner.into_iter().chain([format!("SKEIN_INSTANCE={instance}")]).collect()
}

/// The processes that have the instance's id in their environment, whoever has started them.
pub fn marked(instance: &str) -> Vec<Process> {
    with_entries(&marks("", instance))
}

/// The processes that have all these entries, `NAME=value`, in their environment.
pub fn with_entries(wanted: &[String]) -> Vec<Process> {
    all().into_iter().filter(|process| !process.is_over() && has_entries(process.pid, wanted)).collect()
}

/// The instances that have a process marked as this runner's.
pub fn instances(runner: &str) -> BTreeSet<String> {
    let mark = format!("SKEIN_RUNNER={runner}");
    let mut found = BTreeSet::new();
    for process in all().iter().filter(|process| !process.is_over()) {
        let Some(environment) = environment(process.pid) else { continue };
        if !entries(&environment).any(|entry| entry == mark.as_bytes()) {
            continue;
        }
        let instance = entries(&environment).find_map(|entry| entry.strip_prefix(b"SKEIN_INSTANCE="));
        if let Some(instance) = instance {
            found.insert(String::from_utf8_lossy(instance).into_owned());
        }
    }
    found
}

/// Names this boot of the machine: pids and start times repeat after the next.
pub fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

fn has_entries(pid: u32, wanted: &[String]) -> bool {
    let Some(environment) = environment(pid) else { return false };
    wanted.iter().all(|wanted| entries(&environment).any(|found| found == wanted.as_bytes()))
}

fn has_user(pid: u32, handle: &Handle) -> bool {
    let Some(user) = handle.user else { return false };
    let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
    let uids = status.lines().find_map(|line| line.strip_prefix("Uid:"));
    let uid = user.uid.to_string();
    uids.is_some_and(|uids| uids.split_ascii_whitespace().any(|text| text == uid))
}

fn environment(pid: u32) -> Option<Vec<u8>> {
    fs::read(Path::new("/proc").join(pid.to_string()).join("environ")).ok()
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
        while !Process::read(session.id()).as_ref().is_some_and(is_leader) {
            std::thread::yield_now();
        }
        let first = Process::read(session.id()).unwrap();
        let handle = |born: u64, boot: String| Handle {
            instance: "nobody-00000000".to_owned(),
            runner: String::new(),
            pid: first.pid,
            born,
            boot,
            cgroup: None,
            user: None,
            container: None,
        };
        let found = [
            members(&handle(first.born, boot())),
            members(&handle(first.born, "an earlier one".to_owned())),
            members(&handle(first.born + 1, boot())),
        ];
        session.kill().unwrap();
        session.wait().unwrap();
        assert_eq!(found.map(|members| members.len()), [1, 0, 0]);
    }

    #[test]
    fn a_program_name_may_hold_parentheses() {
        let text = "7 (a) b (c) S 3 7 5 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4242 1 1";
        let process = Process::parse(7, text).unwrap();
        assert_eq!((process.parent, process.session, process.born, process.state), (3, 5, 4242, 'S'));
    }
}
