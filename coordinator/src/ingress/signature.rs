//! Whether a request was signed with a source's secret. All comparisons take constant time.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use ring::signature::{ED25519, UnparsedPublicKey};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// Bytes of an HMAC-SHA256.
const DIGEST: usize = 32;
/// Bytes of an Ed25519 key and signature.
const PUBLIC_KEY: usize = 32;
const ED25519_SIGNATURE: usize = 64;

/// Checks an HMAC-SHA256 of the parts, in hexadecimal digits.
pub(super) fn hex_hmac(secret: &[u8], parts: &[&[u8]], signature: &str) -> bool {
    bytes::<DIGEST>(signature).is_some_and(|signature| holds(secret, parts, &signature))
}

/// Checks an HMAC-SHA256 of the parts, in base64.
pub(super) fn base64_hmac(secret: &[u8], parts: &[&[u8]], signature: &str) -> bool {
    STANDARD.decode(signature).is_ok_and(|signature| holds(secret, parts, &signature))
}

/// The HMAC-SHA256 of a message, in base64.
pub(super) fn base64_of(secret: &[u8], message: &[u8]) -> Option<String> {
    Some(STANDARD.encode(keyed(secret, &[message])?.finalize().into_bytes()))
}

/// Whether both are the same. Neither the place of a difference nor the length of the secret shows in the time.
pub(super) fn is_secret(secret: &[u8], given: &[u8]) -> bool {
    Sha256::digest(secret).ct_eq(&Sha256::digest(given)).into()
}

/// What tells a message from all others.
pub(super) fn digest(message: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(message))
}

/// Checks an Ed25519 signature; key and signature are in hexadecimal digits.
pub(super) fn ed25519(public_key: &str, message: &[u8], signature: &str) -> bool {
    let (Some(key), Some(signature)) =
        (bytes::<PUBLIC_KEY>(public_key), bytes::<ED25519_SIGNATURE>(signature))
    else {
        return false;
    };
    UnparsedPublicKey::new(&ED25519, key).verify(message, &signature).is_ok()
}

fn holds(secret: &[u8], parts: &[&[u8]], signature: &[u8]) -> bool {
    keyed(secret, parts).is_some_and(|mac| mac.verify_slice(signature).is_ok())
}

fn keyed(secret: &[u8], parts: &[&[u8]]) -> Option<Hmac<Sha256>> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).ok()?;
    parts.iter().for_each(|part| mac.update(part));
    Some(mac)
}

/// Exactly so many bytes in hexadecimal digits.
fn bytes<const LENGTH: usize>(hex: &str) -> Option<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    if hex.len() != 2 * LENGTH {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks_exact(2)) {
        let digit = |letter: u8| char::from(letter).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair};

    use super::*;

    /// The example of GitHub's documentation on validating deliveries.
    const GITHUB: &str = "757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";

    #[test]
    fn digests_in_hexadecimal_verify() {
        let secret = b"It's a Secret to Everybody";
        let check = |signature: &str| hex_hmac(secret, &[b"Hello, ", b"World!"], signature);
        assert!(check(GITHUB) && check(&GITHUB.to_uppercase()));
        assert!(!hex_hmac(secret, &[b"Hello, World?"], GITHUB));
        assert!(!hex_hmac(b"other", &[b"Hello, World!"], GITHUB));
        for wrong in
            ["", "é", "sha256=", &GITHUB[2..], &GITHUB.replacen('7', "g", 1), &GITHUB.replacen('7', "8", 1)]
        {
            assert!(!check(wrong), "{wrong}");
        }
    }

    #[test]
    fn digests_in_base64_verify() {
        let made = base64_of(b"hush", b"token").unwrap();
        assert!(base64_hmac(b"hush", &[b"to", b"ken"], &made));
        for wrong in ["", "é", "AAAA", &made[1..], &made.to_lowercase()] {
            assert!(!base64_hmac(b"hush", &[b"token"], wrong), "{wrong}");
        }
    }

    #[test]
    fn secrets_compare_whole() {
        assert!(is_secret(b"hush", b"hush") && is_secret(b"", b""));
        for wrong in [&b""[..], b"hus", b"hushh", b"Hush"] {
            assert!(!is_secret(b"hush", wrong));
        }
    }

    #[test]
    fn a_signature_of_another_key_message_or_form_fails() {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
        let other = Ed25519KeyPair::from_seed_unchecked(&[8; 32]).unwrap();
        let (key, signature) = (hex(pair.public_key().as_ref()), hex(pair.sign(b"message").as_ref()));
        assert!(ed25519(&key, b"message", &signature));
        assert!(!ed25519(&key, b"massage", &signature));
        assert!(!ed25519(&hex(other.public_key().as_ref()), b"message", &signature));
        assert!(!ed25519(&key, b"message", &signature[2..]) && !ed25519("", b"message", &signature));
    }
}
