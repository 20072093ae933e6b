//! Access tokens: JWTs signed with Ed25519, short-lived, each bound to one agent, role and swarm.
//!
//! The keys lie in the data directory with the mode 0600. The first key signs; all of them verify, so a key
//! is replaced by putting a new one in front and taking the old one out when its last token has ended.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use ring::signature::{Ed25519KeyPair, KeyPair};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use skein_shared::id::{InstanceId, Name};
use skein_shared::time::Timestamp;
use skein_shared::{Code, Refusal};
use uuid::Uuid;

use super::principal::{Principal, Role, View};
use super::verified::Verified;

/// Who issued the token and whom it is for: Skein speaks to itself here.
pub const AUDIENCE: &str = "skein";
const FILE: &str = "keys.json";
/// Clocks of two coordinators may differ by this much.
const LEEWAY: Duration = Duration::from_secs(30);

/// Signs and verifies. Cheap to clone.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
}

struct Inner {
    current: String,
    signing: EncodingKey,
    verifying: HashMap<String, DecodingKey>,
    verified: Verified<Known>,
}

/// What a token with a good signature says.
#[derive(Debug)]
struct Known {
    who: Principal,
    /// Seconds.
    issued: u64,
    expires: u64,
}

/// Shows which key signs and never a key.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("current", &self.inner.current).finish_non_exhaustive()
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
    jti: Uuid,
    iat: u64,
    exp: u64,
}

#[derive(Serialize, Deserialize)]
struct KeyFile {
    /// PKCS#8 documents in base64, the signing key first.
    ed25519: Vec<String>,
}

