//! The contract between an optimizer and the place where its arrays are: slices in this machine's memory, or a device.
//!
//! An [`Optimizer`](super::Optimizer) works out what a step does to every tensor ([`TensorStep`]) and keeps the books;
//! the arrays do it and report what they counted ([`Counted`]). [`HostArrays`] are those of plain slices. A device
//! brings its own type, to which [`Optimizer::place`](super::Optimizer::place) moves them.

use std::borrow::Cow;

use super::correction::Correction;
use super::duals::{DualKey, Duals};
use super::pass::pull;
use super::rule::Update;
use super::state::TensorState;
use crate::error::Result;
use crate::penalty::Shrinkage;

/// The arrays of an optimizer on plain slices, one entry per tensor.
pub type HostArrays = Vec<TensorState>;

/// What an optimizer remembers of every tensor, wherever it is kept.
pub trait Arrays: Sized {
    /// The arrays as they are now, to be saved.
    ///
    /// # Errors
    /// A lost device.
    fn fetch(&self) -> Result<Cow<'_, [TensorState]>>;

    /// Puts others in their place, of the same sizes.
    ///
    /// # Errors
    /// A lost device, too little memory.
    fn replace(&mut self, arrays: HostArrays) -> Result<()>;

    /// The mask of a tensor as it is now; empty where nothing is masked.
    ///
    /// # Errors
    /// A lost device.
    fn mask(&self, tensor: usize) -> Result<Cow<'_, [bool]>>;

    /// Counting access to the duals, each tensor's with its key.
    ///
    /// # Errors
    /// A lost device.
    fn duals(&mut self, keys: Vec<DualKey>) -> Result<impl Duals + '_>;
}

/// Arrays that can run the passes of an optimizer over weights and gradients of type `W`: `[f32]` in memory, a buffer
/// on a device.
pub trait Engine<W: ?Sized>: Arrays {
    /// Does to every tensor what its step says, in one pass. Steps that rest read no gradient.
    ///
    /// # Errors
    /// A lost device.
    fn pass(&mut self, theta: &mut [&mut W], grads: &[&W], steps: &[TensorStep]) -> Result<Vec<Counted>>;

    /// Moves the duals along with λ, where they have to follow.
    ///
    /// # Errors
    /// A lost device.
    fn correct(&mut self, theta: &[&W], corrections: &[Option<Correction>]) -> Result<()>;

    /// Restricts a tensor to the weights marked `true`, or lifts that if `mask` is empty. Weights that are dropped
    /// become 0 now; weights that were masked and may grow again start with moments of 0.
    ///
    /// # Errors
    /// A lost device.
    fn set_mask(&mut self, tensor: usize, mask: &[bool], theta: &mut W) -> Result<()>;

    /// Σ g·sgn(θ) of a tensor: how its gradient pulls at a threshold that all its weights lie behind. Gradients that
    /// are not finite count as 0.
    ///
    /// # Errors
    /// A lost device.
    fn pull(&mut self, theta: &W, gradient: &W) -> Result<f64> {
        Ok(pull(&Self::read(theta)?, &Self::read(gradient)?))
    }

    /// How many weights or gradients these are.
    fn len(values: &W) -> usize;

    /// Weights or gradients to be looked at on the host.
    ///
    /// # Errors
    /// A lost device.
    fn read(values: &W) -> Result<Cow<'_, [f32]>>;
}

/// What a pass does to one tensor, all numbers worked out: the update in the variable x (the dual p, or θ itself), then
/// θ ← prox(x).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TensorStep {
    /// How x moves.
    pub update: Update,
    /// What makes a weight of it.
    pub prox: Prox,
    /// Whether only weights that are not 0 move: a step between two full ones, see
    /// [`Optimizer::set_freeze`](super::Optimizer::set_freeze). Gradients of the others are not read.
    pub frozen: bool,
}

/// A prox with its numbers: θ ← scale·prox(x).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prox {
    /// Which.
    pub shrinkage: Shrinkage,
    /// Its threshold, λ-scale and group weight in it.
    pub threshold: f32,
    /// What its result is multiplied with.
    pub scale: f32,
}

/// What a pass over one tensor counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    /// Weights that are exactly 0.
    pub zeros: u64,
    /// ‖θ‖².
    pub sum_squares: f64,
    /// The first gradient that is not finite: its place and value.
    pub non_finite: Option<(usize, f32)>,
}
