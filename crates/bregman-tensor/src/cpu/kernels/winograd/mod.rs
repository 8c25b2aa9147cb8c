//! 3 × 3 convolutions with 16 products instead of 36 for every 2 × 2 outputs, in f32 and in bf16: Winograd's F(2×2,
//! 3×3).
//!
//! A tile of 4 × 4 inputs d and a filter g of 3 × 3 taps make 2 × 2 outputs
//! ```text
//! y = Aᵀ · ((G · g · Gᵀ) ⊙ (Bᵀ · d · B)) · A
//! ```
//! and summed over channels, each of the 16 places of ⊙ is a matrix product `[rows × channels] · [channels × tiles]`.
//! The input gradient is the same with the taps reversed; the weight gradient is `dg = Gᵀ · Σ (A · dy · Aᵀ) ⊙ (Bᵀ · d ·
//! B) · G` over all tiles. In f32 it rounds a little more than the plain sum: enough that the forward pass, whose signs
//! decide ReLUs, keeps to the latter. In bf16 the operands are rounded after their transformation, which costs 1.7
//! times the rounding noise of the plain convolution (the standard deviation for independent values: 5/3 of the
//! variance along each axis).
//!
//! A strip of tiles goes through all of it inside the second-level cache, and every input value is read once or twice
//! instead of nine times. Lavin & Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016.

// Iterators over vectors are functions without the CPU's instructions, which are not always inlined.
#![allow(clippy::needless_range_loop)]

mod filters;
mod gradient;
mod product;
mod tiling;
mod transform;

pub use filters::Filters;
pub use gradient::{Workspace, gradient};
pub use product::multiply;

use super::columns::Geometry;

/// Whether a weight with so many taps may suit, and is worth it: fewer channels would leave most of a block empty.
pub fn suits_taps(taps: usize, rows: usize, channels: usize) -> bool {
    taps == 9 && rows.min(channels) >= 24
}

/// Whether the three products of this convolution can be made here.
pub fn suits(geometry: &Geometry, rows: usize, channels: usize) -> bool {
    let Geometry { kernel, stride, padding, dilation, .. } = *geometry;
    (kernel, stride, dilation) == ([3, 3], [1, 1], [1, 1])
        && padding.iter().all(|&padding| padding <= 2)
        && suits_taps(9, rows, channels)
}

#[cfg(test)]
mod tests;
