//! What the CPU derives from a weight after each optimizer step, and which products that allows.
//!
//! Dense or sparse is chosen per weight and step, by [`cost`](super::kernels::cost): shipped constants, for the reasons
//! given there.

use std::sync::{Mutex, PoisonError};

use bregman_base::lanes::nonzeros;
use rayon::prelude::*;

use super::kernels::bf16::{Kernel, Packed};
use super::kernels::cost::{Dense, Product};
use super::kernels::sparse::SparseMatrix;
use super::kernels::winograd::{self, Filters};
use super::math::simd;
use super::routes::{Route, suits_winograd};
use super::{Buffer, Cpu};
use crate::{Block, Conv, Precision, Shape, Weight};

/// How the dense products of this precision are made.
pub(super) fn dense(precision: Precision) -> Dense {
    if precision == Precision::Bf16 { Dense::Bf16(Kernel::best()) } else { Dense::F32 }
}

/// When to multiply with compressed weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WeightPolicy {
    /// Where it is cheaper.
    #[default]
    Cheapest,
    /// Never.
    Dense,
    /// Always.
    Sparse,
}

/// Copies of one weight for the products with it and its transpose.
#[derive(Debug, Default)]
pub struct Copies {
    precision: Precision,
    policy: WeightPolicy,
    nonzeros: usize,
    sparse: Option<SparseMatrix>,
    use_sparse: bool,
    /// Where the non-zeros are, for gradients of these alone while the products are dense.
    support: Mutex<Support>,
    bf16: Option<[Packed; 2]>,
    /// What most 3 × 3 weights have instead.
    winograd: Option<[Filters; 2]>,
    /// bf16 weights that are packed when they are needed, because only a convolution knows its stride.
    fresh: Mutex<Packed>,
    /// A dense convolution's taps in reverse, `[inputs, outputs, taps]`: its input gradient is the convolution with
    /// these.
    reversed: Buffer,
}

/// A compressed weight that is made when it is first asked for after a refresh: most trainings never ask.
#[derive(Debug, Default)]
struct Support {
    weight: Option<SparseMatrix>,
    /// Whether it has the structure of the last refresh.
    is_current: bool,
}

impl Copies {
    /// Brings them up to date. Only what the next products will use is made; memory is kept.
    pub(super) fn refresh(
        &mut self,
        precision: Precision,
        policy: WeightPolicy,
        value: &Buffer,
        mask: Option<&Buffer>,
        block: Block,
    ) {
        (self.precision, self.policy) = (precision, policy);
        self.nonzeros = nonzeros_of(&mask.unwrap_or(value)[block.first..], block);
        self.use_sparse = self.prefers_sparse(block);
        exclusive(&mut self.support).is_current = false;
        if self.use_sparse {
            compress(&mut self.sparse, value, mask, block);
        } else {
            self.pack(&value[block.first..], block);
        }
    }

    /// Brings them up to date after a change in which the mask stayed, or without one every zero: the structure stays.
    /// The way to multiply follows from the present values, so that a run that is resumed here takes the same one.
    pub(super) fn refresh_support(&mut self, value: &Buffer, mask: Option<&Buffer>, block: Block) {
        let values = &value[block.first..];
        self.nonzeros = match self.sparse.as_mut().filter(|_| self.use_sparse) {
            Some(sparse) => {
                sparse.refresh_values(values, block.stride);
                sparse.live()
            }
            None => nonzeros_of(&mask.unwrap_or(value)[block.first..], block),
        };
        if self.prefers_sparse(block) != self.use_sparse {
            return self.refresh(self.precision, self.policy, value, mask, block);
        }
        if self.use_sparse {
            return;
        }
        let support = exclusive(&mut self.support);
        if let Some(weight) = support.weight.as_mut().filter(|_| support.is_current) {
            weight.refresh_values(values, block.stride);
        }
        self.pack(values, block);
    }

    /// Whether to multiply with compressed weights.
    fn prefers_sparse(&self, block: Block) -> bool {
        match self.policy {
            WeightPolicy::Dense => false,
            WeightPolicy::Sparse => true,
            WeightPolicy::Cheapest => self.product(block).prefers_sparse(dense(self.precision)),
        }
    }

    /// The input of the cost model.
    fn product(&self, Block { rows, columns, taps, .. }: Block) -> Product {
        Product { rows, columns, taps, nonzeros: self.nonzeros }
    }

    /// Makes the copies for dense products.
    fn pack(&mut self, values: &[f32], block: Block) {
        let Block { rows, stride, columns, taps, .. } = block;
        let (precision, dense, channels) = (self.precision, dense(self.precision), columns / taps);
        if winograd::suits_taps(taps, rows, channels) {
            let [straight, transposed] = self.winograd.get_or_insert_default();
            if precision == Precision::Bf16 {
                straight.pack(dense, values, rows, channels, stride);
            }
            transposed.pack_transposed(dense, values, rows, channels, stride);
        } else if precision == Precision::Bf16 {
            let [straight, transposed] = self.bf16.get_or_insert_default();
            straight.pack(values, rows, columns, stride);
            transposed.pack_transposed(values, rows, channels, taps, stride);
        } else if taps > 1 {
            self.reverse(values, block);
        }
    }

