//! Dense products of bf16 operands with f32 sums: the three a layer needs, rounding f32 data to bf16 on the way.
//!
//! ```
//! use bregman_tensor::kernels::{bf16::{self, Packed}, columns::Plain, output::{Output, SumStart}};
//!
//! let (out, input, items, frames) = (2, 3, 1, 2);
//! let weights = [1.0, 2.0, 0.0,   0.0, 0.5, -1.0];
//! let x = [1.0, 2.0,   3.0, 4.0,   5.0, 6.0];
//! let x = Plain::new(&x, items, input, frames);
//!
//! let mut w = Packed::default(); // keep it: packing again allocates nothing
//! w.pack(&weights, out, input, input);
//! let mut y = [0.0; 4];
//! bf16::multiply(&w, &x, SumStart::Zero, &Output::new(&mut y, items, out, frames)); // Y = W·X
//! assert_eq!(y, [7.0, 10.0, -3.5, -4.0]);
//!
//! let dy = Plain::new(&y, items, out, frames);
//! w.pack_transposed(&weights, out, input, 1, input);
//! let mut dx = [0.0; 6];
//! bf16::multiply(&w, &dy, SumStart::Zero, &Output::new(&mut dx, items, input, frames)); // dX = Wᵀ·dY
//!
//! w.pack_batch(&dy);
//! let mut dw = [0.0; 6];
//! bf16::gradient(&w, &x, SumStart::Zero, &Output::new(&mut dw, 1, out, input)); // dW = dY·Xᵀ, summed over items
//! assert_eq!(dw[0], 7.0 * 1.0 + 10.0 * 2.0);
//! ```
//!
//! Convolutions use the same views as [`sparse`](super::sparse). [`Kernel::best`] says which instructions run: AMX
//! tiles, AVX-512-BF16, or conversion to f32. Each output is one sum in a fixed order, so results do not depend on the
//! number of threads; between kinds of CPU they differ in rounding of the f32 sums. Subnormal numbers may count as
//! zero, as the instructions have it.

#[cfg(any(target_arch = "x86_64", test))]
mod amx;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod convert;
mod kernel;
mod operand;
mod phases;
mod portable;
mod product;
mod tile;

pub(super) use convert::{pair, pairs, round};
pub use convert::{to_bf16, to_f32};
pub use kernel::Kernel;
pub(super) use kernel::{Lines, Sums};
pub use operand::Packed;
pub use phases::strided_input_gradient;
pub(super) use tile::{DEPTH, SIDE, Tile, transpose};

use super::columns::Columns;
use super::output::{Output, SumStart};
use operand::{Straight, Transposed};

/// Y = A·X, for every item of the batch.
///
/// # Panics
/// If the shapes do not fit.
pub fn multiply(a: &Packed, x: &impl Columns, start: SumStart, y: &Output) {
    product::product(Kernel::best(), a, &Straight(x), start, y);
}

/// dW = A·Xᵀ with A = dY packed by [`Packed::pack_batch`], summed over the items; `dw` has one item.
///
/// # Panics
/// If the shapes do not fit.
pub fn gradient(dy: &Packed, x: &impl Columns, start: SumStart, dw: &Output) {
    product::product(Kernel::best(), dy, &Transposed(x), start, dw);
}

#[cfg(test)]
mod tests;
