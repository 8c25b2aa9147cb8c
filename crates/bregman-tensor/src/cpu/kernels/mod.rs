//! The products behind every layer, on plain slices: sparse weights, dense weights in bf16, and 3 × 3 convolutions in
//! fewer multiplications.
//!
//! Operands and results are views over a batch of matrices ([`columns`], [`output`]), so that convolutions and channel
//! slices need no copies. Work is spread over the current rayon pool, and no result depends on the number of threads.

pub mod bf16;
pub mod columns;
pub mod cost;
mod lanes;
mod lines;
pub mod output;
#[cfg(test)]
pub(super) mod reference;
mod scratch;
pub mod sparse;
pub mod winograd;
