//! Activations between host and device, and from the host's order into ours.

use cudarc::driver::sys;

use super::device::Variant;
use super::{Cuda, Rows, Workspace, grid};
use crate::{Error, Result, View, ViewMut};

pub(super) fn write(cuda: &Cuda, from: &[f32], to: ViewMut<Cuda>) -> Result<()> {
    let shape = to.shape;
    if from.len() != shape.len() {
        return Err(Error::Length { what: "write", expected: shape.len(), got: from.len() });
    }
    let to = cuda.rows_mut(&to);
    let mut scratch = cuda.scratch();
    let Workspace { staging, locked, .. } = &mut *scratch;
    let staging = staging.filled(&cuda.device, cuda.device.stream(), locked, from)?;
    let variant = Variant { format: to.format, wide: false };
    let launch = cuda.device.variant("to_channels_last", variant).arg(staging.pointer()).arg(to.pointer).arg(to.stride);
    let launch = launch.arg(to.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
    // SAFETY: both sides have as many values as the shape.
    unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
}

/// Whether a copy waits for the work before it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    InTurn,
    /// It runs beside that work; later work waits for it.
    Beside,
}

pub(super) fn write_frames(cuda: &Cuda, from: &[f32], to: ViewMut<Cuda>, when: When) -> Result<()> {
    if from.len() != to.shape.len() {
        return Err(Error::Length { what: "write", expected: to.shape.len(), got: from.len() });
    }
    let mut scratch = cuda.scratch();
    let (stream, staged) = stage(cuda, &mut scratch, from, when)?;
    from_frames(cuda, stream, staged, to)?;
    if when == When::Beside { cuda.device.wait_for_second_stream() } else { Ok(()) }
}

/// Copies values to where the stream of this moment finds them; both come back.
pub(super) fn stage(cuda: &Cuda, scratch: &mut Workspace, from: &[f32], when: When) -> Result<(sys::CUstream, u64)> {
    let Workspace { staging, locked, ahead, locked_ahead, .. } = scratch;
    let (stream, staging, locked) = match when {
        When::InTurn => (cuda.device.stream(), staging, locked),
        When::Beside => (cuda.device.second_stream(), ahead, locked_ahead),
    };
    Ok((stream, staging.filled(&cuda.device, stream, locked, from)?.pointer()))
}

/// As many f32 values on the GPU, in `[batch, frames, features]` order, into ours.
pub(super) fn from_frames(cuda: &Cuda, stream: sys::CUstream, from: u64, to: ViewMut<Cuda>) -> Result<()> {
    let shape = to.shape;
    let to = cuda.rows_mut(&to);
    if shape.height == 1 {
        // [batch, frames, features] is our own order
        let from = Rows { pointer: from, stride: to.channels, format: to.format, ..to };
        let variant = from.variant_with(&[to]);
        let launch = cuda
            .device
            .variant("convert", variant)
            .on(stream)
            .arg(from.pointer)
            .arg(from.stride)
            .arg(to.pointer)
            .arg(to.stride);
        let launch = launch.arg(to.rows).arg(to.channels);
        // SAFETY: both sides have as many values as the shape.
        return unsafe { cuda.over_rows(launch, variant, to.rows, to.channels) };
    }
    assert_eq!(shape.channels, 1, "a map of features has one channel");
    assert_eq!(to.stride, 1, "a map of features is a tensor of its own");
    // [batch, width, height] → [batch, height · width]: the transposition of `write` with positions and channels in other roles
    let launch = cuda.device.variant("to_channels_last", Variant { format: to.format, wide: false }).on(stream);
    let launch = launch.arg(from).arg(to.pointer).arg(shape.width as u32);
    let launch = launch.arg(shape.width as u32).arg(shape.height as u32).arg(shape.len() as u64);
    // SAFETY: as above.
    unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0) }
}

pub(super) fn read(cuda: &Cuda, from: View<Cuda>, to: &mut [f32]) -> Result<()> {
    let shape = from.shape;
    if to.len() != shape.len() {
        return Err(Error::Length { what: "read", expected: shape.len(), got: to.len() });
    }
    let from = cuda.rows(from);
    let mut scratch = cuda.scratch();
    let staging = scratch.staging.at_least(&cuda.device, to.len() * 4)?;
    let variant = Variant { format: from.format, wide: false };
    let launch =
        cuda.device.variant("from_channels_last", variant).arg(from.pointer).arg(from.stride).arg(staging.pointer());
    let launch = launch.arg(from.channels).arg(shape.positions() as u32).arg(shape.len() as u64);
    // SAFETY: both sides have as many values as the shape.
    unsafe { launch.run(grid(shape.len() as u64), [256, 1], 0)? };
    staging.download(to)
}
