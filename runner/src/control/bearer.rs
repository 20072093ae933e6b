//! By what the runner shows the coordinators that it is one.

use std::sync::{Mutex, PoisonError};

use secrecy::ExposeSecret;
use tonic::metadata::{Ascii, MetadataValue};

use crate::config::Token;
use crate::error::Error;

/// Follows the token as it changes, and goes on with the last while there is none.
pub(super) struct Bearer {
    token: Token,
    last: Mutex<MetadataValue<Ascii>>,
}

impl Bearer {
    /// # Errors
    /// When there is no token, or one that no header can carry.
    pub(super) fn new(token: Token) -> Result<Self, Error> {
        let last = Mutex::new(header(&token)?);
        Ok(Self { token, last })
    }

    /// What a stream shows that is opened now.
    pub(super) fn now(&self) -> MetadataValue<Ascii> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match header(&self.token) {
            Ok(header) => *last = header,
            Err(problem) => tracing::warn!(%problem, "the runner shows the token that it had"),
        }
        last.clone()
    }
}

fn header(token: &Token) -> Result<MetadataValue<Ascii>, Error> {
    let secret = format!("Bearer {}", token.now()?.expose_secret());
    let mut header: MetadataValue<Ascii> =
        secret.parse().map_err(|_| Error::config("the runner's token holds characters that no token has"))?;
    header.set_sensitive(true);
    Ok(header)
}
