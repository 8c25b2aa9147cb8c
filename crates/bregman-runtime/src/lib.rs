//! The deployable side of `bregman`: one small model file, and embeddings from it on a CPU, fast because the weights
//! are sparse.
//!
//! ```text
//! training state ─▶ ModelFile::from_state (norms folded, classifier dropped) ─▶ model.breg
//! model.breg ─▶ Model::open ─▶ embed(samples) ─▶ embedding ─▶ cosine, threshold
//! ```
//!
//! Without training code: nothing here depends on the training crates. Builds for x86-64, ARM64 and wasm32; on x86-64
//! AVX-512 or AVX2 are chosen at run time. The feature `audio` (on by default) brings the filterbank; without it a
//! model embeds features computed elsewhere.
#![deny(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod error;
mod file;
mod fold;
mod front_end;
#[allow(unsafe_code)]
mod kernels;
mod layer_info;
mod model;
#[allow(unsafe_code)]
mod network;
mod ranges;
mod session;
#[cfg(feature = "audio")]
mod sliding;
#[cfg(feature = "audio")]
mod stream;
#[allow(unsafe_code)]
mod team;

pub use bregman_base::lanes::cosine;
pub use bregman_network::{Architecture, LayerSpec};
pub use error::{Error, Result};
pub use file::{Layer, ModelFile, Positions, Threshold, ValueFormat};
pub use front_end::FrontEnd;
pub use kernels::{BlockCosts, Instructions, KernelCosts, Runs, Tuning};
pub use layer_info::LayerInfo;
pub use model::{Model, Options};
#[cfg(feature = "audio")]
pub use sliding::{Sliding, SlidingOptions, WindowEmbedding};
#[cfg(feature = "audio")]
pub use stream::Stream;
