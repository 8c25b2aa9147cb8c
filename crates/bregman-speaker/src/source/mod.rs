//! Where the audio of an utterance comes from: files, memory, a subset of another source, the roots of a trial list,
//! another source in noise, or shards (see [`crate::ShardCorpus`]).

pub(crate) mod degraded;
pub(crate) mod listed;
pub(crate) mod subset;

use std::io::Read;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use bregman_audio::{Decoder, RATE, resample};
use bregman_base::files::open_regular;

use crate::manifest::Manifest;
use crate::shard::ShardCorpus;
use crate::{Error, Result};
use bregman_base::hash::{ContentHash, content_hash};

/// Audio by utterance number: 16 kHz, mono, in [−1, 1].
pub trait AudioSource: Send + Sync {
    /// The utterances, by number.
    fn manifest(&self) -> &Manifest;

    /// Appends the samples `range` of an utterance to `out`: fewer if it is shorter, all of it for `0..usize::MAX`.
    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()>;

    /// The duration that the header of the utterance's file states, right or wrong; none where there is no header.
    fn stated_seconds(&self, _utterance: usize) -> Option<f64> {
        None
    }

    /// One whole utterance.
    fn whole(&self, utterance: usize) -> Result<Vec<f32>> {
        let mut samples = Vec::new();
        self.append(utterance, 0..usize::MAX, &mut samples).map(|()| samples)
    }

    /// A hash of the utterance's audio, independent of where it is stored.
    fn fingerprint(&self, utterance: usize) -> Result<u128> {
        let bytes: Vec<u8> = self.whole(utterance)?.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        Ok(content_hash([&bytes[..]]))
    }
}

/// Opens a corpus: a folder of shards, or a manifest, whose relative paths are resolved against `root` if given.
pub fn open_corpus(path: &Path, root: Option<&Path>) -> Result<Arc<dyn AudioSource>> {
    Ok(if path.is_dir() {
        Arc::new(ShardCorpus::open(path)?)
    } else {
        Arc::new(FileCorpus(Manifest::read(path, root)?))
    })
}

/// Utterances in their own files.
#[derive(Debug, Clone)]
pub struct FileCorpus(pub Manifest);

impl AudioSource for FileCorpus {
    fn manifest(&self) -> &Manifest {
        &self.0
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let path = &self.0.utterances[utterance].path;
        let decoded = Decoder::open(path).and_then(|decoder| decode_range(decoder, range, out));
        decoded.map_err(|error| unreadable(&path.display().to_string(), error))
    }

    fn stated_seconds(&self, utterance: usize) -> Option<f64> {
        bregman_audio::probe(&self.0.utterances[utterance].path).ok()?.seconds()
    }

    /// The hash of the file's bytes, which is much cheaper than decoding it.
    fn fingerprint(&self, utterance: usize) -> Result<u128> {
        let path = &self.0.utterances[utterance].path;
        let hash = || -> std::io::Result<u128> {
            let mut file = open_regular(path).map_err(|error| error.source)?;
            let (mut hash, mut piece) = (ContentHash::default(), vec![0; 1 << 16]);
            loop {
                match file.read(&mut piece)? {
                    0 => return Ok(hash.finish()),
                    read => hash.add(&piece[..read]),
                }
            }
        };
        hash().map_err(|error| Error::Unreadable { utterance: path.display().to_string(), problem: error.to_string() })
    }
}

/// Utterances kept in memory as 16-bit samples, such as a synthetic corpus.
#[derive(Debug, Clone, Default)]
pub struct MemoryCorpus {
    manifest: Manifest,
    samples: Vec<Vec<i16>>,
}

impl MemoryCorpus {
    /// `samples[i]` belongs to utterance `i` of `manifest`.
    pub fn new(manifest: Manifest, samples: Vec<Vec<i16>>) -> Result<Self> {
        if manifest.utterances.len() != samples.len() {
            let value = samples.len().to_string();
            return Err(Error::Setting {
                field: "samples",
                value,
                expected: "one entry per utterance of the manifest",
            });
        }
        Ok(Self { manifest, samples })
    }
}

impl AudioSource for MemoryCorpus {
    fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
        let samples = &self.samples[utterance];
        let (start, end) = (range.start.min(samples.len()), range.end.min(samples.len()));
        out.extend(samples[start..end.max(start)].iter().map(|&sample| f32::from(sample) / 32768.0));
        Ok(())
    }
}

