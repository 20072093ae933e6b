//! tmp
use serde_json as _;
#[test]
fn a() {
    let v: serde_json::Value = serde_saphyr::from_str("a: 1").unwrap();
    assert!(jsonschema::is_valid(&serde_json::json!({"type": "object"}), &v));
}
