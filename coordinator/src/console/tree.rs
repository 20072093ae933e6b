//! Puts calls below the call that their caller was started for.

use std::collections::BTreeMap;

use serde_json::{Value, json};

/// The calls as trees, each in the order in which they were given.
pub(super) fn grow(calls: Vec<Value>) -> Vec<Value> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    // An instance may have served several calls; its own calls belong to the last that was there before them.
    let mut served: BTreeMap<String, Vec<(String, usize)>> = BTreeMap::new();
    for (number, call) in calls.iter().enumerate() {
        let instance = text(&call["targetInstanceId"]);
        if !instance.is_empty() {
            served.entry(instance).or_default().push((text(&call["createdAt"]), number));
        }
    }
    let mut below: Vec<Vec<usize>> = vec![Vec::new(); calls.len()];
    let mut roots = Vec::new();
    for (number, call) in calls.iter().enumerate() {
        let (caller, at) = (text(&call["callerInstanceId"]), text(&call["createdAt"]));
        let above = served.get(&caller).into_iter().flatten();
        // Strictly before: so no call is below itself, by whatever way.
        match above.filter(|(created, _)| *created < at).max() {
            Some((_, parent)) => below[*parent].push(number),
            None => roots.push(number),
        }
    }
    let mut calls: Vec<Option<Value>> = calls.into_iter().map(Some).collect();
    roots.into_iter().filter_map(|root| branch(root, &below, &mut calls)).collect()
}

fn branch(number: usize, below: &[Vec<usize>], calls: &mut [Option<Value>]) -> Option<Value> {
    let mut call = calls[number].take()?;
    let calls: Vec<Value> = below[number].iter().filter_map(|&next| branch(next, below, calls)).collect();
    call["calls"] = json!(calls);
    Some(call)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str, caller: &str, target: &str, at: u32) -> Value {
        json!({ "callId": id, "callerInstanceId": caller, "targetInstanceId": target, "createdAt": format!("{at:04}") })
    }

    #[test]
    fn calls_stand_below_the_one_that_led_to_them() {
        let grown = grow(vec![
            call("4", "worker-2", "helper-1", 4),
            call("3", "worker-1", "worker-2", 3),
            call("2", "lead-1", "worker-3", 2),
            call("1", "lead-1", "worker-1", 1),
        ]);
        let ids: Vec<&Value> = grown.iter().map(|call| &call["callId"]).collect();
        assert_eq!(ids, [&json!("2"), &json!("1")]);
        assert_eq!(grown[1]["calls"][0]["callId"], "3");
        assert_eq!(grown[1]["calls"][0]["calls"][0]["callId"], "4");
    }

    #[test]
    fn calls_that_chase_each_other_end() {
        let grown = grow(vec![call("1", "b", "a", 1), call("2", "a", "b", 2), call("3", "c", "c", 3)]);
        assert_eq!(grown.len(), 2);
    }
}
