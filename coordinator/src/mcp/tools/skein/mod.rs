//! Skein's own tools: waiting for changes, claiming tasks by tag, steering them, finding and calling tools.

mod claim;
mod finders;
mod steer;
mod wait;

use crate::mcp::catalogue::Tool;

pub fn tools() -> Vec<Tool> {
    [claim::tools(), finders::tools(), steer::tools(), wait::tools()].into_iter().flatten().collect()
}
