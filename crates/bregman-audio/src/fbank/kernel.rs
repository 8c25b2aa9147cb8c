//! Computes log-mel rows from samples, as many frames at once as the CPU's registers have lanes.
//!
//! Lane l works on frame f + l, so every vector holds the same sample, frequency or bin of consecutive frames. Sample n
//! of frame f is x[f·hop + n]; with n = c·hop + r it is at row r, column f + c of the signal laid out with `hop` rows.
//! So the signal is transposed once, and frames that overlap read the same rows at shifted columns.

use pulp::{Simd, WithSimd};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::config::{FbankConfig, FilterbankKind};
use super::{fft, log, mel};

/// Lanes of the widest registers in use.
const MAX_LANES: usize = 16;
/// Tables that depend only on the settings.
pub(crate) struct Tables {
    fft: fft::RealFft,
    window: Vec<f32>,
    hop: usize,
    /// Where the window begins in the FFT's input.
    offset: usize,
    /// Sample 0 of frame 0 in the signal: negative for centred frames.
    pub(crate) origin: isize,
    filters: Vec<mel::Filter>,
    /// The terms of all filters, one filter after another: index of the vector and its weight.
    taps: Vec<(u32, f32)>,
    /// Pre-emphasis after mean removal, for Kaldi.
    preemphasis: Option<f32>,
    dither: f32,
    /// Smallest energy before the logarithm, and the logarithm's factor.
    smallest: f32,
    factor: f32,
    columns: usize,
    /// Where sample n of the frames begins in the signal as laid out.
    places: Vec<u32>,
}

/// Working memory of one thread.
pub(crate) struct FbankScratch {
    signal: Aligned,
    padded: Vec<f32>,
    spectrum: Aligned,
    bins: Aligned,
}

/// Floats aligned to a cache line, so that no vector spans two lines.
struct Aligned(Vec<f32>);

impl Aligned {
    fn new(length: usize) -> Self {
        Self(vec![0.0; length + MAX_LANES])
    }

    #[inline(always)]
    fn as_mut(&mut self) -> &mut [f32] {
        let skip = self.0.as_ptr().align_offset(4 * MAX_LANES).min(MAX_LANES);
        &mut self.0[skip..]
    }
}

impl Tables {
    pub(crate) fn new(config: &FbankConfig) -> Self {
        let (n, n_fft, hop) = (config.window(), config.n_fft(), config.hop());
        let fft = fft::RealFft::new(n_fft);
        let columns = (MAX_LANES + n.div_ceil(hop)).next_multiple_of(MAX_LANES);
        let filters = mel::filters(config);
        let taps = filters
            .iter()
            .flat_map(|filter| (filter.start..).zip(&filter.weights))
            .map(|(k, &weight)| (fft.place(k), weight));
        let taps = taps.collect();
        let common = Self {
            window: (0..n).map(|i| config.window_at(i) as f32).collect(),
            hop,
            offset: 0,
            origin: 0,
            filters,
            taps,
            preemphasis: None,
            dither: 0.0,
            smallest: 1e-10,
            factor: 10.0 / std::f32::consts::LN_10,
            columns,
            places: (0..n).map(|i| (i % hop * columns + i / hop) as u32).collect(),
            fft,
        };
        match config.front_end {
            FilterbankKind::SpeechBrain { .. } => {
                let offset = (n_fft - n) / 2;
                Self { offset, origin: offset as isize - (n_fft / 2) as isize, ..common }
            }
            FilterbankKind::Kaldi { preemphasis, dither, .. } => Self {
                places: if dither > 0.0 { (0..n).map(|i| (i * MAX_LANES) as u32).collect() } else { common.places },
                window: common.window.iter().map(|w| w * config.kaldi_scale()).collect(),
                preemphasis: Some(preemphasis),
                dither: dither / 32768.0, // it is given in steps of 16-bit audio
                smallest: f32::EPSILON,
                factor: 1.0,
                ..common
            },
        }
    }

