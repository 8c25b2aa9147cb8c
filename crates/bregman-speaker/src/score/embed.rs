//! Embeddings of utterances, in parallel, computed once for each distinct recording.

use std::ops::Range;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bregman_audio::{RATE, check_speech};
use bregman_tensor::Ranks;
use rayon::prelude::*;

use super::store::{Embedding, EmbeddingStore};
use crate::{AudioSource, Error, FileCorpus, Manifest, Progress, Result, Unreadable};

/// A network that embeds one utterance after another.
pub trait Embedder: Send {
    /// The embedding of 16 kHz samples, whose level may be normalised in place.
    ///
    /// # Errors
    /// Audio that the network cannot embed, usually because it is too short.
    fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String>;
}

impl<E: Embedder + ?Sized> Embedder for Box<E> {
    fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String> {
        (**self).embed(samples)
    }
}

impl<E: Embedder + ?Sized> Embedder for &mut E {
    fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String> {
        (**self).embed(samples)
    }
}

/// Embeddings of some utterances, and the utterances that could not be embedded.
#[derive(Debug, Default)]
pub struct Embedded {
    /// In the requested order; `None` for an utterance that could not be read.
    pub embeddings: Vec<Option<Embedding>>,
    /// The utterances that could not be read.
    pub unreadable: Vec<Unreadable>,
    /// How many were computed rather than found in the store.
    pub computed: usize,
}

/// Embeds the middle `max_seconds` of utterances of `source`; those already in `store` are not computed again.
///
/// Each thread creates its own network with `embedder` and runs it on one core: many utterances at a time use all cores
/// better than one utterance spread over all cores. The result does not depend on the number of threads.
///
/// # Errors
/// A network that cannot be created, a store that cannot be written. Unreadable audio is reported in the result.
pub fn embed_utterances<E: Embedder>(
    source: &dyn AudioSource,
    utterances: &[usize],
    max_seconds: f64,
    embedder: impl Fn() -> Result<E> + Sync,
    store: &EmbeddingStore,
    progress: &dyn Progress,
) -> Result<Embedded> {
    let keys: Vec<Result<u128>> = utterances.par_iter().map(|&utterance| source.fingerprint(utterance)).collect();
    // The first utterance of each distinct recording that is not in the store.
    let mut seen = std::collections::HashSet::new();
    let new = |&at: &usize| keys[at].as_ref().is_ok_and(|&key| seen.insert(key) && store.get(key).is_none());
    let missing: Vec<usize> = (0..keys.len()).filter(new).collect();
    // of what the leading rank has not, each rank computes every so many-th
    let ranks = store.ranks();
    let all_missing = leaders_list(ranks, &missing)?;
    let missing: Vec<usize> = all_missing.iter().copied().skip(ranks.rank()).step_by(ranks.size()).collect();
    let problems = Mutex::new(Vec::new());
    with_networks(missing.len(), embedder, progress, |network, samples, number| {
        let at = missing[number];
        let (Ok(key), utterance) = (&keys[at], utterances[at]) else { return Ok(()) };
        match embed_one(source, utterance, max_seconds, network, samples) {
            Ok(embedding) => store.add(*key, &embedding)?,
            Err(problem) => problems.lock().expect("no thread panics while it holds the list").push((*key, problem)),
        }
        Ok(())
    })?;

    let mut problems = problems.into_inner().expect("all threads have ended");
    if !ranks.is_alone() {
        store.exchange(&keys.iter().filter_map(|key| key.as_ref().ok().copied()).collect::<Vec<u128>>())?;
        problems = all_problems(ranks, &problems)?;
    }
    let mut embedded = Embedded { computed: all_missing.len() - problems.len(), ..Embedded::default() };
    for (key, &utterance) in keys.into_iter().zip(utterances) {
        let found = key.map_err(|error| error.to_string()).and_then(|key| {
            let problem = || {
                problems
                    .iter()
                    .find(|(other, _)| *other == key)
                    .map_or_else(String::new, |(_, problem)| problem.clone())
            };
            store.get(key).ok_or_else(problem)
        });
        embedded.embeddings.push(match found {
            Ok(embedding) => Some(embedding),
            Err(problem) => {
                let path = source.manifest().utterances[utterance].path.display().to_string();
                embedded.unreadable.push(Unreadable { path, problem });
                None
            }
        });
    }
    Ok(embedded)
}

