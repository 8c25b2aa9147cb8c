//! The one operation that takes the time: sparse or dense weights times shifted pieces of memory.
//!
//! Every convolution here is, at a position p of a flat buffer,
//! ```text
//! y[r, p] = store( b[r] + Σ_k W[r, k] · x[p + offset[k]] )
//! ```
//! with one offset per (input channel, tap): a row of the input for a pointwise convolution, a shifted row for a
//! dilated one, a shifted plane for a two-dimensional one. Positions are taken in blocks, a few SIMD vectors whose sums
//! stay in registers:
//!
//! * sparse: a non-zero costs one broadcast and a multiply-add per vector; nothing is written until the row is done;
//! * dense: several rows at a time share the vectors of x, and their weights lie in the order in which they are used;
//! * in whole numbers: as sparse, but four non-zeros at a time and from 8-bit codes of the input ([`int8`]).
//!
//! `store` adds a residual, applies ReLU and the norm after it. Each output is one sum in a fixed order, so results do
//! not depend on the number of threads.
//!
//! 3 × 3 convolutions with few zeros are computed with fewer multiplications instead, over whole maps ([`winograd`]).

mod cost;
mod dense;
mod input;
pub(crate) mod int8;
pub(crate) mod math;
mod matvec;
mod sparse;
mod store;
#[cfg(test)]
mod tests;
mod tile;
pub(crate) mod winograd;

use std::ops::Range;

use bregman_base::Disjoint;
use bregman_base::simd::Level;
use bregman_network::LayerKind;
use pulp::{Arch, Simd, WithSimd};

pub use cost::{BlockCosts, KernelCosts, Tuning};
use cost::{Plan, Shape};
use dense::Dense;
pub(crate) use input::Input;
use int8::{Kernel, Quads};
pub(crate) use matvec::Linear;
use sparse::{Entries, Sparse};
pub(crate) use store::Store;
use tile::{Panel, Tile, Tiling};
use winograd::Winograd;

use crate::Result;
use crate::file::StoredLayer;

/// Positions of a block at most.
pub(crate) const BLOCK: usize = 160;

/// Frames of a block of a signal: a thousand channels of them, and as many of what they become, stay in the
/// second-level cache. Five vectors of AVX-512, ten of AVX2, twenty of NEON or wasm.
pub(crate) const STRIP: usize = 80;

/// The instructions to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Instructions {
    /// AVX-512 (x86-64-v4).
    Avx512,
    /// AVX2 and FMA (x86-64-v3).
    Avx2,
    /// The vectors of the platform: NEON on ARM64, SIMD128 on wasm.
    Platform,
    /// None of them.
    Scalar,
}

impl Instructions {
    /// The widest of this CPU.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// All that this CPU has and `BREGMAN_SIMD` allows (see [`bregman_base::simd`]), widest first.
    pub fn available() -> Vec<Self> {
        let all = [Self::Avx512, Self::Avx2, Self::Platform, Self::Scalar];
        all.into_iter().filter(|instructions| instructions.arch().is_some()).collect()
    }

    /// Positions of a block of a map: as many as have room for their sums in registers.
    fn map_block(self) -> usize {
        if self == Self::Avx512 { BLOCK } else { STRIP }
    }

