//! The public keys of an issuer.
//!
//! They are fetched when the first of its tokens comes, kept for [`FRESH`], and asked for anew when a token names one
//! that is not known, but never more often than every [`PAUSE`]: a flood of forged tokens asks nobody. Whose key is
//! known waits for no fetch, as long as the issuer has answered within [`STALE`].

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use skein_shared::{Code, Refusal};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use url::Url;

use super::ALGORITHMS;
use crate::auth::credential::Credential;
use crate::auth::verified::Verified;
use crate::https::{self, Client};

/// How long fetched keys are good without a new look, and how long when there is no answer to one.
const FRESH: Duration = Duration::from_secs(600);
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Between two fetches.
pub(super) const PAUSE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
/// A document of an issuer, and the keys in one.
const LARGEST: u64 = 256 * 1024;
const KEYS: usize = 64;

/// What an issuer says of its keys.
pub(super) struct Keys {
    issuer: String,
    jwks: Option<Url>,
    client: Client,
    known: ArcSwap<Keyring>,
    /// When the last fetch ended; held while one goes on.
    pub(super) tried: Arc<Mutex<Option<Instant>>>,
}

/// The keys as they were fetched, and what was verified by them.
#[derive(Default)]
pub(super) struct Keyring {
    keys: HashMap<String, (Vec<Algorithm>, DecodingKey)>,
    fetched: Option<Instant>,
    pub(super) verified: Verified<Credential>,
}

impl Keys {
    pub(super) fn new(issuer: String, jwks: Option<Url>, client: Client) -> Self {
        Self { issuer, jwks, client, known: ArcSwap::default(), tried: Arc::default() }
    }

    /// The keys, with the one of this name if the issuer has it.
    ///
    /// # Errors
    /// `unavailable` when they cannot be fetched.
    pub(super) async fn ring(self: &Arc<Self>, kid: Option<&str>) -> Result<Arc<Keyring>, Refusal> {
        let known = self.known.load_full();
        if known.find(kid).is_none() || !known.is_younger_than(STALE) {
            let tried = Arc::clone(&self.tried).lock_owned().await;
            // Whoever has asked may hang up: the fetch goes on, so that it counts and the next one finds its keys.
            let _ = self.renewing(kid, tried).await;
        } else if !known.is_younger_than(FRESH)
            && let Ok(tried) = Arc::clone(&self.tried).try_lock_owned()
        {
            self.renewing(kid, tried);
        }
        let known = self.known.load_full();
        if known.is_younger_than(STALE) {
            return Ok(known);
        }
        Err(Refusal::new(Code::Unavailable, "the keys of the token's issuer cannot be fetched; try again")
            .retry_after(u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX)))
    }

    /// Renews the keys in a task of its own.
    fn renewing(
        self: &Arc<Self>,
        kid: Option<&str>,
        tried: OwnedMutexGuard<Option<Instant>>,
    ) -> JoinHandle<()> {
        let (keys, kid) = (Arc::clone(self), kid.map(str::to_owned));
        tokio::spawn(async move { keys.renew(kid.as_deref(), tried).await })
    }

    /// Fetches the keys if they are old, or lack this one, and were not asked for a moment ago.
    async fn renew(&self, kid: Option<&str>, mut tried: OwnedMutexGuard<Option<Instant>>) {
        let known = self.known.load();
        let good = known.is_younger_than(FRESH) && known.find(kid).is_some();
        if good || tried.is_some_and(|at| at.elapsed() < PAUSE) {
            return;
        }
        match self.fetch().await {
            Ok(keys) => {
                // What was verified by a key that is gone has to be verified anew.
                let ring = Keyring { keys, fetched: Some(Instant::now()), verified: Verified::default() };
                self.known.store(Arc::new(ring));
            }
            Err(problem) => {
                tracing::warn!(issuer = self.issuer, problem, "the keys of an issuer cannot be fetched");
            }
        }
        *tried = Some(Instant::now());
    }

    async fn fetch(&self) -> Result<HashMap<String, (Vec<Algorithm>, DecodingKey)>, String> {
        #[derive(Deserialize)]
        struct Discovered {
            issuer: String,
            jwks_uri: String,
        }
        let address = match &self.jwks {
            Some(address) => address.clone(),
            None => {
                let base = self.issuer.trim_end_matches('/');
                let found: Discovered = self.get(&format!("{base}/.well-known/openid-configuration")).await?;
                if found.issuer != self.issuer {
                    return Err(format!("it calls itself `{}`", found.issuer));
                }
                Url::parse(&found.jwks_uri).map_err(|error| format!("its keys are nowhere: {error}"))?
            }
        };
        if !https::is_private(&address) {
            return Err(format!("its keys are at `{address}`, which is not https"));
        }
        // Keys of kinds that are not known must not hide the others.
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = self.get(address.as_str()).await?;
        let known = set.keys.into_iter().take(KEYS).filter_map(|key| serde_json::from_value(key).ok());
        Ok(JwkSet { keys: known.collect() }.keys.iter().filter_map(usable).collect())
    }

    /// A document of the issuer, of bounded size and in bounded time. Redirects are not followed.
    async fn get<T: for<'de> Deserialize<'de>>(&self, address: &str) -> Result<T, String> {
        let request = Request::get(address)
            .header(http::header::ACCEPT, "application/json")
            .body(Full::<Bytes>::default())
            .map_err(|error| error.to_string())?;
        let answer = https::send(&self.client, request, LARGEST, PATIENCE).await;
        let answer = answer.map_err(|failure| failure.to_string())?;
        if !answer.status().is_success() {
            return Err(format!("{address} answers {}", answer.status()));
        }
        serde_json::from_slice(answer.body()).map_err(|error| format!("{address}: {error}"))
    }
}

/// A key for signatures, with the algorithms that it may verify.
fn usable(key: &Jwk) -> Option<(String, (Vec<Algorithm>, DecodingKey))> {
    if key.common.public_key_use.as_ref().is_some_and(|used| *used != PublicKeyUse::Signature) {
        return None;
    }
    let fits: &[Algorithm] = match &key.algorithm {
        AlgorithmParameters::RSA(_) => &ALGORITHMS[..6],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(_) => &[Algorithm::EdDSA],
        AlgorithmParameters::OctetKey(_) => return None,
    };
    let named = key.common.key_algorithm.map(|named| format!("{named:?}"));
    let may = |one: &Algorithm| named.as_ref().is_none_or(|named| *named == format!("{one:?}"));
    let algorithms: Vec<_> = fits.iter().copied().filter(may).collect();
    let id = key.common.key_id.clone().unwrap_or_default();
    Some((id, (algorithms, DecodingKey::from_jwk(key).ok()?)))
}

impl Keyring {
    /// The key of this name; a token that names none is verified by the only one.
    pub(super) fn find(&self, kid: Option<&str>) -> Option<&(Vec<Algorithm>, DecodingKey)> {
        match kid {
            Some(kid) => self.keys.get(kid),
            None if self.keys.len() == 1 => self.keys.values().next(),
            None => None,
        }
    }

    fn is_younger_than(&self, age: Duration) -> bool {
        self.fetched.is_some_and(|at| at.elapsed() < age)
    }
}
