//! Weights in the form in which they are used.

use std::ops::Range;

use bregman_base::Disjoint;
use bregman_network::LayerKind;
use pulp::Arch;

use super::cost::{BlockCosts, KernelCosts, Plan, Shape};
use super::dense::Dense;
use super::int8::{self, Kernel, Quads};
use super::job::Job;
use super::sparse::{Entries, Sparse};
use super::tile::Tiling;
use super::winograd::{self, Winograd};
use super::{Epilogue, Input, Offsets, Place, STRIP, math};
use crate::Result;
use crate::file::StoredLayer;

pub(super) const NOT_PLAIN: &str = "these are computed over whole maps; `Weights::plain` is for all else";

/// Weights in the form in which they are used.
pub(crate) struct Weights {
    pub(super) rows: usize,
    pub(super) columns: usize,
    live: usize,
    /// Positions of a block at most.
    pub(super) block: usize,
    pub(super) tiling: Tiling,
    pub(super) form: Form,
}

pub(super) enum Form {
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
    pub(super) fn of_rows(weights: &[f32], columns: usize, taps: [usize; 2], live: usize, costs: &BlockCosts) -> Self {
        match costs.plan(Shape { rows: weights.len() / columns, columns, taps, live }) {
            Plan::Dense => Self::dense(weights, columns, costs.block),
            Plan::Sparse(tiling) => Self::sparse(&Entries::of_rows(weights, columns), columns, costs.block, tiling),
        }
    }

    /// From all weights of each row in turn.
    pub(super) fn dense(weights: &[f32], columns: usize, block: usize) -> Self {
        let dense = Dense::of_rows(weights, columns);
        let (rows, live) = (weights.len() / columns, dense.live());
        Self { rows, columns, live, block, tiling: Tiling::Whole, form: Form::Dense(dense) }
    }

    pub(super) fn sparse(entries: &Entries, columns: usize, block: usize, tiling: Tiling) -> Self {
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
    /// Nothing else may use the block in `y` meanwhile, whole vectors of it, nor write what it needs of x and of the
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
        epilogue: &Epilogue,
        y: Disjoint<'_>,
    ) {
        let x = x.into();
        assert!(place.width <= self.block, "a block of {} positions", place.width);
        assert!(offsets.window(place.x).end <= x.len(), "the block needs more of x than there is");
        assert!(self.codes(offsets) <= codes.len(), "the block needs more codes than there are");
        epilogue.check(self.rows, y);
        arch.dispatch(Job { weights: self, arch, offsets: &offsets.list, x, codes, place, epilogue, y });
    }
}
