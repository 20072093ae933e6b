//! What a container has in its work folder.

use std::path::PathBuf;

use super::*;
use crate::container::{Joined, limits};

/// What is mounted at a path and what is, of what a container is made of.
fn mounts(joined: Option<Joined>) -> Vec<(String, String)> {
    let keys: Keys = serde_json::from_value(json!({ "image": "my/agent:1" })).unwrap();
    let container = keys.container(&limits::Keys::default()).unwrap().unwrap();
    let spec = Spec { joined, ..tool().1.spec };
    let body = create::body("r1", &Program::new(&[]), "net".to_owned(), &spec, &container, "/bin", 0);
    let mounts = body
        .host_config
        .unwrap()
        .mounts
        .unwrap()
        .into_iter()
        .filter(|mount| mount.target.as_deref().is_some_and(|target| target.starts_with(STATIC)));
    let shown = mounts.map(|mount| {
        assert_eq!(mount.read_only, Some(true), "{mount:?}");
        (mount.target.unwrap(), mount.source.unwrap())
    });
    shown.collect()
}

#[test]
fn a_work_folder_of_several_is_mounted_with_all_of_them_read_only() {
    let pair = |target: &str, source: &str| (target.to_owned(), source.to_owned());
    assert_eq!(mounts(None), [pair("/app/static", "/definition")]);
    let folders = [
        ("lib".to_owned(), PathBuf::from("/definition/lib")),
        ("shared".to_owned(), PathBuf::from("/project/shared")),
    ];
    let joined = Joined { folder: "/joined".into(), mounts: folders.into() };
    assert_eq!(
        mounts(Some(joined)),
        [
            pair("/app/static", "/joined"),
            pair("/app/static/lib", "/definition/lib"),
            pair("/app/static/shared", "/project/shared"),
        ]
    );
}
