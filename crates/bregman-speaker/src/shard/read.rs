//! Reading shards: ours by their index, other WebDataset or WeSpeaker shards by scanning the tar headers once.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bregman_audio::{Decoder, RATE};
use bregman_base::files::{Mmap, map};
use rayon::prelude::*;

use super::index::{self, INDEX, IndexEntry};
use super::tar::members;
use crate::manifest::names::AUDIO_EXTENSIONS;
use crate::manifest::{Interner, Manifest, Utterance};
use crate::source::{AudioSource, decode_range, unreadable};
use crate::{Error, Result};

/// A corpus in shards. Files are memory-mapped, so any cut of any utterance can be read in any order.
#[derive(Debug)]
pub struct ShardCorpus {
    manifest: Manifest,
    shards: Vec<Mmap>,
    locations: Vec<MemberLocation>,
}

/// Where the audio of an utterance is.
#[derive(Debug)]
struct MemberLocation {
    shard: usize,
    content: Range<usize>,
    extension: Arc<str>,
}

impl ShardCorpus {
    /// Whether a folder holds shards.
    pub fn is_at(folder: &Path) -> bool {
        let is_shard = |path: &Path| path.extension().is_some_and(|extension| extension == "tar");
        std::fs::read_dir(folder).is_ok_and(|files| files.flatten().any(|file| is_shard(&file.path())))
    }

    /// Opens a folder of shards.
    pub fn open(folder: &Path) -> Result<Self> {
        let entries = if folder.join(INDEX).exists() { index::read(folder)? } else { walk(folder)? };
        if entries.is_empty() {
            return Err(Error::Empty {
                path: folder.to_owned(),
                expected: "shards with KEY.spk and KEY.wav members".to_owned(),
            });
        }
        let (mut shards, mut numbers) = (Vec::new(), HashMap::new());
        let (mut utterances, mut locations) = (Vec::new(), Vec::new());
        let mut interner = Interner::default();
        for entry in entries {
            let path = folder.join(&*entry.shard);
            let shard = match numbers.get(&entry.shard) {
                Some(&known) => known,
                None => {
                    shards.push(map(&path)?);
                    numbers.insert(entry.shard.clone(), shards.len() - 1);
                    shards.len() - 1
                }
            };
            let end =
                entry.offset.checked_add(entry.bytes).filter(|&end| end <= shards[shard].len() as u64).ok_or_else(
                    || {
                        Error::format(
                            &path,
                            format!(
                                "'{}' lies beyond the end of the shard; delete {INDEX} to index the shards again",
                                entry.utterance
                            ),
                        )
                    },
                )?;
            locations.push(MemberLocation {
                shard,
                content: entry.offset as usize..end as usize,
                extension: interner.get(&entry.extension),
            });
            utterances.push(Utterance {
                id: entry.utterance,
                speaker: interner.get(&entry.speaker),
                path,
                seconds: Some(entry.seconds),
                session: entry.session.map(|text| interner.get(&text)),
                genre: entry.genre.map(|text| interner.get(&text)),
            });
        }
        Ok(Self { manifest: Manifest { utterances }, shards, locations })
    }
}

impl AudioSource for ShardCorpus {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let place = &self.locations[utterance];
        let bytes = &self.shards[place.shard][place.content.clone()];
        if let Some(samples) = plain_pcm(bytes) {
            let (start, end) = (range.start.min(samples.len() / 2), range.end.min(samples.len() / 2));
            let wanted = samples[2 * start..2 * end.max(start)].chunks_exact(2);
            out.extend(wanted.map(|pair| f32::from(i16::from_le_bytes([pair[0], pair[1]])) / 32768.0));
            return Ok(());
        }
        let decoded =
            Decoder::from_bytes(bytes, &place.extension).and_then(|decoder| decode_range(decoder, range, out));
        decoded.map_err(|error| {
            let utterance = &self.manifest.utterances[utterance];
            unreadable(&format!("{} in {}", utterance.id, utterance.path.display()), error)
        })
    }
}

/// The samples of a WAV file exactly as `bregman shard` writes it (16 kHz, mono, 16 bits): the common case, read
/// without a decoder.
fn plain_pcm(bytes: &[u8]) -> Option<&[u8]> {
    let (header, samples) = bytes.split_at_checked(44)?;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let plain = header.starts_with(b"RIFF")
        && &header[8..16] == b"WAVEfmt "
        && number(16) == 16
        && number(20) == 0x0001_0001 // PCM, one channel
        && number(24) == RATE
        && number(32) == 0x0010_0002 // 2-byte blocks, 16 bits
        && &header[36..40] == b"data";
    (plain && number(40) as usize == samples.len()).then_some(samples)
}

/// Indexes shards that have no index.
fn walk(folder: &Path) -> Result<Vec<IndexEntry>> {
    let mut paths = Vec::new();
    for file in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = file.map_err(Error::io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            paths.push(path);
        }
    }
    paths.sort();
    let entries: Vec<Vec<IndexEntry>> = paths.par_iter().map(|path| entries(path.as_path())).collect::<Result<_>>()?;
    Ok(entries.into_iter().flatten().collect())
}

fn entries(path: &Path) -> Result<Vec<IndexEntry>> {
    let bytes = map(path)?;
    let shard: Arc<str> = path.file_name().unwrap_or_default().to_string_lossy().into();
    let members = members(&bytes, path)?;
    let mut speakers: HashMap<&str, Arc<str>> = HashMap::new();
    for (name, range) in &members {
        if let Some((key, "spk" | "cls")) = split_key(name) {
            speakers.insert(key, String::from_utf8_lossy(&bytes[range.clone()]).trim().into());
        }
    }
    let mut entries = Vec::new();
    for (name, range) in &members {
        let Some((key, extension)) = split_key(name).filter(|(_, extension)| AUDIO_EXTENSIONS.contains(extension))
        else {
            continue;
        };
        let Some(speaker) = speakers.get(key) else {
            return Err(Error::format(path, format!("'{name}' has no speaker; expected a member '{key}.spk'")));
        };
        // A member that cannot be decoded stays in the list: reading it reports the error.
        let seconds = Decoder::from_bytes(&bytes[range.clone()], extension).ok().and_then(seconds).unwrap_or(0.0);
        entries.push(IndexEntry {
            utterance: key.to_owned(),
            speaker: speaker.clone(),
            seconds,
            session: None,
            genre: None,
            shard: shard.clone(),
            extension: extension.into(),
            offset: range.start as u64,
            bytes: range.len() as u64,
        });
    }
    Ok(entries)
}

fn seconds(mut decoder: Decoder<'_>) -> Option<f64> {
    let probe = decoder.probe();
    probe.seconds().or_else(|| {
        let mut samples = 0;
        while let Some(block) = decoder.next_block().ok()? {
            samples += block.len();
        }
        Some(samples as f64 / f64::from(probe.rate))
    })
}

/// Key and extension: the name up to the first dot of its last part, and the rest.
fn split_key(name: &str) -> Option<(&str, &str)> {
    let last = name.rfind('/').map_or(0, |slash| slash + 1);
    let dot = last + name[last..].find('.')?;
    Some((&name[..dot], &name[dot + 1..]))
}
