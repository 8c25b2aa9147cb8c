//! Sums in whole numbers: 8-bit weights times 8-bit codes of the activations.
//!
//! ```text
//! x ≈ step · code,  W[r, k] = scale[r] · level   ⟹   Σ_k W[r, k] · x[k] ≈ scale[r] · step · Σ_k level · code
//! ```
//! Dot-product instructions multiply four pairs of bytes and add them to one sum. Zeros fall anywhere, so the four are
//! any four non-zeros of a row: the kernel interleaves the codes of their inputs in registers. A non-zero then reads a
//! quarter of the bytes that f32 reads, which is what sparse layers wait for.
//!
//! Sums are exact, so all kernels give the same.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
mod portable;
#[cfg(test)]
mod tests;

use std::ops::Range;

use pulp::{Arch, Simd};

use super::STRIP;
use super::job::Job;
use crate::Result;
use crate::file::StoredLayer;

/// Codes and levels lie in −127..=127, so that two products fit 16 bits.
pub(crate) const MAX_LEVEL: f32 = 127.0;

/// Non-zeros whose products are added at once.
const FOUR: usize = 4;

/// Sums of a row; a kernel may write garbage beyond the block's width.
pub(super) type Sums = [i32; SUMS];

/// A block, rounded up to whole vectors of 32 codes.
const SUMS: usize = 96;

/// Codes beyond a block that a kernel may read.
pub(crate) const SLACK: usize = SUMS - STRIP;

/// Rows whose sums are made by one call of a kernel.
const ROWS: usize = 8;

/// Non-zeros in fours, each row filled up with zeros; rows in the order of their length (see [`super::Sparse`]).
pub(super) struct Quads {
    order: Vec<u32>,
    /// Of the i-th row, fours from `starts[i]` to `starts[i + 1]`.
    starts: Vec<u32>,
    columns: Vec<u32>,
    levels: Vec<[i8; FOUR]>,
    /// Of the i-th row, the sum of its levels.
    totals: Vec<i32>,
    /// Of each row (not in that order): what a sum is multiplied by.
    scales: Vec<f32>,
    /// Codes per unit of x.
    codes_per_unit: f32,
    live: usize,
}

/// What a kernel computes: sums of consecutive rows.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    /// Fours of each row from one start to the next.
    starts: &'a [u32],
    #[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "for codes without a sign"))]
    totals: &'a [i32],
    offsets: &'a [[u32; FOUR]],
    levels: &'a [[i8; FOUR]],
    /// Codes of the block's first position: from every offset on, [`SUMS`] of them may be read.
    codes: *const u8,
    /// Positions.
    width: usize,
}

impl Rows<'_> {
    /// Offsets and levels of row `i`.
    #[inline(always)]
    fn fours(&self, i: usize) -> impl Iterator<Item = (&[u32; FOUR], &[i8; FOUR])> {
        let range = self.starts[i] as usize..self.starts[i + 1] as usize;
        self.offsets[range.clone()].iter().zip(&self.levels[range])
    }
}

/// The instructions that make the sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    /// AVX-512 with dot products (VNNI) and byte permutations (VBMI): Intel since Ice Lake, AMD since Zen 4.
    #[cfg(target_arch = "x86_64")]
    Vnni512,
    /// Dot products of 256 bits without AVX-512: Intel since Alder Lake, AMD since Zen 5.
    #[cfg(target_arch = "x86_64")]
    Vnni256,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// NEON's `sdot`: ARM since 2018.
    #[cfg(target_arch = "aarch64")]
    Dot,
    Portable,
}

impl Kernel {
    /// The fastest within the instructions of `arch`.
    pub(crate) fn of(arch: Arch) -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            let allowed = !matches!(arch, Arch::Scalar);
            if matches!(arch, Arch::V4(_)) && has!("avx512vnni") && has!("avx512vbmi") {
                return Self::Vnni512;
            }
            // a limit means a CPU of that level, not this one's later additions
            if allowed && has!("avxvnni") && !bregman_base::simd::is_limited() {
                return Self::Vnni256;
            }
            if allowed {
                return Self::Avx2;
            }
        }
        #[cfg(target_arch = "aarch64")]
        if matches!(arch, Arch::Neon(_)) && std::arch::is_aarch64_feature_detected!("dotprod") {
            return Self::Dot;
        }
        let _ = arch;
        Self::Portable
    }

    /// What a code is XORed with in memory: x86's dot products take one factor without a sign, code + 128.
    pub(crate) fn flip(self) -> u8 {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Vnni512 | Self::Vnni256 => 0x80,
            _ => 0,
        }
    }

    /// # Safety
    /// The CPU has its instructions, and `rows.codes` is as its field says.
    unsafe fn sums(self, rows: Rows, sums: &mut [Sums]) {
        // SAFETY: as the caller promises.
        unsafe {
            match self {
                #[cfg(target_arch = "x86_64")]
                Self::Vnni512 => avx512::sums(rows, sums),
                #[cfg(target_arch = "x86_64")]
                Self::Vnni256 => avx2::sums_vnni(rows, sums),
                #[cfg(target_arch = "x86_64")]
                Self::Avx2 => avx2::sums(rows, sums),
                #[cfg(target_arch = "aarch64")]
                Self::Dot => neon::sums(rows, sums),
                Self::Portable => portable::sums(rows, sums),
            }
        }
    }
}

