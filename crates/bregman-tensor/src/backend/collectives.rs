//! What several processes that train one network do together.

use super::DeviceMemory;
use crate::{Ranks, Result};

/// A gradient to be summed over ranks.
pub struct GradientPart<'a, B: DeviceMemory> {
    /// The gradient.
    pub gradient: &'a mut B::Buffer,
    /// The weights, where only the gradients of those that are not zero are asked for: the others do not travel.
    pub support: Option<&'a B::Buffer>,
}

/// Sums over [`Ranks`] of what is on the device.
pub trait Collectives: DeviceMemory {
    /// A sum on its way.
    type Sum: Send;

    /// Whether sums can begin while a backward pass is going on.
    const SUMS_OVERLAP: bool;

    /// The ranks, of which this device is one.
    fn ranks(&self) -> &Ranks;

    /// From now on the batch norms of a training pass take the statistics of all ranks' batches together.
    ///
    /// # Errors
    /// A device that cannot do that.
    fn join_norms(&mut self) -> Result<()>;

    /// Begins to add these gradients of all ranks, each multiplied with its rank's `share` of the batch.
    ///
    /// # Errors
    /// Ranks that are gone, a lost device.
    fn start_sum(&self, share: f32, parts: &mut [GradientPart<'_, Self>]) -> Result<Self::Sum>;

    /// Waits for a sum and puts it where the gradients were: the same parts, in the same order.
    ///
    /// # Errors
    /// As [`Collectives::start_sum`].
    fn finish_sum(&self, sum: Self::Sum, parts: &mut [GradientPart<'_, Self>]) -> Result<()>;
}