    /// The mel filters.
    pub(super) fn filters(&self) -> &[mel::Filter] {
        &self.filters
    }

    /// Smallest energy before the logarithm, and the logarithm's factor.
    pub(super) fn logarithm(&self) -> (f32, f32) {
        (self.smallest, self.factor)
    }

    pub(crate) fn scratch(&self) -> FbankScratch {
        let signal = if self.dither > 0.0 { self.window.len() * MAX_LANES } else { self.hop * self.columns };
        let vectors = |count: usize| Aligned::new(count * MAX_LANES);
        let padded = (self.hop * self.columns).max(self.window.len());
        FbankScratch {
            signal: Aligned::new(signal),
            padded: vec![0.0; padded],
            spectrum: vectors(self.fft.len()),
            bins: vectors(self.filters.len()),
        }
    }
}

/// The task: frames `first ..` of an utterance, one row of `rows` each.
pub(crate) struct Frames<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) scratch: &'a mut FbankScratch,
    /// Part of the utterance that holds everything these frames need, and the index of its first sample.
    pub(crate) samples: &'a [f32],
    pub(crate) start: isize,
    pub(crate) first: usize,
    pub(crate) rows: &'a mut [f32],
    /// Seed of the dither.
    pub(crate) seed: u64,
}

impl WithSimd for Frames<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let bins = self.tables.filters.len();
        let rows = std::mem::take(&mut self.rows);
        for (block, rows) in rows.chunks_mut(bins * S::F32_LANES).enumerate() {
            let first = self.first + block * S::F32_LANES;
            if self.tables.dither > 0.0 {
                self.lay_out_dithered(first, rows.len() / bins);
            } else {
                self.lay_out(first, rows.len() / bins);
            }
            self.compute(simd);
            let values = self.scratch.bins.as_mut();
            for (lane, row) in rows.chunks_exact_mut(bins).enumerate() {
                for (value, bin) in row.iter_mut().zip(values.chunks_exact(S::F32_LANES)) {
                    *value = bin[lane];
                }
            }
        }
    }
}

impl Frames<'_> {
    /// The signal from frame `first` on, transposed: one column per hop.
    #[inline(always)]
    fn lay_out(&mut self, first: usize, frames: usize) {
        let Tables { hop, columns, origin, .. } = *self.tables;
        let FbankScratch { signal, padded, .. } = self.scratch;
        let from = origin + (first * hop) as isize - self.start;
        let needed = (frames + self.tables.window.len().div_ceil(hop)) * hop;
        let inside = usize::try_from(from).ok().and_then(|from| self.samples.get(from..from + needed));
        let piece = inside.unwrap_or_else(|| pad(self.samples, from, &mut padded[..needed]));
        transpose(piece, hop, signal.as_mut(), columns);
    }

    /// Frames with dither added to each, transposed.
    #[inline(always)]
    fn lay_out_dithered(&mut self, first: usize, frames: usize) {
        let FbankScratch { signal, padded, .. } = self.scratch;
        let frame = &mut padded[..self.tables.window.len()];
        for lane in 0..frames {
            let index = first + lane;
            pad(self.samples, self.tables.origin + (index * self.tables.hop) as isize - self.start, frame);
            let mut random =
                Xoshiro256PlusPlus::seed_from_u64(self.seed ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
            for (row, x) in signal.as_mut().chunks_exact_mut(MAX_LANES).zip(frame.iter()) {
                row[lane] = x + self.tables.dither * normal(&mut random);
            }
        }
    }

    /// From the signal in `scratch` to log-mel values in `scratch.bins`.
    #[inline(always)]
    fn compute<S: Simd>(&mut self, simd: S) {
        let spectrum = S::as_mut_simd_f32s(self.scratch.spectrum.as_mut()).0;
        self.tables.frame(simd, self.scratch.signal.as_mut(), spectrum);
        self.tables.fft.power(simd, spectrum);
        let bins = S::as_mut_simd_f32s(self.scratch.bins.as_mut()).0;
        let (smallest, factor) = (simd.splat_f32s(self.tables.smallest), simd.splat_f32s(self.tables.factor));
        let mut taps = self.tables.taps.as_slice();
        for (filter, bin) in self.tables.filters.iter().zip(bins) {
            let (now, rest) = taps.split_at(filter.weights.len());
            let mut energy = simd.splat_f32s(0.0);
            for &(at, weight) in now {
                energy = simd.mul_add_e_f32s(simd.splat_f32s(weight), spectrum[at as usize], energy);
            }
            *bin = simd.mul_f32s(factor, log::ln(simd, simd.max_f32s(energy, smallest)));
            taps = rest;
        }
    }
}

