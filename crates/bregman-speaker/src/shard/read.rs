//! Reading shards: ours by their index, other WebDataset or WeSpeaker shards by scanning the tar headers once.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_audio::{Decoder, RATE};
use bregman_base::files::PartsFile;
use rayon::prelude::*;

use super::index::{self, INDEX, IndexEntry};
use super::tar::members;
use crate::manifest::names::AUDIO_EXTENSIONS;
use crate::manifest::{Interner, Manifest, Utterance};
use crate::source::{AudioSource, decode_range, unreadable};
use crate::{Error, Result};

/// Shards that stay open; others are opened for each cut. A process may have 1024 open files on most systems.
const OPEN: usize = 256;

/// Bytes before the samples of a WAV file as `bregman shard` writes it.
const WAV_HEADER: usize = 44;

/// A corpus in shards: any cut of any utterance can be read in any order, from any thread.
#[derive(Debug)]
pub struct ShardCorpus {
    manifest: Manifest,
    shards: Vec<Shard>,
    locations: Vec<MemberLocation>,
}

#[derive(Debug)]
struct Shard {
    path: PathBuf,
    length: u64,
    file: Option<PartsFile>,
}

impl Shard {
    fn open(path: PathBuf, kept: bool) -> Result<Self> {
        let file = PartsFile::open(&path)?;
        Ok(Self { path, length: file.length()?, file: kept.then_some(file) })
    }

    /// A shard that was cut off since it was opened is an error, not an utterance to be skipped.
    fn read(&self, at: u64, length: usize) -> Result<Vec<u8>> {
        Ok(match &self.file {
            Some(file) => file.read(at, length)?,
            None => PartsFile::open(&self.path)?.read(at, length)?,
        })
    }
}

/// Where the audio of an utterance is.
#[derive(Debug)]
struct MemberLocation {
    shard: usize,
    content: Range<u64>,
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
                    shards.push(Shard::open(path.clone(), shards.len() < OPEN)?);
                    numbers.insert(entry.shard.clone(), shards.len() - 1);
                    shards.len() - 1
                }
            };
            let end =
                entry.offset.checked_add(entry.bytes).filter(|&end| end <= shards[shard].length).ok_or_else(|| {
                    Error::format(
                        &path,
                        format!(
                            "'{}' lies beyond the end of the shard; delete {INDEX} to index the shards again",
                            entry.utterance
                        ),
                    )
                })?;
            locations.push(MemberLocation {
                shard,
                content: entry.offset..end,
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
        let (shard, length) = (&self.shards[place.shard], (place.content.end - place.content.start) as usize);
        let header = shard.read(place.content.start, WAV_HEADER.min(length))?;
        if let Some(samples) = plain_pcm(&header, length) {
            let (start, end) = (range.start.min(samples), range.end.min(samples));
            let first = place.content.start + (WAV_HEADER + 2 * start) as u64;
            let wanted = shard.read(first, 2 * (end.max(start) - start))?;
            let samples = wanted.as_chunks().0.iter().map(|&pair| f32::from(i16::from_le_bytes(pair)) / 32768.0);
            out.extend(samples);
            return Ok(());
        }
        let bytes = shard.read(place.content.start, length)?;
        let decoded =
            Decoder::from_bytes(&bytes, &place.extension).and_then(|decoder| decode_range(decoder, range, out));
        decoded.map_err(|error| {
            let utterance = &self.manifest.utterances[utterance];
            unreadable(&format!("{} in {}", utterance.id, utterance.path.display()), error)
        })
    }
}

/// How many samples are in a WAV file of `length` bytes, if it is one exactly as `bregman shard` writes it (16 kHz,
/// mono, 16 bits): the common case, read without a decoder.
fn plain_pcm(header: &[u8], length: usize) -> Option<usize> {
    let header: &[u8; WAV_HEADER] = header.try_into().ok()?;
    let samples = length - WAV_HEADER;
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let plain = header.starts_with(b"RIFF")
        && &header[8..16] == b"WAVEfmt "
        && number(16) == 16
        && number(20) == 0x0001_0001 // PCM, one channel
        && number(24) == RATE
        && number(32) == 0x0010_0002 // 2-byte blocks, 16 bits
        && &header[36..40] == b"data";
    (plain && number(40) as usize == samples).then_some(samples / 2)
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
    let file = PartsFile::open(path)?;
    let shard: Arc<str> = path.file_name().unwrap_or_default().to_string_lossy().into();
    let members = members(file.file(), file.length()?, path)?;
    let content = |range: &Range<u64>| file.read(range.start, (range.end - range.start) as usize);
    let mut speakers: HashMap<&str, Arc<str>> = HashMap::new();
    for (name, range) in &members {
        if let Some((key, "spk" | "cls")) = split_key(name) {
            speakers.insert(key, String::from_utf8_lossy(&content(range)?).trim().into());
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
        let seconds = Decoder::from_bytes(&content(range)?, extension).ok().and_then(seconds).unwrap_or(0.0);
        entries.push(IndexEntry {
            utterance: key.to_owned(),
            speaker: speaker.clone(),
            seconds,
            session: None,
            genre: None,
            shard: shard.clone(),
            extension: extension.into(),
            offset: range.start,
            bytes: range.end - range.start,
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
