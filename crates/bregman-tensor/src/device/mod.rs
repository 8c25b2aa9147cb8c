//! Where a run computes: chosen at run time, opened once its precision is known.

mod choice;

use bregman::optimizer::Deferred;
use bregman::{HostArrays, Param};

use crate::{Backend, Cpu, Precision, Result};
#[cfg(feature = "cuda")]
pub(crate) use choice::gpu_of_local_rank;
pub use choice::{DeviceChoice, FoundDevice};

/// A backend that can also run the steps of an optimizer.
pub trait Device: Backend {
    /// What an optimizer remembers, where this device keeps it.
    type Arrays: Deferred<Self::Buffer> + Send;

    /// The precision of a run whose recipe names none.
    const PRECISION: Precision;

    /// The precision it computes in.
    fn precision(&self) -> Precision;

    /// What it is, for the line that begins a run: `cuda:0 (NVIDIA H200)`.
    fn description(&self) -> String;

    /// Whether it computes asynchronously, so that the host should read a step's results while the next one runs.
    fn runs_ahead(&self) -> bool;

    /// Whether two runs on such a device must give the same bits, at a cost. To be said before the first pass; a device
    /// whose results always repeat has nothing to do.
    fn set_deterministic(&mut self, _on: bool) {}

    /// Takes an optimizer's arrays, those of these parameters, to the device.
    ///
    /// # Errors
    /// Too little memory.
    fn place(&self, arrays: HostArrays, params: &[Param]) -> Result<Self::Arrays>;
}

/// How a device is opened once the precision of a run is known; `None` for [`Device::PRECISION`].
pub trait Open<B>: Fn(Option<Precision>) -> Result<B> + Send + Sync + 'static {}

impl<B, F: Fn(Option<Precision>) -> Result<B> + Send + Sync + 'static> Open<B> for F {}

/// This machine's processor.
///
/// # Errors
/// None; the result is that of [`Open`].
pub fn open_cpu(precision: Option<Precision>) -> Result<Cpu> {
    Ok(Cpu::with_precision(precision.unwrap_or(Cpu::PRECISION)))
}

/// Work that is written once for all devices.
pub trait OnDevice {
    /// The result of the work.
    type Output;

    /// Does it on the device that `open` opens.
    fn run<B: Device>(self, open: impl Open<B>) -> Self::Output;
}

/// Runs a job on the device found: the one place where a device chosen at run time becomes a type.
pub fn on_device<J: OnDevice>(found: &FoundDevice, job: J) -> J::Output {
    match found.gpu() {
        #[cfg(feature = "cuda")]
        Some(ordinal) => job.run(crate::cuda::opener(ordinal, found.ranks().clone())),
        _ => {
            let ranks = found.ranks().clone();
            job.run(move |precision| Ok(open_cpu(precision)?.with_ranks(ranks.clone())))
        }
    }
}
