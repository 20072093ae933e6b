//! Markdown, as agents write it, in the markup of Slack.
//!
//! In one pass, so that what was made bold is not taken for italics afterwards. Code stays as it is.

/// What code of several lines stands between.
const FENCE: &str = "```";

/// The text in Slack's markup. What would notify a whole channel is defused: people decide about that.
pub fn mrkdwn(markdown: &str) -> String {
    let mut text = String::with_capacity(markdown.len() + 16);
    let (mut in_code, mut blank) = (false, 0);
    for line in markdown.lines() {
        let fence = line.trim_start().strip_prefix(FENCE).is_some_and(|name| !name.contains('`'));
        blank = if line.trim().is_empty() && !in_code { blank + 1 } else { 0 };
        if blank > 1 {
            continue;
        }
        if in_code || fence {
            in_code ^= fence;
            // Slack shows the name of a language as the first line of the code.
            let shown = if fence { FENCE } else { line };
            escape(shown, &mut text);
        } else {
            plain_line(line, &mut text);
        }
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

fn plain_line(line: &str, text: &mut String) {
    let content = line.trim_start();
    let indent = &line[..line.len() - content.len()];
    text.push_str(indent);
    let marks = content.bytes().take_while(|byte| *byte == b'#').count();
    if (1..=6).contains(&marks) && content[marks..].starts_with(' ') {
        let title = content[marks..].trim().trim_end_matches('#').trim_end();
        text.push('*');
        inline(&title.replace("**", ""), text);
        text.push('*');
        return;
    }
    match content.strip_prefix("* ").or_else(|| content.strip_prefix("+ ")) {
        Some(item) => {
            text.push_str("• ");
            inline(item, text);
        }
        None => inline(content, text),
    }
}

/// Pairs of markup and what Slack has for them; longer ones first.
const PAIRS: [(&str, &str); 5] = [("**", "*"), ("__", "*"), ("~~", "~"), ("*", "_"), ("_", "_")];

fn inline(mut rest: &str, text: &mut String) {
    let mut before = None;
    while let Some(letter) = rest.chars().next() {
        let taken = code(rest, text)
            .or_else(|| link(rest, text))
            .or_else(|| kept(rest, text))
            .or_else(|| pair(rest, before, text));
        let taken = taken.unwrap_or_else(|| {
            escape(&rest[..letter.len_utf8()], text);
            letter.len_utf8()
        });
        before = rest[..taken].chars().next_back();
        rest = &rest[taken..];
    }
}

/// `code`, as it stands.
fn code(rest: &str, text: &mut String) -> Option<usize> {
    let inside = rest.strip_prefix('`')?;
    let end = inside.find('`').filter(|end| *end > 0)?;
    let whole = end + 2;
    escape(&rest[..whole], text);
    Some(whole)
}

/// `[text](address)`, and a picture's `![text](address)`.
fn link(rest: &str, text: &mut String) -> Option<usize> {
    let mark = usize::from(rest.starts_with('!'));
    let inside = rest[mark..].strip_prefix('[')?;
    let (label, behind) = inside.split_once("](")?;
    let (address, _) = behind.split_once(')')?;
    let web =
        address.starts_with("https://") || address.starts_with("http://") || address.starts_with("mailto:");
    if !web || address.contains(['<', '>', '|', ' ']) || label.contains('[') {
        return None;
    }
    text.push('<');
    escape(address, text);
    if !label.is_empty() {
        text.push('|');
        escape(&label.replace('|', "/"), text);
    }
    text.push('>');
    Some(mark + 1 + label.len() + 2 + address.len() + 1)
}

/// Slack's own form for a person, a channel or an address.
fn kept(rest: &str, text: &mut String) -> Option<usize> {
    let inside = rest.strip_prefix('<')?;
    let known = ["@", "#", "https://", "http://"].iter().any(|start| inside.starts_with(start));
    let end = inside.find('>').filter(|_| known)?;
    if inside[..end].contains(['<', '\n']) {
        return None;
    }
    text.push_str(&rest[..end + 2]);
    Some(end + 2)
}

/// Bold, struck out and italic. As in Markdown, what opens is followed by a word and what closes comes behind one, and
/// an underscore inside a word is a letter of it.
fn pair(rest: &str, before: Option<char>, text: &mut String) -> Option<usize> {
    for (mark, slack) in PAIRS {
        let Some(inside) = rest.strip_prefix(mark) else { continue };
        if mark.starts_with('_') && before.is_some_and(char::is_alphanumeric) {
            return None;
        }
        let Some(end) = closing(inside, mark) else { continue };
        text.push_str(slack);
        inline(&inside[..end], text);
        text.push_str(slack);
        return Some(end + 2 * mark.len());
    }
    None
}

fn closing(inside: &str, mark: &str) -> Option<usize> {
    if inside.starts_with(char::is_whitespace) || inside.starts_with(mark) {
        return None;
    }
    let letter = mark.chars().next()?;
    inside.match_indices(mark).map(|(at, _)| at).find(|at| {
        let (inner, behind) = (&inside[..*at], &inside[*at + mark.len()..]);
        let alone = mark.len() > 1 || !(behind.starts_with(letter) || inner.ends_with(letter));
        let ends_word = !inner.ends_with(char::is_whitespace);
        let in_word = letter == '_' && behind.starts_with(char::is_alphanumeric);
        !inner.is_empty() && alone && ends_word && !in_word
    })
}

fn escape(plain: &str, text: &mut String) {
    for letter in plain.chars() {
        match letter {
            '&' => text.push_str("&amp;"),
            '<' => text.push_str("&lt;"),
            '>' => text.push_str("&gt;"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn markdown_becomes_slacks_markup() {
        for (markdown, slack) in [
            ("# Done\ntext", "*Done*\ntext"),
            ("### **All** of it ##", "*All of it*"),
            ("**bold** and *italic* and ~~gone~~", "*bold* and _italic_ and ~gone~"),
            ("__bold__, _italic_, snake_case_name", "*bold*, _italic_, snake_case_name"),
            ("**bold with *italic* inside**", "*bold with _italic_ inside*"),
            ("[docs](https://a.b/c?x=1&y=2)", "<https://a.b/c?x=1&amp;y=2|docs>"),
            ("![shot](https://a.b/c.png)", "<https://a.b/c.png|shot>"),
            ("[no](javascript:x)", "[no](javascript:x)"),
            ("`**not** <bold>`", "`**not** &lt;bold&gt;`"),
            ("```rust\nlet a = **b;\n\n\n\nx\n```", "```\nlet a = **b;\n\n\n\nx\n```"),
            ("a < b && c > d", "a &lt; b &amp;&amp; c &gt; d"),
            ("<@U1> see <#C1|dev> and <https://x.y>", "<@U1> see <#C1|dev> and <https://x.y>"),
            ("<!channel> wake up", "&lt;!channel&gt; wake up"),
            ("* one\n* two\n- three", "• one\n• two\n- three"),
            ("2 * 3 * 4", "2 * 3 * 4"),
            ("one\n\n\n\ntwo\n", "one\n\ntwo"),
            ("**open", "**open"),
            ("", ""),
        ] {
            assert_eq!(mrkdwn(markdown), slack, "{markdown}");
        }
    }

    proptest! {
        #[test]
        fn nothing_wakes_a_channel_and_no_letter_is_lost(text in "[a-z*_~`<>!@&\\[\\]() \n]{0,60}") {
            let slack = mrkdwn(&text);
            prop_assert!(!slack.contains("<!"), "{slack}");
            let letters = |text: &str| text.replace("&lt;", "").replace("&gt;", "").replace("&amp;", "")
                .chars().filter(char::is_ascii_lowercase).collect::<String>();
            // The name of a code's language is left out.
            prop_assert!(text.contains(FENCE) || letters(&slack) == letters(&text), "{slack}");
        }
    }
}