impl Tables {
    /// Windowed frames, after mean removal and pre-emphasis for Kaldi: (x[n] − mean) − c·(x[n−1] − mean), where x[−1]
    /// stands for x[0].
    #[inline(always)]
    fn frame<S: Simd>(&self, simd: S, signal: &[f32], frames: &mut [S::f32s]) {
        let (zero, places) = (simd.splat_f32s(0.0), self.places.as_slice());
        let (c, mean) = match self.preemphasis {
            None => (zero, zero),
            Some(c) => (
                simd.splat_f32s(c),
                simd.mul_f32s(simd.splat_f32s((1.0 - c) / places.len() as f32), sum(simd, signal, places)),
            ),
        };
        for n in 0..self.offset {
            frames[self.fft.input(n)] = zero;
        }
        let mut previous = load::<S>(signal, places[0]);
        for (n, (&place, &w)) in places.iter().zip(&self.window).enumerate() {
            let x = load::<S>(signal, place);
            let y = simd.negate_mul_add_e_f32s(c, previous, simd.sub_f32s(x, mean));
            frames[self.fft.input(self.offset + n)] = simd.mul_f32s(y, simd.splat_f32s(w));
            previous = x;
        }
        for n in self.offset + places.len()..self.fft.len() {
            frames[self.fft.input(n)] = zero;
        }
    }
}

/// Samples `from ..`, with zeros outside of the signal.
#[inline(always)]
fn pad<'a>(samples: &[f32], from: isize, padded: &'a mut [f32]) -> &'a [f32] {
    padded.fill(0.0);
    let before = (from.min(0).unsigned_abs()).min(padded.len());
    let samples = samples.get(from.max(0) as usize..).unwrap_or_default();
    let count = samples.len().min(padded.len() - before);
    padded[before..before + count].copy_from_slice(&samples[..count]);
    padded
}

/// to[c, r] = from[r, c], for as many columns c of `from` as `to` has rows.
#[inline(always)]
fn transpose(from: &[f32], from_width: usize, to: &mut [f32], to_width: usize) {
    for (r, row) in from.chunks_exact(from_width).enumerate() {
        for (to, &x) in to.chunks_exact_mut(to_width).zip(row) {
            to[r] = x;
        }
    }
}

#[inline(always)]
fn load<S: Simd>(signal: &[f32], place: u32) -> S::f32s {
    S::as_simd_f32s(&signal[place as usize..][..S::F32_LANES]).0[0]
}

/// The sum of each frame, in four partial sums to shorten the dependency chain.
#[inline(always)]
fn sum<S: Simd>(simd: S, signal: &[f32], places: &[u32]) -> S::f32s {
    let mut sums = [simd.splat_f32s(0.0); 4];
    let (fours, rest) = places.as_chunks::<4>();
    for four in fours {
        for (sum, &place) in sums.iter_mut().zip(four) {
            *sum = simd.add_f32s(*sum, load::<S>(signal, place));
        }
    }
    for &place in rest {
        sums[0] = simd.add_f32s(sums[0], load::<S>(signal, place));
    }
    simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]))
}

/// A standard normal number (Box & Muller 1958).
fn normal(random: &mut impl Rng) -> f32 {
    let uniform = |bits: u32| (f64::from(bits) + 0.5) / 2f64.powi(32);
    let (radius, angle) = (uniform(random.next_u32()), uniform(random.next_u32()));
    ((-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()) as f32
}
