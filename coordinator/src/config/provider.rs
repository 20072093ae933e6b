//! The kinds of senders of webhooks.

use serde::Deserialize;

/// A kind of sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Provider {
    Agentmail,
    Discord,
    Generic,
    Github,
    Gitlab,
    Linear,
    Mintlify,
    Sentry,
    Slack,
    Test,
    Twitter,
}

impl Provider {
    pub const ALL: [Provider; 11] = [
        Provider::Agentmail,
        Provider::Discord,
        Provider::Generic,
        Provider::Github,
        Provider::Gitlab,
        Provider::Linear,
        Provider::Mintlify,
        Provider::Sentry,
        Provider::Slack,
        Provider::Test,
        Provider::Twitter,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Provider::Agentmail => "agentmail",
            Provider::Discord => "discord",
            Provider::Generic => "generic",
            Provider::Github => "github",
            Provider::Gitlab => "gitlab",
            Provider::Linear => "linear",
            Provider::Mintlify => "mintlify",
            Provider::Sentry => "sentry",
            Provider::Slack => "slack",
            Provider::Test => "test",
            Provider::Twitter => "twitter",
        }
    }

    /// The kind of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|provider| provider.as_str() == name)
    }
}
