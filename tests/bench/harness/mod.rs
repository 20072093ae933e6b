//! What every bench shares: contenders that run in turns, loads, meters, and reports.

pub(crate) mod chart;
pub(crate) mod compare;
pub(crate) mod contender;
pub(crate) mod dialog;
pub(crate) mod image;
pub(crate) mod load;
pub(crate) mod machine;
pub(crate) mod mcp;
pub(crate) mod meter;
pub(crate) mod process;
pub(crate) mod report;
pub(crate) mod rounds;
pub(crate) mod stats;
pub(crate) mod table;
