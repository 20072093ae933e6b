//! Whom a source of mail or a workspace lets in, as the settings name them: what names nobody would keep everybody out,
//! without a word.

use super::schema::{Source, Workspace};

/// # Errors
/// For the first domain that no address is of.
pub(super) fn check_mail(source: &Source) -> Result<(), String> {
    check_domains("inbox_domains", &source.inbox_domains)?;
    check_domains("sender_domains", &source.sender_domains)
}

/// # Errors
/// For the first that is no id of a person, or no domain.
pub(super) fn check_workspace(workspace: &Workspace) -> Result<(), String> {
    let is_id = |user: &str| {
        user.starts_with(['U', 'W'])
            && user.bytes().all(|letter| letter.is_ascii_uppercase() || letter.is_ascii_digit())
    };
    if let Some(user) = workspace.allowed_users.iter().find(|user| !is_id(user)) {
        return Err(format!(
            "has `{user}` among its `allowed_users`, which is no id of a person; Slack shows that in their profile \
             (Copy member ID), such as U024BE7LH"
        ));
    }
    check_domains("allowed_domains", &workspace.allowed_domains)
}

fn check_domains(setting: &str, domains: &[String]) -> Result<(), String> {
    let is_odd = |letter: char| letter.is_whitespace() || "@/:*,".contains(letter);
    let is_domain = |name: &String| !name.is_empty() && !name.starts_with('.') && !name.contains(is_odd);
    match domains.iter().find(|name| !is_domain(name)) {
        None => Ok(()),
        Some(name) => Err(format!(
            "has `{name}` among its `{setting}`, of which no address is; write what stands behind the @, such as \
             acme.com, and each domain by itself"
        )),
    }
}
