//! Skein's own tools: waiting for changes, finding and calling tools.

mod finders;
mod wait;

use crate::mcp::catalogue::Tool;

pub fn tools() -> Vec<Tool> {
    [finders::tools(), wait::tools()].into_iter().flatten().collect()
}
