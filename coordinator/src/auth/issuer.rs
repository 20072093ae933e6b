//! Tokens of an OpenID provider, as the settings map them to agents.
//!
//! Its public keys are fetched when the first of its tokens comes, kept for [`FRESH`], and asked for anew when a token
//! names one that is not known, but never more often than every [`PAUSE`]: a flood of forged tokens asks nobody.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};
use skein_shared::id::{InstanceId, Name};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use tokio::sync::Mutex;
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::credential::Credential;
use super::principal::{Principal, Role};
use super::rights::Rights;
use super::token::{LEEWAY, reason, refuse};
use super::verified::Verified;
use crate::https::{self, Client, innermost};

/// How long fetched keys are good without a new look, and how long when there is no answer to one.
const FRESH: Duration = Duration::from_secs(600);
const STALE: Duration = Duration::from_secs(24 * 3600);
/// Between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);
/// A document of an issuer, and the keys in one.
const LARGEST: usize = 256 * 1024;
const KEYS: usize = 64;
/// Algorithms with a public key. With any other, whoever verifies could sign as well.
const ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// An issuer and whom its tokens speak for.
#[derive(Clone, Debug)]
pub struct Trust {
    /// As tokens name it in `iss`.
    pub issuer: String,
    /// What they name in `aud`.
    pub audience: String,
    /// Where its keys are; else where it says of itself that they are.
    pub jwks: Option<Url>,
    /// The swarm of all of them, or the claim that names it.
    pub swarm: Option<Name>,
    pub swarm_claim: Option<String>,
    /// The claim with the agent's name; without it the name is made of `sub`.
    pub name_claim: Option<String>,
    /// The role of those for whom the claim says nothing; without it they are turned away.
    pub role: Option<Role>,
    /// The claim with roles or groups, and what they mean here.
    pub role_claim: Option<String>,
    pub roles: BTreeMap<String, Role>,
}

/// All issuers besides Skein itself. Cheap to clone.
#[derive(Clone, Default)]
pub struct Issuers {
    all: Arc<[Issuer]>,
}

struct Issuer {
    trust: Trust,
    client: Client,
    keys: Mutex<Keyring>,
}

#[derive(Default)]
struct Keyring {
    keys: HashMap<String, (Vec<Algorithm>, DecodingKey)>,
    fetched: Option<Instant>,
    tried: Option<Instant>,
    verified: Arc<Verified<Credential>>,
}

impl fmt::Debug for Issuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|issuer| &issuer.trust.issuer)).finish()
    }
}

impl Issuers {
    /// # Errors
    /// When the system trusts nobody's certificates.
    pub fn new(trusts: Vec<Trust>) -> Result<Self, String> {
        let all = trusts.into_iter().map(|trust| {
            let address = trust.jwks.clone().map_or_else(|| Url::parse(&trust.issuer), Ok);
            let address = address.map_err(|error| format!("`{}`: {error}", trust.issuer))?;
            let client = https::client(https::trusted(&address)?);
            Ok(Issuer { trust, client, keys: Mutex::default() })
        });
        Ok(Self { all: all.collect::<Result<Vec<_>, String>>()?.into() })
    }

    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.all.iter().map(|issuer| issuer.trust.issuer.as_str())
    }

    /// Says all that the token says, if it is of one of them.
    ///
    /// # Errors
    /// `unauthenticated`, with the reason; `unavailable` when its issuer's keys cannot be fetched.
    pub async fn read(&self, text: &str, now: Timestamp) -> Option<Result<Arc<Credential>, Refusal>> {
        if self.all.is_empty() {
            return None;
        }
        let named = issuer_of(text)?;
        let issuer = self.all.iter().find(|issuer| issuer.trust.issuer == named)?;
        Some(issuer.read(text, now).await)
    }
}

/// What the token says of its issuer, before anything of it is believed.
fn issuer_of(text: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        iss: String,
    }
    let claims = URL_SAFE_NO_PAD.decode(text.split('.').nth(1)?).ok()?;
    Some(serde_json::from_slice::<Named>(&claims).ok()?.iss)
}

