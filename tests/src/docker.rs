//! A Docker daemon's images for tests, made of this machine's own programs: no registry is asked.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use tokio::process::Command;

/// Packs programs with the libraries that they load, and folders as they are. What is a link becomes a file.
const PACK: &str = r#"
set -eu
image=$1 folders=$2
shift 2
files=
for program in "$@"; do files="$files $(command -v "$program")"; done
libraries=$(find -L $files $folders -type f \( -perm -u+x -o -name '*.so' \) -exec ldd {} + 2>/dev/null |
  sed --quiet 's|^\t[^/]*\(/[^ ]*\) (.*|\1|p' | sort --unique)
all=$(printf '%s\n' $files $folders $libraries | sort --unique)
tar --create --dereference --absolute-names --hard-dereference --exclude=__pycache__ --exclude=test --exclude=idlelib \
  --file - $all | docker import - "$image"
"#;

/// The distribution's programs come before others of the same name: those may be scripts.
const PATH: &str = "/usr/bin:/bin:/usr/sbin:/sbin:/usr/local/bin:/usr/local/sbin";

/// What an agent of the tests calls.
const PROGRAMS: [&str; 17] = [
    "cat", "chmod", "dd", "env", "id", "ls", "mkdir", "python3", "rm", "seq", "setsid", "sh", "sleep",
    "tail", "touch", "true", "yes",
];

/// An image of the daemon. It is removed when it is dropped.
pub struct Image(String);

impl Image {
    /// Packs programs of this machine, with folders that they need.
    ///
    /// # Errors
    /// When there is no daemon, or a program is missing.
    pub async fn pack(name: &str, programs: &[&str], folders: &str) -> Result<Self> {
        let name = format!("skein-test-{name}-{}", uuid::Uuid::new_v4().simple());
        let mut packing = Command::new("sh");
        packing
            .args(["-c", PACK, "sh", &name, folders])
            .args(programs)
            .env("PATH", PATH)
            .stdin(Stdio::null());
        let packed = packing.output().await?;
        let said = String::from_utf8_lossy(&packed.stderr);
        ensure!(
            packed.status.success(),
            "no image can be made; start dockerd (apt-get install docker.io): {said}"
        );
        Ok(Self(name))
    }

    /// A shell, some programs and Python: enough for the agents of the tests.
    ///
    /// # Errors
    /// As [`Self::pack`].
    pub async fn agents() -> Result<Self> {
        let script = "import sysconfig; print(sysconfig.get_path('stdlib'))";
        let library = Command::new("python3").args(["-c", script]).env("PATH", PATH).output().await?;
        Self::pack("agents", &PROGRAMS, String::from_utf8(library.stdout)?.trim()).await
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rmi", "--force", &self.0]).output();
    }
}

/// Runs a command of the daemon's client and gives what it prints.
///
/// # Errors
/// When it fails, with what it said.
pub async fn docker(arguments: &[&str]) -> Result<String> {
    let output = Command::new("docker").args(arguments).stdin(Stdio::null()).output().await;
    let output = output.context("docker cannot be run; on Debian: apt-get install docker.io")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "docker {}: {said}", arguments.join(" "));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