    fn reverse(&mut self, values: &[f32], Block { rows, stride, columns, taps, .. }: Block) {
        if self.reversed.len() != rows * columns {
            self.reversed = Buffer::zeros(rows * columns);
        }
        self.reversed.par_chunks_mut(rows * taps).enumerate().for_each(|(channel, reversed)| {
            for (row, to) in reversed.chunks_exact_mut(taps).enumerate() {
                let from = &values[row * stride + channel * taps..][..taps];
                to.iter_mut().zip(from.iter().rev()).for_each(|(to, &from)| *to = from);
            }
        });
    }

    /// Calls `work` with the compressed form of `w`, of which these are the copies, if the gradient of its support is
    /// computed on that alone.
    pub(super) fn with_support(
        &self,
        conv: &Conv,
        output: Shape,
        w: Weight<Cpu>,
        work: impl FnOnce(&SparseMatrix, bool),
    ) -> bool {
        let block = w.block;
        // a vector's operands are not rounded: see `Precision::Bf16`
        let precision = if output.positions() == 1 { Precision::F32 } else { self.precision };
        let lines = if conv.stride == [1, 1] { block.columns / block.taps } else { block.columns };
        let samples = match self.policy {
            WeightPolicy::Dense => false,
            WeightPolicy::Sparse => true,
            WeightPolicy::Cheapest => self.product(block).prefers_sampled(lines, dense(precision)),
        };
        if !samples {
            return false;
        }
        let rounded = precision == Precision::Bf16;
        if let Some(weight) = self.sparse.as_ref().filter(|_| self.use_sparse) {
            work(weight, rounded);
            return true;
        }
        let mut support = self.support.lock().unwrap_or_else(PoisonError::into_inner);
        let Support { weight, is_current } = &mut *support;
        if !std::mem::replace(is_current, true) {
            compress(weight, w.value, w.mask, block);
        }
        work(weight.as_ref().expect("compressed above, or since the last refresh"), rounded);
        true
    }

    /// `[inputs, outputs, taps]` of the last refresh, if the product is a dense f32 convolution.
    pub(super) fn reversed(&self) -> Option<&[f32]> {
        (!self.reversed.is_empty()).then_some(&*self.reversed)
    }

    /// How to multiply in the forward pass: in f32 by plain sums. Those of [`winograd`] round a little more, and where
    /// that turns the sign of a value before a ReLU, a gradient changes by far more than its own rounding.
    pub(super) fn forward_route<'a>(
        &'a self,
        conv: &Conv,
        input: Shape,
        output: Shape,
        value: &'a [f32],
        block: Block,
    ) -> Option<Route<'a>> {
        let route = self.route(conv, input, output, value, block);
        route.filter(|route| self.precision == Precision::Bf16 || !matches!(route, Route::Winograd(_)))
    }

    /// How to multiply activations with `value`; `None`: dense f32, as the weight lies.
    pub(super) fn route<'a>(
        &'a self,
        conv: &Conv,
        input: Shape,
        output: Shape,
        value: &'a [f32],
        block: Block,
    ) -> Option<Route<'a>> {
        // a vector's operands are not rounded: see `Precision::Bf16`
        let precision = if output.positions() == 1 { Precision::F32 } else { self.precision };
        if self.use_sparse {
            let rounded = precision == Precision::Bf16;
            return self.sparse.as_ref().map(|weight| Route::Sparse { weight, rounded });
        }
        match &self.winograd {
            Some(filters) if precision == self.precision && suits_winograd(conv, input, output) => {
                Some(Route::Winograd(filters))
            }
            _ if precision != Precision::Bf16 => None,
            _ => Some(Route::Bf16 {
                packed: self.bf16.as_ref(),
                fresh: &self.fresh,
                value: &value[block.first..],
                block,
            }),
        }
    }
}

/// Makes `matrix` the compressed form of a weight with the structure of its mask, or that of its values.
fn compress(matrix: &mut Option<SparseMatrix>, value: &Buffer, mask: Option<&Buffer>, block: Block) {
    let Block { rows, stride, first, columns, taps } = block;
    let matrix = matrix.get_or_insert_with(|| SparseMatrix::new(rows, columns / taps, taps));
    match mask {
        Some(mask) => matrix.refresh_masked(&value[first..], &mask[first..], stride),
        None => matrix.refresh(&value[first..], stride),
    }
}

/// What is in a mutex that nobody else can have.
fn exclusive<T>(mutex: &mut Mutex<T>) -> &mut T {
    mutex.get_mut().unwrap_or_else(PoisonError::into_inner)
}

fn nonzeros_of(values: &[f32], Block { rows, stride, columns, .. }: Block) -> usize {
    let of_row = |row: usize| count_nonzeros(&values[row * stride..][..columns]);
    (0..rows).into_par_iter().with_min_len(64).map(of_row).sum()
}

fn count_nonzeros(row: &[f32]) -> usize {
    simd!(nonzeros(row))
}
