//! Access tokens: JWTs signed with Ed25519, short-lived, each bound to one agent, role and swarm.
//!
//! `signing` has the keys; what a token was come by stands in it as well: by which client, from which other token.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use skein_shared::id::{InstanceId, Name};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::credential::{Actor, Credential};
use super::principal::{Principal, Role, View};
use super::rights::Rights;
use super::signing::{self, KeyFile};
use super::verified::Verified;

/// Who issued the token and whom it is for: Skein speaks to itself here.
pub const AUDIENCE: &str = "skein";
/// Clocks of two coordinators may differ by this much.
pub const LEEWAY: Duration = Duration::from_secs(30);
/// The longest life of a token that somebody asks for.
pub const LONGEST: Duration = Duration::from_secs(366 * 86_400);
/// Tokens that a node makes for itself: the operator's file and the runner in the same process. Both end
/// with the data directory, whose reader could issue others anyway.
pub const OWN: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Signs and verifies. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<ArcSwap<Inner>>,
}

struct Inner {
    current: String,
    signing: EncodingKey,
    verifying: HashMap<String, DecodingKey>,
    verified: Verified<Credential>,
}

/// Shows which key signs and never a key.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("current", &self.inner.load().current).finish_non_exhaustive()
    }
}

/// What a new token shall say.
#[derive(Clone, Debug)]
pub struct Claims {
    pub swarm: Name,
    pub agent: Uuid,
    pub agent_name: Name,
    pub role: Role,
    pub view: Option<View>,
    /// The instance that a runner starts with this token. Without one the token is its own instance.
    pub instance: Option<InstanceId>,
    pub lifetime: Duration,
}

/// How a token is come by. By default it is a new one with all rights of its role.
#[derive(Clone, Debug, Default)]
pub struct Origin {
    pub rights: Rights,
    /// What its instance is called by, when it goes on as that of another token.
    pub family: Option<Uuid>,
    /// The instance that it goes on as, where the family does not name it.
    pub goes_on_as: Option<InstanceId>,
    /// The first of those that it continues, where the family does not name it.
    pub first: Option<Uuid>,
    /// The client that asked for it.
    pub client: Option<String>,
    /// Until when it may be exchanged for a later one.
    pub renewable: Option<Timestamp>,
    /// When the last of its family has ended.
    pub family_ends: Option<Timestamp>,
    /// When the first of those that it continues was issued; itself by default.
    pub since: Option<Timestamp>,
    /// The token that it was made narrower from.
    pub actor: Option<Actor>,
    /// A session of the console, which opens nothing else.
    pub for_console: bool,
}

/// A token as it is handed out once. Its text is shown by [`Issued::text`] alone.
#[derive(Clone)]
pub struct Issued {
    text: String,
    pub id: Uuid,
    pub expires_at: Timestamp,
}

impl Issued {
    pub fn text(&self) -> &str {
        &self.text
    }
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("id", &self.id).field("expires_at", &self.expires_at).finish()
    }
}

/// The claims on the wire. Times are whole seconds, as RFC 7519 has them.
#[derive(Serialize, Deserialize)]
struct Wire {
    aud: String,
    sub: Uuid,
    name: Name,
    swarm: Name,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    view: Option<View>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    instance: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    scope: Option<Rights>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    family: Option<Uuid>,
    /// Unlike `instance` it is none of a runner's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    goes_on_as: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<Uuid>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewable: Option<u64>,
    /// As `exp` of the one that ends last among those that a revocation of the family ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    family_ends: Option<u64>,
    /// Milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    act: Option<Actor>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    for_console: bool,
    jti: Uuid,
    iat: u64,
    exp: u64,
}

impl Keys {
    /// Reads the keys of a data directory, and makes them at the first start.
    ///
    /// # Errors
    /// When the file cannot be read or written, holds no usable key, or can be read by others.
    pub fn load_or_create(dir: &Path) -> io::Result<Self> {
        Self::with(&KeyFile::read_or_create(dir)?.documents()?)
    }

