//! The members of a tar shard, as names and byte ranges; only headers are read.

use std::io::{Read, Seek};
use std::ops::Range;
use std::path::Path;

use tar::Archive;

use crate::{Error, Result};

/// Scans the headers of a tar file of `length` bytes and returns `(name, place of the content)` of every regular
/// member.
pub(super) fn members(tar: impl Read + Seek, length: u64, path: &Path) -> Result<Vec<(String, Range<u64>)>> {
    let wrong = |error: std::io::Error| Error::format(path, format!("not a readable tar file: {error}"));
    let mut archive = Archive::new(tar);
    let mut found = Vec::new();
    for entry in archive.entries_with_seek().map_err(wrong)? {
        let entry = entry.map_err(wrong)?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let (start, size) = (entry.raw_file_position(), entry.size());
        let end = start.checked_add(size).filter(|&end| end <= length);
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        match end {
            Some(end) => found.push((name, start..end)),
            None => {
                return Err(Error::format(path, format!("the file ends in the middle of member '{name}'")));
            }
        }
    }
    Ok(found)
}

/// A tar header for a member: only what matters, the same for every run.
pub(super) fn header(size: usize) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size as u64);
    header.set_mode(0o644);
    header.set_mtime(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn members(bytes: &[u8], path: &Path) -> Result<Vec<(String, Range<u64>)>> {
        super::members(std::io::Cursor::new(bytes), bytes.len() as u64, path)
    }

    fn archive(files: &[(String, Vec<u8>)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in files {
            builder.append_data(&mut header(content.len()), name, &content[..]).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn a_truncated_shard_is_an_error_not_a_short_member() {
        let bytes = archive(&[("a.wav".into(), vec![1; 2000])]);
        assert_eq!(members(&bytes, Path::new("s.tar")).unwrap()[0].1, 512..2512);
        let message = members(&bytes[..1500], Path::new("s.tar")).unwrap_err().to_string();
        assert!(message.starts_with("s.tar: "), "{message}");
    }

    proptest! {
        #[test]
        fn packed_members_are_found(
            files in proptest::collection::vec(
                ("[a-z]{1,150}", proptest::collection::vec(any::<u8>(), 0..1500)),
                0..6,
            ),
        ) {
            let bytes = archive(&files);
            let found = members(&bytes, Path::new("s")).unwrap();
            let read = |range: std::ops::Range<u64>| bytes[range.start as usize..range.end as usize].to_vec();
            let found: Vec<_> = found.into_iter().map(|(name, range)| (name, read(range))).collect();
            prop_assert_eq!(found, files);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let _ = members(&bytes, Path::new("s"));
        }

        #[test]
        fn damaged_archives_never_panic(
            at in proptest::collection::vec((0usize..4096, any::<u8>()), 1..8),
            cut in 0usize..4096,
        ) {
            let long = "n".repeat(140);
            let mut bytes = archive(&[(long, vec![7; 600]), ("b.spk".into(), vec![1; 10])]);
            for (position, value) in at {
                if let Some(byte) = bytes.get_mut(position) {
                    *byte = value;
                }
            }
            bytes.truncate(cut.max(600));
            let _ = members(&bytes, Path::new("s"));
        }
    }
}
