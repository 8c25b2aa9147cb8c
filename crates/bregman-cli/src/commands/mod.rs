//! One file per command: its arguments, and what it does with the libraries.

pub(crate) mod bench;
mod cohort;
pub(crate) mod demo;
pub(crate) mod diarize;
pub(crate) mod embed;
mod embed_windows;
pub(crate) mod enroll;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod inspect;
mod inspect_model;
mod options;
pub(crate) mod plot;
pub(crate) mod prepare;
pub(crate) mod recipes;
pub(crate) mod report;
pub(crate) mod shard;
mod soak;
pub(crate) mod sparsify;
pub(crate) mod surroundings;
pub(crate) mod sweep;
pub(crate) mod synth;
pub(crate) mod train;
pub(crate) mod verify;