    /// Takes over the keys that came with a node's certificate, unless the data directory has some already.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn adopt(dir: &Path, from: &Path) -> io::Result<()> {
        KeyFile::adopt(dir, from)
    }

    /// Keys that live as long as the process, for tests and demonstrations.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn ephemeral() -> io::Result<Self> {
        Self::with(&signing::ephemeral()?)
    }

    /// Reads the keys again. Gives whether they have changed.
    ///
    /// # Errors
    /// When the file cannot be used; then the keys stay as they are.
    pub fn reload(&self, dir: &Path) -> io::Result<bool> {
        let inner = assemble(&KeyFile::read(dir)?.documents()?)?;
        let before = self.inner.load();
        let same = inner.ids().eq(before.ids()) && inner.current == before.current;
        if !same {
            self.inner.store(Arc::new(inner));
        }
        Ok(!same)
    }

    /// Changes the keys of a data directory.
    ///
    /// # Errors
    /// When they cannot be read or written, or are too many.
    pub fn change(dir: &Path, step: Rotation) -> io::Result<Vec<String>> {
        let mut file = KeyFile::read(dir)?;
        match step {
            Rotation::Prepare => file.prepare()?,
            Rotation::Rotate { are_shared } => file.rotate(are_shared)?,
            Rotation::Retire => file.retire(),
        }
        file.replace(dir)?;
        file.documents()?.iter().map(|document| Ok(identified(document)?.0)).collect()
    }

    fn with(documents: &[Vec<u8>]) -> io::Result<Self> {
        Ok(Self { inner: Arc::new(ArcSwap::from_pointee(assemble(documents)?)) })
    }

    /// Signs a token.
    ///
    /// # Errors
    /// `internal` when signing fails.
    pub fn issue(&self, claims: Claims, now: Timestamp) -> Result<Issued, Refusal> {
        self.issue_as(claims, Origin::default(), now)
    }

    /// Signs a token that says how it was come by.
    ///
    /// # Errors
    /// `internal` when signing fails.
    pub fn issue_as(&self, claims: Claims, origin: Origin, now: Timestamp) -> Result<Issued, Refusal> {
        let id = at(now);
        let expires_at = now + claims.lifetime;
        let narrowed = !Rights::of(claims.role).are_within(origin.rights);
        let wire = Wire {
            aud: AUDIENCE.to_owned(),
            sub: claims.agent,
            name: claims.agent_name,
            swarm: claims.swarm,
            role: claims.role,
            view: claims.view,
            instance: claims.instance,
            scope: narrowed.then_some(origin.rights.and(Rights::of(claims.role))),
            family: origin.family,
            goes_on_as: origin.goes_on_as,
            first: origin.first,
            client_id: origin.client,
            renewable: origin.renewable.map(|until| until.millis() / 1000),
            family_ends: origin.family_ends.map(|end| end.millis() / 1000),
            since_ms: origin.since.map(Timestamp::millis),
            act: origin.actor,
            for_console: origin.for_console,
            jti: id,
            iat: now.millis() / 1000,
            exp: expires_at.millis() / 1000,
        };
        let inner = self.inner.load();
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(inner.current.clone());
        let text = jsonwebtoken::encode(&header, &wire, &inner.signing)
            .map_err(|_| Refusal::new(Code::Internal, "the token could not be signed"))?;
        Ok(Issued { text, id, expires_at })
    }

    /// Says who holds the token. Whether it was revoked since is not its own to say.
    ///
    /// # Errors
    /// `unauthenticated`, with the reason and never with any part of the token.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<Principal, Refusal> {
        self.read(text, now).map(|credential| credential.who.clone())
    }

    /// Says all that the token says.
    ///
    /// # Errors
    /// As [`Self::verify`].
    pub fn read(&self, text: &str, now: Timestamp) -> Result<Arc<Credential>, Refusal> {
        let inner = self.inner.load();
        let known = inner.verified.get_or_check(text, || inner.check(text))?;
        known.in_time(now)?;
        Ok(known)
    }
}

/// A step from one signing key to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// Makes the next key, which verifies and does not sign yet.
    Prepare,
    /// Lets the next key sign, which has to be prepared where several coordinators share the keys.
    Rotate { are_shared: bool },
    /// Forgets all keys that sign no more.
    Retire,
}

impl Inner {
    fn ids(&self) -> impl Iterator<Item = &String> {
        self.verifying.keys().collect::<std::collections::BTreeSet<_>>().into_iter()
    }

