//! Packing a corpus into shards, in parallel, one shard per task.
//!
//! An index is never valid over other shards than its own: the shards of a folder that has one are replaced under other
//! names, then the index, then the old shards are removed. Without one, a mark stands in its place until all shards are
//! there, with a hash of what they will hold; when a killed run is started again, complete shards of that are kept.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bregman_audio::{Audio, RATE, wav_bytes};
use bregman_base::files::{Lock, PartsFile, read_bytes, remove_temporaries};
use bregman_base::hash::Fnv;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::index::{self, INDEX, IndexEntry};
use super::tar::{header, members};
use crate::Rng;
use crate::files::{check_free, write_whole};
use crate::manifest::names::stem;
use crate::manifest::{Manifest, Utterance};
use crate::prepare::Unreadable;
use crate::source::AudioSource;
use crate::{Error, Progress, Result};

/// The largest file that is packed unchanged: the most that WAV can say.
const MOST_BYTES: u64 = 1 << 32;

/// How audio is stored in a shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShardFormat {
    /// Decoded to 16 kHz mono 16-bit WAV: larger, but any 3 s cut can be read directly, without decoding.
    #[default]
    Pcm,
    /// The unchanged bytes of the file.
    Original,
}

/// How to pack.
#[derive(Debug, Clone)]
pub struct ShardConfig {
    /// Folder for the shards.
    pub out: PathBuf,
    /// Utterances per shard, 1 or more.
    pub per_shard: usize,
    /// Decoded or original.
    pub format: ShardFormat,
    /// Order of the utterances.
    pub seed: u64,
    /// Fail on the first unreadable file instead of leaving it out.
    pub strict: bool,
    /// Replace existing shards.
    pub force: bool,
}

/// The result of [`shard()`].
#[derive(Debug, Clone, Serialize)]
pub struct Sharded {
    /// Number of shards.
    pub shards: usize,
    /// Complete shards found from a killed run.
    pub resumed: usize,
    /// Utterances in them.
    pub utterances: usize,
    /// Their size.
    pub bytes: u64,
    /// Utterances left out, and why.
    pub unreadable: Vec<Unreadable>,
}

/// Packs `source` into tar shards and writes `index.csv` last.
pub fn shard(source: &dyn AudioSource, config: &ShardConfig, progress: &dyn Progress) -> Result<Sharded> {
    if config.per_shard == 0 {
        return Err(Error::Setting { field: "per_shard", value: "0".to_owned(), expected: "1 or more" });
    }
    let (index, found) = (config.out.join(INDEX), index::unfinished(&config.out));
    let unfinished = found.is_some();
    check_free(&index, config.force || unfinished)?;
    std::fs::create_dir_all(&config.out).map_err(Error::io(&config.out))?;
    let _lock = Lock::take(&config.out.join("shard.lock"))?;
    remove_temporaries(&config.out)?;
    let old = if index.exists() && !unfinished { Some(indexed(&config.out)?) } else { None };
    let names = Names { second: old.as_ref().is_some_and(|old| !old.iter().any(|name| Names::is_second(name))) };
    let mark = index::mark(fingerprint(source.manifest(), config));
    let resumes = !config.force && found.is_some_and(|found| found == mark);
    if old.is_none() && !resumes {
        remove_others(&config.out, config.force || unfinished)?;
        index::begin(&config.out, &mark)?;
    }
    let mut order: Vec<usize> = (0..source.manifest().utterances.len()).collect();
    Rng::keyed(&[config.seed, 6]).shuffle(&mut order);
    progress.begin(order.len());

    let packed: Vec<PackedShard> = order
        .par_chunks(config.per_shard)
        .enumerate()
        .map(|(number, utterances)| {
            Packer { source, config, progress, resumes, name: names.of(number).into() }.pack(utterances)
        })
        .collect::<Result<_>>()?;

    let mut total = Sharded { shards: packed.len(), resumed: 0, utterances: 0, bytes: 0, unreadable: Vec::new() };
    let mut entries = Vec::new();
    for shard in packed {
        total.resumed += usize::from(shard.resumed);
        total.bytes += shard.bytes;
        total.unreadable.extend(shard.unreadable);
        entries.extend(shard.entries);
    }
    total.utterances = entries.len();
    total.unreadable.sort();
    index::write(&config.out, &entries, true)?;
    let new: HashSet<&str> = entries.iter().map(|entry| &*entry.shard).collect();
    for name in old.iter().flatten().filter(|name| !new.contains(&***name)) {
        let path = config.out.join(&**name);
        std::fs::remove_file(&path).map_err(Error::io(&path))?;
    }
    Ok(total)
}