pub(crate) fn unreadable(utterance: &str, error: bregman_audio::Error) -> Error {
    let problem = match error {
        bregman_audio::Error::File { source, .. } => source.to_string(),
        other => other.to_string(),
    };
    Error::Unreadable { utterance: utterance.to_owned(), problem }
}

/// Decodes `range`, counted in 16 kHz samples, of audio at any rate.
pub(crate) fn decode_range(decoder: Decoder<'_>, range: Range<usize>, out: &mut Vec<f32>) -> bregman_audio::Result<()> {
    let (rate, target) = (u64::from(decoder.probe().rate), u64::from(RATE));
    let (start, end) = (range.start as u64, range.end as u64);
    if rate == target || rate == 0 {
        match decoder.range(start..end) {
            Err(bregman_audio::Error::Empty) if start > 0 => return Ok(()), // the file is shorter
            samples => out.extend_from_slice(&samples?.samples),
        }
        return Ok(());
    }
    // Convert from a whole second before the range, where samples of both rates coincide, to a little after it: the
    // resampler needs context at both ends.
    let second = (start / target).saturating_sub(1);
    let after = if range.end == usize::MAX { u64::MAX } else { end * rate / target + rate / 5 };
    let samples = match decoder.range(second * rate..after) {
        Err(bregman_audio::Error::Empty) if start > 0 => return Ok(()),
        samples => resample(&samples?, RATE)?.samples,
    };
    let skipped = (second * target) as usize;
    let at = |index: usize| (index - skipped).min(samples.len());
    out.extend_from_slice(&samples[at(range.start)..at(range.end)]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bregman_audio::Audio;

    use crate::{SynthConfig, SynthCorpus};

    #[test]
    fn a_range_of_a_file_equals_the_same_range_of_the_whole_file() {
        let dir = tempfile::tempdir().unwrap();
        let config =
            SynthConfig { speakers: 2, utterances: 1, held_out: 0, seconds: [1.0, 1.2], ..SynthConfig::default() };
        let synth = SynthCorpus::new(config).unwrap();
        let (train, _) = synth.write(dir.path(), false, &()).unwrap();
        let memory = MemoryCorpus::new(synth.manifest(), synth.render_all()).unwrap();
        let files = FileCorpus(train);
        for source in [&files as &dyn AudioSource, &memory] {
            let whole = source.whole(1).unwrap();
            assert_eq!(whole, memory.whole(1).unwrap());
            for range in [0..10, 500..9000, 15_000..usize::MAX, 90_000..90_100] {
                let mut part = vec![7.0];
                source.append(1, range.clone(), &mut part).unwrap();
                let expected = &whole[range.start.min(whole.len())..range.end.min(whole.len())];
                assert_eq!((part[0], &part[1..]), (7.0, expected), "{range:?}");
            }
        }
    }

    #[test]
    fn a_range_of_an_8_khz_file_matches_the_whole_conversion() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wav");
        let samples: Vec<f32> = (0..40_000).map(|i| 0.5 * (f64::from(i) * 0.3).sin() as f32).collect();
        bregman_audio::write_wav(&path, &Audio { samples, rate: 8000 }).unwrap();
        let text = format!("path,speaker\n{},s\n", path.display());
        let files = FileCorpus(Manifest::parse(text.as_bytes(), &path, dir.path()).unwrap());
        let whole = files.whole(0).unwrap();
        assert_eq!(whole.len(), 80_000);
        for range in [8000..12_000, 48_000..70_000, 70_001..usize::MAX] {
            let mut part = Vec::new();
            files.append(0, range.clone(), &mut part).unwrap();
            assert_eq!(part.len(), range.end.min(whole.len()) - range.start);
            let worst = part.iter().zip(&whole[range.start..]).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(worst < 1e-4, "{range:?}: {worst}");
        }
    }

    #[test]
    fn the_error_about_a_corrupt_file_names_it() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.wav"), b"RIFF nonsense").unwrap();
        let text = "path,speaker\na.wav,s\nmissing.wav,s\n";
        let files = FileCorpus(Manifest::parse(text.as_bytes(), dir.path(), dir.path()).unwrap());
        for (number, name) in ["a.wav", "missing.wav"].iter().enumerate() {
            let message = files.whole(number).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
    }
}
