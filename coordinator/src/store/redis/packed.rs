//! Long texts in fewer bytes. What a commit carries costs Redis by the byte: its Lua hashes each of them, and its log has
//! them all.
//!
//! A short text stays what it is. A long one is a block of LZ4 behind its length, behind a byte with which no JSON begins.

use std::borrow::Cow;

use lz4_flex::block::{compress_prepend_size, decompress, uncompressed_size};

use super::connection::at;
use crate::store::StoreError;

/// The byte in front of what is packed.
const PACKED: u8 = 1;
/// Texts below this stay readable: of a few hundred bytes little repeats.
const SHORT: usize = 512;
/// A block of LZ4 says no more than this many bytes with each of its own.
const MOST_A_BYTE: usize = 255;

/// Packs the bytes from a place on, where that makes them fewer.
pub(super) fn pack(bytes: &mut Vec<u8>, begin: usize) {
    let text = &bytes[begin..];
    if text.len() < SHORT {
        return;
    }
    let block = compress_prepend_size(text);
    if block.len() + 1 < text.len() {
        bytes.truncate(begin);
        bytes.push(PACKED);
        bytes.extend_from_slice(&block);
    }
}

/// The text that a key has packed, or as it is.
///
/// # Errors
/// When it is neither.
pub(super) fn unpack<'a>(key: &str, kept: &'a [u8]) -> Result<Cow<'a, str>, StoreError> {
    let none = || at(key, &"it holds something else than a text where one belongs; restore it from a copy");
    let Some(block) = kept.strip_prefix(&[PACKED]) else {
        return std::str::from_utf8(kept).map(Cow::Borrowed).map_err(|_| none());
    };
    let (length, block) = uncompressed_size(block).map_err(|_| none())?;
    if length > block.len().saturating_mul(MOST_A_BYTE) {
        return Err(none());
    }
    let text = decompress(block, length).map_err(|_| none())?;
    String::from_utf8(text).map(Cow::Owned).map_err(|_| none())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packed(text: &str) -> Vec<u8> {
        let mut bytes = b"before ".to_vec();
        pack_behind(&mut bytes, text);
        bytes.split_off(7)
    }

    fn pack_behind(bytes: &mut Vec<u8>, text: &str) {
        let begin = bytes.len();
        bytes.extend_from_slice(text.as_bytes());
        pack(bytes, begin);
    }

    #[test]
    fn what_repeats_takes_few_bytes_and_what_is_short_stays_readable() {
        let long = "[{\"task\":\"the same again\"}]".repeat(100);
        assert!(packed(&long).len() * 10 < long.len());
        assert_eq!(unpack("key", &packed(&long)).unwrap(), long);
        assert_eq!(packed("[1]"), b"[1]");
        assert_eq!(unpack("key", b"[1]").unwrap(), "[1]");
    }

    #[test]
    fn what_is_no_text_is_told_with_its_key() {
        let mut cut = packed(&"[1]".repeat(1000));
        cut.truncate(cut.len() / 2);
        // A length that nothing of so few bytes has.
        let vast = [&[PACKED][..], &u32::MAX.to_le_bytes(), b"\x10a"].concat();
        let binary = [&[PACKED][..], &compress_prepend_size(&[0xff; 2000])].concat();
        for garbage in [&cut[..], &vast, &binary, &[PACKED], &[PACKED, 0, 0], b"\xff"] {
            let StoreError(told) = unpack("{skein}:s1:events", garbage).unwrap_err();
            assert!(told.contains("{skein}:s1:events"), "{told}");
        }
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in ".{0,40}", times in 0..200_usize) {
            let text = text.repeat(times);
            let packed = packed(&text);
            prop_assert_eq!(unpack("key", &packed).unwrap(), text);
        }

        #[test]
        fn no_bytes_crash(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = unpack("key", &[&[PACKED][..], &bytes].concat());
        }
    }
}
