//! The checked-in code is what the `.proto` files say.
//!
//! After a change to a `.proto` file, `SKEIN_REGENERATE=1 cargo test -p skein-proto --test generated` writes
//! the code anew.

use std::path::Path;

const FILE: &str = "skein.v1.rs";

/// Makes the code of all services into `folder`.
fn generate(folder: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files =
        protox::compile(["skein/v1/runner.proto", "skein/v1/admin.proto", "skein/v1/peer.proto"], [&root])?;
    // Ordered maps, so that the same registration is the same bytes and prints the same.
    tonic_prost_build::configure().btree_map(".").out_dir(folder).compile_fds(files)?;
    Ok(())
}

#[test]
fn the_checked_in_code_is_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    generate(folder.path()).unwrap();
    let made = std::fs::read_to_string(folder.path().join(FILE)).unwrap();
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gen").join(FILE);
    if std::env::var_os("SKEIN_REGENERATE").is_some() {
        std::fs::write(&kept, &made).unwrap();
    }
    let found = std::fs::read_to_string(&kept).unwrap();
    assert!(
        made == found,
        "src/gen/{FILE} is not what the .proto files give; run this test with SKEIN_REGENERATE=1 and commit the result"
    );
}