/// A hash of all that decides what the shards hold.
fn fingerprint(manifest: &Manifest, config: &ShardConfig) -> u64 {
    let ShardConfig { per_shard, format, seed, .. } = config;
    let mut hash = Fnv::default();
    let mut write = |text: std::fmt::Arguments<'_>| hash.write_fmt(text).expect("a hash takes any text");
    write(format_args!("{per_shard}\t{format:?}\t{seed}"));
    for utterance in &manifest.utterances {
        write(format_args!("\n{utterance:?}"));
    }
    hash.finish()
}

/// Removes the shards of a folder without an index: nobody knows what they hold.
fn remove_others(folder: &Path, force: bool) -> Result<()> {
    for file in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = file.map_err(Error::io(folder))?.path();
        if path.file_name().and_then(|name| name.to_str()).is_some_and(Names::is_shard) {
            check_free(&path, force)?;
            std::fs::remove_file(&path).map_err(Error::io(&path))?;
        }
    }
    Ok(())
}

/// The shards that the index of a folder names, as far as they are there.
fn indexed(folder: &Path) -> Result<HashSet<Arc<str>>> {
    let entries = index::read(folder)?;
    Ok(entries.into_iter().map(|entry| entry.shard).filter(|name| folder.join(&**name).is_file()).collect())
}

/// What shards are called: the second of two ways where the first one is in use.
#[derive(Clone, Copy)]
struct Names {
    second: bool,
}

impl Names {
    const FIRST: &str = "shard-";
    const SECOND: &str = "shard-b-";

    fn is_shard(name: &str) -> bool {
        name.starts_with(Self::FIRST) && name.ends_with(".tar")
    }

    fn is_second(name: &str) -> bool {
        name.starts_with(Self::SECOND)
    }

    fn of(self, number: usize) -> String {
        format!("{}{number:06}.tar", if self.second { Self::SECOND } else { Self::FIRST })
    }
}

/// One finished shard.
#[derive(Default)]
struct PackedShard {
    entries: Vec<IndexEntry>,
    unreadable: Vec<Unreadable>,
    bytes: u64,
    resumed: bool,
}

struct Packer<'a> {
    source: &'a dyn AudioSource,
    config: &'a ShardConfig,
    progress: &'a dyn Progress,
    /// Whether an earlier run that packed the same was stopped here: its complete shards are kept.
    resumes: bool,
    name: Arc<str>,
}

