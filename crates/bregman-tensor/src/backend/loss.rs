//! Losses fused with their gradients, and the unit vectors of the cosine classifier.

use super::DeviceMemory;
use crate::{Block, Result, View, ViewMut};

/// Additive angular margin softmax: scale, margin in radians and the easy-margin switch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margin {
    /// s, the inverse temperature of the cosines.
    pub scale: f32,
    /// m, added to the angle of the target class.
    pub margin: f32,
    /// Apply the margin only where the target's cosine is positive, instead of continuing it linearly beyond cos(π −
    /// m).
    pub easy: bool,
}

/// Losses over scores of `classes × batch`.
pub trait Loss: DeviceMemory {
    /// Scales every item of a vector to length 1 and keeps the lengths it had.
    fn unit_forward(&self, x: View<Self>, unit: ViewMut<Self>, lengths: &mut Self::Buffer) -> Result<()>;
    /// Gradient of [`Loss::unit_forward`]: `d` holds the unit vectors' gradient and becomes dx.
    fn unit_backward(&self, unit: View<Self>, lengths: &Self::Buffer, d: ViewMut<Self>) -> Result<()>;
    /// `lengths[r] = ‖w[r, :]‖`, or 1 where all of the row is 0.
    fn row_lengths(&self, w: &Self::Buffer, block: Block, lengths: &mut Self::Buffer) -> Result<()>;
    /// Margin softmax and cross-entropy, averaged over the batch. `d` holds `w · unit` (classes × batch) and becomes
    /// the loss's gradient to it; `radial[r]` becomes the factor with which `w[r, :]` must be subtracted from the
    /// weight gradient (the length of a row does not matter). `outcome = [loss, correct]`. Labels are class numbers
    /// written as f32.
    fn margin_loss(
        &self,
        margin: Margin,
        row_lengths: &Self::Buffer,
        labels: &Self::Buffer,
        d: ViewMut<Self>,
        radial: &mut Self::Buffer,
        outcome: &mut Self::Buffer,
    ) -> Result<()>;
    /// Subtracts `radial[r] · w[r, :]` from `dw[r, :]`.
    fn remove_radial(&self, w: &Self::Buffer, radial: &Self::Buffer, block: Block, dw: &mut Self::Buffer)
    -> Result<()>;
    /// Plain cross-entropy, averaged: `d` holds the logits (classes × batch) and becomes their gradient; `outcome =
    /// [loss, correct]`.
    fn cross_entropy(&self, labels: &Self::Buffer, d: ViewMut<Self>, outcome: &mut Self::Buffer) -> Result<()>;
}
