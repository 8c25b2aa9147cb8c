//! Where the weights of a network have gradients, and the gradients there as one message between ranks.
//!
//! A captured step holds the length of its message. It therefore has some room to spare, and stays while the number of
//! weights changes a little.

use std::sync::Arc;

use cudarc::driver::result;

use super::driver::driver;
use super::gpu::Gpu;
use super::layout::kernel_struct;
use super::multi::STRETCH;
use super::{Cuda, DeviceBuffer, grid};
use crate::{Result, SupportPart};

kernel_struct! {
    /// A block's part of a parameter. Without a support all of its gradient travels.
    SupportStretch {
        support: u64 = "const float *",
        gradient: u64 = "float *",
        length: u32 = "u32",
        padding: u32 = "u32",
    }
}

/// Where the gradients are that travel in steps on the support.
#[derive(Default)]
pub struct DeviceSupport(Option<Found>);

struct Found {
    /// Support, gradient and length of every parameter.
    parts: Vec<(u64, u64, usize)>,
    stretches: DeviceBuffer,
    /// How many places each stretch has, then where they begin in the message.
    counts: DeviceBuffer,
    /// For every value of the message the address of its gradient; null behind the last.
    places: DeviceBuffer,
    message: DeviceBuffer,
}

/// Capacity of a message for `count` gradients: a sixteenth more. A message is reused until its capacity exceeds the
/// count by an eighth: at 95 % zeros less than a fifteenth of all gradients is sent.
fn room(count: usize) -> usize {
    count + count / 16 + 16
}

impl Found {
    fn new(device: &Arc<Gpu>, parts: Vec<(u64, u64, usize)>) -> Result<Self> {
        let cut = |&(support, gradient, length): &(u64, u64, usize)| {
            (0..length).step_by(STRETCH).map(move |start| SupportStretch {
                support: if support == 0 { 0 } else { support + start as u64 * 4 },
                gradient: gradient + start as u64 * 4,
                length: STRETCH.min(length - start) as u32,
                padding: 0,
            })
        };
        let table: Vec<SupportStretch> = parts.iter().flat_map(cut).collect();
        let empty = |bytes: usize| DeviceBuffer::zeros(device, bytes);
        let mut stretches = empty(size_of_val(&table[..]))?;
        stretches.upload(&table)?;
        Ok(Self { parts, stretches, counts: empty(table.len() * 4)?, places: empty(0)?, message: empty(0)? })
    }

    /// Values of the message.
    fn length(&self) -> usize {
        self.message.bytes() / 4
    }

    /// Writes down the places.
    fn look(&mut self, device: &Arc<Gpu>) -> Result<()> {
        let blocks = self.counts.bytes() / 4;
        let launch = device.kernel("support_counts").arg(self.stretches.pointer()).arg(self.counts.pointer());
        // SAFETY: a block for each stretch, which lies inside of a parameter and its gradient; a count for each.
        unsafe { launch.run([blocks as u32, 1], [256, 1], 0)? };
        let mut starts = vec![0u32; blocks];
        self.counts.download(&mut starts)?;
        let mut total = 0;
        starts.iter_mut().for_each(|count| total += std::mem::replace(count, total));
        self.counts.upload(&starts)?;
        let total = total as usize;
        if total > self.length() || room(total) + total / 16 < self.length() {
            self.message = DeviceBuffer::zeros(device, room(total) * 4)?;
            self.places = DeviceBuffer::zeros(device, room(total) * 8)?;
        }
        device.bind()?;
        // SAFETY: the memory is this large.
        unsafe { result::memset_d8_async(self.places.pointer(), 0, self.places.bytes(), device.stream()) }
            .map_err(driver)?;
        let launch = device.kernel("support_places").arg(self.stretches.pointer()).arg(self.counts.pointer());
        // SAFETY: as above; there is room for as many places as were counted.
        unsafe { launch.arg(self.places.pointer()).run([blocks as u32, 1], [256, 1], 0) }
    }
}

impl DeviceSupport {
    /// Address and values of the message, where there is one.
    pub(super) fn message(&self) -> (u64, usize) {
        self.0.as_ref().map_or((0, 0), |found| (found.message.pointer(), found.length()))
    }
}

impl Cuda {
    /// Looks where weights have gradients.
    pub(super) fn look_for_support(&self, parts: &[SupportPart<'_, Self>], support: &mut DeviceSupport) -> Result<()> {
        let place = |part: &SupportPart<'_, Self>| {
            let support = part.support.map_or(0, DeviceBuffer::pointer);
            (support, part.gradient.pointer(), part.gradient.bytes() / 4)
        };
        let parts: Vec<(u64, u64, usize)> = parts.iter().map(place).collect();
        if support.0.as_ref().is_none_or(|found| found.parts != parts) {
            support.0 = Some(Found::new(&self.device, parts)?);
        }
        support.0.as_mut().expect("was just made").look(&self.device)
    }

    /// Puts the gradients of the support into its message.
    pub(super) fn pack_support(&self, support: &DeviceSupport) -> Result<()> {
        self.copy_support(support, "support_pack", |found| [found.places.pointer(), found.message.pointer()])
    }

    /// Puts what is in the message of the support where the gradients are.
    pub(super) fn unpack_support(&self, support: &DeviceSupport) -> Result<()> {
        self.copy_support(support, "support_unpack", |found| [found.message.pointer(), found.places.pointer()])
    }

    fn copy_support(
        &self,
        support: &DeviceSupport,
        kernel: &'static str,
        ways: impl Fn(&Found) -> [u64; 2],
    ) -> Result<()> {
        let Some(found) = &support.0 else { return Ok(()) };
        let ([from, to], count) = (ways(found), found.length());
        // SAFETY: as many places as values, each null or inside of a gradient that lives as long as the model.
        unsafe { self.device.kernel(kernel).arg(from).arg(count as u32).arg(to).run(grid(count as u64), [256, 1], 0) }
    }
}
