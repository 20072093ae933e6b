//! Bodies of documents as stores keep them: JSON objects, a line each, oldest first, of which each was merged into those
//! before. What is appended needs no look at what is there.

use serde_json::{Map, Value};
use skein_shared::harness::merge;

/// Merges what lines change into a body. An empty one changes nothing.
///
/// # Errors
/// When a line is no JSON.
pub(super) fn merge_into(body: &mut Map<String, Value>, lines: &[u8]) -> serde_json::Result<()> {
    for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        merge(body, serde_json::from_slice(line)?);
    }
    Ok(())
}
