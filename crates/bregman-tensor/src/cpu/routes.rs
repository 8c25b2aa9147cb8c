//! The products of a convolution other than dense f32 as the weight lies: which kernel, on which views of the
//! activations.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::kernels::bf16::{self, Packed};
use super::kernels::columns::{Geometry, Plain, TapWindow};
use super::kernels::output::{self, Output};
use super::kernels::sparse::SparseMatrix;
use super::kernels::winograd::{self, Filters, Workspace};
use super::weights::dense;
use super::{Buffer, Cpu};
use crate::{Block, Conv, OutputStart, Precision, Shape};

/// Whether the three products of a convolution are made by [`winograd`].
pub(super) fn suits_winograd(conv: &Conv, input: Shape, output: Shape) -> bool {
    winograd::suits(&geometry(conv, input), output.channels, input.channels)
}

/// A way to multiply.
pub(super) enum Route<'a> {
    /// `rounded`: the activations to bf16.
    Sparse {
        weight: &'a SparseMatrix,
        rounded: bool,
    },
    Winograd(&'a [Filters; 2]),
    /// Packed ahead for both products, unless that is impossible or was not expected: then `value` is packed now.
    Bf16 {
        packed: Option<&'a [Packed; 2]>,
        fresh: &'a Mutex<Packed>,
        value: &'a [f32],
        block: Block,
    },
}

impl Route<'_> {
    /// `y = start + w ∗ x`
    pub(super) fn forward(
        &self,
        conv: &Conv,
        input: Shape,
        output: Shape,
        x: &[f32],
        start: OutputStart<Cpu>,
        y: &mut [f32],
    ) {
        let start = match start {
            OutputStart::Zero => output::SumStart::Zero,
            OutputStart::Bias(bias) => output::SumStart::Bias(bias),
            OutputStart::Keep => output::SumStart::Accumulate,
        };
        let (x, y) = (operand(conv, input, x), target(conv, output, y));
        match (self, conv.is_pointwise()) {
            (Self::Sparse { weight: w, rounded: false }, true) => w.multiply(&x, start, &y),
            (Self::Sparse { weight: w, rounded: true }, true) => w.multiply_rounded(&x, start, &y),
            (Self::Sparse { weight: w, rounded }, false) => w.convolve(&geometry(conv, input), &x, *rounded, start, &y),
            (Self::Winograd([w, _]), _) => winograd::multiply(w, &geometry(conv, input), &x, start, &y),
            (Self::Bf16 { packed: Some([w, _]), .. }, true) => bf16::multiply(w, &x, start, &y),
            (Self::Bf16 { packed: Some([w, _]), .. }, false) => {
                bf16::multiply(w, &TapWindow::forward(x, &geometry(conv, input)), start, &y)
            }
            (Self::Bf16 { packed: None, fresh, value, block }, _) => {
                let mut w = lock(fresh);
                w.pack(value, block.rows, block.columns, block.stride);
                bf16::multiply(&w, &TapWindow::forward(x, &geometry(conv, input)), start, &y);
            }
        }
    }

    /// `dx = wᵀ ∗ dy`, or adds that.
    pub(super) fn backward_input(
        &self,
        conv: &Conv,
        input: Shape,
        output: Shape,
        dy: &[f32],
        add: bool,
        dx: &mut [f32],
    ) {
        let start = if add { output::SumStart::Accumulate } else { output::SumStart::Zero };
        let (dy, dx) = (operand(conv, output, dy), target(conv, input, dx));
        match (self, conv.is_pointwise()) {
            (Self::Sparse { weight: w, rounded: false }, true) => w.multiply_transposed(&dy, start, &dx),
            (Self::Sparse { weight: w, rounded: true }, true) => w.multiply_transposed_rounded(&dy, start, &dx),
            (Self::Sparse { weight: w, rounded }, false) => {
                w.convolve_transposed(&geometry(conv, input), &dy, *rounded, start, &dx);
            }
            (Self::Winograd([_, w]), _) => {
                let conv = conv.adjoint().expect("without a stride there is an adjoint");
                winograd::multiply(w, &geometry(&conv, output), &dy, start, &dx);
            }
            (Self::Bf16 { packed: Some([_, w]), .. }, true) => bf16::multiply(w, &dy, start, &dx),
            (Self::Bf16 { packed: Some([_, w]), .. }, false) if conv.stride == [1, 1] => {
                bf16::multiply(w, &TapWindow::backward(dy, &geometry(conv, input)), start, &dx);
            }
            (Self::Bf16 { fresh, value, block, .. }, _) => {
                let size = [block.rows, input.channels];
                bf16::strided_input_gradient(
                    &mut lock(fresh),
                    value,
                    size,
                    block.stride,
                    &geometry(conv, input),
                    &dy,
                    start,
                    &dx,
                );
            }
        }
    }
}

fn lock(packed: &Mutex<Packed>) -> MutexGuard<'_, Packed> {
    packed.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What weight gradients need in memory; kept, so that steady training does not allocate.
#[derive(Debug, Default)]
pub(super) struct WeightGradients {
    /// dY in bf16.
    packed: Packed,
    workspace: Workspace,
    /// Sums of the non-zeros' gradients.
    sums: Buffer,
}

impl WeightGradients {
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
        let dw = gradient_target(block, dw);
        let precision = if output.positions() == 1 { Precision::F32 } else { precision };
        if suits_winograd(conv, input, output) {
            winograd::gradient(dense(precision), &geometry(conv, input), &x, &dy, &mut self.workspace, &dw);
        } else if precision != Precision::Bf16 {
            return false;
        } else {
            self.packed.pack_batch(&dy);
            if conv.is_pointwise() {
                bf16::gradient(&self.packed, &x, output::SumStart::Zero, &dw);
            } else {
                bf16::gradient(
                    &self.packed,
                    &TapWindow::forward(x, &geometry(conv, input)),
                    output::SumStart::Zero,
                    &dw,
                );
            }
        }
        true
    }

    /// `dw = dy ∗ x` where `weight` is not zero, 0 elsewhere.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn sample(
        &mut self,
        weight: &SparseMatrix,
        rounded: bool,
        conv: &Conv,
        [input, output]: [Shape; 2],
        x: &[f32],
        dy: &[f32],
        block: Block,
        dw: &mut [f32],
    ) {
        let (x, dy) = (operand(conv, input, x), operand(conv, output, dy));
        let geometry = geometry(conv, input);
        let geometry = (!conv.is_pointwise()).then_some(&geometry);
        weight.gradient(geometry, &x, &dy, rounded, &mut self.sums, &gradient_target(block, dw));
    }
}

/// The columns of a weight's gradient.
fn gradient_target(Block { rows, stride, first, columns, .. }: Block, dw: &mut [f32]) -> Output<'_> {
    Output::strided(&mut dw[first..], [1, rows, columns], stride, rows * stride)
}

/// An activation `[channels, batch, positions]` as the kernels see it: `[items, rows, len]`. A pointwise layer sees one
/// long item.
fn layout(conv: &Conv, shape: Shape) -> ([usize; 3], usize, usize) {
    let (plane, positions) = (shape.plane(), shape.positions());
    if conv.is_pointwise() {
        ([1, shape.channels, plane], plane, 0)
    } else {
        ([shape.batch, shape.channels, positions], plane, positions)
    }
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
