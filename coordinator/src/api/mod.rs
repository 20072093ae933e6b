//! Administration over gRPC, for operators' tokens: what the command line asks.

pub mod bearer;
