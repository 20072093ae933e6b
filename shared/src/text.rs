//! Texts that are shown in part.

/// A text up to so many characters, with `…` for what is left out.
pub fn excerpt(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// The longest beginning of a text that has at most so many bytes.
pub fn beginning(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
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

    #[test]
    fn a_beginning_ends_between_characters() {
        assert_eq!((beginning("äöü", 6), beginning("äöü", 3), beginning("ä", 1)), ("äöü", "ä", ""));
    }
}
