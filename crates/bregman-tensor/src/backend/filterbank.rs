//! Filterbank features computed on the device.

use super::DeviceMemory;
use crate::{FilterbankTables, Result, ViewMut};

/// Features from samples.
pub trait Filterbanks: DeviceMemory {
    /// A filterbank, as the device computes it.
    type Filterbank: Send + Sync;

    /// Prepares features from samples.
    fn filterbank(&self, tables: FilterbankTables) -> Result<Self::Filterbank>;
    /// As [`DeviceMemory::write_frames`] with the features of utterances of equal length: samples in `[batch, samples]`
    /// order.
    fn write_samples(&self, filterbank: &Self::Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()>;
    /// [`Filterbanks::write_samples`] as [`DeviceMemory::write_frames_ahead`].
    fn write_samples_ahead(&self, filterbank: &Self::Filterbank, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        self.write_samples(filterbank, from, to)
    }
}
