//! The event without data that a stream of a session begins with: from it clients learn how to take the stream up
//! again.
//!
//! Revisions before 2025-11-25 do not know it. Clients of theirs take its empty data for a broken message, and Gemini
//! CLI ends its connection over that; so these get a comment in its place.

use axum::body::Bytes;
use http::HeaderMap;

use crate::mcp::door::text_header;

/// The first revision that has it.
const SINCE: &str = "2025-11-25";

/// Whether the client of a request knows it. With its first request it has not said yet which revision it speaks.
pub(super) fn is_known(headers: &HeaderMap) -> bool {
    text_header(headers, "mcp-protocol-version").is_some_and(|revision| revision >= SINCE)
}

/// An event of a stream, or a comment if it is this one.
pub(super) fn left_out(event: Bytes) -> Bytes {
    if event.starts_with(b"data: \n") { Bytes::from_static(b":\n\n") } else { event }
}
