//! What a runner marks its processes, containers and networks with: its name, for whoever looks at them, and behind it
//! the identity of its data folder. That alone says whose they are: the runner may be called otherwise by now.

/// Hexadecimal digits of an identity.
pub const DIGITS: usize = 14;

pub fn of(name: &str, identity: &str) -> String {
    format!("{name}-{identity}")
}

/// Whether both are marks of one runner, whatever it was called each time.
pub fn is_same(one: &str, other: &str) -> bool {
    identity(one) == identity(other)
}

/// A mark without an identity is known as a whole.
fn identity(mark: &str) -> &str {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let last = mark.rsplit_once('-').map(|(_, last)| last);
    last.filter(|last| last.len() == DIGITS && last.bytes().all(is_digit)).unwrap_or(mark)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_known_by_its_identity_alone() {
        let mark = of("box-1", "0123456789abcd");
        assert_eq!(mark, "box-1-0123456789abcd");
        for (other, same) in [
            ("box-1-0123456789abcd", true),
            ("another-0123456789abcd", true),
            ("box-1-0123456789abce", false),
            ("box-1-00123456789abcd", false),
            ("box-1", false),
            ("", false),
        ] {
            assert_eq!(is_same(&mark, other), same, "{other}");
        }
        assert!(is_same("signals-7", "signals-7") && !is_same("first-7", "second-7"), "they have none");
    }
}