impl Packer<'_> {
    fn pack(&self, utterances: &[usize]) -> Result<PackedShard> {
        let path = self.config.out.join(&*self.name);
        if self.resumes
            && path.exists()
            && let Some(entries) = self.complete(&path, utterances)?
        {
            utterances.iter().for_each(|_| self.progress.step());
            return Ok(PackedShard { entries, bytes: size(&path)?, resumed: true, unreadable: Vec::new() });
        }
        let mut packed = PackedShard::default();
        write_whole(&path, true, |writer| {
            let mut builder = tar::Builder::new(writer);
            let mut offset = 0;
            for &number in utterances {
                let utterance = &self.source.manifest().utterances[number];
                match self.audio(number) {
                    Ok((extension, audio, seconds)) => {
                        let key = key(utterance);
                        offset = append(&mut builder, &format!("{key}.spk"), utterance.speaker.as_bytes(), offset)
                            .map_err(Error::io(&path))?
                            .1;
                        let (at, end) = append(&mut builder, &format!("{key}.{extension}"), &audio, offset)
                            .map_err(Error::io(&path))?;
                        offset = end;
                        packed.entries.push(self.entry(utterance, &extension, seconds, at, audio.len() as u64));
                    }
                    Err(error @ Error::Unreadable { .. }) if self.config.strict => return Err(error),
                    Err(Error::Unreadable { utterance: path, problem }) => {
                        packed.unreadable.push(Unreadable { path, problem })
                    }
                    Err(other) => return Err(other),
                }
                self.progress.step();
            }
            builder.finish().map_err(Error::io(&path))
        })?;
        packed.bytes = size(&path)?;
        Ok(packed)
    }

    /// The entries of an existing shard, if it holds exactly these utterances in this format.
    fn complete(&self, path: &Path, utterances: &[usize]) -> Result<Option<Vec<IndexEntry>>> {
        let file = PartsFile::open(path)?;
        let Ok(members) = members(file.file(), file.length()?, path) else { return Ok(None) };
        let audio: Vec<_> = members.into_iter().filter(|(name, _)| !name.ends_with(".spk")).collect();
        if audio.len() != utterances.len() {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for (&number, (name, range)) in utterances.iter().zip(&audio) {
            let utterance = &self.source.manifest().utterances[number];
            let (pcm, length) = (self.config.format == ShardFormat::Pcm, range.end - range.start);
            let seconds =
                if pcm { Some((length.saturating_sub(44) / 2) as f64 / f64::from(RATE)) } else { utterance.seconds };
            let extension = if pcm { "wav".into() } else { extension(utterance) };
            let (Some(seconds), true) = (seconds, *name == format!("{}.{extension}", key(utterance))) else {
                return Ok(None);
            };
            entries.push(self.entry(utterance, &extension, seconds, range.start, length));
        }
        Ok(Some(entries))
    }

    /// Extension, bytes and length of the audio as it goes into the shard.
    fn audio(&self, number: usize) -> Result<(Arc<str>, Vec<u8>, f64)> {
        let utterance = &self.source.manifest().utterances[number];
        let original = self.config.format == ShardFormat::Original;
        if let (true, Some(seconds)) = (original, utterance.seconds) {
            return Ok((extension(utterance), self.read(utterance)?, seconds));
        }
        let samples = self.source.whole(number)?;
        let seconds = samples.len() as f64 / f64::from(RATE);
        if samples.is_empty() {
            return Err(Error::Unreadable {
                utterance: utterance.path.display().to_string(),
                problem: "contains no audio samples".to_owned(),
            });
        }
        match original {
            true => Ok((extension(utterance), self.read(utterance)?, seconds)),
            false => Ok(("wav".into(), wav_bytes(&Audio { samples, rate: RATE }), seconds)),
        }
    }

    fn read(&self, utterance: &Utterance) -> Result<Vec<u8>> {
        read_bytes(&utterance.path, MOST_BYTES).map_err(|error| Error::Unreadable {
            utterance: utterance.path.display().to_string(),
            problem: error.source.to_string(),
        })
    }

    fn entry(&self, utterance: &Utterance, extension: &Arc<str>, seconds: f64, offset: u64, bytes: u64) -> IndexEntry {
        IndexEntry {
            utterance: utterance.id.clone(),
            speaker: utterance.speaker.clone(),
            seconds,
            session: utterance.session.clone(),
            genre: utterance.genre.clone(),
            shard: self.name.clone(),
            extension: extension.clone(),
            offset,
            bytes,
        }
    }
}

/// WebDataset ends a key at its first dot, so the extension is dropped and other dots are replaced.
fn key(utterance: &Utterance) -> String {
    stem(&utterance.id).trim_start_matches('/').replace('.', "_")
}

fn extension(utterance: &Utterance) -> Arc<str> {
    utterance.path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default().into()
}

/// Appends a member; returns where its content starts and where the next header will.
fn append<W: std::io::Write>(
    builder: &mut tar::Builder<W>,
    name: &str,
    content: &[u8],
    at: u64,
) -> std::io::Result<(u64, u64)> {
    builder.append_data(&mut header(content.len()), name, content)?;
    // Names over 100 bytes take a long-name member first: its header and the name with a final zero, padded to blocks.
    let long = if name.len() > 100 { 512 + (name.len() as u64 + 1).next_multiple_of(512) } else { 0 };
    let start = at + long + 512;
    Ok((start, start + (content.len() as u64).next_multiple_of(512)))
}

fn size(path: &Path) -> Result<u64> {
    Ok(std::fs::metadata(path).map_err(Error::io(path))?.len())
}
