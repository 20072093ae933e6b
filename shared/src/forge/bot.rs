//! The swarm's account at a forge.

/// Whom people ask for something, and who may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bot {
    /// As people mention it, without `@`.
    pub name: String,
    /// Those who may ask it, by the names of their accounts; empty for all.
    pub allowed_users: Vec<String>,
}

impl Bot {
    /// Whether an account is the bot's. Apps of GitHub act as `name[bot]`.
    pub(super) fn is(&self, account: Option<&str>) -> bool {
        account
            .is_some_and(|name| name.strip_suffix("[bot]").unwrap_or(name).eq_ignore_ascii_case(&self.name))
    }

    /// Whether somebody may ask it for something. What others write no task shows, unless somebody who may hands it
    /// over.
    pub(super) fn obeys(&self, account: Option<&str>) -> bool {
        let is_named = |by: &str| self.allowed_users.iter().any(|user| user.eq_ignore_ascii_case(by));
        self.allowed_users.is_empty() || account.is_some_and(is_named)
    }

    /// Whether a text mentions it: `@name`, alone, in large or small letters.
    pub(super) fn is_mentioned(&self, text: Option<&str>) -> bool {
        let text = text.unwrap_or_default();
        text.match_indices('@').any(|(at, _)| {
            let (before, behind) = (&text[..at], &text[at + 1..]);
            let named =
                behind.get(..self.name.len()).is_some_and(|name| name.eq_ignore_ascii_case(&self.name));
            named && starts(before) && ends(&behind[self.name.len()..])
        })
    }
}

fn is_part(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '-' || letter == '_'
}

fn starts(before: &str) -> bool {
    !before.ends_with(|letter: char| is_part(letter) || letter == '.' || letter == '/')
}

/// `@name/team` is a team of somebody else's, `@name.surname` another account of GitLab's; a dot may end a sentence.
fn ends(behind: &str) -> bool {
    let rest = behind.strip_prefix('.').unwrap_or(behind);
    !rest.starts_with(is_part) && !behind.starts_with('/')
}
