//! A cache of embeddings on disk, found by the content of their audio.
//!
//! One file per network and settings: records of `key (16 bytes), seconds (f32), dim × f32`, little-endian,
//! append-only. A killed process loses only the record being written: an incomplete last record is cut off when the
//! file is opened or added to again. Several processes may add to it: each locks the file while it reads or writes.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use bregman_base::files::append_to;
use bregman_tensor::Ranks;

use crate::files::create_parent;
use crate::{Error, Result};

const KEY: usize = size_of::<u128>();

/// The embedding of an utterance.
#[derive(Debug, Clone, PartialEq)]
pub struct Embedding {
    /// The network's output, not normalised.
    pub values: Vec<f32>,
    /// Duration of the audio it was computed from.
    pub seconds: f32,
}

/// Stored embeddings of one network.
#[derive(Debug, Default)]
pub struct EmbeddingStore {
    ranks: Ranks,
    known: Mutex<HashMap<u128, Embedding>>,
    file: Option<(PathBuf, Mutex<File>)>,
}

impl EmbeddingStore {
    /// A store in memory only.
    pub fn in_memory() -> Self {
        Self::default()
    }

    /// A store that all ranks fill, each computing part of the requested embeddings. The leading rank uses this store,
    /// the others an in-memory one filled with what they receive.
    pub fn shared(self, ranks: &Ranks) -> Self {
        let own = if ranks.leads() { self } else { Self::in_memory() };
        Self { ranks: ranks.clone(), ..own }
    }

    /// The ranks that fill it.
    pub(super) fn ranks(&self) -> &Ranks {
        &self.ranks
    }

    /// The store in the file `path`, empty if there is none. `path` must be different for every network and its
    /// settings.
    pub fn open(path: &Path, dim: usize) -> Result<Self> {
        create_parent(path)?;
        let (mut file, mut bytes) = (append_to(path)?, Vec::new());
        let record = KEY + 4 * (1 + dim);
        locked(&mut file, |file| {
            file.read_to_end(&mut bytes)?;
            keep_whole(file, bytes.len() as u64, record as u64)
        })
        .map_err(Error::io(path))?;
        let mut known = HashMap::new();
        known.extend(bytes.chunks_exact(record).map(from_record));
        Ok(Self { ranks: Ranks::ALONE, known: Mutex::new(known), file: Some((path.to_owned(), Mutex::new(file))) })
    }

    /// The embedding of audio with this fingerprint.
    pub fn get(&self, key: u128) -> Option<Embedding> {
        self.known.lock().expect("no thread panics while it holds the store").get(&key).cloned()
    }

    /// The embeddings of these keys, by whichever rank they were computed: all ranks have them afterwards, and the
    /// leading one has stored them.
    ///
    /// # Errors
    /// Ranks that are gone, a file that cannot be written.
    pub(super) fn exchange(&self, keys: &[u128]) -> Result<()> {
        let wanted = |found: bool| keys.iter().filter(move |&&key| self.get(key).is_some() == found);
        let own: Vec<Vec<u8>> = wanted(true).map(|&key| to_record(key, &self.get(key).expect("it is there"))).collect();
        let lengths: Vec<u8> = own.iter().flat_map(|record| (record.len() as u64).to_le_bytes()).collect();
        let (lengths, records) = (self.ranks.gather(&lengths)?, self.ranks.gather(&own.concat())?);
        for (lengths, records) in lengths.iter().zip(&records) {
            let mut rest = &records[..];
            for &length in lengths.as_chunks::<8>().0 {
                let record = rest.split_off(..u64::from_le_bytes(length) as usize).expect("as long as its sender says");
                let (key, embedding) = from_record(record);
                if self.get(key).is_none() {
                    self.add(key, &embedding)?;
                }
            }
        }
        Ok(())
    }

    /// Stores an embedding.
    pub fn add(&self, key: u128, embedding: &Embedding) -> Result<()> {
        if let Some((path, file)) = &self.file {
            let record = to_record(key, embedding);
            let mut file = file.lock().expect("no thread panics while it holds the file");
            let append = |file: &mut File| {
                // what a full disk or a killed process left of a record would shift all that follow
                keep_whole(file, file.metadata()?.len(), record.len() as u64)?;
                file.write_all(&record)
            };
            locked(&mut file, append).map_err(Error::io(path))?;
        }
        self.known.lock().expect("no thread panics while it holds the store").insert(key, embedding.clone());
        Ok(())
    }
}

fn to_record(key: u128, embedding: &Embedding) -> Vec<u8> {
    let numbers = std::iter::once(&embedding.seconds).chain(&embedding.values);
    key.to_le_bytes().into_iter().chain(numbers.flat_map(|number| number.to_le_bytes())).collect()
}

fn from_record(bytes: &[u8]) -> (u128, Embedding) {
    let (key, rest) = bytes.split_first_chunk::<KEY>().expect("a record is longer than its key");
    let mut numbers = rest.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes));
    let seconds = numbers.next().expect("a record has a duration");
    (u128::from_le_bytes(*key), Embedding { seconds, values: numbers.collect() })
}

/// Cuts an incomplete record off the end of a file of this length.
fn keep_whole(file: &File, length: u64, record: u64) -> std::io::Result<()> {
    let rest = length % record;
    if rest == 0 { Ok(()) } else { file.set_len(length - rest) }
}

/// Does some work on the file while no other process does.
fn locked(file: &mut File, work: impl FnOnce(&mut File) -> std::io::Result<()>) -> std::io::Result<()> {
    let held = file.lock().is_ok(); // a file system without locks is used without
    let done = work(file);
    if held {
        file.unlock()?;
    }
    done
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;

    use super::*;

    #[test]
    fn stored_embeddings_are_found_again_and_an_incomplete_record_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cache/net.f32");
        let embedding = |x: f32| Embedding { values: vec![x, -x, 0.5], seconds: 2.0 * x };
        {
            let store = EmbeddingStore::open(&path, 3).unwrap();
            store.add(u128::MAX, &embedding(1.0)).unwrap();
            store.add(7, &embedding(2.0)).unwrap();
        }
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(file.metadata().unwrap().len() - 1).unwrap();
        {
            let store = EmbeddingStore::open(&path, 3).unwrap();
            assert_eq!((store.get(u128::MAX), store.get(7)), (Some(embedding(1.0)), None));
            store.add(8, &embedding(3.0)).unwrap();
        }
        assert_eq!(EmbeddingStore::open(&path, 3).unwrap().get(8), Some(embedding(3.0)));
    }

    #[test]
    fn a_record_that_another_process_left_incomplete_shifts_none_that_follow() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("net.f32");
        let embedding = |x: f32| Embedding { values: vec![x, -x, 0.5], seconds: 2.0 * x };
        let store = EmbeddingStore::open(&path, 3).unwrap();
        store.add(1, &embedding(1.0)).unwrap();
        let mut other = OpenOptions::new().append(true).open(&path).unwrap();
        other.write_all(&to_record(2, &embedding(2.0))[..21]).unwrap();
        store.add(3, &embedding(3.0)).unwrap();
        let again = EmbeddingStore::open(&path, 3).unwrap();
        assert_eq!([1, 2, 3].map(|key| again.get(key)), [Some(embedding(1.0)), None, Some(embedding(3.0))]);
    }
}
