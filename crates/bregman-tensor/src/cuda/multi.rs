//! Kernels over all tensors of a network at once.

use std::sync::Arc;

use super::gpu::Gpu;
use super::layout::kernel_struct;
use super::{Cuda, DeviceBuffer, LateValues};
use crate::{Gradients, Result};

/// Values per block; a multiple of four, so that every block begins on a 16-byte boundary.
pub(super) const STRETCH: usize = 1 << 14;

kernel_struct! {
    /// A block's part of a tensor.
    Stretch {
        values: u64 = "float *",
        length: u32 = "u32",
        tensor: u32 = "u32",
    }
}

/// The tensors cut into stretches, on the device; kept while the tensors stay where they are.
pub(super) struct Stretches {
    tensors: Vec<(u64, usize)>,
    count: u32,
    table: DeviceBuffer,
    /// A sum per stretch, then norm and factor.
    sums: DeviceBuffer,
}

impl Stretches {
    fn new(device: &Arc<Gpu>, tensors: Vec<(u64, usize)>) -> Result<Self> {
        let cut = |(tensor, &(pointer, length)): (usize, &(u64, usize))| {
            (0..length).step_by(STRETCH).map(move |start| Stretch {
                values: pointer + start as u64 * 4,
                length: STRETCH.min(length - start) as u32,
                tensor: tensor as u32,
            })
        };
        let stretches: Vec<Stretch> = tensors.iter().enumerate().flat_map(cut).collect();
        let mut table = DeviceBuffer::zeros(device, stretches.len() * size_of::<Stretch>())?;
        table.upload(&stretches)?;
        Ok(Self {
            tensors,
            count: stretches.len() as u32,
            table,
            sums: DeviceBuffer::zeros(device, stretches.len() * 8 + 8)?,
        })
    }
}

impl Gradients for Cuda {
    fn clip_later(&self, gradients: &mut [&mut DeviceBuffer], limit: f32) -> Result<LateValues> {
        let tensors: Vec<(u64, usize)> =
            gradients.iter().map(|gradient| (gradient.pointer(), gradient.bytes() / 4)).collect();
        let mut scratch = self.scratch();
        if scratch.stretches.as_ref().is_none_or(|known| known.tensors != tensors) {
            scratch.stretches = Some(Stretches::new(&self.device, tensors)?);
        }
        let Stretches { count, table, sums, .. } = scratch.stretches.as_ref().expect("was just made");
        let outcome = sums.pointer() + u64::from(*count) * 8;
        let launch = self.device.kernel("square_sums").arg(table.pointer()).arg(sums.pointer());
        // SAFETY: a block per stretch, each inside of a gradient; a sum per stretch.
        unsafe { launch.run([*count, 1], [256, 1], 0)? };
        let launch = self.device.kernel("clip_factor").arg(sums.pointer()).arg(*count).arg(limit).arg(outcome);
        // SAFETY: behind the sums there is room for the outcome.
        unsafe { launch.run([1, 1], [256, 1], 0)? };
        // SAFETY: as above.
        unsafe {
            self.device.kernel("scale_stretches").arg(table.pointer()).arg(outcome).run([*count, 1], [256, 1], 0)?
        };
        drop(scratch);
        // SAFETY: the norm, behind the sums; the stretches live on in the workspace, or wait for all work in their end.
        unsafe { self.land(outcome, 1) }
    }
}
