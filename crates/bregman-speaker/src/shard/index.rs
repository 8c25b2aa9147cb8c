//! `index.csv` of a shard folder: the manifest columns, with the shard's name, and offset and size of the audio member.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use bregman_base::files::write_file;
use serde::{Deserialize, Serialize};

use crate::files::write_whole;
use crate::{Error, Result};

pub(super) const INDEX: &str = "index.csv";

/// What stands in its place while shards are being written.
const UNFINISHED: &str = "unfinished\n";

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

/// Marks a folder whose shards are not all there yet.
pub(super) fn begin(folder: &Path) -> Result<()> {
    Ok(write_file(&folder.join(INDEX), UNFINISHED)?)
}

/// Whether a `bregman shard` is at work in the folder, or was stopped there.
pub(super) fn is_unfinished(folder: &Path) -> bool {
    let path = folder.join(INDEX);
    // an index may be large: most are told by their size
    path.metadata().is_ok_and(|data| data.len() == UNFINISHED.len() as u64)
        && std::fs::read(path).is_ok_and(|text| text == UNFINISHED.as_bytes())
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
    if is_unfinished(folder) {
        let problem = "`bregman shard` is at work here, or was stopped: give its command again to finish the shards";
        return Err(Error::format(&path, problem));
    }
    parse(File::open(&path).map_err(Error::io(&path))?, &path)
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
        entries.push(entry);
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
