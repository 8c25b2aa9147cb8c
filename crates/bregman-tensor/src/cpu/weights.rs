//! What the CPU derives from a weight after each optimizer step, and the products other than dense f32.
//!
//! Dense or sparse is chosen per weight and step, by [`cost`]: shipped constants, for the reasons given there.

use rayon::prelude::*;

use super::kernels::bf16::{self, Kernel, Packed};
use super::kernels::columns::{Geometry, Plain, Window};
use super::kernels::cost::{Dense, Product};
use super::kernels::output::{self, Output};
use super::kernels::sparse::SparseMatrix;
use super::kernels::winograd::{self, Filters, Workspace};
use super::math::simd;
use super::{Buffer, Cpu};
use crate::{Block, Conv, Shape, Start};

/// The number format of the operands of large products. Sums, weights, statistics and everything else are f32 in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Precision {
    /// Single precision.
    #[default]
    F32,
    /// Operands rounded to bf16: AMX or AVX-512-BF16 where the CPU has them. Vectors (linear layers, the classifier) stay f32: they
    /// cost little, and cosines need the digits.
    Bf16,
}

impl Precision {
    fn dense(self) -> Dense {
        if self == Self::Bf16 { Dense::Bf16(Kernel::best()) } else { Dense::F32 }
    }
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
    /// What a 3 × 3 weight has instead if its convolution has no stride, which only the convolution knows.
    winograd: Option<[Filters; 2]>,
    /// A dense convolution's taps in reverse, `[inputs, outputs, taps]`: its input gradient is the convolution with these.
    reversed: Buffer,
}

