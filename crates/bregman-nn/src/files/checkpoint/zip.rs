//! Just enough of the zip format for PyTorch's files: stored (uncompressed) members, found through the central
//! directory.

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
