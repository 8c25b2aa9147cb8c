//! Where a run computes, and where its optimizer's arrays are meanwhile.

use bregman::HostArrays;
use bregman::optimizer::Engine;
use bregman_tensor::{Backend, Cpu};

use crate::Result;
use crate::config::PrecisionKind;

/// A backend that can also run the steps of an optimizer.
pub trait Device: Backend {
    /// What an optimizer remembers, where this device keeps it.
    type Arrays: Engine<Self::Buffer> + Send;

    /// Takes an optimizer's arrays to the device.
    ///
    /// # Errors
    /// Too little memory.
    fn place(&self, arrays: HostArrays) -> Result<Self::Arrays>;
}

impl Device for Cpu {
    type Arrays = HostArrays;

    fn place(&self, arrays: HostArrays) -> Result<HostArrays> {
        Ok(arrays)
    }
}

#[cfg(feature = "cuda")]
impl Device for bregman_tensor::cuda::Cuda {
    type Arrays = bregman_tensor::cuda::DeviceArrays;

    fn place(&self, arrays: HostArrays) -> Result<Self::Arrays> {
        Ok(self.place_arrays(&arrays)?)
    }
}

/// How a device is opened once the precision of a run is known.
pub trait Open<B>: FnOnce(PrecisionKind) -> Result<B> {}

impl<B, F: FnOnce(PrecisionKind) -> Result<B>> Open<B> for F {}

/// This machine's processor.
///
/// # Errors
/// None; the result is that of [`Open`].
pub fn cpu(precision: PrecisionKind) -> Result<Cpu> {
    Ok(Cpu::with_precision(precision.into()))
}
