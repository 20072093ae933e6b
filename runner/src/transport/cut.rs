//! How much of a text is shown: whole lines, at most 2,000 of them and 50 KB.

pub(super) const LINES: usize = 2000;
pub(super) const BYTES: usize = 50 * 1024;
/// Longest line that a search shows, characters.
const LINE: usize = 500;

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    pub(super) lines: usize,
    /// What was left out, and why.
    pub(super) cut: Option<Cut>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    Lines,
    Bytes,
}

/// As many of the first lines as are shown; none when the first one is too long by itself.
pub(super) fn head(text: &str) -> Part<'_> {
    let (mut end, mut lines) = (0, 0);
    for line in text.split_inclusive('\n') {
        let fits = end + line.trim_end_matches('\n').len() <= BYTES;
        if lines == LINES || !fits {
            let cut = Some(if fits { Cut::Lines } else { Cut::Bytes });
            return Part { text: &text[..end], lines, cut };
        }
        end += line.len();
        lines += 1;
    }
    Part { text, lines, cut: None }
}

/// As many of the last lines as are shown; the end of the last one when that is too long by itself.
pub(super) fn tail(text: &str) -> Part<'_> {
    let (mut start, mut lines) = (text.len(), 0);
    for line in text.split_inclusive('\n').rev() {
        let fits = text.len() - start + line.len() <= BYTES;
        if lines == LINES || !fits {
            let cut = Some(if fits { Cut::Lines } else { Cut::Bytes });
            if lines == 0 {
                let from = text.len() - BYTES;
                let start = (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
                return Part { text: &text[start..], lines: 1, cut };
            }
            return Part { text: &text[start..], lines, cut };
        }
        start -= line.len();
        lines += 1;
    }
    Part { text, lines, cut: None }
}

/// A line as a search shows it. Says whether something is missing.
pub(super) fn line(text: &str) -> (String, bool) {
    match text.char_indices().nth(LINE) {
        Some((end, _)) => (format!("{} … [cut]", &text[..end]), true),
        None => (text.to_owned(), false),
    }
}

/// The lines of a list, as many as are shown, with notes on what is missing. `shortened` says that the list was longer
/// than the caller asked for.
pub(super) fn list(lines: &[String], shortened: Option<String>, more: Vec<String>) -> String {
    let all = lines.join("\n");
    let shown = head(&all);
    let mut notes: Vec<String> = shortened.into_iter().chain(more).collect();
    if shown.cut.is_some() {
        notes.push(format!("only the first {} lines are shown: 50 KB at most; narrow it down", shown.lines));
    }
    with_notes(shown.text.trim_end_matches('\n'), &notes)
}

/// A text with what there is to say about it behind it, in brackets.
pub(super) fn with_notes(text: &str, notes: &[String]) -> String {
    if notes.is_empty() {
        return text.to_owned();
    }
    format!("{text}\n\n[{}]", notes.join(". "))
}