impl Issuer {
    async fn read(&self, text: &str, now: Timestamp) -> Result<Arc<Credential>, Refusal> {
        let header = jsonwebtoken::decode_header(text).map_err(|_| refuse("the token is not a JWT"))?;
        if !ALGORITHMS.contains(&header.alg) {
            return Err(refuse("the token is signed by an algorithm that is not taken"));
        }
        let mut ring = self.keys.lock().await;
        self.renew(&mut ring, header.kid.as_deref()).await?;
        let verified = Arc::clone(&ring.verified);
        if let Some(known) = verified.get(text) {
            drop(ring);
            known.in_time(now)?;
            return Ok(known);
        }
        let (algorithms, key) = ring
            .find(header.kid.as_deref())
            .ok_or_else(|| refuse("the token was signed with a key that its issuer does not show"))?;
        if !algorithms.contains(&header.alg) {
            return Err(refuse("the token is signed by an algorithm that its key is not for"));
        }
        let mut rules = Validation::new(header.alg);
        rules.set_audience(&[&self.trust.audience]);
        rules.set_issuer(&[&self.trust.issuer]);
        rules.set_required_spec_claims(&["aud", "iss", "sub", "exp"]);
        rules.validate_exp = false;
        let claims = jsonwebtoken::decode::<Map<String, Value>>(text, key, &rules)
            .map_err(|error| refuse(reason(&error)))?
            .claims;
        drop(ring);
        let credential = self.trust.credential(&claims, text)?;
        begun(&claims, now)?;
        credential.in_time(now)?;
        Ok(verified.insert(text, credential))
    }

    /// Fetches the keys if they are old, or lack this one, and were not asked for a moment ago.
    async fn renew(&self, ring: &mut Keyring, kid: Option<&str>) -> Result<(), Refusal> {
        let age = |at: Option<Instant>| at.map(|at| at.elapsed());
        let good = age(ring.fetched).is_some_and(|age| age < FRESH) && ring.find(kid).is_some();
        if good || age(ring.tried).is_some_and(|age| age < PAUSE) {
            return ring.usable();
        }
        ring.tried = Some(Instant::now());
        match self.fetch().await {
            Ok(keys) => {
                // What was verified by a key that is gone has to be verified anew.
                *ring = Keyring { keys, fetched: ring.tried, tried: ring.tried, ..Keyring::default() };
            }
            Err(problem) => {
                let issuer = &self.trust.issuer;
                tracing::warn!(issuer, problem, "the keys of an issuer cannot be fetched");
            }
        }
        ring.usable()
    }

