//! Where a list goes on: the values that its last row has in the fields by which the list is sorted.

use serde_json::Value;
use skein_shared::{Code, Refusal};

use crate::projection::Query;

/// The place behind a row of a list.
pub(super) fn write(query: &Query, row: &Value) -> String {
    Value::Array(query.place(row)).to_string()
}

/// The place that a cursor names; nothing for an empty one.
///
/// # Errors
/// `invalid_argument` for one that is of no list, or of a list in another order.
pub(super) fn read(query: &Query, cursor: &str) -> Result<Vec<Value>, Refusal> {
    if cursor.is_empty() {
        return Ok(Vec::new());
    }
    let place: Option<Vec<Value>> = serde_json::from_str(cursor).ok();
    let of_this_list = |place: &Vec<Value>| place.len() == query.order.len();
    place.filter(of_this_list).ok_or_else(|| {
        let shown: String = cursor.chars().take(60).collect();
        let problem = format!("`{shown}` is no place in this list; give what its last answer named");
        Refusal::new(Code::InvalidArgument, problem)
    })
}
