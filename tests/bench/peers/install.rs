//! Gets peers from PyPI, npm and Debian into a folder of the build, at the versions that are pinned beside them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// Everything that peers need is below this.
const FOLDER: &str = "target/bench/peers";
/// Left where an installation is complete; holds what it was made from.
const COMPLETE: &str = ".complete";

/// A file that is pinned in the repository: its name and its text.
pub(super) type Pinned = (&'static str, &'static str);

/// A virtual environment with the packages of a `requirements.txt`. Gives the folder of its programs.
///
/// # Errors
/// When Python is missing or PyPI cannot be reached.
pub(super) async fn python(name: &str, requirements: &'static str) -> Result<PathBuf> {
    let files = [("requirements.txt", requirements)];
    let folder = once(name, &files, async |folder| {
        run(folder, "python3", &["-m", "venv", "venv"]).await?;
        let pip = folder.join("venv/bin/pip");
        run(folder, &pip.to_string_lossy(), &["install", "--quiet", "-r", "requirements.txt"]).await
    });
    Ok(folder.await?.join("venv/bin"))
}

/// A folder with a script and the packages of its `package.json`.
///
/// # Errors
/// When Node.js or npm is missing, or npm's packages cannot be reached.
pub(super) async fn node(name: &str, files: &[Pinned]) -> Result<PathBuf> {
    once(name, files, async |folder| {
        // Scripts of packages report to their makers and fetch things; what is needed is in the packages.
        // `npm ci` would want packages of other systems in the lock too.
        run(folder, "npm", &["install", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]).await
    })
    .await
}

/// The root of a tree with packages of Debian, unpacked: nothing is installed on the machine, and no service
/// starts.
///
/// # Errors
/// When this is no Debian, or its packages cannot be reached.
pub(super) async fn debian(name: &str, packages: &'static str) -> Result<PathBuf> {
    let files = [("packages.txt", packages)];
    let folder = once(name, &files, async |folder| {
        let wanted: Vec<&str> =
            ["download", "--quiet"].into_iter().chain(packages.split_whitespace()).collect();
        run(folder, "apt-get", &wanted).await.context("try `apt-get update`")?;
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            if path.extension().is_some_and(|extension| extension == "deb") {
                run(folder, "dpkg-deb", &["-x", &path.to_string_lossy(), "root"]).await?;
            }
        }
        Ok(())
    });
    Ok(folder.await?.join("root"))
}

/// Installs, unless the same was installed before.
async fn once(
    name: &str,
    files: &[Pinned],
    install: impl AsyncFnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let folder = std::path::absolute(FOLDER)?.join(name);
    let made_from: String = files.iter().map(|(name, text)| format!("{name}\n{text}\n")).collect();
    let complete = folder.join(COMPLETE);
    if std::fs::read_to_string(&complete).is_ok_and(|text| text == made_from) {
        return Ok(folder);
    }
    eprintln!("    getting {name} …");
    if folder.exists() {
        std::fs::remove_dir_all(&folder)?;
    }
    std::fs::create_dir_all(&folder)?;
    for (name, text) in files {
        std::fs::write(folder.join(name), text)?;
    }
    install(&folder).await.with_context(|| format!("{name} cannot be had"))?;
    std::fs::write(complete, made_from)?;
    Ok(folder)
}

/// Runs a program to its end.
///
/// # Errors
/// When it fails, with the last of what it said.
pub(super) async fn run(folder: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).current_dir(folder).kill_on_drop(true).output().await;
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    bail!("{program} failed: {}", said.trim().lines().next_back().unwrap_or("it said nothing"))
}
