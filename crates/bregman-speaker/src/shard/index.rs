//! `index.csv` of a shard folder: the manifest columns, with the shard's name, and offset and size of the audio member.

use std::path::{Component, Path};
use std::sync::Arc;

use bregman_base::files::{ShortLines, open_regular, read_text, write_file};
use serde::{Deserialize, Serialize};

use crate::files::write_whole;
use crate::{Error, Result};

pub(super) const INDEX: &str = "index.csv";

/// What stands in its place while shards are being written, with what they will hold.
const UNFINISHED: &str = "unfinished";

/// One utterance in a shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct IndexEntry {
    pub(super) utterance: String,
    pub(super) speaker: Arc<str>,
    pub(super) seconds: f64,
    pub(super) session: Option<Arc<str>>,
    pub(super) genre: Option<Arc<str>>,
    pub(super) shard: Arc<str>,
    pub(super) extension: Arc<str>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

/// The mark of a folder whose shards are not all there yet; `fingerprint` is that of what they will hold.
pub(super) fn mark(fingerprint: u64) -> String {
    format!("{UNFINISHED} {fingerprint:016x}\n")
}

/// Puts the mark into a folder.
pub(super) fn begin(folder: &Path, mark: &str) -> Result<()> {
    Ok(write_file(&folder.join(INDEX), mark)?)
}

/// The mark of a folder in which a `bregman shard` is at work, or was stopped.
pub(super) fn unfinished(folder: &Path) -> Option<String> {
    // an index is longer
    let text = read_text(&folder.join(INDEX), mark(0).len() as u64).ok()?;
    text.starts_with(UNFINISHED).then_some(text)
}

pub(super) fn write(folder: &Path, entries: &[IndexEntry], force: bool) -> Result<()> {
    let path = folder.join(INDEX);
    let wrong = |error: csv::Error| Error::format(&path, error.to_string());
    write_whole(&path, force, |writer| {
        let mut csv = csv::Writer::from_writer(writer);
        entries.iter().try_for_each(|entry| csv.serialize(entry)).map_err(wrong)?;
        csv.flush().map_err(Error::io(&path))
    })
}

pub(super) fn read(folder: &Path) -> Result<Vec<IndexEntry>> {
    let path = folder.join(INDEX);
    if unfinished(folder).is_some() {
        let problem = "`bregman shard` is at work here, or was stopped: give its command again to finish the shards";
        return Err(Error::format(&path, problem));
    }
    parse(ShortLines::new(open_regular(&path)?), &path)
}

fn parse(reader: impl std::io::Read, path: &Path) -> Result<Vec<IndexEntry>> {
    let mut csv = csv::Reader::from_reader(reader);
    let mut entries = Vec::new();
    for entry in csv.deserialize() {
        let entry: IndexEntry = entry.map_err(|error| {
            let line = error.position().map_or(0, csv::Position::line);
            Error::line(path, line, format!("not a shard index ({error}); delete it to index the shards again"))
        })?;
        if !entry.seconds.is_finite() || entry.seconds < 0.0 {
            return Err(Error::format(path, format!("utterance '{}': seconds = {}", entry.utterance, entry.seconds)));
        }
        let mut parts = Path::new(&*entry.shard).components();
        if !matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None)) {
            let problem = format!("shard '{}': expected the name of a file in this folder", entry.shard);
            return Err(Error::format(path, problem));
        }
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_index_names_no_file_outside_of_its_folder() {
        for outside in ["../00000.tar", "/etc/passwd", "a/00000.tar", "..", "", "."] {
            let row = format!("u,s,1.0,,,{outside},wav,0,0\n");
            let text = format!("utterance,speaker,seconds,session,genre,shard,extension,offset,bytes\n{row}");
            let message = parse(text.as_bytes(), Path::new("index.csv")).unwrap_err().to_string();
            assert!(message.contains(&format!("index.csv: shard '{outside}'")), "{message}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            with_header in any::<bool>(),
        ) {
            let header = &b"utterance,speaker,seconds,session,genre,shard,extension,offset,bytes\n"[..];
            let mut text = if with_header { header.to_vec() } else { Vec::new() };
            text.extend(bytes);
            let _ = parse(&text[..], Path::new("index.csv"));
        }
    }
}
