//! Memory of the CPU backend, and values between the host's order and ours.

use super::{Buffer, Copies, Cpu};
use crate::{Block, Capture, DeviceMemory, Error, Result, Shape, Storage, View, ViewMut};

pub(super) fn check_length(what: &'static str, expected: usize, got: usize) -> Result<()> {
    if expected == got { Ok(()) } else { Err(Error::Length { what, expected, got }) }
}

impl DeviceMemory for Cpu {
    type Buffer = Buffer;
    type Late = Vec<f32>;
    type Copies = Copies;

    fn alloc(&self, len: usize, _: Storage) -> Result<Buffer> {
        Ok(Buffer::zeros(len))
    }

    fn bytes_per_value(&self, _: Storage) -> usize {
        size_of::<f32>()
    }

    fn upload(&self, from: &[f32], to: &mut Buffer) -> Result<()> {
        let (expected, got) = (to.len(), from.len());
        to.get_mut(..got).ok_or(Error::Length { what: "upload", expected, got })?.copy_from_slice(from);
        Ok(())
    }

    fn download(&self, from: &Buffer, to: &mut [f32]) -> Result<()> {
        let (expected, got) = (from.len(), to.len());
        to.copy_from_slice(from.get(..got).ok_or(Error::Length { what: "download", expected, got })?);
        Ok(())
    }

    fn read_later(&self, from: &Buffer, len: usize) -> Result<Vec<f32>> {
        let mut values = vec![0.0; len];
        self.download(from, &mut values)?;
        Ok(values)
    }

    fn arrived(&self, late: Vec<f32>) -> Result<Vec<f32>> {
        Ok(late)
    }

    fn write(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        swap_leading_axes(from, to.shape.batch, to.shape.channels, to.slice());
        Ok(())
    }

    fn write_frames(&self, from: &[f32], to: ViewMut<Self>) -> Result<()> {
        check_length("write", to.shape.len(), from.len())?;
        transpose_items(from, to.shape, to.slice());
        Ok(())
    }

    fn read(&self, from: View<Self>, to: &mut [f32]) -> Result<()> {
        check_length("read", from.shape.len(), to.len())?;
        swap_leading_axes(from.slice(), from.shape.channels, from.shape.batch, to);
        Ok(())
    }

    fn refresh(&self, value: &Buffer, mask: Option<&Buffer>, block: Block, copies: &mut Copies) -> Result<()> {
        copies.refresh(self.precision, self.weights, value, mask, block);
        Ok(())
    }

    fn refresh_support(&self, value: &Buffer, mask: Option<&Buffer>, block: Block, copies: &mut Copies) -> Result<()> {
        copies.refresh_support(value, mask, block);
        Ok(())
    }
}

/// A CPU has no launches to save: the work runs every time.
impl Capture for Cpu {
    type Graph = ();

    /// On a thread of the pool: from any other a kernel starts by waking one of these and ends by being woken, which
    /// for small layers takes longer than their arithmetic.
    fn run_kernels<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        rayon::scope(|_| work())
    }
}

/// `[first, second, rest…]` → `[second, first, rest…]`
fn swap_leading_axes(from: &[f32], first: usize, second: usize, to: &mut [f32]) {
    let rest = from.len() / (first * second).max(1);
    for i in 0..first {
        for j in 0..second {
            to[(j * first + i) * rest..][..rest].copy_from_slice(&from[(i * second + j) * rest..][..rest]);
        }
    }
}

/// `[batch, width, features]` → `[channels, batch, height, width]`, where channels · height are the features, one of
/// the two being 1.
fn transpose_items(from: &[f32], shape: Shape, to: &mut [f32]) {
    let Shape { channels, batch, height, width } = shape;
    assert!(channels == 1 || height == 1, "frames of {shape:?}");
    let features = channels * height;
    // a signal's features lie a whole batch apart, a map's only a row
    let (item_stride, feature_stride) = if height == 1 { (width, batch * width) } else { (height * width, width) };
    for (index, frame) in from.chunks_exact(features).enumerate() {
        let start = index / width * item_stride + index % width;
        frame.iter().enumerate().for_each(|(feature, &value)| to[start + feature * feature_stride] = value);
    }
}
