//! Builds the program of the commands that agents call (`agent-commands/`), statically, so that it runs in any
//! container whatever that is made of. The runner carries it: nobody has to install it, and it always fits.
//!
//! Cargo links a whole build in one way, so the compiler is asked directly; it needs nothing but the standard library.
//! Without a static C library (on Debian it comes with libc6-dev) there are no commands, and the runner says so.

use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = "agent-commands/src";

fn main() {
    println!("cargo::rerun-if-changed={SOURCE}");
    println!("cargo::rerun-if-changed=build.rs");
    let target = PathBuf::from(variable("OUT_DIR")).join("agent-commands");
    if let Err(problem) = build(&target) {
        println!("cargo::warning=the runner is built without its commands for shell scripts: {problem}");
        // Whoever carries it looks whether it is empty.
        if let Err(error) = std::fs::write(&target, "") {
            panic!("{} cannot be written: {error}", target.display());
        }
    }
}

fn build(target: &Path) -> Result<(), String> {
    let mut compiler = Command::new(variable("RUSTC"));
    compiler
        .arg(format!("{SOURCE}/main.rs"))
        .args(["--crate-name", "skein_agent", "--edition", "2024", "--target", &variable("TARGET")])
        .args(["-C", "opt-level=z", "-C", "lto=fat", "-C", "codegen-units=1", "-C", "panic=abort"])
        .args(["-C", "strip=symbols", "-C", "target-feature=+crt-static", "-C", "relocation-model=static"])
        .arg("-o")
        .arg(target);
    if let Ok(linker) = std::env::var("RUSTC_LINKER") {
        compiler.arg("-C").arg(format!("linker={linker}"));
    }
    let built = compiler.output().map_err(|error| format!("the compiler cannot be run: {error}"))?;
    if built.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&built.stderr);
    Err(said.lines().find(|line| line.contains("error")).unwrap_or("the compiler failed").to_owned())
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for this script"))
}