    /// Checks the signature, and nothing that changes with time.
    fn check(&self, text: &str) -> Result<Credential, Refusal> {
        let header = jsonwebtoken::decode_header(text).map_err(|_| refuse("the token is not a JWT"))?;
        let key =
            header.kid.as_ref().and_then(|kid| self.verifying.get(kid)).ok_or_else(|| {
                refuse("the token was signed with a key that this coordinator does not have")
            })?;
        let wire =
            jsonwebtoken::decode::<Wire>(text, key, &rules()).map_err(|error| refuse(reason(&error)))?;
        Ok(wire.claims.into())
    }
}

impl From<Wire> for Credential {
    fn from(claims: Wire) -> Self {
        let managed = claims.instance.is_some();
        let own = || InstanceId(claims.family.unwrap_or(claims.jti).to_string());
        let who = Principal {
            swarm: claims.swarm,
            agent: claims.sub,
            agent_name: claims.name,
            instance: claims.instance.or(claims.goes_on_as).unwrap_or_else(own),
            managed,
            role: claims.role,
            rights: claims.scope.unwrap_or_default(),
            view: claims.view,
        };
        let seconds = |seconds: u64| Timestamp(seconds.saturating_mul(1000));
        let issued = moment(claims.jti).unwrap_or_else(|| seconds(claims.iat));
        // The revocation of what was handed on is kept for no longer than any of it holds.
        let latest = if claims.act.is_some() { issued + LONGEST } else { Timestamp::NEVER };
        Self {
            who,
            id: claims.jti,
            family: claims.family,
            first: claims.first,
            client: claims.client_id,
            renewable: claims.renewable.map(seconds),
            family_ends: claims.family_ends.map(seconds),
            actor: claims.act,
            for_console: claims.for_console,
            issued,
            since: claims.since_ms.map_or(issued, Timestamp),
            expires: seconds(claims.exp).min(latest),
        }
    }
}

fn assemble(documents: &[Vec<u8>]) -> io::Result<Inner> {
    let mut verifying = HashMap::new();
    let mut current = None;
    for document in documents {
        let (id, public) = identified(document)?;
        verifying.insert(id.clone(), DecodingKey::from_ed_der(&public));
        current.get_or_insert((id, EncodingKey::from_ed_der(document)));
    }
    let (current, signing) = current.ok_or_else(unusable)?;
    Ok(Inner { current, signing, verifying, verified: Verified::default() })
}

/// A key's public half, and the id by which tokens name it.
fn identified(document: &[u8]) -> io::Result<(String, Vec<u8>)> {
    let pair = Ed25519KeyPair::from_pkcs8(document).map_err(|_| unusable())?;
    let public = pair.public_key().as_ref().to_vec();
    Ok((URL_SAFE_NO_PAD.encode(&Sha256::digest(&public)[..9]), public))
}

fn unusable() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "a signing key cannot be used")
}

/// A new token's id, which says to the millisecond when it was made: `iat` has seconds, and a token that is
/// made right after others were revoked has to be good.
fn at(now: Timestamp) -> Uuid {
    let (seconds, rest) = (now.millis() / 1000, now.millis() % 1000);
    let nanos = u32::try_from(rest).unwrap_or_default() * 1_000_000;
    Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, seconds, nanos))
}

/// When an id was made, if it says so.
pub(super) fn moment(id: Uuid) -> Option<Timestamp> {
    let (seconds, nanos) = id.get_timestamp()?.to_unix();
    Some(Timestamp(seconds.saturating_mul(1000) + u64::from(nanos) / 1_000_000))
}

/// Times are compared with the caller's clock in [`Credential::in_time`], not with the library's.
fn rules() -> Validation {
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.set_audience(&[AUDIENCE]);
    rules.set_required_spec_claims(&["aud", "sub", "exp"]);
    rules.validate_exp = false;
    rules
}

pub(super) fn reason(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidSignature => "the token's signature does not fit",
        ErrorKind::InvalidAudience => "the token is meant for another service",
        ErrorKind::InvalidAlgorithm => "the token is signed by an algorithm that is not taken",
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::Json(_) => "the token lacks claims that Skein needs",
        _ => "the token is not valid",
    }
}

pub(super) fn refuse(reason: &str) -> Refusal {
    Refusal::new(
        Code::Unauthenticated,
        format!("{reason}; ask the operator for a new one (`skein token issue`)"),
    )
}

#[cfg(test)]
mod tests;
