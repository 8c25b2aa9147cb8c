//! Where a run computes, and where its optimizer's arrays live meanwhile.

#[cfg(feature = "cuda")]
mod cuda;

use std::borrow::Cow;

use bregman::Optimizer;
use bregman::optimizer::{Engine, Host, TensorState};
use bregman_nn::Params;
use bregman_tensor::{Backend, Cpu, FoundDevice, Precision};

use crate::Result;

/// A backend that can also run the steps of an optimizer.
pub trait Device: Backend {
    /// What an optimizer remembers, where this device keeps it.
    type Arrays: Send;

    /// The precision of a run whose recipe names none.
    const PRECISION: Precision;

    /// The precision it computes in.
    fn precision(&self) -> Precision;

    /// What it is, for the line that begins a run.
    fn description(&self) -> String;

    /// Takes the optimizer's arrays to the device.
    ///
    /// # Errors
    /// Too little memory.
    fn place(&self, optimizer: &mut Optimizer) -> Result<Self::Arrays>;

    /// The arrays as they are now, to be saved.
    ///
    /// # Errors
    /// A lost device.
    fn fetch<'a>(&self, optimizer: &'a Optimizer, arrays: &'a Self::Arrays) -> Result<Cow<'a, [TensorState]>>;

    /// Binds what a step needs.
    fn engine<'a>(&'a self, params: &'a mut Params<Self>, arrays: &'a mut Self::Arrays) -> impl Engine + 'a;
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
        Some(ordinal) => job.run(cuda::open(ordinal)),
        _ => job.run(cpu),
    }
}

/// The arrays stay in the optimizer.
impl Device for Cpu {
    type Arrays = ();

    const PRECISION: Precision = Precision::F32;

    fn precision(&self) -> Precision {
        Cpu::precision(self)
    }

    fn description(&self) -> String {
        Cpu::description()
    }

    fn place(&self, _: &mut Optimizer) -> Result<()> {
        Ok(())
    }

    fn fetch<'a>(&self, optimizer: &'a Optimizer, (): &'a ()) -> Result<Cow<'a, [TensorState]>> {
        Ok(Cow::Borrowed(&optimizer.state().tensors))
    }

    fn engine<'a>(&'a self, params: &'a mut Params<Self>, (): &'a mut ()) -> impl Engine + 'a {
        let (theta, grads) = params.values_and_gradients();
        Slices { theta, grads }
    }
}

/// [`Host`] with the lists of slices it borrows.
struct Slices<'a> {
    theta: Vec<&'a mut bregman_tensor::Buffer>,
    grads: Vec<&'a bregman_tensor::Buffer>,
}

impl Engine for Slices<'_> {
    fn step(&mut self, optimizer: &mut Optimizer, tau: f64) -> bregman::Result<()> {
        self.host().step(optimizer, tau)
    }

    fn reproject(&mut self, optimizer: &mut Optimizer) -> bregman::Result<()> {
        self.host().reproject(optimizer)
    }

    fn set_lambda(&mut self, optimizer: &mut Optimizer, lambda: &[f64]) -> bregman::Result<()> {
        self.host().set_lambda(optimizer, lambda)
    }

    fn control(&mut self, optimizer: &Optimizer, controller: &mut bregman::Controller) -> bregman::Result<bool> {
        self.host().control(optimizer, controller)
    }
}

impl<'a> Slices<'a> {
    fn host(&mut self) -> Host<'_, &'a mut bregman_tensor::Buffer, &'a bregman_tensor::Buffer> {
        Host { theta: &mut self.theta, grads: &self.grads }
    }
}
