//! A step in two halves, for devices that compute while the host goes on: it is given to the device, and what was
//! counted is read when somebody asks, at the latest before the next one.

use super::engine::{Counted, Engine, TensorStep};
use super::{Arrays, Optimizer};
use crate::error::{Result, require};

/// Arrays whose passes end later than they begin.
pub trait Deferred<W: ?Sized>: Engine<W> {
    /// Makes a pass ready, and begins it unless something else will: a captured graph that is replayed.
    ///
    /// # Errors
    /// A lost device.
    fn launch(&mut self, theta: &mut [&mut W], grads: &[&W], steps: &[TensorStep]) -> Result<()>;

    /// Waits for the end of the last pass and tells what it counted.
    ///
    /// # Errors
    /// A lost device.
    fn settle(&mut self) -> Result<Vec<Counted>>;
}

impl<A: Arrays> Optimizer<A> {
    /// [`Optimizer::launch_at`] with one learning rate for all tensors.
    ///
    /// # Errors
    /// As [`Optimizer::step_on`], but for gradients that are not finite.
    pub fn launch_on<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: f64) -> Result<()>
    where
        A: Deferred<W>,
    {
        require(tau > 0.0 && tau.is_finite(), "learning rate", tau, "a number > 0")?;
        self.launch_at(theta, grads, |_| tau)
    }

    /// The first half of [`Optimizer::step_at`]. [`Optimizer::settle`] is the other one, and nothing else may come
    /// between them.
    ///
    /// # Errors
    /// As [`Optimizer::step_at`], but for gradients that are not finite.
    pub fn launch_at<W: ?Sized>(&mut self, theta: &mut [&mut W], grads: &[&W], tau: impl Fn(usize) -> f64) -> Result<()>
    where
        A: Deferred<W>,
    {
        let steps = self.plan_step(theta, grads, tau)?;
        self.state.tensors.launch(theta, grads, &steps)
    }

    /// The second half: waits, and counts the step.
    ///
    /// # Errors
    /// A gradient that was not finite, as [`Optimizer::step_at`]; a lost device.
    pub fn settle<W: ?Sized>(&mut self) -> Result<()>
    where
        A: Deferred<W>,
    {
        let counted = self.state.tensors.settle()?;
        self.count_step(&counted)
    }
}
