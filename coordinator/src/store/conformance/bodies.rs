//! Bodies that change many times: a store may join what was changed when it likes, and nobody sees that it did.

use serde_json::{Map, Value, json};
use skein_shared::entity::DocumentChange;
use skein_shared::json::merge;
use skein_shared::time::Timestamp;

use super::trims::nothing;
use super::{Backend, START, batch, commit, pool, put};
use crate::store::{Batch, TrimPlan};

/// Names that a store which looks for fields in a text could take for something else.
const FIELDS: [&str; 8] = ["state", "a\"b:", "a\\", "tab\t", "line\n", "ü", "", "a"];
/// Enough to be joined a few times, in every store.
const CHANGES: u64 = 120;

/// What change `n` does: to three fields, of which one is taken away; now and then to one that is long.
fn change(n: u64) -> Value {
    let field = |step: u64| FIELDS[usize::try_from((n * 3 + step) % 8).unwrap()];
    let long = if n % 10 == 3 { "x:\t\n\"".repeat(200) } else { String::new() };
    json!({field(0): n, field(1): format!("line\n{n}\ttab{long}"), field(2): null})
}

pub(super) async fn many_changes_leave_the_last_of_each_field(backend: &impl Backend) {
    let store = backend.open(START).await;
    let made = DocumentChange::Put {
        key: "task/1".to_owned(),
        live: true,
        head: json!({}).into(),
        body: Some(json!({"text": "{\"a\":\t1}", "state": "new", "a": null}).into()),
        new: true,
    };
    // One that nobody says is new.
    let documents = vec![made, put("task/2", true, Some(json!({"state": "old"})))];
    commit(&store, Batch { documents, ..batch(&pool(), 0) }).await;
    let mut want = [json!({"text": "{\"a\":\t1}", "state": "new"}), json!({"state": "old"})]
        .map(|body| body.as_object().cloned().unwrap());
    for n in 1..=CHANGES {
        let live = n < CHANGES;
        let changes = [change(n), change(n + 5)];
        want.iter_mut()
            .zip(&changes)
            .for_each(|(body, change): (&mut Map<_, _>, _)| merge(body, change.clone()));
        let [first, second] = changes;
        // In one batch, several, one of which leaves the body alone.
        let documents = vec![
            put("task/1", live, Some(json!({"state": "for a moment"}))),
            put("task/2", live, Some(second)),
            put("task/1", live, Some(json!({"state": want[0].get("state")}))),
            put("task/1", live, Some(first)),
            put("task/2", live, None),
        ];
        commit(&store, Batch { documents, ..batch(&pool(), n) }).await;
        if n % 7 == 0 || !live {
            let found = store.documents(None, 10).await.unwrap();
            let bodies: Vec<Value> = found.into_iter().map(|document| document.body).collect();
            assert_eq!(bodies, want.clone().map(Value::Object), "after change {n}");
        }
    }
    let all = TrimPlan { archived_before: Timestamp(START.0 + 1000), ..nothing() };
    assert_eq!(store.trim(all).await.unwrap().documents, 2);
    let again = vec![put("task/1", true, None), put("task/2", true, Some(json!({"again": 1})))];
    commit(&store, Batch { documents: again, ..batch(&pool(), CHANGES + 1) }).await;
    let found = store.documents(None, 10).await.unwrap();
    assert_eq!([&found[0].body, &found[1].body], [&json!({}), &json!({"again": 1})], "nothing came back");
}
