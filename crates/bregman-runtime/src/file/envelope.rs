//! What all versions of the file have in common: how it begins, its version, and a checksum of what follows.

use crate::{Error, Result};

const MAGIC: &[u8; 8] = b"bregman\n";
/// Magic, version and checksum.
const LENGTH: usize = 16;

/// The version that a file says it has.
pub(super) fn version(bytes: &[u8]) -> Result<u32> {
    if !bytes.starts_with(MAGIC) {
        return Err(Error::format("it does not begin as one (bregman export RUN -o model.breg makes one)"));
    }
    word(bytes, 8)
}

/// What follows the checksum, if it is what the checksum says.
pub(super) fn body(bytes: &[u8]) -> Result<&[u8]> {
    let (sum, body) = (word(bytes, 12)?, &bytes[LENGTH..]);
    if crc32fast::hash(body) != sum {
        return Err(Error::format("its content does not match its checksum: it was cut off or altered"));
    }
    Ok(body)
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
