//! Texts that are shown in part.

/// A text up to so many characters, with `…` for what is left out.
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_marked() {
        assert_eq!(
            (excerpt("äöü", 3), excerpt("äöü", 2), excerpt("", 0)),
            ("äöü".into(), "äö…".into(), String::new())
        );
    }
}
