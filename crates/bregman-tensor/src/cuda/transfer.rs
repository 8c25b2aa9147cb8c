//! Values between host and device, from the host's order into ours, and from a weight into its copy.

use cudarc::driver::sys;

use super::gpu::{KernelVariant, Stream};
use super::{Cuda, CudaWorkspace, DeviceBuffer, Format, LateValues, PackedWeight, Rows, grid};
use crate::{Block, DeviceMemory, Error, Result, Storage, View, ViewMut};

impl DeviceMemory for Cuda {
    type Buffer = DeviceBuffer;
    type Copies = PackedWeight;
    type Late = LateValues;

    fn alloc(&self, len: usize, storage: Storage) -> Result<DeviceBuffer> {
        DeviceBuffer::zeros(&self.device, len * self.bytes_per_value(storage))
    }

    fn bytes_per_value(&self, storage: Storage) -> usize {
        match storage {
            Storage::Exact | Storage::Vector => 4,
            Storage::Map => self.map_format().bytes(),
        }
    }

    fn upload(&self, from: &[f32], to: &mut DeviceBuffer) -> Result<()> {
        to.upload(from)
    }

    fn download(&self, from: &DeviceBuffer, to: &mut [f32]) -> Result<()> {
        from.download(to)
    }

    fn read_later(&self, from: &DeviceBuffer, len: usize) -> Result<LateValues> {
        let expected = from.bytes() / 4;
        if len > expected {
            return Err(Error::Length { what: "read_later", expected, got: len });
        }
        // SAFETY: the buffer has so many values.
        unsafe { self.land(from.pointer(), len) }
    }

    fn arrived(&self, late: LateValues) -> Result<Vec<f32>> {
        let values = late.wait()?;
        self.scratch().landings.push(late);
        Ok(values)
    }

    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        let shape = to.shape;
        if from.len() != shape.len() {
            return Err(Error::Length { what: "write", expected: shape.len(), got: from.len() });
        }
        let to = self.rows_mut(&to);
        let mut scratch = self.scratch();
        let CudaWorkspace { staging, pinned, .. } = &mut *scratch;
        let staging = staging.filled(&self.device, self.device.stream(), pinned, from)?;
        let variant = KernelVariant { format: to.format, wide: false };
        let launch = self.device.variant("to_channels_last", variant).arg(staging.pointer()).view(to);
        let launch = launch.arg(to.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
        // SAFETY: both sides have as many values as the shape.
        unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
    }

    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        write_frames(self, from, to, Stream::Compute)
    }

    fn write_frames_ahead(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        write_frames(self, from, to, Stream::Copy)
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        let shape = from.shape;
        if to.len() != shape.len() {
            return Err(Error::Length { what: "read", expected: shape.len(), got: to.len() });
        }
        let from = self.rows(from);
        let mut scratch = self.scratch();
        let staging = scratch.staging.at_least(&self.device, to.len() * 4)?;
        let variant = KernelVariant { format: from.format, wide: false };
        let launch = self.device.variant("from_channels_last", variant).view(from).arg(staging.pointer());
        let launch = launch.arg(from.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
        // SAFETY: both sides have as many values as the shape.
        unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0)? };
        staging.download(to)
    }

    /// bf16 maps need a copy of every weight, f32 maps where taps must be put in order.
    fn refresh(
        &self,
        value: &DeviceBuffer,
        _: Option<&DeviceBuffer>,
        block: Block,
        copies: &mut PackedWeight,
    ) -> Result<()> {
        let format = self.map_format();
        if format == Format::F32 && block.taps == 1 {
            return Ok(());
        }
        if copies.packed.is_none() {
            copies.packed = Some(DeviceBuffer::zeros(&self.device, block.rows * block.columns * format.bytes())?);
        }
        let packed = copies.packed.as_ref().expect("was just made");
        let launch = self
            .device
            .variant("pack_weight", KernelVariant { format, wide: false })
            .arg(value.pointer())
            .arg(block.stride as u32);
        let launch = launch.arg(block.first as u32).arg(packed.pointer()).arg(block.rows as u32);
        let launch = launch.arg((block.columns / block.taps) as u32).arg(block.taps as u32);
        // SAFETY: the copy has as many values as the block.
        unsafe { launch.run(grid((block.rows * block.columns) as u64), [256, 1], 0) }
    }
}

impl Cuda {
    /// Begins to copy values to the host, after all work so far.
    ///
    /// # Safety
    /// There must be `len` values, in a buffer that lives until they have arrived.
    pub(super) unsafe fn land(&self, from: u64, len: usize) -> Result<LateValues> {
        let free = {
            let landings = &mut self.scratch().landings;
            landings.iter().position(|free| free.fits(len)).map(|at| landings.swap_remove(at))
        };
        let mut landing = free.map_or_else(|| LateValues::new(&self.device, len), Ok)?;
        // SAFETY: the caller's promise.
        unsafe { landing.begin(&self.device, from, len)? };
        Ok(landing)
    }
}

fn write_frames(cuda: &Cuda, from: &[f32], to: ViewMut<Cuda>, on: Stream) -> Result<()> {
    if from.len() != to.shape.len() {
        return Err(Error::Length { what: "write", expected: to.shape.len(), got: from.len() });
    }
    let mut scratch = cuda.scratch();
    let (stream, staged) = stage(cuda, &mut scratch, from, on)?;
    from_frames(cuda, stream, staged, to)?;
    if on == Stream::Copy { cuda.device.wait_for_copies() } else { Ok(()) }
}

/// Copies values to staging memory on the device, in the order of a stream: that stream, and where they are.
pub(super) fn stage(
    cuda: &Cuda,
    scratch: &mut CudaWorkspace,
    from: &[f32],
    on: Stream,
) -> Result<(sys::CUstream, u64)> {
    let CudaWorkspace { staging, pinned, copy_staging, copy_pinned, .. } = scratch;
    let (stream, staging, pinned) = match on {
        Stream::Compute => (cuda.device.stream(), staging, pinned),
        Stream::Copy => (cuda.device.copy_stream(), copy_staging, copy_pinned),
    };
    Ok((stream, staging.filled(&cuda.device, stream, pinned, from)?.pointer()))
}

/// As many f32 values on the GPU, in `[batch, frames, features]` order, into ours.
pub(super) fn from_frames(cuda: &Cuda, stream: sys::CUstream, from: u64, to: ViewMut<Cuda>) -> Result<()> {
    let shape = to.shape;
    let to = cuda.rows_mut(&to);
    if shape.height == 1 {
        // [batch, frames, features] is our own order
        let from = Rows { pointer: from, stride: to.channels, format: to.format, ..to };
        let variant = from.variant_with(&[to]);
        let launch = cuda.device.variant("convert", variant).on(stream).view(from).view(to);
        let launch = launch.arg(to.rows).arg(to.channels);
        // SAFETY: both sides have as many values as the shape.
        return unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) };
    }
    assert_eq!(shape.channels, 1, "a map of features has one channel");
    assert_eq!(to.stride, 1, "a map of features is a tensor of its own");
    // [batch, width, height] → [batch, height · width]: the transposition of `write` with positions and
    // channels in other roles
    let launch = cuda.device.variant("to_channels_last", KernelVariant { format: to.format, wide: false }).on(stream);
    let launch = launch.arg(from).arg(to.pointer).arg(shape.width as u32);
    let launch = launch.arg(shape.width as u32).arg(shape.height as u32).arg(shape.len() as u64);
    // SAFETY: as above.
    unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
}