    pub(crate) fn arch(self) -> Option<Arch> {
        match self {
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => Level::Avx512.arch(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => Level::Avx2.arch(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Platform => Level::Platform.arch(),
            Self::Scalar => Level::Scalar.arch(),
            #[allow(unreachable_patterns)]
            _ => None,
        }
    }
}

const NOT_PLAIN: &str = "these are computed over whole maps; `Weights::plain` is for all else";

/// Weights in the form in which they are used.
pub(crate) struct Weights {
    rows: usize,
    columns: usize,
    live: usize,
    /// Positions of a block at most.
    block: usize,
    tiling: Tiling,
    form: Form,
}

enum Form {
    Sparse(Sparse),
    Dense(Dense),
    Int8(Quads),
    /// For whole maps; has plain weights for all else.
    Winograd(Box<Winograd>),
}

/// How a layer is executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Runs {
    /// Its non-zeros, in f32.
    #[default]
    Sparse,
    /// All of them, in f32.
    Dense,
    /// Its non-zeros, in whole numbers of 8 bits.
    Int8,
    /// All of them, in f32, with a quarter of the multiplications: 3 × 3 convolutions of stride one.
    Winograd,
}

/// Offsets of a layer's columns in a buffer: of each weight in turn (sparse), or of each column (dense). In whole
/// numbers they count from the least.
#[derive(Default)]
pub(crate) struct Offsets {
    list: Vec<u32>,
    /// In whole numbers, each offset once.
    distinct: Vec<u32>,
    /// The smallest.
    least: usize,
    /// One beyond the largest.
    reach: usize,
    /// Positions of a block at most.
    block: usize,
}

impl Offsets {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        4 * (self.list.len() + self.distinct.len())
    }

    /// What a layer reads of a buffer for a block at position `at`.
    pub(crate) fn window(&self, at: usize) -> Range<usize> {
        at + self.least..at + self.reach.max(1) - 1 + self.block
    }
}

/// Where a block lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Position 0 of the block in x: where offset 0 points.
    pub(crate) x: usize,
    /// Row 0, position 0 of the block in y.
    pub(crate) y: usize,
    /// Numbers between rows of y.
    pub(crate) pitch: usize,
    /// Positions, at most those of a block; whole vectors are computed and written.
    pub(crate) width: usize,
}

impl Weights {
    /// Takes over those columns of a stored layer; in whole numbers where the range of its input is known.
    pub(crate) fn new(
        layer: &StoredLayer,
        columns: Range<usize>,
        input_range: Option<f32>,
        costs: &KernelCosts,
    ) -> Result<Self> {
        let (rows, width) = (layer.spec.outputs, columns.len());
        if let Some(range) = input_range {
            let quads = Quads::new(layer, columns, range)?;
            return Ok(Self {
                rows,
                columns: width,
                live: quads.live(),
                block: STRIP,
                tiling: Tiling::Whole,
                form: Form::Int8(quads),
            });
        }
        let (taps, blocks) = match layer.spec.kind {
            LayerKind::Linear => ([1, 1], &costs.strips),
            LayerKind::Conv1d { kernel, .. } => ([kernel, 1], &costs.strips),
            LayerKind::Conv2d { kernel: [rows, columns], .. } => ([columns, rows], &costs.maps),
        };
        let block = blocks.block;
        if winograd::suits(&layer.spec, layer.live) {
            let winograd = Winograd::new(&layer.rows_of(columns)?, width, blocks);
            let (live, form) = (winograd.live(), Form::Winograd(Box::new(winograd)));
            return Ok(Self { rows, columns: width, live, block, tiling: Tiling::Whole, form });
        }
        // of a few columns the share of zeros is taken to be that of all
        let live = (layer.live as f64 * width as f64 / layer.spec.matrix()[1] as f64) as usize;
        match blocks.plan(Shape { rows, columns: width, taps, live }) {
            Plan::Dense => {
                let dense = Dense::new(layer, columns)?;
                let (live, form) = (dense.live(), Form::Dense(dense));
                Ok(Self { rows, columns: width, live, block, tiling: Tiling::Whole, form })
            }
            Plan::Sparse(tiling) => Ok(Self::sparse(&Entries::of(layer, columns)?, width, block, tiling)),
        }
    }

    /// For plain sums, from all weights of each row in turn.
    fn of_rows(weights: &[f32], columns: usize, taps: [usize; 2], live: usize, costs: &BlockCosts) -> Self {
        match costs.plan(Shape { rows: weights.len() / columns, columns, taps, live }) {
            Plan::Dense => Self::dense(weights, columns, costs.block),
            Plan::Sparse(tiling) => Self::sparse(&Entries::of_rows(weights, columns), columns, costs.block, tiling),
        }
    }

