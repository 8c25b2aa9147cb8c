//! What several processes that train one network do together.

use super::DeviceMemory;
use crate::{PendingSum, Ranks, Result};

/// A parameter whose gradient is summed over ranks on the support.
pub struct SupportPart<'a, B: DeviceMemory> {
    /// The gradient.
    pub gradient: &'a mut B::Buffer,
    /// Where this is not zero, gradients travel; all of them without it.
    pub support: Option<&'a B::Buffer>,
}

/// Sums over [`Ranks`] of what is on the device. What is given here is that of a device that always trains alone.
pub trait Collectives: DeviceMemory {
    /// Whether sums can begin while a backward pass is going on.
    const SUMS_OVERLAP: bool = false;

    /// Where the weights of a network have gradients.
    type Support: Default + Send + Sync;

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
    fn start_sum(&self, _share: f32, _gradients: &mut [&mut Self::Buffer]) -> Result<Option<PendingSum>> {
        Ok(None)
    }

    /// Waits for a sum and puts it where the gradients were: the same ones, in the same order.
    ///
    /// # Errors
    /// As [`Collectives::start_sum`].
    fn finish_sum(&self, _sum: Option<PendingSum>, _gradients: &mut [&mut Self::Buffer]) -> Result<()> {
        Ok(())
    }

    /// Finds the weights that have gradients, for [`Collectives::sum_support`]. What is found serves as long as zeros
    /// of the parts' supports stay zero.
    ///
    /// # Errors
    /// A lost device, too little memory.
    fn find_support(&self, _parts: &[SupportPart<'_, Self>], _support: &mut Self::Support) -> Result<()> {
        Ok(())
    }

    /// As [`Collectives::start_sum`] and [`Collectives::finish_sum`] over all parameters of a network, where gradients
    /// outside of the support, which are 0, do not travel: all others go in one message. The parts are those whose
    /// support was found.
    ///
    /// # Errors
    /// As [`Collectives::start_sum`].
    fn sum_support(&self, _share: f32, _parts: &mut [SupportPart<'_, Self>], _support: &Self::Support) -> Result<()> {
        Ok(())
    }
}
