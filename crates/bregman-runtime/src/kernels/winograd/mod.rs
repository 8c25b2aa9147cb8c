//! 3 × 3 convolutions with 36 products instead of 144 for every 4 × 4 outputs: Winograd's F(4×4, 3×3).
//!
//! A tile of 6 × 6 inputs d and a filter g of 3 × 3 taps make 4 × 4 outputs
//! ```text
//! y = Aᵀ · ((G · g · Gᵀ) ⊙ (Bᵀ · d · B)) · A
//! ```
//! and summed over channels, each of the 36 places of ⊙ is a product `[tiles × inputs] · [inputs × outputs]`
//! ([`product`], [`transform`]). Zeros among the weights gain nothing: hardly any are left after G · g · Gᵀ.
//!
//! With a stride of two over rows every other row of outputs is left out: 36 products for 8 of them, where plain sums
//! have 72.
//!
//! Filters in that form take four times the memory of their taps, and reading them takes longer than making them. So
//! only the taps are kept, and every execution transforms them again, within the cache ([`pass`]).
//!
//! **Which layers.** Winograd's sums are rounded otherwise than plain ones. An embedding must not depend on the CPU, so
//! [`suits`] goes by the file alone, and never by [costs](super::cost) that were measured.
//!
//! Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016; Barabasz et al., "Error Analysis and
//! Improving the Accuracy of Winograd Convolution for Deep Neural Networks", 2020 (on the choice of points).

#![allow(
    clippy::needless_range_loop,
    reason = "iterators over vectors are functions without the CPU's instructions, not always inlined"
)]

mod grid;
mod pass;
mod product;
mod scratch;
#[cfg(test)]
mod tests;
mod transform;
mod transpose;

use std::sync::OnceLock;

use bregman_base::Buffer;
use bregman_base::lanes::nonzeros;
use bregman_network::{LayerKind, LayerSpec};

use super::{BlockCosts, Weights};
pub(crate) use grid::{Grid, Rows};
pub(crate) use pass::Work;
pub(crate) use scratch::Scratch;

/// Channels that lie together, a line of the cache.
pub(crate) const GROUP: usize = Buffer::LINE;
/// Inputs of a tile, along each axis.
const TILE: usize = 6;
/// Outputs of a tile, along each axis.
const OUTPUTS: usize = 4;
/// Places of the transformed domain.
const PLACES: usize = TILE * TILE;
/// Groups of outputs that are multiplied at a time.
const PAIR: usize = 2;
/// Tiles that are multiplied at a time, at most.
const SET: usize = 12;
/// Groups of inputs whose filters a thread transforms at a time: those of a pair of outputs take 590 kB.
const CHUNK: usize = 8;

/// Zeros up to which a layer is computed here, in percent. At 75 % ResNet34 takes 0.75 of the time that its non-zeros
/// take with AVX-512, and as long with AVX2 (NEON was not measured); no usual target of training lies at the edge.
const MAX_ZEROS: usize = 77;
/// Where every other row is left out: half of what is computed is of no use.
const MAX_ZEROS_STRIDED: usize = 60;

/// Whether a layer with `live` weights that are not zero is computed here.
pub(super) fn suits(spec: &LayerSpec, live: usize) -> bool {
    let channels = spec.outputs.min(spec.matrix()[1] / 9);
    let LayerKind::Conv2d { kernel: [3, 3], stride } = spec.kind else { return false };
    let zeros = match stride {
        [1, 1] => MAX_ZEROS,
        [2, 1] => MAX_ZEROS_STRIDED,
        _ => return false,
    };
    channels >= GROUP && 100 * live >= (100 - zeros) * spec.weights()
}

/// The taps of a layer.
pub(crate) struct Winograd {
    /// Groups of them.
    inputs: usize,
    /// Groups of them.
    outputs: usize,
    /// `[group of outputs][input][3][3][16]`, filled up with zeros.
    taps: Buffer,
    /// Weights that are not zero.
    live: usize,
    /// `[outputs, inputs · 9]`
    matrix: [usize; 2],
    /// For those who need plain sums, made when they first do.
    plain: OnceLock<Box<Weights>>,
    costs: BlockCosts,
}

impl Winograd {
    /// From all weights of each row in turn.
    pub(super) fn new(rows: &[f32], columns: usize, costs: &BlockCosts) -> Self {
        let [outputs, inputs] = [rows.len() / columns, columns / 9];
        let group = inputs.next_multiple_of(GROUP) * 9 * GROUP;
        let mut taps = Buffer::zeros(outputs.div_ceil(GROUP) * group);
        for (output, row) in rows.chunks_exact(columns).enumerate() {
            let to = &mut taps[output / GROUP * group + output % GROUP..];
            to.iter_mut().step_by(GROUP).zip(row).for_each(|(to, &tap)| *to = tap);
        }
        Self {
            inputs: inputs.div_ceil(GROUP),
            outputs: outputs.div_ceil(GROUP),
            taps,
            live: nonzeros(rows),
            matrix: [outputs, columns],
            plain: OnceLock::new(),
            costs: *costs,
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn bytes(&self) -> usize {
        self.taps.bytes()
    }

    /// The same weights for plain sums.
    pub(super) fn plain(&self) -> &Weights {
        self.plain.get_or_init(|| {
            let [outputs, columns] = self.matrix;
            let mut rows = vec![0.0; outputs * columns];
            let group = self.inputs * GROUP * 9 * GROUP;
            for (output, row) in rows.chunks_exact_mut(columns).enumerate() {
                let from = &self.taps[output / GROUP * group + output % GROUP..];
                row.iter_mut().zip(from.iter().step_by(GROUP)).for_each(|(to, &tap)| *to = tap);
            }
            Box::new(Weights::of_rows(&rows, columns, [3, 3], self.live, &self.costs))
        })
    }
}