    /// From all weights of each row in turn.
    fn dense(weights: &[f32], columns: usize, block: usize) -> Self {
        let dense = Dense::of_rows(weights, columns);
        let (rows, live) = (weights.len() / columns, dense.live());
        Self { rows, columns, live, block, tiling: Tiling::Whole, form: Form::Dense(dense) }
    }

    fn sparse(entries: &Entries, columns: usize, block: usize, tiling: Tiling) -> Self {
        let sparse = Sparse::new(entries, columns, tiling);
        Self { rows: entries.ends.len(), columns, live: sparse.live(), block, tiling, form: Form::Sparse(sparse) }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Positions of a block at most.
    pub(crate) fn block(&self) -> usize {
        self.block
    }

    /// The form for whole maps, if that is how these weights are used where there is one.
    pub(crate) fn winograd(&self) -> Option<&Winograd> {
        if let Form::Winograd(winograd) = &self.form { Some(winograd) } else { None }
    }

    /// These weights for plain sums, which [`Weights::resolve`] and [`Weights::apply`] make.
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(crate) fn plain(&self) -> &Self {
        self.winograd().map_or(self, Winograd::plain)
    }

    /// Weights that are not zero.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn runs(&self) -> Runs {
        match self.form {
            Form::Sparse(_) => Runs::Sparse,
            Form::Dense(_) => Runs::Dense,
            Form::Int8(_) => Runs::Int8,
            Form::Winograd(_) => Runs::Winograd,
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.form {
            Form::Sparse(sparse) => sparse.bytes(),
            Form::Dense(dense) => dense.bytes(),
            Form::Int8(quads) => quads.bytes(),
            Form::Winograd(winograd) => winograd.bytes(),
        }
    }

    /// Fills `offsets` from the offset of each column.
    pub(crate) fn resolve(&self, offset: impl Fn(usize) -> usize, offsets: &mut Offsets) {
        offsets.block = self.block;
        offsets.reach = (0..self.columns).map(&offset).max().map_or(0, |largest| largest + 1);
        assert!(u32::try_from(offsets.reach).is_ok(), "a buffer of more than 2³² numbers");
        offsets.least = (0..self.columns).map(&offset).min().unwrap_or(0);
        offsets.list.clear();
        match &self.form {
            Form::Sparse(sparse) if !self.tiling.is_packed() => {
                offsets.list.extend(sparse.columns().iter().map(|&column| offset(column as usize) as u32))
            }
            Form::Sparse(_) | Form::Dense(_) => {
                offsets.list.extend((0..self.columns).map(|column| offset(column) as u32))
            }
            Form::Int8(quads) => {
                let from_least = |&column: &u32| (offset(column as usize) - offsets.least) as u32;
                offsets.list.extend(quads.columns().iter().map(from_least));
                offsets.distinct = (0..self.columns as u32).map(|column| from_least(&column)).collect();
                offsets.distinct.sort_unstable();
                offsets.distinct.dedup();
            }
            Form::Winograd(_) => unreachable!("{NOT_PLAIN}"),
        }
    }

    /// Codes of numbers that a block reads, for [`Weights::apply`]; a layer in f32 needs none.
    ///
    /// # Panics
    /// If there is less room than for the [codes of a block](Weights::codes).
    pub(crate) fn encode(&self, arch: Arch, x: &[f32], codes: &mut [u8]) {
        if let Form::Int8(quads) = &self.form {
            math::encode(arch, x, quads.codes_per_unit(), Kernel::of(arch).flip(), &mut codes[..x.len()]);
        }
    }

    /// As [`Weights::encode`] for the block at position `at`, where the window is mostly made of what is not read.
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(crate) fn encode_block(&self, arch: Arch, offsets: &Offsets, x: &[f32], at: usize, codes: &mut [u8]) {
        let x = &x[offsets.window(at)];
        for &from in &offsets.distinct {
            self.encode(arch, &x[from as usize..][..STRIP], &mut codes[from as usize..]);
        }
    }

    /// Room for the codes of a block, whose last are read but not used.
    pub(crate) fn codes(&self, offsets: &Offsets) -> usize {
        if self.runs() == Runs::Int8 { offsets.window(0).len() + int8::SLACK } else { 0 }
    }

    /// Computes all rows of the block at `place`, in f32 from x, in whole numbers from the codes of its
    /// [window](Offsets::window) of x.
    ///
    /// # Safety
    /// Nobody else may use the block in `y` meanwhile, whole vectors of it, nor write what it needs of x and of the
    /// residual.
    ///
    /// # Panics
    /// If the block, or what it needs of x, lies outside of the buffers.
    #[expect(clippy::too_many_arguments, reason = "two buffers and where they are read")]
    pub(crate) unsafe fn apply<'a>(
        &self,
        arch: Arch,
        offsets: &Offsets,
        x: impl Into<Input<'a>>,
        codes: &[u8],
        place: Place,
        store: &Store,
        y: Disjoint<'_>,
    ) {
        let x = x.into();
        assert!(place.width <= self.block, "a block of {} positions", place.width);
        assert!(offsets.window(place.x).end <= x.len(), "the block needs more of x than there is");
        assert!(self.codes(offsets) <= codes.len(), "the block needs more codes than there are");
        store.check(self.rows, y);
        arch.dispatch(Job { weights: self, arch, offsets: &offsets.list, x, codes, place, store, y });
    }
}

