//! The input gradient of a convolution with a stride, phase by phase.
//!
//! Only every `stride`-th tap reaches an input position, and which ones depends on the position modulo the stride. For
//! each of these phases the gradient is a convolution of dY without a stride, with few taps, whose results lie a stride
//! apart: no product with the zeros that a stride would put between the values of dY.

use super::super::columns::{Geometry, Phase, Plain, TapWindow};
use super::super::output::{Output, Results, SumStart};
use super::kernel::Kernel;
use super::operand::{Packed, Straight};
use super::product::product;

/// dX = Wᵀ ∗ dY with `weights[rows, channels, taps]`, rows `stride` apart; `packed` is where each phase's taps are
/// packed.
///
/// # Panics
/// If the shapes do not fit.
#[allow(clippy::too_many_arguments)]
pub fn strided_input_gradient(
    packed: &mut Packed,
    weights: &[f32],
    [rows, channels]: [usize; 2],
    stride: usize,
    geometry: &Geometry,
    dy: &Plain,
    start: SumStart,
    dx: &Output,
) {
    let [_, width] = geometry.kernel;
    for vertical in Phase::all(geometry, 0) {
        for horizontal in Phase::all(geometry, 1) {
            let taps: Vec<usize> =
                vertical.taps.iter().flat_map(|y| horizontal.taps.iter().map(move |x| y * width + x)).collect();
            packed.pack_taps(weights, rows, channels, geometry.kernel[0] * width, stride, &taps);
            let window = TapWindow::phase(*dy, geometry, [&vertical, &horizontal]);
            let results = Interleaved {
                output: dx,
                width: geometry.input[1],
                first: [vertical.first, horizontal.first],
                step: geometry.stride,
                size: [vertical.positions, horizontal.positions],
            };
            product(Kernel::best(), packed, &Straight(&window), start, &results);
        }
    }
}

/// The positions of a map that belong to one phase.
struct Interleaved<'a> {
    output: &'a Output<'a>,
    /// Of the whole map.
    width: usize,
    first: [usize; 2],
    step: [usize; 2],
    /// Positions of this phase.
    size: [usize; 2],
}

impl Results for Interleaved<'_> {
    fn shape(&self) -> [usize; 3] {
        let [items, rows, _] = self.output.shape();
        [items, rows, self.size[0] * self.size[1]]
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    unsafe fn finish(&self, item: usize, row: usize, from: usize, start: SumStart, mut sums: &[f32]) {
        let [mut y, mut x] = [from / self.size[1], from % self.size[1]];
        while !sums.is_empty() {
            let (run, rest) = sums.split_at(sums.len().min(self.size[1] - x));
            let begin = (self.first[0] + y * self.step[0]) * self.width + self.first[1] + x * self.step[1];
            // SAFETY: item and row are inside by this function's contract, and the positions of a phase are positions
            // of the map. The slice goes from the first to the last position of this piece, and the next piece of this
            // phase begins after it; phases are computed one after another.
            let out = unsafe { self.output.row(item, row, begin, (run.len() - 1) * self.step[1] + 1) };
            for (out, &sum) in out.iter_mut().step_by(self.step[1]).zip(run) {
                *out = match start {
                    SumStart::Zero => sum,
                    SumStart::Bias(bias) => sum + bias[row],
                    SumStart::Accumulate => sum + *out,
                };
            }
            (y, x, sums) = (y + 1, 0, rest);
        }
    }
}
