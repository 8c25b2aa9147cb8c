//! Where a run computes, and where its optimizer's arrays are meanwhile.

use bregman::HostArrays;
use bregman::optimizer::Engine;
#[cfg(feature = "cuda")]
use bregman_tensor::cuda::{Cuda, DeviceArrays};
use bregman_tensor::{Backend, Cpu, FoundDevice, Precision};

use crate::Result;

/// A backend that can also run the steps of an optimizer.
pub trait Device: Backend {
    /// What an optimizer remembers, where this device keeps it.
    type Arrays: Engine<Self::Buffer> + Send;

    /// The precision of a run whose recipe names none.
    const PRECISION: Precision;

    /// The precision it computes in.
    fn precision(&self) -> Precision;

    /// What it is, for the line that begins a run.
    fn description(&self) -> String;

    /// Takes an optimizer's arrays to the device.
    ///
    /// # Errors
    /// Too little memory.
    fn place(&self, arrays: HostArrays) -> Result<Self::Arrays>;
}

impl Device for Cpu {
    type Arrays = HostArrays;

    const PRECISION: Precision = Precision::F32;

    fn precision(&self) -> Precision {
        Cpu::precision(self)
    }

    fn description(&self) -> String {
        Cpu::description()
    }

    fn place(&self, arrays: HostArrays) -> Result<HostArrays> {
        Ok(arrays)
    }
}

#[cfg(feature = "cuda")]
impl Device for Cuda {
    type Arrays = DeviceArrays;

    const PRECISION: Precision = Precision::Bf16;

    fn precision(&self) -> Precision {
        Cuda::precision(self)
    }

    fn description(&self) -> String {
        Cuda::description(self)
    }

    fn place(&self, arrays: HostArrays) -> Result<Self::Arrays> {
        Ok(self.place_arrays(&arrays)?)
    }
}

/// How a device is opened once the precision of a run is known; `None` for [`Device::PRECISION`].
pub trait Open<B>: Fn(Option<Precision>) -> Result<B> + Send + Sync + 'static {}

impl<B, F: Fn(Option<Precision>) -> Result<B> + Send + Sync + 'static> Open<B> for F {}

/// This machine's processor.
///
/// # Errors
/// None; the result is that of [`Open`].
pub fn cpu(precision: Option<Precision>) -> Result<Cpu> {
    Ok(Cpu::with_precision(precision.unwrap_or(Cpu::PRECISION)))
}

/// GPU number `ordinal`.
#[cfg(feature = "cuda")]
fn gpu(ordinal: usize) -> impl Open<Cuda> {
    move |precision: Option<Precision>| Ok(Cuda::open(ordinal, precision.unwrap_or(Cuda::PRECISION))?)
}

/// Work that is written once for all devices.
pub trait OnDevice {
    /// What it comes to.
    type Output;

    /// Does it on the device that `open` opens.
    fn run<B: Device>(self, open: impl Open<B>) -> Self::Output;
}

/// Runs a job on the device found: the one place where a device chosen at run time becomes a type.
pub fn on_device<J: OnDevice>(found: &FoundDevice, job: J) -> J::Output {
    match found.gpu() {
        #[cfg(feature = "cuda")]
        Some(ordinal) => job.run(gpu(ordinal)),
        _ => job.run(cpu),
    }
}