/// One call of [`Weights::apply`], checked.
struct Job<'a> {
    weights: &'a Weights,
    arch: Arch,
    offsets: &'a [u32],
    x: Input<'a>,
    codes: &'a [u8],
    place: Place,
    store: &'a Store<'a>,
    y: Disjoint<'a>,
}

impl Job<'_> {
    /// Has a row of y fetched that will be written soon: rows are not computed in the order in which they lie, which
    /// is what CPUs foresee.
    #[inline(always)]
    fn expect_row(&self, row: usize) {
        #[cfg(target_arch = "x86_64")]
        for line in (0..self.place.width).step_by(bregman_base::Buffer::LINE) {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let y = self.y.as_mut_ptr().wrapping_add(self.place.y + row * self.place.pitch + line);
            // SAFETY: a hint, which may have any address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(y.cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = row;
    }
}

impl Job<'_> {
    /// Calls `run` with each tile in turn.
    #[inline(always)]
    fn tiles<S: Simd>(&self, run: impl Fn(&Tile)) {
        let Weights { columns: all, tiling, .. } = *self.weights;
        // SAFETY: `Weights::apply` has checked that x holds a block from there and every offset on.
        let x = unsafe { self.x.as_ptr().add(self.place.x) };
        let mut panel = Panel::new();
        for (number, columns) in tiling.tiles(all).enumerate() {
            let (first, last) = (columns.start == 0, columns.end == all);
            let (x, offsets) = if let Tiling::Packed { block } = tiling {
                // SAFETY: as above; a tile has no more columns than a panel.
                unsafe { panel.fill::<S>(&self.offsets[columns.clone()], x, self.place.width, block) };
                (panel.as_ptr(), None)
            } else {
                (x, Some(self.offsets))
            };
            run(&Tile { number, columns, x, offsets, first, last });
        }
    }
}

impl WithSimd for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match &self.weights.form {
            Form::Sparse(sparse) => self.tiles::<S>(
                #[inline(always)]
                |tile| sparse.run(simd, &self, tile),
            ),
            Form::Dense(dense) => self.tiles::<S>(
                #[inline(always)]
                |tile| dense.run(simd, &self, tile),
            ),
            Form::Int8(quads) => quads.run(simd, &self),
            Form::Winograd(_) => unreachable!("{NOT_PLAIN}"),
        }
    }
}