/// The leading rank's list, on every rank.
fn leaders_list(ranks: &Ranks, own: &[usize]) -> Result<Vec<usize>> {
    if ranks.is_alone() {
        return Ok(own.to_vec());
    }
    let bytes: Vec<u8> = own.iter().filter(|_| ranks.leads()).flat_map(|&at| (at as u64).to_le_bytes()).collect();
    Ok(ranks.gather(&bytes)?[0].as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes) as usize).collect())
}

/// What went wrong on any rank.
fn all_problems(ranks: &Ranks, own: &[(u128, String)]) -> Result<Vec<(u128, String)>> {
    let text: String = own.iter().map(|(key, problem)| format!("{key} {}\n", problem.replace('\n', " "))).collect();
    let all = ranks.gather(text.as_bytes())?.concat();
    let read = |line: &str| {
        let (key, problem) = line.split_once(' ')?;
        Some((key.parse().ok()?, problem.to_owned()))
    };
    Ok(String::from_utf8_lossy(&all).lines().filter_map(read).collect())
}

/// Calls `one(network, memory, number)` for every number below `count`, a step of `progress` each. Each thread creates
/// its own network with `embedder` and has its own `memory` for samples; it stops at the first error.
pub(crate) fn with_networks<E: Embedder>(
    count: usize,
    embedder: impl Fn() -> Result<E> + Sync,
    progress: &dyn Progress,
    one: impl Fn(&mut E, &mut Vec<f32>, usize) -> Result<()> + Sync,
) -> Result<()> {
    progress.begin(count);
    let next = AtomicUsize::new(0);
    let work = || -> Result<()> {
        let (mut network, mut samples) = (None, Vec::new());
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return Ok(());
            }
            let network = match &mut network {
                Some(network) => network,
                none => none.insert(embedder()?),
            };
            one(network, &mut samples, number)?;
            progress.step();
        }
    };
    let threads = rayon::current_num_threads().min(count);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| on_one_core(work))).collect();
        workers
            .into_iter()
            .try_for_each(|worker| worker.join().map_err(|_| Error::Worker("a network panicked".to_owned()))?)
    })
}

/// The embedding of the middle of an utterance, or what is wrong with it; `samples` is memory to use again.
fn embed_one(
    source: &dyn AudioSource,
    utterance: usize,
    max_seconds: f64,
    network: &mut impl Embedder,
    samples: &mut Vec<f32>,
) -> std::result::Result<Embedding, String> {
    samples.clear();
    append_middle(source, utterance, max_seconds, samples).map_err(|error| error.to_string())?;
    let values = network.embed(samples)?;
    if values.iter().any(|value| !value.is_finite()) {
        return Err("its embedding is not finite".to_owned());
    }
    Ok(Embedding { values, seconds: samples.len() as f32 / RATE as f32 })
}

/// The embedding of the middle `max_seconds` of one recording, which must have speech in it: somebody is to be
/// recognised by it. A corpus is embedded as it is, see [`embed_utterances`].
///
/// # Errors
/// Audio that cannot be read, has no speech in it, or that the network cannot embed.
pub fn embed_recording(path: &Path, max_seconds: f64, network: &mut impl Embedder) -> Result<Embedding> {
    let source = FileCorpus(Manifest::of_paths(&[path.to_owned()]));
    let embedded = embed_one(&source, 0, max_seconds, &mut SpeechOnly(network), &mut Vec::new());
    embedded.map_err(|problem| Error::Unreadable { utterance: path.display().to_string(), problem })
}

/// Refuses audio without speech before the network sees it.
pub struct SpeechOnly<E>(pub E);

impl<E: Embedder> Embedder for SpeechOnly<E> {
    fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String> {
        check_speech(samples, RATE).map_err(|error| error.to_string())?;
        self.0.embed(samples)
    }
}

/// Runs `work` in its own thread pool with a single thread, so that parallel code inside stays on this core.
fn on_one_core(work: impl FnOnce() -> Result<()> + Send) -> Result<()> {
    let pool =
        rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(|error| Error::Worker(error.to_string()))?;
    pool.install(work)
}

/// Where the middle `max_seconds` of `len` samples lie: beginnings and ends are often silent.
fn middle(len: usize, max_seconds: f64) -> Range<usize> {
    let wanted = (max_seconds * f64::from(RATE)).min(len as f64) as usize;
    let start = (len - wanted) / 2;
    start..start + wanted
}

/// Cuts a recording to its middle `max_seconds`.
fn keep_middle(samples: &mut Vec<f32>, max_seconds: f64) {
    let Range { start, end } = middle(samples.len(), max_seconds);
    samples.truncate(end);
    samples.drain(..start);
}

