//! The commands that agents call which are shell scripts: locks, calls and signals without MCP. They are one program,
//! which stands in `agent-commands/`; `build.rs` makes it, and this program carries it.

#[path = "../agent-commands/src/names.rs"]
mod names;

use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use names::NAMES;

const PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent-commands"));
const NAME: &str = "skein-agent";

/// Whether this program was built with it.
pub fn is_there() -> bool {
    !PROGRAM.is_empty()
}

/// Puts it into a folder, with a link for each of its commands. Everybody may read the folder, and run what is in it.
///
/// # Errors
/// When the folder cannot be written to.
pub fn install(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    let program = folder.join(NAME);
    if fs::read(&program).is_ok_and(|there| there == PROGRAM) {
        return link_all(folder);
    }
    // An earlier one may be running, so it is replaced and not overwritten.
    let new = folder.join(format!(".{NAME}"));
    fs::write(&new, PROGRAM)?;
    fs::set_permissions(&new, fs::Permissions::from_mode(0o555))?;
    fs::rename(&new, &program)?;
    link_all(folder)
}

fn link_all(folder: &Path) -> io::Result<()> {
    for (name, ..) in NAMES {
        match symlink(NAME, folder.join(name)) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// A kind of segment in an executable file (elf(5)): it names the loader of shared libraries.
    const INTERPRETER: u32 = 3;

    #[test]
    fn the_commands_need_nothing_that_an_image_might_not_have() {
        assert!(is_there(), "it was not built; on Debian: apt-get install libc6-dev");
        assert!(PROGRAM.len() < 1_500_000, "{} bytes", PROGRAM.len());
        let number = |at: usize, length: usize| {
            PROGRAM[at..at + length].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        assert_eq!(&PROGRAM[..5], b"\x7fELF\x02", "it is no 64-bit program");
        let (first, size, count) = (number(32, 8), number(54, 2), number(56, 2));
        for segment in 0..count {
            let at = usize::try_from(first + segment * size).unwrap();
            assert_ne!(number(at, 4), u64::from(INTERPRETER), "it is not static");
        }
    }

    #[test]
    fn each_command_is_found_under_its_name() {
        let folder = tempfile::tempdir().unwrap();
        install(folder.path()).unwrap();
        install(folder.path()).unwrap();
        for (name, ..) in NAMES {
            let output = Command::new(folder.path().join(name)).env_clear().arg("--help").output().unwrap();
            assert!(output.status.success(), "{name}");
        }
        let lock = Command::new(folder.path().join("rlock")).env_clear().arg("a:b").output().unwrap();
        assert_eq!(lock.status.code(), Some(5), "without a gateway a lock is no lock");
    }
}
