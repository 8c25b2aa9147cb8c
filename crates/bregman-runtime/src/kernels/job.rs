//! One block of a layer.

use bregman_base::Disjoint;
use pulp::{Arch, Simd, WithSimd};

use super::tile::{Panel, Tile, Tiling};
use super::weights::{Form, NOT_PLAIN};
use super::{Epilogue, Input, Place, Weights};

/// One call of [`Weights::apply`], checked.
pub(super) struct Job<'a> {
    pub(super) weights: &'a Weights,
    pub(super) arch: Arch,
    pub(super) offsets: &'a [u32],
    pub(super) x: Input<'a>,
    pub(super) codes: &'a [u8],
    pub(super) place: Place,
    pub(super) epilogue: &'a Epilogue<'a>,
    pub(super) y: Disjoint<'a>,
}

impl Job<'_> {
    /// Prefetches a row of y that will be written soon: rows are not computed in the order in which they lie, which is
    /// the order that CPUs prefetch by themselves.
    #[inline(always)]
    pub(super) fn expect_row(&self, row: usize) {
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

    /// Calls `run` with one tile after the other.
    #[inline(always)]
    fn tiles<S: Simd>(&self, run: impl Fn(&Tile)) {
        let Weights { columns: all, tiling, .. } = *self.weights;
        // SAFETY: `Weights::apply` has checked that x holds a block from there and every offset on.
        let x = unsafe { self.x.as_ptr().add(self.place.x) };
        let mut panel = Panel::new();
        for (number, columns) in tiling.tiles(all).enumerate() {
            let (first, last) = (columns.start == 0, columns.end == all);
            let (x, offsets) = if let Tiling::Packed { block } = tiling {
                // SAFETY: x holds a block from every offset on, and a tile has no more columns than a panel.
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
