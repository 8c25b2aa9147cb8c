//! The one operation that takes the time: sparse or dense weights times shifted pieces of memory.
//!
//! Every convolution here is, at a position p of a flat buffer,
//! ```text
//! y[r, p] = store( b[r] + Σ_k W[r, k] · x[p + offset[k]] )
//! ```
//! with one offset per (input channel, tap): a row of the input for a pointwise convolution, a shifted row for a
//! dilated one, a shifted plane for a two-dimensional one. Positions are taken in blocks of [`BLOCK`], a few SIMD
//! vectors whose sums stay in registers:
//!
//! * sparse: a non-zero costs one broadcast and a multiply-add per vector; nothing is written until the row is done;
//! * dense: several rows at a time share the vectors of x, and their weights lie in the order in which they are used.
//!
//! `store` adds a residual, applies ReLU and the norm after it. Each output is one sum in a fixed order, so results do
//! not depend on the number of threads.

mod dense;
pub(crate) mod math;
mod matvec;
mod sparse;
mod store;

use std::ops::Range;

use bregman_base::Disjoint;
use bregman_base::simd::Level;
use pulp::{Arch, Simd, WithSimd};

use dense::Dense;
pub(crate) use matvec::Linear;
use sparse::Sparse;
pub(crate) use store::Store;

use crate::Result;
use crate::file::StoredLayer;

/// Positions of a block: five vectors of AVX-512, ten of AVX2, twenty of NEON or wasm.
pub(crate) const BLOCK: usize = 80;

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

/// Weights in the form in which they are used.
pub(crate) struct Weights {
    rows: usize,
    columns: usize,
    live: usize,
    form: Form,
}

enum Form {
    Sparse(Sparse),
    Dense(Dense),
}

/// Offsets of a layer's columns in a buffer: of each weight in turn (sparse), or of each column (dense).
#[derive(Default)]
pub(crate) struct Offsets {
    list: Vec<u32>,
    /// One beyond the largest.
    reach: usize,
}

impl Offsets {
    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.list.len()
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
    /// Positions, at most [`BLOCK`]; whole vectors are computed and written.
    pub(crate) width: usize,
}

impl Weights {
    /// Takes over those columns of a stored layer.
    pub(crate) fn new(layer: &StoredLayer, columns: Range<usize>) -> Result<Self> {
        let (rows, width) = (layer.spec.outputs, columns.len());
        // of a few columns the share of zeros is taken to be that of all
        let all = layer.spec.weights();
        let (live, form) = if dense::pays(all, layer.live) {
            let dense = Dense::new(layer, columns)?;
            (dense.live(), Form::Dense(dense))
        } else {
            let sparse = Sparse::new(layer, columns)?;
            (sparse.live(), Form::Sparse(sparse))
        };
        Ok(Self { rows, columns: width, live, form })
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Weights that are not zero.
    pub(crate) fn live(&self) -> usize {
        self.live
    }

    pub(crate) fn is_dense(&self) -> bool {
        matches!(self.form, Form::Dense(_))
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        match &self.form {
            Form::Sparse(sparse) => sparse.bytes(),
            Form::Dense(dense) => dense.bytes(),
        }
    }

    /// Fills `offsets` from the offset of each column.
    pub(crate) fn resolve(&self, offset: impl Fn(usize) -> usize, offsets: &mut Offsets) {
        offsets.reach = (0..self.columns).map(&offset).max().map_or(0, |largest| largest + 1);
        assert!(u32::try_from(offsets.reach).is_ok(), "a buffer of more than 2³² numbers");
        offsets.list.clear();
        match &self.form {
            Form::Sparse(sparse) => {
                offsets.list.extend(sparse.columns().iter().map(|&column| offset(column as usize) as u32))
            }
            Form::Dense(_) => offsets.list.extend((0..self.columns).map(|column| offset(column) as u32)),
        }
    }

    /// Computes all rows of the block at `place`.
    ///
    /// # Safety
    /// Nobody else may use the block in `y` meanwhile, whole vectors of it.
    ///
    /// # Panics
    /// If the block, or what it needs of x, lies outside of the buffers.
    pub(crate) unsafe fn apply(
        &self,
        arch: Arch,
        offsets: &Offsets,
        x: &[f32],
        place: Place,
        store: &Store,
        y: Disjoint<'_>,
    ) {
        assert!(place.width <= BLOCK, "a block of {} positions", place.width);
        assert!(place.x + offsets.reach.max(1) - 1 + BLOCK <= x.len(), "the block needs more of x than there is");
        store.check(self.rows, y);
        let job = Job { weights: self, offsets: &offsets.list, x, place, store, y };
        arch.dispatch(job);
    }
}

/// One call of [`Weights::apply`], checked.
struct Job<'a> {
    weights: &'a Weights,
    offsets: &'a [u32],
    x: &'a [f32],
    place: Place,
    store: &'a Store<'a>,
    y: Disjoint<'a>,
}

impl WithSimd for Job<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        match &self.weights.form {
            Form::Sparse(sparse) => sparse.run(simd, &self),
            Form::Dense(dense) => dense.run(simd, &self),
        }
    }
}
