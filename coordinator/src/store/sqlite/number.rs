//! Unsigned numbers in SQLite's signed columns. The order is kept, and "never" stays "never".

/// What lies above the signed range is stored as its greatest value.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The greatest signed value stands for [`u64::MAX`], as in [`skein_shared::time::Timestamp::NEVER`].
pub(crate) fn unsigned(number: i64) -> u64 {
    match number {
        i64::MAX => u64::MAX,
        number => u64::try_from(number).unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_never_are_kept() {
        for number in [0, 1, 1_790_000_000_000, u64::MAX] {
            assert_eq!(unsigned(signed(number)), number);
        }
        assert!(signed(u64::MAX) > signed(1_790_000_000_000));
    }
}
