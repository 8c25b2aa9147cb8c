//! What every other crate of the workspace shares. It depends on none of them.
//!
//! | module | what |
//! | --- | --- |
//! | [`buffer`] | memory that begins at a cache line |
//! | [`disjoint`] | one slice that several threads write, each its own part |
//! | [`LargePages`] | an allocator for programs whose arrays are large |
//! | [`math`] | eˣ, tanh and the logistic function in loops that vectorise: the same in training and serving |
//! | [`lanes`] | sums, maxima and counts over a slice, in an order that does not depend on the machine |
//! | [`simd`] | which vector instructions kernels use: those of this CPU, or fewer to test what a smaller one does |
//! | [`random`] | random numbers that never change with a version |
//! | [`hash`] | FNV-1a |
//! | [`protobuf`] | messages in protobuf's wire format, written |
//! | [`text`] | words out of foreign files, as they can be printed |
//! | [`filterbank`] | a filterbank as matrix products, from the crate that makes it to the device that computes it |
//! | `files` | files and folders that are either whole or absent, files that grow, locks, files of others |
//!
//! The unsafe code of the workspace that is not a kernel is here; `tools/check/miri` runs these tests under Miri.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod buffer;
pub mod disjoint;
#[cfg(feature = "files")]
pub mod files;
pub mod filterbank;
pub mod hash;
pub mod lanes;
mod large_pages;
pub mod math;
pub mod protobuf;
pub mod random;
pub mod simd;
pub mod text;

pub use buffer::Buffer;
pub use disjoint::Disjoint;
pub use filterbank::FilterbankTables;
pub use large_pages::LargePages;
pub use random::{RandomStream, Rng};
