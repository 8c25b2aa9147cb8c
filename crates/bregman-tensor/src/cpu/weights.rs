//! What the CPU derives from a weight after each optimizer step, and which products that allows.
//!
//! Dense or sparse is chosen per weight and step, by [`cost`](super::kernels::cost): shipped constants, for the reasons
//! given there.

use std::sync::Mutex;

use bregman_base::lanes::nonzeros;
use rayon::prelude::*;

use super::Buffer;
use super::kernels::bf16::{Kernel, Packed};
use super::kernels::cost::{Dense, Product};
use super::kernels::sparse::SparseMatrix;
use super::kernels::winograd::{self, Filters};
use super::math::simd;
use super::routes::{Route, suits_winograd};
use crate::{Block, Conv, Precision, Shape};

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
    sparse: Option<SparseMatrix>,
    use_sparse: bool,
    bf16: Option<[Packed; 2]>,
    /// What most 3 × 3 weights have instead.
    winograd: Option<[Filters; 2]>,
    /// bf16 weights that are packed when they are needed, because only a convolution knows its stride.
    fresh: Mutex<Packed>,
    /// A dense convolution's taps in reverse, `[inputs, outputs, taps]`: its input gradient is the convolution with
    /// these.
    reversed: Buffer,
}

impl Copies {
    /// Brings them up to date. Only what the next products will use is made; memory is kept.
    pub(super) fn refresh(&mut self, precision: Precision, policy: WeightPolicy, value: &Buffer, block: Block) {
        let Block { rows, stride, first, columns, taps } = block;
        let values = &value[first..];
        let nonzeros = (0..rows)
            .into_par_iter()
            .with_min_len(64)
            .map(|row| count_nonzeros(&values[row * stride..][..columns]))
            .sum();
        let dense = dense(precision);
        self.precision = precision;
        self.use_sparse = match policy {
            WeightPolicy::Dense => false,
            WeightPolicy::Sparse => true,
            WeightPolicy::Cheapest => Product { rows, columns, taps, nonzeros }.prefers_sparse(dense),
        };
        if self.use_sparse {
            let sparse = self.sparse.get_or_insert_with(|| SparseMatrix::new(rows, columns / taps, taps));
            return sparse.refresh(values, stride);
        }
        let channels = columns / taps;
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

fn count_nonzeros(row: &[f32]) -> usize {
    simd!(nonzeros(row))
}
