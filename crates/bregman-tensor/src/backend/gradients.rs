//! All gradients of a network at once.

use super::DeviceMemory;
use crate::Result;

/// What happens to gradients between the backward pass and the optimizer.
pub trait Gradients: DeviceMemory {
    /// Scales all gradients so that their joint ℓ2 norm is at most `limit`; returns the norm before.
    fn clip(&self, gradients: &mut [&mut Self::Buffer], limit: f32) -> Result<f32>;
}
