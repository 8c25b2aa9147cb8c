//! Arrays in this machine's memory, and passes over slices.

use std::borrow::Cow;

use super::correction::Correction;
use super::duals::{DualKey, Duals, HostDuals};
use super::engine::{Arrays, Counted, Engine, HostArrays, TensorStep};
use super::pass::{self, After, Gradient, PassBlock, PassJob};
use super::rule::Update;
use super::state::TensorState;
use crate::error::Result;

/// The arrays of one tensor in memory that somebody else owns, such as a tensor library: a borrowed [`TensorState`].
#[derive(Debug)]
pub struct StateSlices<'a> {
    /// Dual variable p; empty where the rule keeps none, as are the moments.
    pub p: &'a mut [f32],
    /// Momentum or first moment.
    pub m: &'a mut [f32],
    /// Second moment.
    pub v: &'a mut [f32],
    /// Weights that may be non-zero; empty where all may.
    pub mask: &'a [bool],
}

impl StateSlices<'_> {
    /// Does to every tensor what its step says, in one pass over memory. A gradient may be empty where the step rests.
    ///
    /// # Panics
    /// If the slices of a tensor differ in length.
    pub fn pass(
        arrays: Vec<StateSlices<'_>>,
        theta: Vec<&mut [f32]>,
        grads: &[&[f32]],
        steps: &[TensorStep],
    ) -> Vec<Counted> {
        let job = |(tensor, (theta, StateSlices { p, m, v, mask })): (usize, (_, _))| {
            let TensorStep { update, prox, frozen } = steps[tensor];
            let g = if update == Update::Rest { &[] } else { grads[tensor] };
            let after = if mask.is_empty() { After::Prox(prox) } else { After::Mask(mask) };
            PassJob { update, after, frozen, slices: PassBlock { g: Gradient(g), theta, p, m, v } }
        };
        pass::run(theta.into_iter().zip(arrays).enumerate().map(job).collect())
    }
}

impl<'a> From<&'a mut TensorState> for StateSlices<'a> {
    fn from(TensorState { p, m, v, mask }: &'a mut TensorState) -> Self {
        Self { p, m, v, mask }
    }
}

impl Arrays for HostArrays {
    fn fetch(&self) -> Result<Cow<'_, [TensorState]>> {
        Ok(Cow::Borrowed(self))
    }

    fn replace(&mut self, arrays: HostArrays) -> Result<()> {
        *self = arrays;
        Ok(())
    }

    fn mask(&self, tensor: usize) -> Result<Cow<'_, [bool]>> {
        Ok(Cow::Borrowed(&self[tensor].mask))
    }

    fn duals(&mut self, keys: Vec<DualKey>) -> Result<impl Duals + '_> {
        Ok(HostDuals::new(self.iter().map(|state| &*state.p).collect(), keys))
    }
}

impl<W: AsRef<[f32]> + AsMut<[f32]> + ?Sized> Engine<W> for HostArrays {
    fn pass(&mut self, theta: &mut [&mut W], grads: &[&W], steps: &[TensorStep]) -> Result<Vec<Counted>> {
        let arrays = self.iter_mut().map(StateSlices::from).collect();
        let theta = theta.iter_mut().map(|theta| (**theta).as_mut()).collect();
        let grads: Vec<&[f32]> = grads.iter().map(|g| (**g).as_ref()).collect();
        Ok(StateSlices::pass(arrays, theta, &grads, steps))
    }

    fn correct(&mut self, theta: &[&W], corrections: &[Option<Correction>]) -> Result<()> {
        for ((state, theta), correction) in self.iter_mut().zip(theta).zip(corrections) {
            if let Some(correction) = correction {
                correction.apply(&mut state.p, (*theta).as_ref());
            }
        }
        Ok(())
    }

    fn set_mask(&mut self, tensor: usize, mask: &[bool], theta: &mut W) -> Result<()> {
        theta.as_mut().iter_mut().zip(mask).filter(|(_, kept)| !**kept).for_each(|(x, _)| *x = 0.0);
        self[tensor].set_mask(mask.to_vec());
        Ok(())
    }

    fn len(values: &W) -> usize {
        values.as_ref().len()
    }

    fn read(values: &W) -> Result<Cow<'_, [f32]>> {
        Ok(Cow::Borrowed(values.as_ref()))
    }
}
