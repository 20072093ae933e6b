//! Skein's own tools: waiting for changes, claiming tasks by tag, asking people, finding and calling tools.

mod ask;
mod claim;
mod finders;
mod wait;

use crate::mcp::catalogue::Tool;

pub fn tools() -> Vec<Tool> {
    [ask::tools(), claim::tools(), finders::tools(), wait::tools()].into_iter().flatten().collect()
}
