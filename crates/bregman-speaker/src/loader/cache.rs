//! Features on disk: one file of 16-bit floats, 48 kB per 3 s cut.
//!
//! ```text
//! "BRGFEAT1" | fingerprint | cuts | frames | bins | cuts × (frames × bins) f16 | cuts × u8 (1 = readable)
//! all little-endian
//! ```
//!
//! The fingerprint covers the front end, the cut settings and the list of utterances; if any of them changes, the cache
//! is rebuilt. f16 keeps 11 bits: an error below 0.016 for mean-subtracted features below 64 dB.

use std::io::Write;
use std::path::Path;

use bregman_audio::AugmentConfig;
use bregman_base::files::PartsFile;
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use rayon::prelude::*;

use super::cuts::{CutReader, CutSource, Cuts};
use crate::Rng;
use crate::files::write_whole;
use crate::{Error, Progress, Result};

const MAGIC: &[u8; 8] = b"BRGFEAT1";
const HEADER: usize = 40;
/// Cuts computed in parallel between two writes: bounds the memory of a build.
const CHUNK: usize = 256;

/// Cuts whose features are read from a file.
pub struct FeatureCache {
    cuts: Cuts,
    file: PartsFile,
    /// Per cut, 1 if it could be read.
    readable: Vec<u8>,
    rebuilt: bool,
}

impl FeatureCache {
    /// Opens the cache of `cuts` at `path`, and builds it first if it is missing, incomplete or of other cuts.
    pub fn open(path: &Path, cuts: Cuts, progress: &dyn Progress) -> Result<Self> {
        if cuts.config().augment != AugmentConfig::default() {
            let expected = "no augmentation with a feature cache: every epoch would repeat the same features";
            return Err(Error::Setting { field: "augment", value: "on".to_owned(), expected });
        }
        let header = header(&cuts);
        let current = |file: &PartsFile| {
            file.length().is_ok_and(|length| length == size(&cuts) as u64)
                && file.read(0, HEADER).is_ok_and(|start| start == header)
        };
        let (file, rebuilt) = match PartsFile::open(path).ok().filter(current) {
            Some(file) => (file, false),
            None => {
                build(path, &cuts, &header, progress)?;
                (PartsFile::open(path)?, true)
            }
        };
        let number = cuts.labels().len();
        let readable = file.read((size(&cuts) - number) as u64, number)?;
        Ok(Self { cuts, file, readable, rebuilt })
    }

    /// True if [`FeatureCache::open`] had to build the file.
    pub fn rebuilt(&self) -> bool {
        self.rebuilt
    }

    /// Size of the file.
    pub fn bytes(&self) -> usize {
        size(&self.cuts)
    }
}

/// Bytes of the file.
fn size(cuts: &Cuts) -> usize {
    HEADER + cuts.labels().len() * (record(cuts) + 1)
}

/// Bytes of one cut.
fn record(cuts: &Cuts) -> usize {
    let [frames, bins] = cuts.shape();
    2 * frames * bins
}

fn header(cuts: &Cuts) -> Vec<u8> {
    let [frames, bins] = cuts.shape();
    let mut header = MAGIC.to_vec();
    for number in [cuts.fingerprint(), cuts.labels().len() as u64, frames as u64, bins as u64] {
        header.extend(number.to_le_bytes());
    }
    header
}

fn build(path: &Path, cuts: &Cuts, header: &[u8], progress: &dyn Progress) -> Result<()> {
    let numbers: Vec<usize> = (0..cuts.labels().len()).collect();
    progress.begin(numbers.len());
    write_whole(path, true, |writer| {
        let mut readable = Vec::with_capacity(numbers.len());
        writer.write_all(header).map_err(Error::io(path))?;
        for chunk in numbers.chunks(CHUNK) {
            let rows: Vec<(Vec<u8>, bool)> = chunk
                .par_iter()
                .map_init(
                    || (cuts.reader(), vec![0f32; record(cuts) / 2]),
                    |(reader, features), &cut| {
                        let read = reader.read(cut, Rng::keyed(&[cut as u64]).bits(), features);
                        progress.step();
                        match read {
                            Ok(_) => {
                                Ok((features.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(), true))
                            }
                            Err(Error::Unreadable { .. }) => Ok((vec![0; record(cuts)], false)),
                            Err(other) => Err(other),
                        }
                    },
                )
                .collect::<Result<_>>()?;
            for (row, good) in rows {
                writer.write_all(&row).map_err(Error::io(path))?;
                readable.push(u8::from(good));
            }
        }
        writer.write_all(&readable).map_err(Error::io(path))
    })
}

impl CutSource for FeatureCache {
    fn labels(&self) -> &[u32] {
        self.cuts.labels()
    }

    fn classes(&self) -> usize {
        self.cuts.classes()
    }

    fn shape(&self) -> [usize; 2] {
        self.cuts.shape()
    }

    fn name(&self, cut: usize) -> String {
        self.cuts.name(cut)
    }

    fn reader(&self) -> Box<dyn CutReader + '_> {
        let record = record(&self.cuts);
        Box::new(CacheReader { cache: self, row: vec![0; record], bits: vec![0; record / 2] })
    }
}

struct CacheReader<'a> {
    cache: &'a FeatureCache,
    row: Vec<u8>,
    bits: Vec<u16>,
}

impl CutReader for CacheReader<'_> {
    fn read(&mut self, cut: usize, _: u64, out: &mut [f32]) -> Result<u32> {
        if self.cache.readable[cut] == 0 {
            let problem = "it could not be read when the feature cache was built".to_owned();
            return Err(Error::Unreadable { utterance: self.cache.name(cut), problem });
        }
        self.cache.file.read_into((HEADER + cut * self.row.len()) as u64, &mut self.row)?;
        for (bits, &pair) in self.bits.iter_mut().zip(self.row.as_chunks().0) {
            *bits = u16::from_le_bytes(pair);
        }
        self.bits.reinterpret_cast::<f16>().convert_to_f32_slice(out);
        Ok(self.cache.labels()[cut])
    }
}