impl Copies {
    /// Brings them up to date. Only what the next products will use is made; memory is kept.
    pub(super) fn refresh(&mut self, precision: Precision, policy: WeightPolicy, value: &Buffer, block: Block) {
        let Block { rows, stride, first, columns, taps } = block;
        let values = &value[first..];
        let nonzeros = (0..rows).into_par_iter().with_min_len(64).map(|row| live(&values[row * stride..][..columns])).sum();
        let dense = precision.dense();
        self.precision = precision;
        self.use_sparse = match policy {
            WeightPolicy::Dense => false,
            WeightPolicy::Sparse => true,
            WeightPolicy::Cheapest => Product { rows, columns, nonzeros }.prefers_sparse(dense),
        };
        if self.use_sparse {
            let sparse = self.sparse.get_or_insert_with(|| SparseMatrix::new(rows, columns / taps, taps));
            return sparse.refresh(values, stride);
        }
        let winograd = winograd::suits_taps(taps, rows, columns / taps);
        if winograd {
            let [straight, transposed] = self.winograd.get_or_insert_default();
            straight.pack(dense, values, rows, columns / taps, stride);
            transposed.pack_transposed(dense, values, rows, columns / taps, stride);
        }
        if precision == Precision::Bf16 {
            let [straight, transposed] = self.bf16.get_or_insert_default();
            straight.pack(values, rows, columns, stride);
            transposed.pack_transposed(values, rows, columns / taps, taps, stride);
        } else if taps > 1 && !winograd {
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

    /// How to multiply activations; `None`: dense f32, as the weight lies.
    pub(super) fn route(&self, conv: &Conv, input: Shape, output: Shape) -> Option<Route<'_>> {
        // a vector's operands are not rounded: see `Precision::Bf16`
        let precision = if output.positions() == 1 { Precision::F32 } else { self.precision };
        if self.use_sparse {
            return self.sparse.as_ref().map(|sparse| Route::Sparse(sparse, precision));
        }
        match (&self.winograd, &self.bf16) {
            (Some(filters), _) if precision == self.precision && suits_winograd(conv, input, output) => Some(Route::Winograd(filters)),
            (_, Some(packed)) if precision == Precision::Bf16 => Some(Route::Bf16(packed)),
            _ => None,
        }
    }
}

/// Whether the three products of a convolution are made by [`winograd`].
fn suits_winograd(conv: &Conv, input: Shape, output: Shape) -> bool {
    winograd::suits(&geometry(conv, input), output.channels, input.channels)
}

fn live(row: &[f32]) -> usize {
    simd!(row.iter().map(|&weight| u32::from(weight != 0.0)).sum::<u32>()) as usize
}

/// A way to multiply other than dense f32.
pub(super) enum Route<'a> {
    Sparse(&'a SparseMatrix, Precision),
    Bf16(&'a [Packed; 2]),
    Winograd(&'a [Filters; 2]),
}

impl Route<'_> {
    /// `y = start + w ∗ x`
    pub(super) fn forward(&self, conv: &Conv, input: Shape, output: Shape, x: &[f32], start: Start<Cpu>, y: &mut [f32]) {
        let start = match start {
            Start::Zero => output::Start::Zero,
            Start::Bias(bias) => output::Start::Bias(bias),
            Start::Keep => output::Start::Accumulate,
        };
        let (x, y) = (operand(conv, input, x), target(conv, output, y));
        match (self, conv.is_pointwise()) {
            (Self::Sparse(w, Precision::F32), true) => w.multiply(&x, start, &y),
            (Self::Sparse(w, Precision::F32), false) => w.multiply(&Window::forward(x, &geometry(conv, input)), start, &y),
            (Self::Sparse(w, Precision::Bf16), true) => w.multiply_rounded(&x, start, &y),
            (Self::Sparse(w, Precision::Bf16), false) => w.multiply_rounded(&Window::forward(x, &geometry(conv, input)), start, &y),
            (Self::Bf16([w, _]), true) => bf16::multiply(w, &x, start, &y),
            (Self::Bf16([w, _]), false) => bf16::multiply(w, &Window::forward(x, &geometry(conv, input)), start, &y),
            (Self::Winograd([w, _]), _) => winograd::multiply(w, &geometry(conv, input), &x, start, &y),
        }
    }

    /// `dx = wᵀ ∗ dy`, or adds that.
    pub(super) fn backward_input(&self, conv: &Conv, input: Shape, output: Shape, dy: &[f32], add: bool, dx: &mut [f32]) {
        let start = if add { output::Start::Accumulate } else { output::Start::Zero };
        let (dy, dx) = (operand(conv, output, dy), target(conv, input, dx));
        match (self, conv.is_pointwise()) {
            (Self::Sparse(w, Precision::F32), true) => w.multiply_transposed(&dy, start, &dx),
            (Self::Sparse(w, Precision::F32), false) => w.multiply_transposed(&Window::backward(dy, &geometry(conv, input)), start, &dx),
            (Self::Sparse(w, Precision::Bf16), true) => w.multiply_transposed_rounded(&dy, start, &dx),
            (Self::Sparse(w, Precision::Bf16), false) => {
                w.multiply_transposed_rounded(&Window::backward(dy, &geometry(conv, input)), start, &dx);
            }
            (Self::Bf16([_, w]), true) => bf16::multiply(w, &dy, start, &dx),
            (Self::Bf16([_, w]), false) => bf16::multiply(w, &Window::backward(dy, &geometry(conv, input)), start, &dx),
            (Self::Winograd([_, w]), _) => {
                let conv = conv.adjoint().expect("without a stride there is an adjoint");
                winograd::multiply(w, &geometry(&conv, output), &dy, start, &dx);
            }
        }
    }
}

/// What weight gradients need in memory; kept, so that steady training does not allocate.
#[derive(Debug, Default)]
pub(super) struct Gradients {
    /// dY in bf16.
    packed: Packed,
    workspace: Workspace,
}

impl Gradients {
    /// `dw = dy ∗ x`, unless that is a dense f32 product as the operands lie: then `false`.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn compute(
        &mut self,
        precision: Precision,
        conv: &Conv,
        [input, output]: [Shape; 2],
        x: &[f32],
        dy: &[f32],
        block: Block,
        dw: &mut [f32],
    ) -> bool {
        let (x, dy) = (operand(conv, input, x), operand(conv, output, dy));
        let Block { rows, stride, first, columns, .. } = block;
        let dw = Output::strided(&mut dw[first..], [1, rows, columns], stride, rows * stride);
        let precision = if output.positions() == 1 { Precision::F32 } else { precision };
        if suits_winograd(conv, input, output) {
            winograd::gradient(precision.dense(), &geometry(conv, input), &x, &dy, &mut self.workspace, &dw);
        } else if precision == Precision::F32 {
            return false;
        } else {
            self.packed.pack_batch(&dy);
            if conv.is_pointwise() {
                bf16::gradient(&self.packed, &x, output::Start::Zero, &dw);
            } else {
                bf16::gradient(&self.packed, &Window::forward(x, &geometry(conv, input)), output::Start::Zero, &dw);
            }
        }
        true
    }
}

/// An activation `[channels, batch, positions]` as the kernels see it: `[items, rows, len]`. A pointwise layer sees one long item.
fn layout(conv: &Conv, shape: Shape) -> ([usize; 3], usize, usize) {
    let (plane, positions) = (shape.plane(), shape.positions());
    if conv.is_pointwise() { ([1, shape.channels, plane], plane, 0) } else { ([shape.batch, shape.channels, positions], plane, positions) }
}

fn operand<'a>(conv: &Conv, shape: Shape, data: &'a [f32]) -> Plain<'a> {
    let (size, stride, item_stride) = layout(conv, shape);
    Plain::strided(data, size, stride, item_stride)
}

fn target<'a>(conv: &Conv, shape: Shape, data: &'a mut [f32]) -> Output<'a> {
    let (size, stride, item_stride) = layout(conv, shape);
    Output::strided(data, size, stride, item_stride)
}

fn geometry(conv: &Conv, input: Shape) -> Geometry {
    let Conv { kernel, stride, padding, dilation } = *conv;
    Geometry { input: [input.height, input.width], kernel, stride, padding, dilation }
}