impl Keys {
    /// Reads the keys of a data directory, and makes them at the first start.
    ///
    /// # Errors
    /// When the file cannot be read or written, holds no usable key, or can be read by others.
    pub fn load_or_create(dir: &Path) -> io::Result<Self> {
        let path = dir.join(FILE);
        match File::open(&path) {
            Ok(file) => Self::read(&path, file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Self::create(dir, &path),
            Err(error) => Err(error),
        }
    }

    /// Takes over the keys that came with a node's certificate, unless the data directory has some already.
    ///
    /// # Errors
    /// When they cannot be read or written.
    pub fn adopt(dir: &Path, from: &Path) -> io::Result<()> {
        let (path, source) = (dir.join(FILE), from.join(FILE));
        if path.exists() || !source.exists() {
            return Ok(());
        }
        let text = fs::read_to_string(&source)?;
        // Checked before they are taken: what is there is kept for good.
        Self::parse(&source, &text)?;
        Self::put(dir, &path, text.as_bytes())
    }

    /// Keys that live as long as the process, for tests and demonstrations.
    ///
    /// # Errors
    /// When the system has no randomness.
    pub fn ephemeral() -> io::Result<Self> {
        Self::assemble(&[generate()?])
    }

    /// Signs a token.
    ///
    /// # Errors
    /// `internal` when signing fails.
    pub fn issue(&self, claims: Claims, now: Timestamp) -> Result<Issued, Refusal> {
        let id = Uuid::now_v7();
        let expires_at = now + claims.lifetime;
        let wire = Wire {
            aud: AUDIENCE.to_owned(),
            sub: claims.agent,
            name: claims.agent_name,
            swarm: claims.swarm,
            role: claims.role,
            view: claims.view,
            instance: claims.instance,
            jti: id,
            iat: now.millis() / 1000,
            exp: expires_at.millis() / 1000,
        };
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(self.inner.current.clone());
        let text = jsonwebtoken::encode(&header, &wire, &self.inner.signing)
            .map_err(|_| Refusal::new(Code::Internal, "the token could not be signed"))?;
        Ok(Issued { text, id, expires_at })
    }

    /// Says who holds the token.
    ///
    /// # Errors
    /// `unauthenticated`, with the reason and never with any part of the token.
    pub fn verify(&self, text: &str, now: Timestamp) -> Result<Principal, Refusal> {
        let known = self.inner.verified.get_or_check(text, || self.check(text))?;
        let seconds = now.millis() / 1000;
        if seconds > known.expires.saturating_add(LEEWAY.as_secs()) {
            return Err(refuse("the token has expired"));
        }
        if known.issued > seconds.saturating_add(LEEWAY.as_secs()) {
            return Err(refuse("the token was issued in the future; check the clocks"));
        }
        Ok(known.who.clone())
    }

    /// Checks the signature, and nothing that changes with time.
    fn check(&self, text: &str) -> Result<Known, Refusal> {
        let header = jsonwebtoken::decode_header(text).map_err(|_| refuse("the token is not a JWT"))?;
        let key =
            header.kid.as_ref().and_then(|kid| self.inner.verifying.get(kid)).ok_or_else(|| {
                refuse("the token was signed with a key that this coordinator does not have")
            })?;
        let wire =
            jsonwebtoken::decode::<Wire>(text, key, &rules()).map_err(|error| refuse(reason(&error)))?;
        let claims = wire.claims;
        let managed = claims.instance.is_some();
        let who = Principal {
            swarm: claims.swarm,
            agent: claims.sub,
            agent_name: claims.name,
            instance: claims.instance.unwrap_or_else(|| InstanceId(claims.jti.to_string())),
            managed,
            role: claims.role,
            view: claims.view,
        };
        Ok(Known { who, issued: claims.iat, expires: claims.exp })
    }

    fn read(path: &Path, mut file: File) -> io::Result<Self> {
        if file.metadata()?.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} can be read by others; set its mode to 0600", path.display()),
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> io::Result<Self> {
        let broken =
            || io::Error::new(io::ErrorKind::InvalidData, format!("{} holds no keys", path.display()));
        let keys: KeyFile = serde_json::from_str(text).map_err(|_| broken())?;
        let documents: Vec<Vec<u8>> = keys
            .ed25519
            .iter()
            .map(|key| STANDARD.decode(key).map_err(|_| broken()))
            .collect::<Result<_, _>>()?;
        Self::assemble(&documents)
    }

    fn create(dir: &Path, path: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        let document = generate()?;
        let keys = KeyFile { ed25519: vec![STANDARD.encode(&document)] };
        Self::put(dir, path, &serde_json::to_vec_pretty(&keys)?)?;
        Self::read(path, File::open(path)?)
    }

    /// Writes beside the target and links it in: of two starts at once one wins and both use its keys.
    fn put(dir: &Path, path: &Path, content: &[u8]) -> io::Result<()> {
        let draft = dir.join(format!("{FILE}.{}", Uuid::now_v7()));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(content)?;
        file.sync_all()?;
        let linked = fs::hard_link(&draft, path);
        fs::remove_file(&draft)?;
        match linked {
            Ok(()) => File::open(dir)?.sync_all(),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn assemble(documents: &[Vec<u8>]) -> io::Result<Self> {
        let unusable = || io::Error::new(io::ErrorKind::InvalidData, "a signing key cannot be used");
        let mut verifying = HashMap::new();
        let mut current = None;
        for document in documents {
            let pair = Ed25519KeyPair::from_pkcs8(document).map_err(|_| unusable())?;
            let public = pair.public_key().as_ref();
            let id = URL_SAFE_NO_PAD.encode(&Sha256::digest(public)[..9]);
            verifying.insert(id.clone(), DecodingKey::from_ed_der(public));
            current.get_or_insert((id, EncodingKey::from_ed_der(document)));
        }
        let (current, signing) = current.ok_or_else(unusable)?;
        Ok(Self { inner: Arc::new(Inner { current, signing, verifying, verified: Verified::default() }) })
    }
}

fn generate() -> io::Result<Vec<u8>> {
    let document = Ed25519KeyPair::generate_pkcs8(&ring::rand::SystemRandom::new())
        .map_err(|_| io::Error::other("the system gave no randomness for a signing key"))?;
    Ok(document.as_ref().to_vec())
}

/// Times are compared with the caller's clock in [`Keys::verify`], not with the library's.
fn rules() -> Validation {
    let mut rules = Validation::new(Algorithm::EdDSA);
    rules.set_audience(&[AUDIENCE]);
    rules.set_required_spec_claims(&["aud", "sub", "exp"]);
    rules.validate_exp = false;
    rules
}

fn reason(error: &jsonwebtoken::errors::Error) -> &'static str {
    use jsonwebtoken::errors::ErrorKind;
    match error.kind() {
        ErrorKind::InvalidSignature => "the token's signature does not fit",
        ErrorKind::InvalidAudience => "the token is meant for another service",
        ErrorKind::InvalidAlgorithm => "the token is signed by an algorithm that is not taken",
        ErrorKind::MissingRequiredClaim(_) | ErrorKind::Json(_) => "the token lacks claims that Skein needs",
        _ => "the token is not valid",
    }
}

fn refuse(reason: &str) -> Refusal {
    Refusal::new(
        Code::Unauthenticated,
        format!("{reason}; ask the operator for a new one (`skein token issue`)"),
    )
}

#[cfg(test)]
mod tests {
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

        let path = dir.path().join(FILE);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(Keys::load_or_create(dir.path()).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_key_is_replaced_by_a_new_one_in_front_and_its_tokens_hold_until_it_is_taken_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let before = Keys::load_or_create(dir.path()).unwrap();
        let old = before.issue(claims(), NOW).unwrap();
        let mut file: KeyFile = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let mut with = |change: fn(&mut Vec<String>)| {
            change(&mut file.ed25519);
            fs::write(&path, serde_json::to_vec(&file).unwrap()).unwrap();
            Keys::load_or_create(dir.path()).unwrap()
        };

        let both = with(|keys| keys.insert(0, STANDARD.encode(generate().unwrap())));
        let new = both.issue(claims(), NOW).unwrap();
        assert!(both.verify(old.text(), NOW).is_ok() && both.verify(new.text(), NOW).is_ok());
        assert_eq!(before.verify(new.text(), NOW).unwrap_err().code, Code::Unauthenticated);

        let after = with(|keys| keys.truncate(1));
        assert!(after.verify(new.text(), NOW).is_ok());
        assert_eq!(after.verify(old.text(), NOW).unwrap_err().code, Code::Unauthenticated);
    }
}
