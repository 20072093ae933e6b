//! Whom a source of mail or a workspace lets in, as the settings name them: what names nobody would keep everybody out,
//! without a word.

use super::schema::{Source, Workspace};

/// Where Slack itself is. Other servers may speak as it does, and have ids of their own.
const SLACK: &str = "slack.com";

/// # Errors
/// For the first domain that no address is of.
pub(super) fn check_mail(source: &Source) -> Result<(), String> {
    // White space around them does not count where they are compared either.
    let domains = [("inbox_domains", &source.inbox_domains), ("sender_domains", &source.sender_domains)];
    domains
        .into_iter()
        .try_for_each(|(setting, all)| check_domains(setting, all.iter().map(|name| name.trim())))
}

/// # Errors
/// For the first that is no id of a person, or no domain.
pub(super) fn check_workspace(workspace: &Workspace) -> Result<(), String> {
    let is_slacks = workspace.api.host_str() == Some(SLACK);
    let is_id = |user: &str| match is_slacks {
        true => {
            user.starts_with(['U', 'W'])
                && user.bytes().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
        }
        false => {
            !user.is_empty() && !user.contains(|letter: char| letter.is_whitespace() || "@,".contains(letter))
        }
    };
    if let Some(user) = workspace.allowed_users.iter().find(|user| !is_id(user)) {
        return Err(format!(
            "has `{user}` among its `allowed_users`, which is no id of a person; Slack shows that in their profile \
             (Copy member ID), such as U024BE7LH"
        ));
    }
    check_domains("allowed_domains", workspace.allowed_domains.iter().map(String::as_str))
}

fn check_domains<'a>(setting: &str, mut domains: impl Iterator<Item = &'a str>) -> Result<(), String> {
    let is_odd = |letter: char| letter.is_whitespace() || "@/:*,".contains(letter);
    let is_domain = |name: &str| !name.is_empty() && !name.starts_with('.') && !name.contains(is_odd);
    match domains.find(|name| !is_domain(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "has `{name}` among its `{setting}`, of which no address is; write what stands behind the @, such as \
             acme.com, and each domain by itself"
        )),
    }
}
