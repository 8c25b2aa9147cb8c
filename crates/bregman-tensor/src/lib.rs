//! Arrays on a device and the kernels over them: what a training step of our networks needs, and nothing else.
//!
//! [`Backend`] is the whole contract, in small traits. [`Cpu`] implements it with `gemm`, `rayon` and SIMD chosen at
//! run time; `cuda::Cuda` (feature `cuda`) with cuBLASLt, cuDNN and kernels of our own. Layers (`bregman-nn`) are
//! generic over it. [`on_device`] runs a job on the device that a [`DeviceChoice`] finds.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod backend;
mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod error;
mod precision;
mod ranks;
mod shape;
mod tensor;

pub use backend::{
    Activation, Backend, BatchNorm, Capture, Collectives, Convolution, ConvolutionNorm, DeviceMemory, Filterbanks,
    Gradients, Loss, Margin, NormGradients, NormParams, NormStatistics, OutputStart, PointwiseOps, Pooling, Reflection,
    Relu, Segments, Spread, Storage, SupportPart, Weight, constants,
};
pub use bregman_base::FilterbankTables;
pub use cpu::{Buffer, Copies, Cpu, CpuArrays, WeightPolicy, dot_products, kernels};
#[cfg(feature = "cuda")]
pub use cuda::NcclRanks;
pub use device::{Device, DeviceChoice, FoundDevice, OnDevice, Open, on_device, open_cpu};
pub use error::{Error, Result};
pub use precision::Precision;
#[cfg(feature = "mpi")]
pub use ranks::Mpi;
pub use ranks::{Communicator, PendingSum, Ranks, thread_ranks};
pub use shape::{Block, Conv, Shape};
pub use tensor::{Tensor, View, ViewMut};
