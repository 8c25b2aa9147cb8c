//! Reading shards: ours by their index, anybody's WebDataset or WeSpeaker shards by walking the tar headers once.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bregman_audio::{Decoder, RATE};
use bregman_base::files::{Mmap, map};
use rayon::prelude::*;

use super::index::{self, Entry, INDEX};
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
    places: Vec<Place>,
}

/// Where the audio of an utterance lies.
#[derive(Debug)]
struct Place {
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
        let (mut utterances, mut places) = (Vec::new(), Vec::new());
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
            let end = entry
                .offset
                .checked_add(entry.bytes)
                .filter(|&end| end <= shards[shard].len() as u64)
                .ok_or_else(|| {
                    Error::format(
                        &path,
                        format!("'{}' lies beyond the end of the shard; delete {INDEX} to index anew", entry.utterance),
                    )
                })?;
            places.push(Place {
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
        Ok(Self { manifest: Manifest { utterances }, shards, places })
    }
}

impl AudioSource for ShardCorpus {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let place = &self.places[utterance];
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

/// Indexes shards that came without an index.
fn walk(folder: &Path) -> Result<Vec<Entry>> {
    let mut paths = Vec::new();
    for file in std::fs::read_dir(folder).map_err(Error::io(folder))? {
        let path = file.map_err(Error::io(folder))?.path();
        if path.extension().is_some_and(|extension| extension == "tar") {
            paths.push(path);
        }
    }
    paths.sort();
    let entries: Vec<Vec<Entry>> = paths.par_iter().map(|path| entries(path.as_path())).collect::<Result<_>>()?;
    Ok(entries.into_iter().flatten().collect())
}

fn entries(path: &Path) -> Result<Vec<Entry>> {
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
        // A member that cannot be decoded stays in the list: reading it names it.
        let seconds = Decoder::from_bytes(&bytes[range.clone()], extension).ok().and_then(seconds).unwrap_or(0.0);
        entries.push(Entry {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::{ShardConfig, ShardFormat, shard};
    use crate::{FileCorpus, MemoryCorpus, SynthConfig, SynthCorpus};

    fn config(out: &Path, format: ShardFormat) -> ShardConfig {
        ShardConfig { out: out.to_owned(), per_shard: 3, format, seed: 4, strict: false, force: false }
    }

    fn synth() -> SynthCorpus {
        SynthCorpus::new(SynthConfig {
            speakers: 4,
            utterances: 2,
            held_out: 0,
            seconds: [0.3, 0.6],
            ..SynthConfig::default()
        })
        .unwrap()
    }

    /// Every utterance of `corpus` by id: speaker and samples.
    fn content(corpus: &dyn AudioSource) -> Vec<(String, String, Vec<f32>)> {
        let utterances = corpus.manifest().utterances.iter().enumerate();
        let mut all: Vec<_> = utterances
            .map(|(number, utterance)| {
                (
                    utterance.id.trim_end_matches(".wav").replace('.', "_"),
                    utterance.speaker.to_string(),
                    corpus.whole(number).unwrap(),
                )
            })
            .collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    #[test]
    fn shards_hold_the_same_audio_with_and_without_their_index() {
        let dir = tempfile::tempdir().unwrap();
        let (train, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
        let files = FileCorpus(train);
        for format in [ShardFormat::Pcm, ShardFormat::Original] {
            let out = dir.path().join(format!("{format:?}"));
            let made = shard(&files, &config(&out, format), &()).unwrap();
            assert_eq!((made.shards, made.utterances, made.unreadable.len()), (3, 8, 0));
            let indexed = ShardCorpus::open(&out).unwrap();
            assert_eq!(content(&indexed), content(&files));
            for (utterance, (_, _, samples)) in
                indexed.manifest().utterances.iter().zip(0..8).map(|(u, n)| (u, (0, 0, indexed.whole(n).unwrap())))
            {
                assert!((utterance.seconds.unwrap() - samples.len() as f64 / 16e3).abs() < 1e-4);
            }
            std::fs::remove_file(out.join(INDEX)).unwrap();
            let walked = ShardCorpus::open(&out).unwrap();
            assert_eq!(content(&walked), content(&files));
            let lengths =
                |corpus: &ShardCorpus| corpus.manifest().utterances.iter().map(|u| u.seconds.unwrap()).sum::<f64>();
            assert!((lengths(&walked) - lengths(&indexed)).abs() < 1e-3);
        }
    }

    #[test]
    fn a_range_of_a_shard_equals_the_range_of_the_whole() {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
        shard(&memory, &config(dir.path(), ShardFormat::Pcm), &()).unwrap();
        let shards = ShardCorpus::open(dir.path()).unwrap();
        let whole = shards.whole(5).unwrap();
        for range in [100..300, 4000..usize::MAX, 99_999..100_000] {
            let mut part = Vec::new();
            shards.append(5, range.clone(), &mut part).unwrap();
            assert_eq!(part, &whole[range.start.min(whole.len())..range.end.min(whole.len())]);
        }
    }

    #[test]
    fn long_and_dotted_names_survive_packing() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = synth().manifest();
        manifest.utterances[0].id = format!("{}/v1.5/clip.wav", "very-long-speaker-name".repeat(6));
        let memory = MemoryCorpus::new(manifest, synth().render_all()).unwrap();
        shard(&memory, &config(dir.path(), ShardFormat::Pcm), &()).unwrap();
        let shards = ShardCorpus::open(dir.path()).unwrap();
        let at = shards.manifest().utterances.iter().position(|u| u.id == memory.manifest().utterances[0].id).unwrap();
        assert_eq!(shards.whole(at).unwrap(), memory.whole(0).unwrap());
    }

    #[test]
    fn a_killed_run_keeps_its_complete_shards_and_repairs_the_others() {
        let dir = tempfile::tempdir().unwrap();
        let memory = MemoryCorpus::new(synth().manifest(), synth().render_all()).unwrap();
        let config = config(dir.path(), ShardFormat::Pcm);
        shard(&memory, &config, &()).unwrap();
        let index = std::fs::read(dir.path().join(INDEX)).unwrap();
        assert!(matches!(shard(&memory, &config, &()), Err(Error::Exists(_))));
        // What a kill leaves: no index, one shard missing, one torn, a temporary file.
        std::fs::remove_file(dir.path().join(INDEX)).unwrap();
        std::fs::remove_file(dir.path().join("shard-000002.tar")).unwrap();
        let torn = dir.path().join("shard-000001.tar");
        let bytes = std::fs::read(&torn).unwrap();
        std::fs::write(&torn, &bytes[..bytes.len() / 2]).unwrap();
        std::fs::write(dir.path().join("shard-000002.tar.tmp"), b"half").unwrap();
        let again = shard(&memory, &config, &()).unwrap();
        assert_eq!((again.resumed, again.shards), (1, 3));
        assert_eq!(std::fs::read(dir.path().join(INDEX)).unwrap(), index);
        assert_eq!(std::fs::read(&torn).unwrap(), bytes);
    }

    #[test]
    fn broken_files_are_left_out_and_named() {
        let dir = tempfile::tempdir().unwrap();
        let (train, _) = synth().write(&dir.path().join("wav"), false, &()).unwrap();
        let broken = train.utterances[3].path.clone();
        std::fs::write(&broken, b"not audio").unwrap();
        let out = dir.path().join("out");
        let made = shard(&FileCorpus(train.clone()), &config(&out, ShardFormat::Pcm), &()).unwrap();
        assert_eq!((made.utterances, made.unreadable.len()), (7, 1));
        assert_eq!(made.unreadable[0].path, broken.display().to_string());
        let strict = ShardConfig { strict: true, force: true, ..config(&out, ShardFormat::Pcm) };
        assert!(matches!(shard(&FileCorpus(train), &strict, &()), Err(Error::Unreadable { .. })));
    }
}
