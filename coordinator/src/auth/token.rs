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
    /// The client that asked for it.
    pub client: Option<String>,
    /// Until when it may be exchanged for a later one.
    pub renewable: Option<Timestamp>,
    /// The token that it was made narrower from.
    pub actor: Option<Actor>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    renewable: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    act: Option<Actor>,
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
            Rotation::Rotate => file.rotate()?,
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
            client_id: origin.client,
            renewable: origin.renewable.map(|until| until.millis() / 1000),
            act: origin.actor,
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
    /// Lets the next key sign.
    Rotate,
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
            instance: claims.instance.unwrap_or_else(own),
            managed,
            role: claims.role,
            rights: claims.scope.unwrap_or_default(),
            view: claims.view,
        };
        let seconds = |seconds: u64| Timestamp(seconds.saturating_mul(1000));
        Self {
            who,
            id: claims.jti,
            family: claims.family,
            client: claims.client_id,
            renewable: claims.renewable.map(seconds),
            actor: claims.act,
            issued: moment(claims.jti).unwrap_or_else(|| seconds(claims.iat)),
            expires: seconds(claims.exp),
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
fn moment(id: Uuid) -> Option<Timestamp> {
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
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NOW: Timestamp = Timestamp(1_790_000_000_000);

    fn claims() -> Claims {
        Claims {
            swarm: Name::parse("default").unwrap(),
            agent: Uuid::from_u128(7),
            agent_name: Name::parse("builder").unwrap(),
            role: Role::Worker,
            view: Some(View::parse("full").unwrap()),
            instance: None,
            lifetime: Duration::from_secs(900),
        }
    }

    #[test]
    fn a_token_says_who_holds_it() {
        let keys = Keys::ephemeral().unwrap();
        let issued = keys.issue(claims(), NOW).unwrap();
        let who = keys.verify(issued.text(), NOW).unwrap();
        assert_eq!((who.agent, who.role), (Uuid::from_u128(7), Role::Worker));
        assert_eq!(who.instance.as_str(), issued.id.to_string());
        assert!(!who.managed);

        let instance = InstanceId("builder-00000001".to_owned());
        let issued = keys.issue(Claims { instance: Some(instance.clone()), ..claims() }, NOW).unwrap();
        let who = keys.verify(issued.text(), NOW).unwrap();
        assert_eq!(who.instance, instance);
        assert!(who.managed);
    }

    #[test]
    fn refusals_never_show_the_token() {
        let keys = Keys::ephemeral().unwrap();
        let other = Keys::ephemeral().unwrap();
        let issued = keys.issue(claims(), NOW).unwrap();
        let text = issued.text();
        let late = NOW + Duration::from_secs(10_000);
        let early = NOW - Duration::from_secs(1000);
        let mut bent = text.to_owned();
        bent.truncate(text.len() - 4);
        let refusals = [
            keys.verify(text, late).unwrap_err(),
            keys.verify(text, early).unwrap_err(),
            other.verify(text, NOW).unwrap_err(),
            keys.verify(&bent, NOW).unwrap_err(),
            keys.verify("shared-secret", NOW).unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.code, Code::Unauthenticated);
            assert!(!refusal.message.contains(&text[..20]) && !refusal.message.contains("shared-secret"));
        }
        assert!(!format!("{issued:?} {keys:?}").contains(text));
    }

    #[test]
    fn a_token_that_was_used_ends_all_the_same() {
        let keys = Keys::ephemeral().unwrap();
        let issued = keys.issue(claims(), NOW).unwrap();
        keys.verify(issued.text(), NOW).unwrap();
        let late = NOW + Duration::from_secs(10_000);
        assert_eq!(keys.verify(issued.text(), late).unwrap_err().code, Code::Unauthenticated);
        keys.verify(issued.text(), NOW).unwrap();
        // Other keys know nothing of it.
        let other = Keys::ephemeral().unwrap();
        assert_eq!(other.verify(issued.text(), NOW).unwrap_err().code, Code::Unauthenticated);
    }

    #[test]
    fn keys_are_made_once_and_kept_private() {
        let dir = tempfile::tempdir().unwrap();
        let issued = Keys::load_or_create(dir.path()).unwrap().issue(claims(), NOW).unwrap();
        assert!(Keys::load_or_create(dir.path()).unwrap().verify(issued.text(), NOW).is_ok());

        let path = KeyFile::path(dir.path());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Keys::load_or_create(dir.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    /// A token with a header and claims of the test's own, signed by the keys.
    fn forged(keys: &Keys, header: &Header, change: impl Fn(&mut serde_json::Value)) -> String {
        let good = keys.issue(claims(), NOW).unwrap();
        let body = URL_SAFE_NO_PAD.decode(good.text().split('.').nth(1).unwrap()).unwrap();
        let mut claims: serde_json::Value = serde_json::from_slice(&body).unwrap();
        change(&mut claims);
        jsonwebtoken::encode(header, &claims, &keys.inner.load().signing).unwrap()
    }

    #[test]
    fn bad_tokens_of_every_kind_are_refused() {
        let keys = Keys::ephemeral().unwrap();
        let inner = keys.inner.load();
        let header = || Header { kid: Some(inner.current.clone()), ..Header::new(Algorithm::EdDSA) };
        keys.verify(&forged(&keys, &header(), |_| ()), NOW).unwrap();
        let claims = |change: fn(&mut serde_json::Value)| forged(&keys, &header(), change);
        let good = claims(|_| ());
        let (rest, signature) = good.rsplit_once('.').unwrap();
        let body = rest.split_once('.').unwrap().1;
        let part = |value: serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let kid = &inner.current;
        let none = part(serde_json::json!({ "alg": "none", "kid": kid }));
        // Whoever knows the public key signs with it as if it were a secret.
        let hs256 = Header { kid: Some(kid.clone()), ..Header::new(Algorithm::HS256) };
        let public = inner.verifying.keys().next().unwrap().as_bytes();
        let confused = jsonwebtoken::encode(
            &hs256,
            &serde_json::from_slice::<serde_json::Value>(&URL_SAFE_NO_PAD.decode(body).unwrap()).unwrap(),
            &EncodingKey::from_secret(public),
        );
        for bad in [
            String::new(),
            "x".to_owned(),
            "..".to_owned(),
            format!("{none}.{body}."),
            format!("{none}.{body}.{signature}"),
            confused.unwrap(),
            format!("{}.{body}.{signature}", part(serde_json::json!({ "alg": "EdDSA", "kid": "another" }))),
            forged(&keys, &Header::new(Algorithm::EdDSA), |_| ()),
            format!("{rest}.{}", URL_SAFE_NO_PAD.encode([0; 64])),
            claims(|claims| claims["aud"] = serde_json::json!("another")),
            claims(|claims| claims["aud"] = serde_json::Value::Null),
            claims(|claims| claims["exp"] = serde_json::Value::Null),
            claims(|claims| claims["exp"] = serde_json::json!(1)),
            claims(|claims| claims["exp"] = serde_json::json!("tomorrow")),
            claims(|claims| claims["role"] = serde_json::json!("god")),
            claims(|claims| claims["swarm"] = serde_json::json!("../default")),
            claims(|claims| claims["scope"] = serde_json::json!("swarm:all")),
            claims(|claims| claims["sub"] = serde_json::json!("somebody")),
        ] {
            assert_eq!(keys.verify(&bad, NOW).unwrap_err().code, Code::Unauthenticated, "{bad}");
        }
    }

    #[test]
    fn clocks_may_differ_by_half_a_minute_and_no_more() {
        let keys = Keys::ephemeral().unwrap();
        let issued = keys.issue(claims(), NOW).unwrap();
        let ends = NOW + Duration::from_secs(900);
        keys.verify(issued.text(), ends + LEEWAY).unwrap();
        keys.verify(issued.text(), NOW - LEEWAY).unwrap();
        assert!(keys.verify(issued.text(), ends + LEEWAY + Duration::from_millis(1)).is_err());
        assert!(keys.verify(issued.text(), NOW - LEEWAY - Duration::from_millis(1)).is_err());
    }

    #[test]
    fn a_token_keeps_the_scopes_that_it_was_left_with() {
        let keys = Keys::ephemeral().unwrap();
        let rights = "swarm:read swarm:admin".parse().unwrap();
        let issued = keys.issue_as(claims(), Origin { rights, ..Origin::default() }, NOW).unwrap();
        let who = keys.verify(issued.text(), NOW).unwrap();
        assert_eq!(who.rights.to_string(), "swarm:read", "a scope gives nothing that the role does not");
        let refusal = crate::auth::policy::require(&who, crate::auth::Right::Work).unwrap_err();
        assert_eq!(
            (refusal.code, &refusal.detail["scope"]),
            (Code::Forbidden, &serde_json::json!("swarm:work"))
        );
    }

    #[test]
    fn old_tokens_hold_under_a_new_key_until_theirs_is_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let keys = Keys::load_or_create(dir.path()).unwrap();
        let elsewhere = Keys::load_or_create(dir.path()).unwrap();
        let old = keys.issue(claims(), NOW).unwrap();
        let change = |step| Keys::change(dir.path(), step).unwrap();

        // Everybody knows the next key before the first signs with it.
        let first = change(Rotation::Prepare);
        assert_eq!((first.len(), change(Rotation::Prepare)), (2, first.clone()));
        assert!(elsewhere.reload(dir.path()).unwrap() && !elsewhere.reload(dir.path()).unwrap());
        let turned = change(Rotation::Rotate);
        assert_eq!(turned, [first[1].clone(), first[0].clone()]);
        assert!(keys.reload(dir.path()).unwrap());
        let new = keys.issue(claims(), NOW).unwrap();
        for keys in [&keys, &elsewhere] {
            keys.verify(old.text(), NOW).unwrap();
            keys.verify(new.text(), NOW).unwrap();
        }
        // An old token ends when it says so.
        assert!(keys.verify(old.text(), NOW + Duration::from_secs(1000)).is_err());

        assert_eq!(change(Rotation::Retire), turned[..1]);
        keys.reload(dir.path()).unwrap();
        assert!(keys.verify(old.text(), NOW).is_err(), "also one that was verified before");
        keys.verify(new.text(), NOW).unwrap();
        assert_eq!(fs::metadata(KeyFile::path(dir.path())).unwrap().permissions().mode() & 0o777, 0o600);

        // A file that cannot be read changes nothing.
        fs::write(KeyFile::path(dir.path()), "{}").unwrap();
        assert!(keys.reload(dir.path()).is_err());
        keys.verify(new.text(), NOW).unwrap();
    }

    #[test]
    fn keys_do_not_pile_up() {
        let dir = tempfile::tempdir().unwrap();
        Keys::load_or_create(dir.path()).unwrap();
        let turned = (0..20).take_while(|_| Keys::change(dir.path(), Rotation::Rotate).is_ok()).count();
        assert!((5..10).contains(&turned), "{turned}");
        Keys::change(dir.path(), Rotation::Retire).unwrap();
        Keys::change(dir.path(), Rotation::Rotate).unwrap();
    }
}
