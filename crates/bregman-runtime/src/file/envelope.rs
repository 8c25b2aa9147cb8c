//! What all versions of the file have in common: how it begins, its version, and a checksum of what follows.

use super::NEWEST;
use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"bregman\n";
/// Bytes of magic, version and checksum.
pub(super) const LENGTH: usize = 16;

/// How a file begins.
pub(super) struct Start {
    pub(super) version: u32,
    sum: u32,
}

impl Start {
    /// From the first bytes of a file.
    pub(super) fn read(bytes: &[u8]) -> Result<Self> {
        if !bytes.starts_with(MAGIC) {
            return Err(Error::format("it does not begin as one (bregman export RUN -o model.breg makes one)"));
        }
        let [version, sum] = [word(bytes, 8)?, word(bytes, 12)?];
        if !(1..=NEWEST).contains(&version) {
            return Err(Error::Version { found: version, newest: NEWEST });
        }
        Ok(Self { version, sum })
    }

    /// Whether what follows has the checksum that it should have.
    pub(super) fn check(&self, sum: u32) -> Result<()> {
        if sum == self.sum {
            return Ok(());
        }
        Err(Error::format("its content does not match its checksum: it was cut off or altered"))
    }
}

/// The bytes of a file of this version.
pub(super) fn file(version: u32, body: &[u8]) -> Vec<u8> {
    let sum = crc32fast::hash(body);
    [MAGIC.as_slice(), &version.to_le_bytes(), &sum.to_le_bytes(), body].concat()
}

/// That the file ends too early.
pub(super) fn cut() -> Error {
    Error::format("it was cut off")
}

fn word(bytes: &[u8], at: usize) -> Result<u32> {
    let word = bytes.get(at..at + 4).ok_or_else(cut)?;
    Ok(u32::from_le_bytes(word.try_into().expect("four bytes")))
}
