//! Skein's own tools: waiting for changes, claiming tasks by tag, steering them, asking people, finding and calling
//! tools.

mod ask;
mod claim;
mod finders;
mod questions;
mod steer;
mod wait;

use crate::mcp::catalogue::Tool;

pub fn tools() -> Vec<Tool> {
    let groups =
        [ask::tools(), claim::tools(), finders::tools(), questions::tools(), steer::tools(), wait::tools()];
    groups.into_iter().flatten().collect()
}
