//! Time cut into strips of [`STRIP`] frames, and the convolutions over them.

use std::ops::Range;

use bregman_base::{Buffer, Disjoint};
use bregman_network::{LayerKind, LayerSpec, Padding};

use super::super::{Conv, Layers};
use crate::Result;
use crate::kernels::{Epilogue, Offsets, Place, STRIP};

/// A row with neighbours: [`MARGIN`] numbers, of which the last are those before the strip, the strip, and those after
/// it in the next row's margin.
pub(super) const HALO_PITCH: usize = MARGIN + STRIP;
pub(super) const MARGIN: usize = Buffer::LINE;

/// Frames `[0, frames)` cut into strips.
#[derive(Clone, Copy)]
pub(in crate::network) struct Strips {
    pub(in crate::network) frames: usize,
}

impl Strips {
    pub(in crate::network) fn count(self) -> usize {
        self.frames.div_ceil(STRIP)
    }

    /// Frames of a strip.
    pub(in crate::network) fn width(self, strip: usize) -> usize {
        STRIP.min(self.frames - strip * STRIP)
    }
}

/// Numbers of a strip of `rows` rows with neighbours.
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
        let offsets = conv.offsets(|channel| row(channel) * STRIP);
        Self { conv, offsets }
    }

    /// # Safety
    /// Nothing else may use the strip of `y` that begins at `at`.
    pub(super) unsafe fn apply(
        &self,
        arch: pulp::Arch,
        x: &[f32],
        codes: &mut [u8],
        width: usize,
        at: usize,
        y: Disjoint,
    ) {
        // SAFETY: as the caller promises.
        unsafe { self.apply_with(arch, x, codes, width, at, &self.conv.epilogue(None), y) };
    }

    /// As [`Strip::apply`], with an epilogue of the caller's.
    ///
    /// # Safety
    /// As [`Strip::apply`].
    #[expect(clippy::too_many_arguments, reason = "two buffers and where they are read")]
    pub(super) unsafe fn apply_with(
        &self,
        arch: pulp::Arch,
        x: &[f32],
        codes: &mut [u8],
        width: usize,
        at: usize,
        epilogue: &Epilogue,
        y: Disjoint,
    ) {
        let place = Place { x: 0, y: at, pitch: STRIP, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply_with(arch, &self.offsets, x, codes, place, epilogue, y) };
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
    /// What lies beyond the ends.
    pub(in crate::network) padding: Padding,
}

impl Halo {
    pub(super) fn new(layers: &mut Layers, spec: &LayerSpec) -> Result<Self> {
        let LayerKind::Conv1d { kernel, dilation, .. } = spec.kind else {
            unreachable!("{} is a convolution over time", spec.name)
        };
        let conv = layers.coded_conv(spec)?;
        let offsets = conv.offsets(|column| column / kernel * HALO_PITCH + column % kernel * dilation);
        Ok(Self { conv, offsets, kernel, dilation, reach: kernel / 2 * dilation, padding: spec.padding })
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
        let place = Place { x: MARGIN - self.reach, y: at, pitch: STRIP, width };
        // SAFETY: as the caller promises.
        unsafe { self.conv.apply(arch, &self.offsets, x, codes, place, y) };
    }
}

/// Fills a row with neighbours: `copy(strip, frames, to)` gives frames of a strip. Outside of the utterance lie zeros,
/// or its frames mirrored, of which there are more than the reach.
#[inline(always)]
pub(super) fn with_neighbours(
    strips: Strips,
    strip: usize,
    &Halo { reach, padding, .. }: &Halo,
    row: &mut [f32],
    copy: impl Fn(usize, Range<usize>, &mut [f32]),
) {
    let width = strips.width(strip);
    let (before, rest) = row.split_at_mut(MARGIN);
    let (own, after) = rest.split_at_mut(width);
    let before = &mut before[MARGIN - reach..];
    if strip > 0 {
        copy(strip - 1, STRIP - reach..STRIP, before);
    } else {
        before.fill(0.0);
    }
    if width == STRIP {
        copy(strip, 0..STRIP, own);
    } else {
        copy(strip, 0..width, own);
    }
    // the next strip may be shorter than the reach
    let next = if strip + 1 < strips.count() { reach.min(strips.width(strip + 1)) } else { 0 };
    if next > 0 {
        copy(strip + 1, 0..next, &mut after[..next]);
    }
    // whole vectors are read, up to the end of the block and `reach` more
    after[next..STRIP - width + reach].fill(0.0);
    if padding == Padding::Reflected {
        if strip == 0 {
            before.iter_mut().rev().zip(&own[1..]).for_each(|(to, from)| *to = *from);
        }
        for column in next..reach {
            let frame = mirrored(strip * STRIP + width + column, strips.frames);
            let at = frame % STRIP;
            copy(frame / STRIP, at..at + 1, &mut after[column..column + 1]);
        }
    }
}

/// The frame that one beyond the end shows.
fn mirrored(frame: usize, frames: usize) -> usize {
    2 * (frames - 1) - frame
}

/// Features `[frame][bin]` as rows `[bin][frame]` of one strip with neighbours.
pub(super) fn transpose(features: &[f32], bins: usize, strip: usize, halo: &Halo, rows: &mut [f32]) {
    let (reach, frames) = (halo.reach, features.len() / bins);
    for column in 0..STRIP + 2 * reach {
        let frame = match ((strip * STRIP + column).checked_sub(reach), halo.padding) {
            (Some(frame), _) if frame < frames => Some(frame),
            (None, Padding::Reflected) => Some(reach - column),
            // what lies further beyond the end is read with whole vectors and makes no output
            (Some(frame), Padding::Reflected) if frame < frames + reach => Some(mirrored(frame, frames)),
            _ => None,
        };
        let frame = frame.map(|frame| &features[frame * bins..(frame + 1) * bins]);
        for bin in 0..bins {
            rows[bin * HALO_PITCH + MARGIN - reach + column] = frame.map_or(0.0, |frame| frame[bin]);
        }
    }
}
