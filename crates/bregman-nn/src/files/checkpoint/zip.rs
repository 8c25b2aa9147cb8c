//! Just enough of the zip format for PyTorch's files, to read and to write: stored (uncompressed) members, found
//! through the central directory.

use std::ops::Range;

type Result<T> = std::result::Result<T, String>;

fn number<const N: usize>(bytes: &[u8], at: usize) -> Result<usize> {
    let field = at.checked_add(N).and_then(|end| bytes.get(at..end)).ok_or("zip archive is cut off")?;
    Ok(field.iter().rev().fold(0, |value, &byte| value << 8 | usize::from(byte)))
}

/// Names and the places of their contents.
pub(super) fn members(bytes: &[u8]) -> Result<Vec<(String, Range<usize>)>> {
    const END: &[u8] = b"PK\x05\x06";
    let tail = bytes.len().saturating_sub(22 + 65535);
    let end = bytes[tail..]
        .windows(4)
        .rposition(|window| window == END)
        .ok_or("zip archive without a directory: file cut off?")?
        + tail;
    let (count, mut at) = (number::<2>(bytes, end + 10)?, number::<4>(bytes, end + 16)?);
    if count == 0xFFFF || at == 0xFFFF_FFFF {
        return Err("zip archives over 4 GB are not supported: convert it to safetensors".to_owned());
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        if bytes.get(at..at + 4) != Some(b"PK\x01\x02") {
            return Err("zip directory is damaged".to_owned());
        }
        let [method, name_len, extra_len, comment_len] = [
            number::<2>(bytes, at + 10)?,
            number::<2>(bytes, at + 28)?,
            number::<2>(bytes, at + 30)?,
            number::<2>(bytes, at + 32)?,
        ];
        let (size, header) = (number::<4>(bytes, at + 20)?, number::<4>(bytes, at + 42)?);
        let name = bytes.get(at + 46..at + 46 + name_len).ok_or("zip directory is cut off")?;
        let name = String::from_utf8_lossy(name).into_owned();
        if method != 0 {
            return Err(format!("zip member {name} is compressed: PyTorch stores its tensors plainly"));
        }
        // the local header repeats name and extra field, the latter with another length
        let start = header + 30 + number::<2>(bytes, header + 26)? + number::<2>(bytes, header + 28)?;
        if start + size > bytes.len() {
            return Err(format!("zip member {name} is cut off"));
        }
        members.push((name, start..start + size));
        at += 46 + name_len + extra_len + comment_len;
    }
    Ok(members)
}

/// PyTorch maps values into memory where they begin at a multiple of this.
const ALIGNMENT: usize = 64;

/// An archive of these members, the contents of each aligned.
///
/// # Errors
/// More than 4 GB.
pub(super) fn archive(members: &[(String, &[u8])]) -> Result<Vec<u8>> {
    let (mut bytes, mut directory) = (Vec::new(), Vec::new());
    for (name, contents) in members {
        let header = u32::try_from(bytes.len()).map_err(|_| TOO_LARGE)?;
        let size = u32::try_from(contents.len()).map_err(|_| TOO_LARGE)?.to_le_bytes();
        // version 2.0, no flags, stored, no time; the rest of both headers is the same
        let [version, stored] = [[20, 0], [0, 0]];
        let common =
            [&version[..], &[0; 2], &stored, &[0; 4], &crc32fast::hash(contents).to_le_bytes(), &size, &size].concat();
        let name_length = (name.len() as u16).to_le_bytes();
        // an extra field of zeros moves the contents to an aligned place; its own header has 4 bytes
        let start = bytes.len() + 30 + name.len() + 4;
        let padding = start.next_multiple_of(ALIGNMENT) - start;
        bytes.extend([b"PK\x03\x04", &common[..], &name_length, &(padding as u16 + 4).to_le_bytes()].concat());
        bytes.extend(name.as_bytes());
        bytes.extend([b"FB", &(padding as u16).to_le_bytes()[..], &vec![0; padding]].concat());
        bytes.extend_from_slice(contents);
        directory
            .extend([b"PK\x01\x02", &version[..], &common, &name_length, &[0; 12], &header.to_le_bytes()].concat());
        directory.extend(name.as_bytes());
    }
    let at = u32::try_from(bytes.len()).map_err(|_| TOO_LARGE)?;
    let count = u16::try_from(members.len()).map_err(|_| "more than 65535 tensors")?.to_le_bytes();
    let size = (directory.len() as u32).to_le_bytes();
    bytes.extend(directory);
    bytes.extend([b"PK\x05\x06", &[0; 4][..], &count, &count, &size, &at.to_le_bytes(), &[0; 2]].concat());
    Ok(bytes)
}

const TOO_LARGE: &str = "more than 4 GB: write safetensors";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_read_as_it_was_written_with_aligned_contents() {
        let contents: [&[u8]; 3] = [b"", b"abc", &[7; 1000]];
        let written: Vec<(String, &[u8])> =
            contents.iter().enumerate().map(|(at, &contents)| (format!("folder/{at}"), contents)).collect();
        let bytes = archive(&written).unwrap();
        for ((name, place), (expected, contents)) in members(&bytes).unwrap().iter().zip(&written) {
            assert_eq!((name, &bytes[place.clone()], place.start % ALIGNMENT), (expected, *contents, 0));
        }
        assert_eq!(members(&bytes).unwrap().len(), 3);
    }
}
