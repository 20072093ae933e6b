//! What a runner's own program says where nobody can hear it: its log may be on a disk that is full.

use std::fs::File;
use std::process::{Command, Stdio};

use skein_runner::container::shim::FAILED;

/// How it ends with these arguments.
fn ended(arguments: &[&str]) -> Option<i32> {
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_skein-runner"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(full);
    command.status().unwrap().code()
}

#[test]
fn what_nobody_can_be_told_is_told_by_the_status() {
    let agent = ["exec-agent", "--cgroup", "/nowhere/at/all", "--workdir", "/", "--", "true"];
    assert_eq!(ended(&agent), Some(FAILED.into()));
    // It was asked nothing.
    assert_eq!(ended(&["transport"]), Some(1));
}
