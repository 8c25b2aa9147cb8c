//! All gradients of a network at once.

use super::DeviceMemory;
use crate::Result;

/// What happens to gradients between the backward pass and the optimizer.
pub trait Gradients: DeviceMemory {
    /// Scales all gradients so that their joint ℓ2 norm is at most `limit`; returns the norm before.
    fn clip(&self, gradients: &mut [&mut Self::Buffer], limit: f32) -> Result<f32> {
        let norm = self.clip_later(gradients, limit)?;
        Ok(self.arrived(norm)?[0])
    }

    /// As [`Gradients::clip`], without waiting for the norm, the one value that is on its way then.
    fn clip_later(&self, gradients: &mut [&mut Self::Buffer], limit: f32) -> Result<Self::Late>;
}
