//! FNV-1a (Fowler, Noll and Vo): a fixed number for a text (64 bits) or for the content of a file (128 bits), on every
//! machine and in every version.

use std::fmt;

/// A 64-bit hash that grows with everything written to it, as text or as bytes.
#[derive(Debug, Clone, Copy)]
pub struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Takes in some bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |state, &byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    }

    /// The hash of everything so far.
    pub fn finish(self) -> u64 {
        self.0
    }
}

impl fmt::Write for Fnv {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.add(text.as_bytes());
        Ok(())
    }
}

/// The hash of one text.
pub fn fnv(text: &str) -> u64 {
    let mut hash = Fnv::default();
    hash.add(text.as_bytes());
    hash.finish()
}

/// The 128-bit hash of some content: what an embedding is remembered by. Among a billion files no two are expected to
/// share one.
///
/// ```
/// # use bregman_base::hash::content_hash;
/// assert_ne!(content_hash([&b"one"[..]]), content_hash([&b"two"[..]]));
/// ```
pub fn content_hash<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> u128 {
    let mut hash = ContentHash::default();
    parts.into_iter().for_each(|part| hash.add(part));
    hash.finish()
}

/// [`content_hash`] of content that comes piece by piece.
#[derive(Debug, Clone, Copy)]
pub struct ContentHash(u128);

impl Default for ContentHash {
    fn default() -> Self {
        Self(0x6C62_272E_07BB_0142_62B8_2175_6295_C58D)
    }
}

impl ContentHash {
    /// Takes in some bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        const PRIME: u128 = 0x0100_0000_0000_0000_0000_013B;
        self.0 = bytes.iter().fold(self.0, |state, &byte| (state ^ u128::from(byte)).wrapping_mul(PRIME));
    }

    /// The hash of everything so far.
    pub fn finish(self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values_never_change() {
        assert_eq!(
            (fnv(""), fnv("a"), fnv("foobar")),
            (0xcbf2_9ce4_8422_2325, 0xaf63_dc4c_8601_ec8c, 0x8594_4171_f739_67e8)
        );
        let wide = [&b""[..], b"a", b"foobar"].map(|text| content_hash([text]));
        assert_eq!(wide[0], 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(wide[1], 0xd228_cb69_6f1a_8caf_7891_2b70_4e4a_8964);
        assert_eq!(wide[2], 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

    #[test]
    fn pieces_hash_as_the_whole() {
        use fmt::Write;
        let mut hash = Fnv::default();
        write!(hash, "foo{:?}", 7).unwrap();
        assert_eq!(hash.finish(), fnv("foo7"));
        assert_eq!(content_hash([&b"foo"[..], b"bar"]), content_hash([&b"foobar"[..]]));
    }
}
