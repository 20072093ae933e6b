//! The runner's own program inside a container, for what the runner does there: an image has no program that could be
//! counted on, and perhaps not even the libraries that this one loads. So these are mounted with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use bollard::models::{Mount, MountType};

const PROGRAM: &str = "/app/runner/program";
const LIBRARIES: &str = "/app/runner/lib";

/// The program and its libraries on this machine, by their names.
pub(super) struct Program {
    file: PathBuf,
    libraries: BTreeMap<String, PathBuf>,
}

impl Program {
    /// The program that `launcher` names; this process has the libraries that it needs.
    pub(super) fn new(launcher: &[OsString]) -> Self {
        let file = launcher.first().map(PathBuf::from).unwrap_or_default();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self { file, libraries: libraries(&maps) }
    }

    pub(super) fn mounts(&self) -> Vec<Mount> {
        let libraries =
            self.libraries.iter().map(|(name, file)| (file.as_path(), format!("{LIBRARIES}/{name}")));
        let all = std::iter::once((self.file.as_path(), PROGRAM.to_owned())).chain(libraries);
        all.map(|(file, target)| read_only(file, &target)).collect()
    }

    /// What runs it in a container with these arguments.
    pub(super) fn command(&self, arguments: &[String]) -> Vec<String> {
        let loader = self.libraries.keys().find(|name| name.starts_with("ld-"));
        // Without one it needs no libraries.
        let loading =
            loader.map(|name| [format!("{LIBRARIES}/{name}"), "--library-path".into(), LIBRARIES.into()]);
        let command = loading.into_iter().flatten().chain(std::iter::once(PROGRAM.to_owned()));
        command.chain(arguments.iter().cloned()).collect()
    }
}

/// The shared libraries of a process, by proc_pid_maps(5).
fn libraries(maps: &str) -> BTreeMap<String, PathBuf> {
    let files = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5)).map(Path::new);
    let named = files.filter_map(|file| Some((file.file_name()?.to_str()?.to_owned(), file.to_owned())));
    named
        .filter(|(name, file)| file.is_absolute() && (name.ends_with(".so") || name.contains(".so.")))
        .collect()
}

/// A mount of a file or folder of this machine.
pub(super) fn read_only(source: &Path, target: &str) -> Mount {
    Mount { read_only: Some(true), ..writable(source, target) }
}

/// The same, for an agent to write into.
pub(super) fn writable(source: &Path, target: &str) -> Mount {
    Mount {
        typ: Some(MountType::BIND),
        source: Some(source.display().to_string()),
        target: Some(target.to_owned()),
        ..Mount::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_libraries_are_those_of_the_process() {
        let maps = "55d0-55d1 r--p 00000000 fe:00 12 /usr/bin/skein\n\
            7f00-7f01 r-xp 00000000 fe:00 13 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f02-7f03 r--p 00000000 fe:00 13 /usr/lib/x86_64-linux-gnu/libc.so.6\n\
            7f04-7f05 r-xp 00000000 fe:00 14 /usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2\n\
            7ffe-7fff rw-p 00000000 00:00 0 [stack]\n";
        let found = libraries(maps);
        assert_eq!(found.keys().collect::<Vec<_>>(), ["ld-linux-x86-64.so.2", "libc.so.6"]);
        let program = Program { file: "/usr/bin/skein".into(), libraries: found };
        assert_eq!(
            program.command(&["tool".into()]),
            ["/app/runner/lib/ld-linux-x86-64.so.2", "--library-path", LIBRARIES, PROGRAM, "tool"]
        );
        let alone = Program { file: "/usr/bin/skein".into(), libraries: BTreeMap::new() };
        assert_eq!((alone.command(&[]), alone.mounts().len()), (vec![PROGRAM.to_owned()], 1));
    }
}
