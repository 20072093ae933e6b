//! What an instance in a container has written, where it may sleep so long that the container ends: in folders of this
//! machine, which a later container of the instance finds again.

use std::os::unix::fs::MetadataExt;

use super::Shared;
use super::ledger::Row;
use super::spec::reader;
use crate::container::{Failure, Spec};
use crate::definition::Definition;

/// Gives the process those folders, if its definition or an earlier process of its run asks for them.
///
/// # Errors
/// When they cannot be made, or not for the container's user.
pub(super) fn give(
    shared: &Shared,
    row: &Row,
    definition: &Definition,
    spec: &mut Spec,
) -> Result<(), Failure> {
    let Some(container) = &definition.container else { return Ok(()) };
    if definition.public.spill_after_ms == 0 && !are_there(shared, &row.instance) {
        return Ok(());
    }
    let kept = shared.folders.open_kept(&row.instance, reader(row, definition));
    let kept = kept.map_err(|error| Failure(error.to_string()))?;
    let owner = std::fs::metadata(&kept.home).map_err(|error| Failure(format!("its files: {error}")))?.uid();
    let user = container.user.uid;
    if owner != user {
        return Err(Failure(format!(
            "what it writes is kept for a long sleep (`spill_after`) as user {owner}, and its container's user is {user}; write `user = \"{owner}:…\"`, or run the runner as root and start it anew"
        )));
    }
    spec.kept = Some(kept);
    Ok(())
}

/// Whether what an instance writes outlives its container.
pub(super) fn are_there(shared: &Shared, instance: &str) -> bool {
    shared.folders.kept(instance).home.exists()
}
