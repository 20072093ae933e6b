//! What tools, prompts and resources are made of, whatever the protocol calls it.

use xxhash_rust::xxh3::xxh3_64;

/// A piece of an answer or of a prompt.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    Text(String),
    /// Base64.
    Image {
        data: String,
        mime_type: String,
    },
    /// Base64.
    Audio {
        data: String,
        mime_type: String,
    },
    Document(Document),
}

/// What lies at an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Document {
    pub uri: String,
    pub mime_type: String,
    pub body: Body,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    Text(String),
    /// Base64.
    Bytes(String),
}

impl Document {
    pub fn text(uri: impl Into<String>, mime_type: impl Into<String>, text: impl Into<String>) -> Self {
        Self { uri: uri.into(), mime_type: mime_type.into(), body: Body::Text(text.into()) }
    }

    /// By which it is told from what else may lie at its address.
    pub fn digest(&self) -> u64 {
        let (Body::Text(body) | Body::Bytes(body)) = &self.body;
        xxh3_64(body.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_has_another_digest() {
        let document = |text: &str| Document::text("skein://tasks", "application/json", text);
        assert_eq!(document("{}").digest(), document("{}").digest());
        assert_ne!(document("{}").digest(), document("[]").digest());
    }
}
