//! Arrays in this machine's memory, and passes over slices.

use std::borrow::Cow;

use super::correction::Correction;
use super::duals::{DualKey, Duals, HostDuals};
use super::engine::{Arrays, Counted, Engine, HostArrays, TensorStep};
use super::pass::{self, After, Gradient, PassBlock, PassJob};
use super::rule::Update;
use super::state::TensorState;
use crate::error::Result;

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
        Ok(HostDuals::new(self, keys))
    }
}

impl<W: AsRef<[f32]> + AsMut<[f32]> + ?Sized> Engine<W> for HostArrays {
    fn pass(&mut self, theta: &mut [&mut W], grads: &[&W], steps: &[TensorStep]) -> Result<Vec<Counted>> {
        let mut jobs = Vec::with_capacity(steps.len());
        for (tensor, (theta, state)) in theta.iter_mut().zip(self.iter_mut()).enumerate() {
            let TensorStep { update, prox, frozen } = steps[tensor];
            let g = if update == Update::Rest { &[] } else { grads[tensor].as_ref() };
            let after = if state.mask.is_empty() { After::Prox(prox) } else { After::Mask(&state.mask) };
            let (p, m, v) = (&mut *state.p, &mut *state.m, &mut *state.v);
            let slices = PassBlock { g: Gradient(g), theta: theta.as_mut(), p, m, v };
            jobs.push(PassJob { update, after, frozen, slices });
        }
        Ok(pass::run(jobs))
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
