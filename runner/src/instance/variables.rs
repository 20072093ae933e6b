//! Variables that an agent has set for the commands which it runs in its instance. They live as long as its process
//! runs on: a wait ends them, as it may end everything else that is in memory alone.

use std::collections::BTreeMap;

use skein_shared::transport::{Outcome, SetEnv};

/// Most variables of one instance.
const MOST: usize = 100;
/// Most bytes of all of them. The kernel takes a few megabytes for arguments and environment together.
const BYTES: usize = 128 * 1024;
/// What the runner tells its instances begins so.
const RESERVED: &str = "SKEIN_";

#[derive(Clone, Debug, Default)]
pub(super) struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Sets a variable, or removes it when no value is given. A change that is refused changes nothing.
    pub(super) fn set(&mut self, change: SetEnv) -> Outcome {
        let SetEnv { name, value } = change;
        if let Err(problem) = valid(&name) {
            return Outcome::failed(problem);
        }
        let Some(value) = value else {
            return Outcome::said(match self.0.remove(&name) {
                Some(_) => format!("{name} is as it was before you set it."),
                None => format!("{name} was not set by you, and is as it was."),
            });
        };
        if value.contains('\0') {
            return Outcome::failed(format!("{name}: a variable holds no zero byte; leave it out"));
        }
        let others = self.0.iter().filter(|(other, _)| **other != name);
        let (count, bytes) = others.fold((1, name.len() + value.len()), |(count, bytes), (name, value)| {
            (count + 1, bytes + name.len() + value.len())
        });
        if count > MOST || bytes > BYTES {
            return Outcome::failed(format!(
                "{name} is not set: an instance has at most {MOST} variables of its own with {BYTES} bytes in all; remove some, or write the value into a file"
            ));
        }
        self.0.insert(name.clone(), value);
        Outcome::said(format!(
            "{name} is set for `bash` in this instance, until it waits for a trigger or ends."
        ))
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn to_map(&self) -> BTreeMap<String, String> {
        self.0.clone()
    }
}

fn valid(name: &str) -> Result<(), String> {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if name.is_empty() || name.as_bytes()[0].is_ascii_digit() || !name.bytes().all(is_part) {
        return Err(format!(
            "`{name}` is no name of a variable; write letters, digits and underscores, and no digit first"
        ));
    }
    if name.starts_with(RESERVED) {
        return Err(format!(
            "{name}: names that begin with {RESERVED} are set by the runner; choose another"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, value: Option<&str>) -> SetEnv {
        SetEnv { name: name.to_owned(), value: value.map(str::to_owned) }
    }

    #[test]
    fn variables_are_set_replaced_and_removed() {
        let mut variables = Variables::default();
        assert!(!variables.set(change("A", Some("1"))).failed);
        assert!(!variables.set(change("A", Some("2"))).failed);
        assert!(!variables.set(change("_b1", Some(""))).failed);
        let expected = [("A".to_owned(), "2".to_owned()), ("_b1".to_owned(), String::new())];
        assert_eq!(variables.to_map(), expected.into());
        assert!(variables.set(change("A", None)).text.contains("as it was before"));
        assert!(variables.set(change("A", None)).text.contains("not set by you"));
        variables.clear();
        assert!(variables.to_map().is_empty());
    }

    #[test]
    fn what_is_no_variable_is_refused_and_changes_nothing() {
        let mut variables = Variables::default();
        for (name, value) in
            [("", "x"), ("1A", "x"), ("A=B", "x"), ("Ä", "x"), ("SKEIN_TOKEN", "x"), ("A", "x\0y")]
        {
            assert!(variables.set(change(name, Some(value))).failed, "{name}");
        }
        assert!(variables.set(change("BIG", Some(&"x".repeat(BYTES)))).failed);
        for number in 0..MOST {
            assert!(!variables.set(change(&format!("V{number}"), Some("x"))).failed);
        }
        assert!(variables.set(change("ONE_MORE", Some("x"))).failed);
        assert!(!variables.set(change("V0", Some("y"))).failed, "it replaces one");
        assert_eq!(variables.to_map().len(), MOST);
    }
}
