//! The one operation that takes the time: sparse or dense weights times shifted pieces of memory.
//!
//! Every convolution here is, at a position p of a flat buffer,
//! ```text
//! y[r, p] = epilogue( b[r] + Σ_k W[r, k] · x[p + offset[k]] )
//! ```
//! with one offset per (input channel, tap): a row of the input for a pointwise convolution, a shifted row for a
//! dilated one, a shifted plane for a two-dimensional one. Positions are taken in blocks, a few SIMD vectors whose sums
//! stay in registers:
//!
//! * sparse: a non-zero costs one broadcast and a multiply-add per vector; nothing is written until the row is done;
//! * dense: several rows at a time share the vectors of x, and their weights lie in the order in which they are used;
//! * in whole numbers: as sparse, but four non-zeros at a time and from 8-bit codes of the input ([`int8`]).
//!
//! The [epilogue](Epilogue) adds a residual, applies ReLU and the norm after it. Each output is one sum in a fixed
//! order, so results do not depend on the number of threads.
//!
//! 3 × 3 convolutions with few zeros are computed with fewer multiplications instead, over whole maps ([`winograd`]).

mod cost;
mod dense;
mod epilogue;
mod input;
mod instructions;
pub(crate) mod int8;
mod job;
pub(crate) mod math;
mod matvec;
mod offsets;
mod sparse;
#[cfg(test)]
mod tests;
mod tile;
mod weights;
pub(crate) mod winograd;

pub use cost::{BlockCosts, KernelCosts, Tuning};
pub(crate) use epilogue::Epilogue;
pub(crate) use input::Input;
pub use instructions::Instructions;
pub(crate) use matvec::Linear;
pub(crate) use offsets::{Offsets, Place};
pub use weights::Runs;
pub(crate) use weights::Weights;

/// Positions of a block at most.
pub(crate) const BLOCK: usize = 160;

/// Frames of a block of a signal: a thousand channels of them, and as many of what they become, stay in the
/// second-level cache. Five vectors of AVX-512, ten of AVX2, twenty of NEON or wasm.
pub(crate) const STRIP: usize = 80;
