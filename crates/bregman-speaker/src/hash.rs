//! FNV-1a, 64 bits: a fixed number for a text, on every machine and in every version.

use std::fmt;

/// A hash that grows with everything written to it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xCBF2_9CE4_8422_2325)
    }
}

impl Fnv {
    /// The hash of everything so far.
    pub(crate) fn finish(self) -> u64 {
        self.0
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = text.bytes().fold(self.0, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3));
        Ok(())
    }
}

/// The hash of one text.
pub(crate) fn hash(text: &str) -> u64 {
    let mut fnv = Fnv::default();
    let _ = fmt::Write::write_str(&mut fnv, text); // cannot fail
    fnv.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_never_change() {
        assert_eq!((hash(""), hash("a"), hash("foobar")), (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8));
    }
}
