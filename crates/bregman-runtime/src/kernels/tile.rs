//! Columns that are computed at a time, so that what they read of x stays in the first-level cache.
//!
//! ```text
//! y = b;  for each tile of columns:  y += W[:, tile] · x[tile];  the last one stores
//! ```
//! Sums go to memory and back between tiles as they are, so each output is the same sum in the same order, to the bit,
//! whatever the tiles.

use std::mem::MaybeUninit;
use std::ops::Range;

use pulp::Simd;

use super::BLOCK;
use super::job::Job;

/// Columns of a tile whose blocks are the largest. A multiple of nine, the taps of a 3 × 3 kernel.
pub(super) const TILE: usize = 45;

/// Numbers of a [`Panel`], 29 kB.
pub(super) const PANEL: usize = TILE * BLOCK;

/// How the columns of a layer are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tiling {
    /// Not at all.
    Whole,
    /// Into tiles of a width, read where they lie.
    Tiles(usize),
    /// Into tiles, copied to a [`Panel`] first: for kernels over time or maps, whose shifts would have every vector lie
    /// in two lines of the cache.
    Packed {
        /// Positions of a block at most.
        block: usize,
    },
}

impl Tiling {
    /// The tiles of `columns` columns.
    pub(super) fn tiles(self, columns: usize) -> impl Iterator<Item = Range<usize>> {
        let step = match self {
            Self::Whole => columns,
            Self::Tiles(width) => width,
            Self::Packed { block } => PANEL / block,
        };
        (0..columns.max(1)).step_by(step.max(1)).map(move |from| from..(from + step).min(columns))
    }

    /// What a kernel is given for a column: where it lies in the panel, or the column.
    pub(super) fn offset_in(self, tile: &Range<usize>, column: usize) -> usize {
        if let Self::Packed { block } = self { (column - tile.start) * block } else { column }
    }

    pub(super) fn is_packed(self) -> bool {
        matches!(self, Self::Packed { .. })
    }
}

/// Blocks of x, one after the other.
#[repr(C, align(64))]
pub(super) struct Panel([MaybeUninit<f32>; PANEL]);

impl Panel {
    pub(super) fn new() -> Self {
        Self([MaybeUninit::uninit(); PANEL])
    }

    /// Copies the blocks of x at those offsets, as many whole vectors as `width` positions need.
    ///
    /// # Safety
    /// From every offset on x has the `width` positions of a block, which has at most `block` of them, rounded up to
    /// whole vectors.
    #[inline(always)]
    pub(super) unsafe fn fill<S: Simd>(&mut self, offsets: &[u32], x: *const f32, width: usize, block: usize) {
        debug_assert!(offsets.len() * block <= PANEL);
        let vectors = width.div_ceil(S::F32_LANES);
        for (&offset, to) in offsets.iter().zip(self.0.chunks_exact_mut(block)) {
            // SAFETY: as the caller promises.
            let (from, to) = unsafe { (x.add(offset as usize), to.as_mut_ptr().cast::<f32>()) };
            for v in 0..vectors {
                // SAFETY: whole vectors of a block, on both sides.
                unsafe {
                    let vector = from.add(v * S::F32_LANES).cast::<S::f32s>().read_unaligned();
                    to.add(v * S::F32_LANES).cast::<S::f32s>().write_unaligned(vector);
                }
            }
        }
    }

    pub(super) fn as_ptr(&self) -> *const f32 {
        self.0.as_ptr().cast()
    }
}

/// One tile of a block.
pub(super) struct Tile<'a> {
    pub(super) number: usize,
    /// Of the layer.
    pub(super) columns: Range<usize>,
    /// From every offset on, a block may be read.
    pub(super) x: *const f32,
    /// Offsets of the layer's [list](super::Offsets); `None` for a panel.
    pub(super) offsets: Option<&'a [u32]>,
    pub(super) first: bool,
    pub(super) last: bool,
}

impl Tile<'_> {
    /// What the sums of a row begin with.
    #[inline(always)]
    pub(super) fn begin<S: Simd, const V: usize>(&self, simd: S, bias: f32, y: &[f32]) -> [S::f32s; V] {
        let y = S::as_simd_f32s(y).0;
        if self.first { [simd.splat_f32s(bias); V] } else { std::array::from_fn(|v| y[v]) }
    }

    /// Where the sums of a row go.
    #[inline(always)]
    pub(super) fn end<S: Simd, const V: usize>(
        &self,
        simd: S,
        job: &Job,
        row: usize,
        sums: [S::f32s; V],
        at: usize,
        y: &mut [f32],
    ) {
        if self.last {
            job.epilogue.write::<S, V>(simd, row, sums, at, y);
        } else {
            S::as_mut_simd_f32s(y).0[..V].copy_from_slice(&sums);
        }
    }
}
