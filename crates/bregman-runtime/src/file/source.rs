//! Where the bytes of a model come from: memory, or its file, of which only the part that is being decoded is in
//! memory. So a model that is opened takes its weights, and not its file besides.
//!
//! A file is read part by part in the order in which the network asks, and each part is summed up as it is read. Once
//! all is decoded the sums of the parts make the sum of the whole ([`Source::settle`]). A file that was damaged may
//! thus be decoded for a while before that is noticed; no content makes decoding panic or read elsewhere.

use std::borrow::Cow;
#[cfg(not(target_family = "wasm"))]
use std::cell::RefCell;
#[cfg(not(target_family = "wasm"))]
use std::collections::BTreeMap;
use std::ops::Range;

#[cfg(not(target_family = "wasm"))]
use bregman_base::files::PartsFile;

use super::envelope::{self, Start};
#[cfg(not(target_family = "wasm"))]
use crate::Error;
use crate::Result;

/// Bytes that are read at a time where that is up to us: they stay in the second-level cache.
const CHUNK: usize = 1 << 17;

/// The bytes of a model behind its envelope.
pub(crate) struct Source<'a> {
    start: Start,
    /// How many there are.
    length: usize,
    place: Place<'a>,
}

enum Place<'a> {
    Memory(&'a [u8]),
    #[cfg(not(target_family = "wasm"))]
    File(Box<Parts>),
}

#[cfg(not(target_family = "wasm"))]
struct Parts {
    file: PartsFile,
    /// Of each part that was read, by where it begins: its end and its sum.
    sums: RefCell<BTreeMap<usize, (usize, crc32fast::Hasher)>>,
    /// Memory of a chunk.
    chunk: RefCell<Vec<u8>>,
}

impl<'a> Source<'a> {
    /// The bytes of a file, which are what their checksum says.
    pub(crate) fn memory(bytes: &'a [u8]) -> Result<Self> {
        let start = Start::read(bytes)?;
        let body = &bytes[envelope::LENGTH..];
        start.check(crc32fast::hash(body))?;
        Ok(Self { start, length: body.len(), place: Place::Memory(body) })
    }

    /// The file at `path`, of at most `most` bytes. Its checksum is for [`Source::settle`].
    #[cfg(not(target_family = "wasm"))]
    pub(crate) fn file(path: &std::path::Path, most: u64) -> Result<Self> {
        let file = PartsFile::open_at_most(path, most)?;
        let all = file.length()? as usize;
        let start = Start::read(&file.read(0, all.min(envelope::LENGTH))?)?;
        let (sums, chunk) = (RefCell::default(), RefCell::default());
        Ok(Self { start, length: all - envelope::LENGTH, place: Place::File(Box::new(Parts { file, sums, chunk })) })
    }

    pub(super) fn version(&self) -> u32 {
        self.start.version
    }

    /// All bytes.
    pub(super) fn whole(&'a self) -> Part<'a> {
        Part { source: self, range: 0..self.length }
    }

    /// What came of decoding, if the content is what its checksum says.
    pub(crate) fn settle<T>(&self, decoded: Result<T>) -> Result<T> {
        match &self.place {
            Place::Memory(_) => decoded, // was checked first
            #[cfg(not(target_family = "wasm"))]
            Place::File(parts) => {
                if matches!(decoded, Err(Error::File { .. })) {
                    return decoded;
                }
                self.start.check(parts.sum(self.length)?)?;
                decoded
            }
        }
    }
}

#[cfg(not(target_family = "wasm"))]
impl Parts {
    /// Calls `found` with the bytes of a part, at most `step` at a time.
    fn each(&self, range: Range<usize>, step: usize, mut found: impl FnMut(&[u8])) -> Result<()> {
        let (mut chunk, mut sum) = (self.chunk.borrow_mut(), crc32fast::Hasher::new());
        for at in range.clone().step_by(step) {
            let length = step.min(range.end - at);
            if chunk.len() < length {
                chunk.resize(length, 0);
            }
            let bytes = &mut chunk[..length];
            self.file.read_into((envelope::LENGTH + at) as u64, bytes)?;
            sum.update(bytes);
            found(bytes);
        }
        self.add(range, sum)
    }

    fn add(&self, range: Range<usize>, sum: crc32fast::Hasher) -> Result<()> {
        if range.is_empty() {
            return Ok(());
        }
        let before = self.sums.borrow_mut().insert(range.start, (range.end, sum.clone()));
        if before.is_some_and(|(_, before)| before.finalize() != sum.finalize()) {
            return Err(Error::format("it was altered while it was read"));
        }
        Ok(())
    }

    /// The checksum of all `length` bytes; reads what has not been read yet.
    fn sum(&self, length: usize) -> Result<u32> {
        let mut whole = crc32fast::Hasher::new();
        let mut at = 0;
        while at < length {
            let next = self.sums.borrow().range(at..).next().map(|(&from, (end, sum))| (from, *end, sum.clone()));
            match next {
                Some((from, end, sum)) if from == at => {
                    whole.combine(&sum);
                    at = end;
                }
                _ => self.each(at..next.map_or(length, |(from, ..)| from), CHUNK, |_| ())?,
            }
        }
        Ok(whole.finalize())
    }
}

/// Some consecutive bytes.
#[derive(Clone)]
pub(crate) struct Part<'a> {
    source: &'a Source<'a>,
    range: Range<usize>,
}

impl<'a> Part<'a> {
    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    /// Takes the first bytes off; `None` where there are fewer.
    pub(super) fn take(&mut self, length: usize) -> Option<Self> {
        let end = self.range.start.checked_add(length).filter(|&end| end <= self.range.end)?;
        let taken = Self { source: self.source, range: self.range.start..end };
        self.range.start = end;
        Some(taken)
    }

    /// The bytes, in memory at once.
    pub(super) fn bytes(&self) -> Result<Cow<'a, [u8]>> {
        match &self.source.place {
            Place::Memory(bytes) => Ok(Cow::Borrowed(&bytes[self.range.clone()])),
            #[cfg(not(target_family = "wasm"))]
            Place::File(parts) => {
                let bytes = parts.file.read((envelope::LENGTH + self.range.start) as u64, self.len())?;
                let mut sum = crc32fast::Hasher::new();
                sum.update(&bytes);
                parts.add(self.range.clone(), sum)?;
                Ok(Cow::Owned(bytes))
            }
        }
    }

    /// Calls `found` with the bytes in turn: a whole number of `unit`s at a time, as many as stay in the cache.
    pub(super) fn each(&self, unit: usize, mut found: impl FnMut(&[u8])) -> Result<()> {
        let step = unit.max(1) * (CHUNK / unit.max(1)).max(1);
        match &self.source.place {
            Place::Memory(bytes) => bytes[self.range.clone()].chunks(step).for_each(&mut found),
            #[cfg(not(target_family = "wasm"))]
            Place::File(parts) => parts.each(self.range.clone(), step, found)?,
        }
        Ok(())
    }
}