    async fn fetch(&self) -> Result<HashMap<String, (Vec<Algorithm>, DecodingKey)>, String> {
        #[derive(Deserialize)]
        struct Discovered {
            issuer: String,
            jwks_uri: String,
        }
        let address = match &self.trust.jwks {
            Some(address) => address.clone(),
            None => {
                let base = self.trust.issuer.trim_end_matches('/');
                let found: Discovered = self.get(&format!("{base}/.well-known/openid-configuration")).await?;
                if found.issuer != self.trust.issuer {
                    return Err(format!("it calls itself `{}`", found.issuer));
                }
                Url::parse(&found.jwks_uri).map_err(|error| format!("its keys are nowhere: {error}"))?
            }
        };
        if !is_private(&address) {
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
        let exchange = async {
            let answer = self.client.request(request).await.map_err(|error| innermost(&error))?;
            if !answer.status().is_success() {
                return Err(format!("{address} answers {}", answer.status()));
            }
            let body = Limited::new(answer.into_body(), LARGEST).collect().await;
            Ok(body.map_err(|error| innermost(error.as_ref()))?.to_bytes())
        };
        let body =
            tokio::time::timeout(PATIENCE, exchange).await.map_err(|_| "no answer came".to_owned())??;
        serde_json::from_slice(&body).map_err(|error| format!("{address}: {error}"))
    }
}

/// Whether what goes to the address cannot be read on the way: TLS, or this machine.
pub(crate) fn is_private(address: &Url) -> bool {
    let local = match address.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
        Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    address.scheme() == "https" || (address.scheme() == "http" && local)
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
    fn find(&self, kid: Option<&str>) -> Option<&(Vec<Algorithm>, DecodingKey)> {
        match kid {
            Some(kid) => self.keys.get(kid),
            None if self.keys.len() == 1 => self.keys.values().next(),
            None => None,
        }
    }

    fn usable(&self) -> Result<(), Refusal> {
        if self.fetched.is_some_and(|at| at.elapsed() < STALE) {
            return Ok(());
        }
        Err(Refusal::new(Code::Unavailable, "the keys of the token's issuer cannot be fetched; try again")
            .retry_after(u64::try_from(PAUSE.as_millis()).unwrap_or(u64::MAX)))
    }
}

fn begun(claims: &Map<String, Value>, now: Timestamp) -> Result<(), Refusal> {
    let begins = claims.get("nbf").and_then(Value::as_f64).unwrap_or_default();
    #[allow(clippy::cast_precision_loss, reason = "milliseconds of this age are whole numbers")]
    if begins * 1000.0 > (now + LEEWAY).millis() as f64 {
        return Err(refuse("the token does not hold yet"));
    }
    Ok(())
}

impl Trust {
    fn credential(&self, claims: &Map<String, Value>, text: &str) -> Result<Credential, Refusal> {
        let said = |claim: &str| claims.get(claim).and_then(Value::as_str);
        let lacks = |what: &str| refuse(&format!("the token does not say {what}, as the settings want it"));
        let subject = said("sub").ok_or_else(|| lacks("whose it is"))?;
        let space = Uuid::new_v5(&Uuid::NAMESPACE_URL, self.issuer.as_bytes());
        let agent = Uuid::new_v5(&space, subject.as_bytes());
        let swarm = match (&self.swarm_claim, &self.swarm) {
            (Some(claim), usual) => match said(claim) {
                Some(name) => Name::parse(name).map_err(|_| lacks("a swarm's name"))?,
                None => usual.clone().ok_or_else(|| lacks("the swarm"))?,
            },
            (None, usual) => usual.clone().ok_or_else(|| lacks("the swarm"))?,
        };
        let agent_name = match &self.name_claim {
            Some(claim) => {
                said(claim).and_then(|name| Name::parse(name).ok()).ok_or_else(|| lacks("a name"))?
            }
            None => Name::parse(&format!("agent-{}", agent.as_simple())).map_err(|_| lacks("a name"))?,
        };
        let role = self.role_of(claims).ok_or_else(|| lacks("a role"))?;
        let scopes = said("scope").map(Rights::named_in).filter(|rights| !rights.are_none());
        let seconds = |claim: &str| claims.get(claim).and_then(Value::as_f64);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let moment = |seconds: f64| Timestamp((seconds.max(0.0) * 1000.0) as u64);
        let id = said("jti").unwrap_or(text);
        Ok(Credential {
            who: Principal {
                swarm,
                agent,
                agent_name,
                // Its tokens come and go; what it holds stays.
                instance: InstanceId(agent.to_string()),
                managed: false,
                role,
                rights: scopes.unwrap_or_default(),
                view: None,
            },
            id: Uuid::new_v5(&space, id.as_bytes()),
            family: None,
            client: None,
            renewable: None,
            actor: None,
            issued: seconds("iat").map(moment).unwrap_or_default(),
            expires: seconds("exp").map(moment).ok_or_else(|| lacks("when it ends"))?,
        })
    }

    /// The widest of the roles that the claim's values stand for.
    fn role_of(&self, claims: &Map<String, Value>) -> Option<Role> {
        let said = self.role_claim.as_ref().and_then(|claim| claims.get(claim));
        let values: Vec<&str> = match said {
            Some(Value::String(one)) => one.split_ascii_whitespace().collect(),
            Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let meant: Vec<Role> = values.iter().filter_map(|value| self.roles.get(*value).copied()).collect();
        [Role::Operator, Role::Lead, Role::Worker, Role::Observer]
            .into_iter()
            .find(|role| meant.contains(role))
            .or(self.role)
    }
}

#[cfg(test)]
mod tests;
