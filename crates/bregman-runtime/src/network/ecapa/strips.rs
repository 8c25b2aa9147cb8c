//! Time cut into strips of [`BLOCK`] frames, and the convolutions over them.

use std::ops::Range;

use bregman_base::{Buffer, Disjoint};
use bregman_network::{LayerKind, LayerSpec};

use super::super::{Conv, Layers};
use crate::Result;
use crate::kernels::{BLOCK, Offsets, Place};

/// A row with neighbours: [`MARGIN`] numbers, of which the last are those before the strip, the strip, and those after
/// it in the next row's margin.
pub(super) const HALO_PITCH: usize = MARGIN + BLOCK;
pub(super) const MARGIN: usize = Buffer::LINE;

/// Frames `[0, frames)` cut into strips.
#[derive(Clone, Copy)]
pub(in crate::network) struct Strips {
    pub(in crate::network) frames: usize,
}

impl Strips {
    pub(in crate::network) fn count(self) -> usize {
        self.frames.div_ceil(BLOCK)
    }

    /// Frames of a strip.
    pub(in crate::network) fn width(self, strip: usize) -> usize {
        BLOCK.min(self.frames - strip * BLOCK)
    }
}

/// Numbers of a strip of so many rows with neighbours.
pub(super) fn halo_stride(rows: usize) -> usize {
    rows * HALO_PITCH + MARGIN
}

/// A pointwise convolution over strips.
pub(in crate::network) struct Strip {
    pub(in crate::network) conv: Conv,
    pub(super) offsets: Offsets,
}

impl Strip {
    /// `row` says in which row of its strip a channel lies.
    pub(super) fn new(conv: Conv, row: impl Fn(usize) -> usize) -> Self {
        let offsets = conv.offsets(|channel| row(channel) * BLOCK);
        Self { conv, offsets }
    }

    /// # Safety
    /// Nobody else may use the strip of `y` that begins at `at`.
    pub(super) unsafe fn apply(
        &self,
        arch: pulp::Arch,
        x: &[f32],
        codes: &mut [u8],
        width: usize,
        at: usize,
        y: Disjoint,
    ) {
        let place = Place { x: 0, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply(arch, &self.offsets, x, codes, place, y) };
    }
}

/// A dilated convolution over strips with neighbours.
pub(in crate::network) struct Halo {
    pub(in crate::network) conv: Conv,
    pub(super) offsets: Offsets,
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(in crate::network) kernel: usize,
    #[cfg_attr(not(feature = "audio"), expect(dead_code, reason = "windows that overlap come with audio"))]
    pub(in crate::network) dilation: usize,
    /// Neighbours on each side.
    pub(in crate::network) reach: usize,
}

impl Halo {
    pub(super) fn new(layers: &mut Layers, spec: &LayerSpec) -> Result<Self> {
        let LayerKind::Conv1d { kernel, dilation, .. } = spec.kind else {
            unreachable!("{} is a convolution over time", spec.name)
        };
        let conv = layers.coded_conv(spec)?;
        let offsets = conv.offsets(|column| column / kernel * HALO_PITCH + column % kernel * dilation);
        Ok(Self { conv, offsets, kernel, dilation, reach: kernel / 2 * dilation })
    }

    /// # Safety
    /// As [`Strip::apply`].
    pub(super) unsafe fn apply(
        &self,
        arch: pulp::Arch,
        x: &[f32],
        codes: &mut [u8],
        width: usize,
        at: usize,
        y: Disjoint,
    ) {
        let place = Place { x: MARGIN - self.reach, y: at, pitch: BLOCK, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply(arch, &self.offsets, x, codes, place, y) };
    }
}

/// Fills a row with neighbours: `copy(strip, frames, to)` gives frames of a strip; zeros lie outside of the utterance.
#[inline(always)]
pub(super) fn with_neighbours(
    strips: Strips,
    strip: usize,
    reach: usize,
    row: &mut [f32],
    copy: impl Fn(usize, Range<usize>, &mut [f32]),
) {
    let width = strips.width(strip);
    let (before, rest) = row.split_at_mut(MARGIN);
    let (own, after) = rest.split_at_mut(width);
    let before = &mut before[MARGIN - reach..];
    if strip > 0 {
        copy(strip - 1, BLOCK - reach..BLOCK, before);
    } else {
        before.fill(0.0);
    }
    if width == BLOCK {
        copy(strip, 0..BLOCK, own);
    } else {
        copy(strip, 0..width, own);
    }
    // the next strip may be shorter than the reach
    let next = if strip + 1 < strips.count() { reach.min(strips.width(strip + 1)) } else { 0 };
    if next > 0 {
        copy(strip + 1, 0..next, &mut after[..next]);
    }
    // whole vectors are read, up to the end of the block and `reach` more
    after[next..BLOCK - width + reach].fill(0.0);
}

/// Features `[frame][bin]` as rows `[bin][frame]` of one strip with neighbours.
pub(super) fn transpose(features: &[f32], bins: usize, strip: usize, reach: usize, rows: &mut [f32]) {
    for column in 0..BLOCK + 2 * reach {
        let frame = (strip * BLOCK + column)
            .checked_sub(reach)
            .and_then(|frame| features.get(frame * bins..(frame + 1) * bins));
        for bin in 0..bins {
            rows[bin * HALO_PITCH + MARGIN - reach + column] = frame.map_or(0.0, |frame| frame[bin]);
        }
    }
}
