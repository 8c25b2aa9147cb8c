//! What several processes that train one network do together.

use super::DeviceMemory;
use crate::{PendingSum, Ranks, Result};

/// A gradient to be summed over ranks.
pub struct GradientPart<'a, B: DeviceMemory> {
    /// The gradient.
    pub gradient: &'a mut B::Buffer,
    /// The weights, where only the gradients of those that are not zero are asked for: the others do not travel.
    pub support: Option<&'a B::Buffer>,
}

/// Sums over [`Ranks`] of what is on the device. What is given here is that of a device that always trains alone.
pub trait Collectives: DeviceMemory {
    /// Whether sums can begin while a backward pass is going on.
    const SUMS_OVERLAP: bool = false;

    /// The ranks, of which this device is one.
    fn ranks(&self) -> &Ranks {
        &Ranks::ALONE
    }

    /// From now on the batch norms of a training pass take the statistics of all ranks' batches together.
    ///
    /// # Errors
    /// A device that cannot do that.
    fn join_norms(&mut self) -> Result<()> {
        Ok(())
    }

    /// From now on each rank keeps a part of what an optimizer remembers, and steps the weights of that part.
    ///
    /// # Errors
    /// A device that cannot do that.
    fn divide_optimizer(&mut self) -> Result<()> {
        Ok(())
    }

    /// Begins to add these gradients of all ranks, each multiplied with its rank's `share` of the batch: a sum on its
    /// way, or none where the device puts it into place by itself.
    ///
    /// # Errors
    /// Ranks that are gone, a lost device.
    fn start_sum(&self, _share: f32, _parts: &mut [GradientPart<'_, Self>]) -> Result<Option<PendingSum>> {
        Ok(None)
    }

    /// Waits for a sum and puts it where the gradients were: the same parts, in the same order.
    ///
    /// # Errors
    /// As [`Collectives::start_sum`].
    fn finish_sum(&self, _sum: Option<PendingSum>, _parts: &mut [GradientPart<'_, Self>]) -> Result<()> {
        Ok(())
    }
}
