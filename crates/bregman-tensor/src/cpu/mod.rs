//! The CPU backend.

pub mod kernels;
