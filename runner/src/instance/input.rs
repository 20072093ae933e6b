//! Why a run was started, as its program is told: in a variable, and in a file as well when it is long.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, fchown};
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::Shared;
use super::ledger::Row;
use crate::container::{Failure, Spec, User, docker};
use crate::definition::Definition;

/// Longest input in a variable, bytes. The kernel takes 128 KiB with its name.
const LONGEST: usize = 100 * 1024;
/// Longest field, bytes, that a variable has of an input that is too long for it.
const FIELD: usize = 4 * 1024;

/// Gives the process its input, and puts a long one into a file that it alone may read.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn give(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    spec: &mut Spec,
) -> Result<(), Failure> {
    if row.input.len() <= LONGEST {
        spec.env.insert("SKEIN_INPUT".to_owned(), row.input.clone());
        return Ok(());
    }
    let file = shared.folders.input(&row.instance);
    let written = write(&row.input, &file, super::spec::reader(row, definition));
    written.map_err(|problem| Failure(format!("its input cannot be handed over: {problem}")))?;
    let seen = if definition.container.is_some() { PathBuf::from(docker::INPUT) } else { file.clone() };
    spec.env.insert("SKEIN_INPUT".to_owned(), shortened(&row.input, &seen));
    spec.env.insert("SKEIN_INPUT_FILE".to_owned(), seen.display().to_string());
    spec.input = Some(file);
    Ok(())
}

/// Removes the file of an instance that has ended, if it had one.
pub(super) fn take_back(file: &Path) {
    if let Err(error) = fs::remove_file(file)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "the input of an instance that has ended is still there");
    }
}

fn write(input: &str, file: &Path, reader: Option<User>) -> std::io::Result<()> {
    take_back(file);
    let mut options = fs::OpenOptions::new();
    let mut file = options.create_new(true).write(true).mode(0o400).open(file)?;
    file.write_all(input.as_bytes())?;
    fchown(&file, reader.map(|user| user.uid), None)
}

/// The short fields of an input, and where the whole is.
fn shortened(input: &str, whole: &Path) -> String {
    let fields: Map<String, Value> = serde_json::from_str(input).unwrap_or_default();
    let mut left = LONGEST - FIELD;
    let mut short = Map::new();
    for (name, value) in fields {
        let length = name.len() + value.to_string().len();
        if length <= FIELD.min(left) {
            left -= length;
            short.insert(name, value);
        }
    }
    short.insert("input_file".to_owned(), whole.display().to_string().into());
    Value::Object(short).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_short_stays_and_the_rest_is_named() {
        let whole = json!({"type": "webhook", "event": "push", "payload": "x".repeat(200_000)});
        let told: Value =
            serde_json::from_str(&shortened(&whole.to_string(), Path::new("/in.json"))).unwrap();
        assert_eq!(told, json!({"type": "webhook", "event": "push", "input_file": "/in.json"}));
    }

    #[test]
    fn many_short_fields_fit_too() {
        let many: Map<String, Value> =
            (0..1000).map(|n| (format!("f{n}"), "y".repeat(1000).into())).collect();
        let told = shortened(&Value::Object(many).to_string(), Path::new("/in.json"));
        assert!(told.len() <= LONGEST, "{}", told.len());
        assert!(told.contains("input_file"));
        assert_eq!(shortened("no object", Path::new("/in.json")), r#"{"input_file":"/in.json"}"#);
    }
}
