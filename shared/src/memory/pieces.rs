//! Cuts a text into pieces that are remembered one by one (spec: Agent Swarm 5.4).

/// Characters of a piece, at most. A text of no more is one piece.
const MOST: usize = 2000;
/// Characters that a piece has in common with the one before it.
const OVERLAP: usize = 100;
/// A shorter piece says nothing.
const LEAST: usize = 50;
/// Characters of the headings above a piece.
const HEADINGS: usize = 300;
/// Where a text is cut best, the best first.
const CUTS: [fn(char, char) -> bool; 4] = [
    |one, next| one == '\n' && next == '\n',
    |one, _| one == '\n',
    |one, next| one == '。' || (matches!(one, '.' | '!' | '?') && next.is_whitespace()),
    |one, _| one.is_whitespace(),
];

/// The pieces of a text, in its order: cut at Markdown's headings of the first three levels, and where that leaves too
/// much, at paragraphs, lines, sentences or words. A piece begins with the headings that it stands under.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.chars().count() <= MOST {
        return Some(text.to_owned()).filter(|text| !text.is_empty()).into_iter().collect();
    }
    let mut pieces = Vec::new();
    for Section { headings, body } in sections(text) {
        let room = MOST - headings.chars().count();
        let cut = cut(body.trim(), room).into_iter();
        let long = cut.filter(|piece| piece.chars().count() >= LEAST);
        pieces.extend(long.map(|piece| format!("{headings}{piece}")));
    }
    if pieces.is_empty() { cut(text, MOST) } else { pieces }
}

struct Section {
    /// Ends with an empty line, unless it is empty.
    headings: String,
    body: String,
}

fn sections(text: &str) -> Vec<Section> {
    let mut path: Vec<(usize, &str)> = Vec::new();
    let mut sections = vec![Section { headings: String::new(), body: String::new() }];
    let mut is_code = false;
    for line in text.lines() {
        is_code ^= line.trim_start().starts_with("```");
        if let Some((level, title)) = heading(line).filter(|_| !is_code) {
            path.retain(|(above, _)| *above < level);
            path.push((level, title));
            sections.push(Section { headings: written(&path), body: String::new() });
        } else if let Some(section) = sections.last_mut() {
            section.body.push_str(line);
            section.body.push('\n');
        }
    }
    sections
}

fn heading(line: &str) -> Option<(usize, &str)> {
    let title = line.trim_start_matches('#');
    let level = line.len() - title.len();
    ((1..=3).contains(&level) && title.starts_with(' ')).then(|| (level, title.trim()))
}

fn written(path: &[(usize, &str)]) -> String {
    let titles: Vec<&str> = path.iter().map(|(_, title)| *title).collect();
    let titles: String = titles.join(" > ").chars().take(HEADINGS).collect();
    format!("{titles}\n\n")
}

fn cut(text: &str, room: usize) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    let mut pieces = Vec::new();
    let mut start = 0;
    while start < chars.len() {
        let rest = &chars[start..];
        let end = if rest.len() <= room { rest.len() } else { place(&rest[..room]) };
        let piece: String = rest[..end].iter().collect();
        pieces.push(piece.trim().to_owned());
        if end == rest.len() {
            break;
        }
        start += end - OVERLAP;
    }
    pieces
}

/// How much of a window is taken: up to the last of the best places to cut, and more than is taken again.
fn place(window: &[char]) -> usize {
    let ends = |cut: &fn(char, char) -> bool| {
        (OVERLAP + LEAST..window.len()).rev().find(|&end| cut(window[end - 1], window[end]))
    };
    CUTS.iter().find_map(ends).unwrap_or(window.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_short_text_is_one_piece_however_short() {
        assert_eq!(pieces(" ok \n"), ["ok"]);
        let most = "x".repeat(MOST);
        assert_eq!(pieces(&most), [most]);
        assert!(pieces(" \n ").is_empty());
    }

    #[test]
    fn a_piece_begins_with_its_headings() {
        let (long, code) = ("word ".repeat(300), "```\n# no heading\n```");
        let text = format!("# A\n{long}\n## B\n{long}\n{code}\n## C\nshort\n# D\n#tag {long}");
        let found = pieces(&text);
        let heads: Vec<&str> = found.iter().map(|piece| piece.lines().next().unwrap()).collect();
        assert_eq!(heads, ["A", "A > B", "D"]);
        assert!(found[1].ends_with(code) && found[2].contains("#tag"), "{found:?}");
    }

    #[test]
    fn a_long_text_is_cut_at_its_best_places() {
        let paragraph = format!("{}.", "word ".repeat(200).trim_end());
        let found = pieces(&[paragraph.as_str(); 4].join("\n\n"));
        assert!(found.len() > 3 && found.iter().all(|piece| piece.ends_with("word.")), "{found:?}");
        let sentences = pieces(&"They said so. ".repeat(300));
        assert!(sentences.iter().all(|piece| piece.ends_with("so.")), "{sentences:?}");
    }

    proptest! {
        #[test]
        fn nothing_long_is_lost(words in prop::collection::vec("[a-z。é]{1,40}", 60..400), by in "[ \n]{1,2}") {
            let text = words.join(&by);
            let found = pieces(&text);
            for piece in &found {
                prop_assert!(piece.chars().count() <= MOST);
            }
            for word in &words {
                prop_assert!(found.iter().any(|piece| piece.contains(word.as_str())), "{}", word);
            }
        }
    }
}
