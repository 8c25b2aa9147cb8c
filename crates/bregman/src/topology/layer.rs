//! A weight tensor as a mask policy sees it.

use bregman_base::RandomStream;

use crate::error::Result;
use crate::param::Param;

/// A weight tensor, its present mask, and scores to compare its weights by.
#[derive(Debug, Clone, Copy)]
pub struct MaskedLayer<'a> {
    /// Name, shape and role.
    pub param: &'a Param,
    /// The weights.
    pub theta: &'a [f32],
    /// Their gradient; empty unless the policy asks for gradients.
    pub gradient: &'a [f32],
    /// The present mask; empty where nothing is masked.
    pub mask: &'a [bool],
    random: RandomStream,
}

impl<'a> MaskedLayer<'a> {
    /// The layer before step `step` (from 0) of a run with this seed.
    pub fn new(
        param: &'a Param,
        theta: &'a [f32],
        gradient: &'a [f32],
        mask: &'a [bool],
        seed: u64,
        step: u64,
    ) -> Self {
        Self { param, theta, gradient, mask, random: RandomStream::new(seed, &format!("mask {} {step}", param.name)) }
    }

    /// |θ|.
    pub fn magnitudes(&self) -> Vec<f32> {
        self.theta.iter().map(|x| x.abs()).collect()
    }

    /// |g|.
    pub fn gradients(&self) -> Vec<f32> {
        self.gradient.iter().map(|g| g.abs()).collect()
    }

    /// Uniform numbers in [0, 1), others at every step.
    pub fn random(&self) -> Vec<f32> {
        (0..self.theta.len() as u64).map(|i| self.random.uniform(i) as f32).collect()
    }

    /// Whether weight `i` is not masked.
    pub(super) fn allows(&self, i: usize) -> bool {
        self.mask.is_empty() || self.mask[i]
    }

    pub(super) fn check(&self) -> Result<()> {
        self.param.check_len("weight", self.theta.len())?;
        self.param.check_finite("weight", self.theta)?;
        if !self.gradient.is_empty() {
            self.param.check_len("gradient", self.gradient.len())?;
            self.param.check_finite("gradient", self.gradient)?;
        }
        if self.mask.is_empty() { Ok(()) } else { self.param.check_len("mask", self.mask.len()) }
    }
}
