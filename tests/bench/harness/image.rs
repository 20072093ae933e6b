//! A disk in a file: ext4 on a loop device, so that a power cut is a copy of the file.
//!
//! What the mounted file system still keeps in memory is not in the file, as it would not be on a disk.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

/// A file with an ext4 of its own, mounted. Unmounted when this is dropped.
pub(crate) struct Image {
    file: PathBuf,
    place: PathBuf,
}

impl Image {
    /// Makes a file system and mounts it below a folder.
    ///
    /// # Errors
    /// When this is not root, or there are no loop devices.
    pub(crate) async fn make(folder: &Path, bytes: u64) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join("disk.img");
        std::fs::File::create(&file)?.set_len(bytes)?;
        run("mkfs.ext4", &["-q", "-F", &file.to_string_lossy()]).await?;
        // Its log is written when somebody flushes, and at no other time: a copy holds the state of one moment.
        Self::mount(file, folder.join("disk"), "loop,commit=300").await
    }

    async fn mount(file: PathBuf, place: PathBuf, options: &str) -> Result<Self> {
        std::fs::create_dir_all(&place)?;
        run("mount", &["-o", options, &file.to_string_lossy(), &place.to_string_lossy()]).await?;
        Ok(Self { file, place })
    }

    /// Where it is mounted.
    pub(crate) fn folder(&self) -> &Path {
        &self.place
    }

    /// What a disk would have if the power went off now. Whoever writes has to be stopped: the copy takes a
    /// while, and a disk has no such while.
    ///
    /// # Errors
    /// When there is no space left, or the copy cannot be mounted.
    pub(crate) async fn cut(&self, folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let file = folder.join("cut.img");
        run("cp", &["--sparse=always", &self.file.to_string_lossy(), &file.to_string_lossy()]).await?;
        Self::mount(file, folder.join("cut"), "loop").await
    }

    /// At once, or, while somebody still has a file open, when that ends.
    fn unmount(&self) {
        for how in [None, Some("--lazy")] {
            let mut command = std::process::Command::new("umount");
            command.args(how).arg(&self.place).stderr(std::process::Stdio::null());
            if command.status().is_ok_and(|status| status.success()) {
                return;
            }
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.unmount();
        // Nothing else needs it; the whole folder goes at the end of the run.
        let _ = std::fs::remove_file(&self.file);
    }
}

async fn run(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output().await;
    let output = output.with_context(|| format!("{program} cannot be started"))?;
    if !output.status.success() {
        bail!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