/// A file whose header states more seconds than this is not read whole for the sake of its middle.
const LONG: f64 = 600.0;

/// Appends the middle of an utterance. If its duration is unknown, all of it is read first, unless its header says that
/// this would be long, and is right.
///
/// # Errors
/// Audio that cannot be read.
pub fn append_middle(
    source: &dyn AudioSource,
    utterance: usize,
    max_seconds: f64,
    samples: &mut Vec<f32>,
) -> Result<()> {
    let middle_of = |seconds: f64| middle((seconds * f64::from(RATE)).round() as usize, max_seconds);
    if let Some(seconds) = source.manifest().utterances[utterance].seconds {
        return source.append(utterance, middle_of(seconds), samples);
    }
    let start = samples.len();
    if let Some(range) = source.stated_seconds(utterance).filter(|&seconds| seconds > LONG).map(middle_of) {
        source.append(utterance, range.clone(), samples)?;
        if samples.len() - start == range.len() {
            return Ok(());
        }
        samples.truncate(start);
    }
    source.append(utterance, 0..usize::MAX, samples)?;
    keep_middle(samples, max_seconds);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use super::*;
    use bregman_audio::{Audio, wav_bytes};
    use bregman_tensor::thread_ranks;

    use crate::{ListedAudio, SynthConfig, SynthCorpus, Trials};

    /// Mean and length: enough to distinguish recordings.
    struct Probe;

    impl Embedder for Probe {
        fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String> {
            Ok(vec![samples.iter().sum::<f32>(), samples.len() as f32])
        }
    }

    fn corpus(dir: &std::path::Path) -> Manifest {
        let config =
            SynthConfig { speakers: 3, utterances: 2, held_out: 0, seconds: [0.3, 0.6], ..SynthConfig::default() };
        SynthCorpus::new(config).unwrap().write(dir, true, &()).unwrap().0
    }

    #[test]
    fn the_same_recording_is_embedded_once_wherever_it_is_stored() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = corpus(dir.path());
        let copy = dir.path().join("copy.wav");
        std::fs::copy(&manifest.utterances[0].path, &copy).unwrap();
        manifest.utterances[5].path = copy;
        let (source, store) = (FileCorpus(manifest), EmbeddingStore::in_memory());
        let embed =
            |utterances: &[usize]| embed_utterances(&source, utterances, 60.0, || Ok(Probe), &store, &()).unwrap();
        let first = embed(&[0, 1, 2, 5]);
        assert_eq!((first.computed, first.embeddings[0] == first.embeddings[3], first.unreadable.len()), (3, true, 0));
        let second = embed(&[2, 3]);
        assert_eq!((second.computed, &second.embeddings[0]), (1, &first.embeddings[2]));
    }

    #[test]
    fn only_the_middle_counts_and_broken_files_are_listed() {
        let dir = tempfile::tempdir().unwrap();
        let mut manifest = corpus(dir.path());
        std::fs::write(&manifest.utterances[1].path, b"RIFF nonsense").unwrap();
        manifest.utterances[2].path = dir.path().join("missing.wav");
        let embed = |manifest: &Manifest| {
            let source = FileCorpus(manifest.clone());
            embed_utterances(&source, &[0, 1, 2], 0.25, || Ok(Probe), &EmbeddingStore::in_memory(), &()).unwrap()
        };
        let embedded = embed(&manifest);
        assert_eq!(embedded.embeddings[0].as_ref().unwrap().seconds, 0.25);
        let whole = FileCorpus(manifest.clone()).whole(0).unwrap();
        let [from, to] = [(whole.len() - 4000) / 2, (whole.len() + 4000) / 2];
        assert_eq!(embedded.embeddings[0].as_ref().unwrap().values[0], whole[from..to].iter().sum::<f32>());
        manifest.utterances[0].seconds = None;
        assert_eq!(embed(&manifest).embeddings[0], embedded.embeddings[0], "as much of it if its length is not known");
        assert!(embedded.embeddings[1].is_none() && embedded.embeddings[2].is_none());
        assert!(
            embedded.unreadable[1].path.ends_with("missing.wav")
                && embedded.unreadable.iter().all(|file| !file.problem.is_empty())
        );
    }

    #[test]
    fn ranks_embed_their_parts_and_all_have_everything() {
        let dir = tempfile::tempdir().unwrap();
        let manifest = corpus(dir.path());
        std::fs::write(&manifest.utterances[1].path, b"RIFF nonsense").unwrap();
        let file = dir.path().join("kept.f32");
        let embed = |store: EmbeddingStore| {
            embed_utterances(&FileCorpus(manifest.clone()), &[0, 1, 2], 60.0, || Ok(Probe), &store, &()).unwrap()
        };
        let alone = embed(EmbeddingStore::in_memory());
        for computed in [2, 0] {
            std::thread::scope(|scope| {
                for ranks in thread_ranks(2) {
                    let (embed, file, alone) = (&embed, &file, &alone);
                    scope.spawn(move || {
                        let embedded = embed(EmbeddingStore::open(file, 2).unwrap().shared(&ranks));
                        assert_eq!(embedded.embeddings, alone.embeddings);
                        assert_eq!((embedded.computed, embedded.unreadable.len()), (computed, 1));
                        assert!(!embedded.unreadable[0].problem.is_empty(), "whichever rank read it");
                    });
                }
            });
        }
    }

    #[test]
    fn one_recording_is_embedded_only_if_there_is_speech_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.wav");
        let embed = |samples: Vec<f32>| {
            std::fs::write(&path, wav_bytes(&Audio { samples, rate: RATE })).unwrap();
            embed_recording(&path, 1.0, &mut Probe).map_err(|error| error.to_string())
        };
        let voice: Vec<f32> = (0..32_000).map(|i| (i as f32 * 0.1).sin()).collect();
        assert_eq!(embed(voice).unwrap().seconds, 1.0);
        for (samples, found) in [(vec![0.0; 32_000], "1.0 s are silent"), (vec![0.5], "1 samples")] {
            let message = embed(samples).unwrap_err();
            assert!(message.contains("a.wav: no speech in it") && message.contains(found), "{message}");
        }
        assert!(embed_recording(&dir.path().join("none.wav"), 1.0, &mut Probe).is_err());
    }

    /// Two hours as the header states them, of which the file, with a hole in it, holds all.
    #[test]
    fn of_a_long_file_only_the_middle_is_read_and_a_header_that_lies_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("long.wav");
        let (bytes, at) = (2 * 16_000 * 7200, 2 * 16_000 * 3600);
        let mut header = wav_bytes(&Audio { samples: vec![0.0; 4], rate: RATE })[..44].to_vec();
        header[4..8].copy_from_slice(&(bytes as u32 + 36).to_le_bytes());
        header[40..44].copy_from_slice(&(bytes as u32).to_le_bytes());
        let mut file = std::fs::File::create(&path).unwrap();
        file.write_all(&header).unwrap();
        file.seek(std::io::SeekFrom::Start(44 + at as u64)).unwrap();
        file.write_all(&[0, 0x40]).unwrap(); // 0.5
        file.set_len(44 + bytes as u64).unwrap();
        let source = Counting(FileCorpus(Manifest::of_paths(std::slice::from_ref(&path))), AtomicUsize::new(0));
        let mut samples = Vec::new();
        append_middle(&source, 0, 1.0, &mut samples).unwrap();
        assert_eq!((samples.len(), samples[8000], source.1.load(Ordering::Relaxed)), (16_000, 0.5, 16_000));
        let trials = Trials::parse(&b"1 long.wav long.wav\n"[..], &path).unwrap();
        let listed = ListedAudio::find(&[dir.path().to_owned()], &trials, None).unwrap();
        assert_eq!(listed.stated_seconds(0), Some(7200.0), "as a file of a trial list, too");

        file.set_len(44 + 64_000).unwrap();
        samples.clear();
        append_middle(&source, 0, 1.0, &mut samples).unwrap();
        assert_eq!(samples.len(), 16_000, "the middle of the two seconds that are there");
    }

    /// Counts the samples that were asked for.
    struct Counting(FileCorpus, AtomicUsize);

    impl AudioSource for Counting {
        fn manifest(&self) -> &Manifest {
            self.0.manifest()
        }

        fn append(&self, utterance: usize, range: Range<usize>, out: &mut Vec<f32>) -> Result<()> {
            self.1.fetch_add(range.len(), Ordering::Relaxed);
            self.0.append(utterance, range, out)
        }

        fn stated_seconds(&self, utterance: usize) -> Option<f64> {
            self.0.stated_seconds(utterance)
        }
    }

    #[test]
    fn a_network_that_cannot_be_created_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let source = FileCorpus(corpus(dir.path()));
        let broken = || Err::<Probe, _>(Error::NotFinite("a weight".to_owned()));
        assert!(matches!(
            embed_utterances(&source, &[0], 1.0, broken, &EmbeddingStore::in_memory(), &()),
            Err(Error::NotFinite(_))
        ));
    }
}
