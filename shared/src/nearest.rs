//! Which known word somebody meant who wrote another.

/// The known word that is closest to what was written, if it is close at all.
pub fn nearest<'a>(written: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let (distance, word) = known.into_iter().map(|word| (edits(written, word), word)).min()?;
    (distance <= 1 + word.len() / 3).then_some(word)
}

/// Single-letter edits between two words (Levenshtein).
fn edits(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_count_single_letters() {
        assert_eq!(edits("htpp", "http"), 1);
        assert_eq!(edits("slot", "slots"), 1);
        assert_eq!(edits("", "abc"), 3);
        assert_eq!(edits("retentoin", "retention"), 2);
    }

    #[test]
    fn what_is_far_from_everything_is_nothing() {
        assert_eq!(nearest("repo", ["repos", "events"]), Some("repos"));
        assert_eq!(nearest("weather", ["repos", "events"]), None);
        assert_eq!(nearest("repo", []), None);
    }
}
