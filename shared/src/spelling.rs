//! What somebody meant who wrote a name that nobody knows.

/// The known word that is nearest to what was written, if it is near at all: a misspelling changes few letters.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (edits, word) = known.into_iter().map(|word| (distance(written, word), word)).min()?;
    (edits <= 1 + word.chars().count() / 3).then_some(word)
}

/// Single-letter edits between two words, without regard to case.
pub fn distance(one: &str, other: &str) -> usize {
    strsim::levenshtein(&one.to_lowercase(), &other.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelling_is_near_and_another_word_is_not() {
        let known = ["command", "max_waiting", "env"];
        assert_eq!(nearest("comand", known), Some("command"));
        assert_eq!(nearest("maxWaiting", known), Some("max_waiting"));
        assert_eq!(nearest("schedule", known), None);
        assert_eq!(nearest("x", []), None);
    }
}