impl Quads {
    /// Takes over those columns of a layer with 8-bit weights, whose input lies within ±`range`.
    pub(super) fn new(layer: &StoredLayer, columns: Range<usize>, range: f32) -> Result<Self> {
        let rows = layer.spec.outputs;
        let mut found: Vec<Vec<(u32, i8)>> = vec![Vec::new(); rows];
        layer.for_each_level(|row, column, level| {
            if level != 0 && columns.contains(&column) {
                found[row].push(((column - columns.start) as u32, level));
            }
        })?;
        let step = range / MAX_LEVEL;
        let scales = layer.row_scales()?.into_iter().map(|scale| scale * step).collect();
        Ok(Self::of_rows(&found, scales, step.recip()))
    }

    /// From columns and levels of each row.
    fn of_rows(found: &[Vec<(u32, i8)>], scales: Vec<f32>, codes_per_unit: f32) -> Self {
        let mut order: Vec<u32> = (0..found.len() as u32).collect();
        order.sort_by_key(|&row| found[row as usize].len());
        let mut quads = Self {
            starts: vec![0],
            columns: Vec::new(),
            levels: Vec::new(),
            totals: Vec::new(),
            live: found.iter().map(Vec::len).sum(),
            order,
            scales,
            codes_per_unit,
        };
        for &row in &quads.order {
            let row = &found[row as usize];
            for four in row.chunks(FOUR) {
                // a zero may have any column: that of its neighbour is in the cache
                let at = |i: usize| four.get(i).copied().unwrap_or((four[0].0, 0));
                quads.columns.extend((0..FOUR).map(|i| at(i).0));
                quads.levels.push(std::array::from_fn(|i| at(i).1));
            }
            quads.starts.push(quads.levels.len() as u32);
            quads.totals.push(row.iter().map(|&(_, level)| i32::from(level)).sum());
        }
        quads
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    /// Of each weight in turn, those that fill up a row included.
    pub(super) fn columns(&self) -> &[u32] {
        &self.columns
    }

    pub(super) fn codes_per_unit(&self) -> f32 {
        self.codes_per_unit
    }

    pub(super) fn bytes(&self) -> usize {
        let rows = self.order.len() + self.starts.len() + self.totals.len() + self.scales.len();
        4 * (rows + self.columns.len()) + FOUR * self.levels.len()
    }

    /// All rows of a block.
    #[inline(always)]
    pub(super) fn run<S: Simd>(&self, simd: S, job: &Job) {
        let kernel = Kernel::of(job.arch);
        let (offsets, _) = job.offsets.as_chunks::<FOUR>();
        let mut sums = [[0; SUMS]; ROWS];
        for first in (0..self.order.len()).step_by(ROWS) {
            let count = ROWS.min(self.order.len() - first);
            let rows = Rows {
                starts: &self.starts[first..=first + count],
                totals: &self.totals[first..first + count],
                offsets,
                levels: &self.levels,
                codes: job.codes.as_ptr(),
                width: job.place.width,
            };
            self.order[first..first + count].iter().for_each(|&row| job.expect_row(row as usize));
            // SAFETY: `Kernel::of` has chosen it for this CPU, and `Weights::apply` has checked that there are
            // enough codes.
            unsafe { kernel.sums(rows, &mut sums[..count]) };
            for (sums, &row) in sums.iter().zip(&self.order[first..first + count]) {
                self.store(simd, job, row as usize, sums);
            }
        }
    }

    /// `y[row] = epilogue(bias + scale · sums)`
    #[inline(always)]
    fn store<S: Simd>(&self, simd: S, job: &Job, row: usize, sums: &Sums) {
        let mut numbers = [0f32; SUMS];
        numbers.iter_mut().zip(sums).for_each(|(number, &sum)| *number = sum as f32);
        let (numbers, _) = S::as_simd_f32s(&numbers);
        let (fives, rest) = numbers[..job.place.width.div_ceil(S::F32_LANES)].as_chunks::<5>();
        for (i, &five) in fives.iter().enumerate() {
            self.vectors(simd, job, row, five, 5 * i);
        }
        for (i, &one) in rest.iter().enumerate() {
            self.vectors(simd, job, row, [one], 5 * fives.len() + i);
        }
    }

    /// V vectors of a row, from vector `from` of the block.
    #[inline(always)]
    fn vectors<S: Simd, const V: usize>(&self, simd: S, job: &Job, row: usize, sums: [S::f32s; V], from: usize) {
        let [scale, bias] = [self.scales[row], job.epilogue.bias[row]].map(|value| simd.splat_f32s(value));
        let at = job.place.y + row * job.place.pitch + from * S::F32_LANES;
        // SAFETY: the caller of `Weights::apply` keeps others off this row of the block.
        let y = unsafe { job.y.part(at, V * S::F32_LANES) };
        let sums = sums.map(
            #[inline(always)]
            |sum| simd.mul_add_e_f32s(sum, scale, bias),
        );
        job.epilogue.write::<S, V>(simd, row, sums, at, y);
    }
}
