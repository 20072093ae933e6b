//! The variables by which programs look for credentials.

use std::path::Path;

use secrecy::{ExposeSecret, SecretString};

use super::{Fields, Reference};

/// Types of one value, and the variables that hold it (spec: Action Llama 11).
const SINGLE: [(&str, &[&str]); 18] = [
    ("github_token", &["GITHUB_TOKEN", "GH_TOKEN"]),
    ("anthropic_key", &["ANTHROPIC_API_KEY"]),
    // Of a subscription, as `claude setup-token` prints it.
    ("anthropic_oauth_token", &["CLAUDE_CODE_OAUTH_TOKEN"]),
    ("openai_key", &["OPENAI_API_KEY", "CODEX_API_KEY"]),
    ("google_key", &["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
    ("groq_key", &["GROQ_API_KEY"]),
    ("xai_key", &["XAI_API_KEY"]),
    ("mistral_key", &["MISTRAL_API_KEY"]),
    ("openrouter_key", &["OPENROUTER_API_KEY"]),
    ("sentry_token", &["SENTRY_AUTH_TOKEN"]),
    ("linear_token", &["LINEAR_API_TOKEN"]),
    ("slack_bot_token", &["SLACK_BOT_TOKEN"]),
    ("netlify_token", &["NETLIFY_AUTH_TOKEN"]),
    ("bugsnag_token", &["BUGSNAG_AUTH_TOKEN"]),
    ("mintlify_token", &["MINTLIFY_API_TOKEN"]),
    ("cloudflare_api_token", &["CLOUDFLARE_API_TOKEN"]),
    ("hetzner_api_key", &["HCLOUD_TOKEN"]),
    ("vultr_api_key", &["VULTR_API_KEY"]),
];
/// Types of several values: each field is a variable of the prefix and its name.
const PREFIXED: [(&str, &str); 7] = [
    ("aws", "AWS"),
    ("discord_bot", "DISCORD"),
    ("x_twitter_api", "X"),
    ("x_twitter_user_oauth1", "X"),
    ("x_twitter_user_oauth2", "X_OAUTH2"),
    ("reddit_oauth", "REDDIT"),
    ("linear_oauth", "LINEAR"),
];
/// Google's libraries want the key's file, others the key itself.
const GCP: &str = "gcp_service_account";
const GCP_KEY: &str = "key_json";
const GCP_FILE: &str = "GOOGLE_APPLICATION_CREDENTIALS";
const GCP_JSON: &str = "GOOGLE_APPLICATION_CREDENTIALS_JSON";
/// Git's way to a server by SSH, and who the commits are by.
const GIT: &str = "git_ssh";
const GIT_KEY: &str = "id_rsa";
const GIT_PERSON: [(&str, [&str; 2]); 2] = [
    ("username", ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"]),
    ("email", ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"]),
];

/// What the environment says of a credential whose files are in `folder`. A type that nobody looks for by a variable
/// has its files alone.
pub(super) fn of(reference: &Reference, fields: &Fields, folder: &Path) -> Vec<(String, String)> {
    let shown = |name: &str, value: &SecretString| (name.to_owned(), value.expose_secret().to_owned());
    if let Some((_, names)) = SINGLE.iter().find(|(kind, _)| *kind == reference.kind) {
        let value = fields.get("token").or_else(|| fields.values().next());
        return value.into_iter().flat_map(|value| names.iter().map(|name| shown(name, value))).collect();
    }
    if let Some((_, prefix)) = PREFIXED.iter().find(|(kind, _)| *kind == reference.kind) {
        let name = |field: &str| format!("{prefix}_{}", field.to_uppercase().replace('-', "_"));
        return fields.iter().map(|(field, value)| shown(&name(field), value)).collect();
    }
    if reference.kind == GCP {
        let key = fields.get_key_value(GCP_KEY).or_else(|| fields.first_key_value());
        let file = |field: &str| (GCP_FILE.to_owned(), folder.join(field).display().to_string());
        return key.into_iter().flat_map(|(field, value)| [file(field), shown(GCP_JSON, value)]).collect();
    }
    if reference.kind != GIT {
        return Vec::new();
    }
    let mut variables = Vec::new();
    if fields.contains_key(GIT_KEY) {
        let key = folder.join(GIT_KEY).display().to_string().replace('\'', "'\\''");
        let command = format!("ssh -i '{key}' -o IdentitiesOnly=yes -o StrictHostKeyChecking=accept-new");
        variables.push(("GIT_SSH_COMMAND".to_owned(), command));
    }
    for (field, names) in GIT_PERSON {
        variables
            .extend(fields.get(field).into_iter().flat_map(|value| names.map(|name| shown(name, value))));
    }
    variables
}

/// The types whose values programs look for by variables.
pub fn kinds() -> impl Iterator<Item = &'static str> {
    let single = SINGLE.iter().map(|(kind, _)| *kind);
    single.chain(PREFIXED.iter().map(|(kind, _)| *kind)).chain([GCP, GIT])
}

/// The variables that one field of a credential gives, which has all of these.
pub(super) fn of_field(reference: &Reference, fields: &[String], field: &str) -> Vec<String> {
    // Names stand in for values, which say nothing of where they are found.
    let all: Fields = fields.iter().map(|name| (name.clone(), SecretString::from(name.as_str()))).collect();
    let mut others = all.clone();
    others.remove(field);
    let without = of(reference, &others, Path::new(""));
    let with = of(reference, &all, Path::new("")).into_iter();
    with.filter(|variable| !without.contains(variable)).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(kind: &str, fields: &[(&str, &str)]) -> Vec<(String, String)> {
        let fields =
            fields.iter().map(|(name, value)| ((*name).to_owned(), SecretString::from(*value))).collect();
        of(&kind.parse().unwrap(), &fields, Path::new("/c/git_ssh/default"))
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn programs_find_what_they_look_for() {
        let github = variables("github_token:acme", &[("token", "t")]);
        assert_eq!(github, pairs(&[("GITHUB_TOKEN", "t"), ("GH_TOKEN", "t")]));
        assert_eq!(
            variables("openai_key", &[("key", "k")])[0],
            ("OPENAI_API_KEY".to_owned(), "k".to_owned())
        );
        let discord = variables("discord_bot", &[("bot_token", "b"), ("public_key", "p")]);
        assert_eq!(discord, pairs(&[("DISCORD_BOT_TOKEN", "b"), ("DISCORD_PUBLIC_KEY", "p")]));
        let aws = variables("aws", &[("access_key_id", "i"), ("secret_access_key", "s")]);
        assert_eq!(aws, pairs(&[("AWS_ACCESS_KEY_ID", "i"), ("AWS_SECRET_ACCESS_KEY", "s")]));
        let claude = variables("anthropic_oauth_token", &[("token", "t")]);
        assert_eq!(claude, pairs(&[("CLAUDE_CODE_OAUTH_TOKEN", "t")]));
        let oauth2 = variables("x_twitter_user_oauth2", &[("access_token", "a"), ("client_id", "c")]);
        assert_eq!(oauth2, pairs(&[("X_OAUTH2_ACCESS_TOKEN", "a"), ("X_OAUTH2_CLIENT_ID", "c")]));
        let reddit = variables("reddit_oauth", &[("client_id", "c"), ("user_agent", "u")]);
        assert_eq!(reddit, pairs(&[("REDDIT_CLIENT_ID", "c"), ("REDDIT_USER_AGENT", "u")]));
        for field in ["key_json", "token"] {
            let google = variables("gcp_service_account", &[(field, "{}")]);
            let file = format!("/c/git_ssh/default/{field}");
            assert_eq!(google, pairs(&[(GCP_FILE, file.as_str()), (GCP_JSON, "{}")]));
        }
        let git = variables("git_ssh", &[("id_rsa", "key"), ("email", "a@b")]);
        assert!(git[0].1.starts_with("ssh -i '/c/git_ssh/default/id_rsa' "), "{git:?}");
        assert_eq!(git[1..], pairs(&[("GIT_AUTHOR_EMAIL", "a@b"), ("GIT_COMMITTER_EMAIL", "a@b")]));
        assert!(variables("something_else", &[("token", "t")]).is_empty());
    }

    #[test]
    fn each_field_gives_its_own_variables() {
        let given = |kind: &str, fields: &[&str], field: &str| {
            let fields: Vec<String> = fields.iter().map(|field| (*field).to_owned()).collect();
            of_field(&kind.parse().unwrap(), &fields, field)
        };
        for (kind, fields, field, variables) in [
            ("github_token", &["token"][..], "token", &["GITHUB_TOKEN", "GH_TOKEN"][..]),
            ("github_token", &["note", "token"], "note", &[]),
            ("anthropc_key", &["token"], "token", &[]),
            ("discord_bot", &["bot_token", "public_key"], "public_key", &["DISCORD_PUBLIC_KEY"]),
            (GCP, &[GCP_KEY], GCP_KEY, &[GCP_FILE, GCP_JSON]),
            (GIT, &["id_rsa", "email"], "id_rsa", &["GIT_SSH_COMMAND"]),
            (GIT, &["id_rsa", "emial"], "emial", &[]),
        ] {
            assert_eq!(given(kind, fields, field), variables, "{kind} {field}");
        }
    }

    #[test]
    fn the_guide_has_every_type_with_its_variables() {
        let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operators.md");
        let guide = std::fs::read_to_string(guide).unwrap();
        let has = |kind: &str, part: &str| {
            let begins = format!("| `{kind}` |");
            let row = guide.lines().find(|line| line.starts_with(&begins));
            assert!(row.is_some_and(|row| row.contains(part)), "{kind} has no row with {part}: {row:?}");
        };
        for (kind, name) in SINGLE.iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name)))
        {
            has(kind, &format!("`{name}`"));
        }
        for (kind, prefix) in PREFIXED {
            has(kind, &format!("`{prefix}_FIELD`"));
        }
        for part in [GCP_KEY, GCP_FILE, GCP_JSON] {
            has(GCP, &format!("`{part}`"));
        }
        let person =
            GIT_PERSON.into_iter().flat_map(|(field, [author, committer])| [field, author, committer]);
        for part in [GIT_KEY, "GIT_SSH_COMMAND"].into_iter().chain(person) {
            has(GIT, &format!("`{part}`"));
        }
    }
}
