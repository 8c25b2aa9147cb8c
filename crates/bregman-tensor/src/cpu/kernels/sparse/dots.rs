//! Rows of dY times the lines of X under their non-zeros: the innermost part of [`sampled`](super::sampled).
//!
//! A piece of a row of dY stays in registers while the same piece of one line after another is multiplied with it; the
//! lanes of each product are added across at once. In bf16 both operands are rounded; a CPU with bf16 products stores
//! them in half the bytes and multiplies twice as many at once, others multiply the rounded values as f32.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use super::super::bf16::round;
use super::super::columns::Plain;
use super::super::lines::{Grid, TapLines};
#[cfg(target_arch = "x86_64")]
use super::dots_avx512::{self, Job};
use super::tile::Tile;
use crate::cpu::math::simd;

/// Columns of a block are a multiple of this: one vector of bf16.
pub(super) const VECTOR: usize = 32;
/// Vectors of dY in registers.
pub(super) const PIECE: usize = 8;

/// Which numbers are multiplied with which instructions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Dots {
    /// f32.
    F32(Arch),
    /// Rounded to bf16, and multiplied as f32.
    Rounded(Arch),
    /// Rounded to bf16.
    #[cfg(target_arch = "x86_64")]
    Bf16,
}

impl Dots {
    /// Operands as they are or rounded to bf16, with the best instructions of this CPU.
    pub(super) fn best(rounded: bool) -> Self {
        let arch = bregman_base::simd::arch();
        match rounded {
            false => Self::F32(arch),
            #[cfg(target_arch = "x86_64")]
            true if bregman_base::simd::Level::Avx512Bf16.is_usable() => Self::Bf16,
            true => Self::Rounded(arch),
        }
    }

    /// Bytes of a value of X in the cache.
    pub(super) fn value_bytes(self) -> usize {
        match self {
            Self::F32(_) | Self::Rounded(_) => 4,
            #[cfg(target_arch = "x86_64")]
            Self::Bf16 => 2,
        }
    }

    /// f32 of scratch memory for so many lines, `stride` values apart.
    pub(super) fn scratch(self, lines: usize, stride: usize) -> usize {
        WIDE * stride + ((lines + 1) * stride * self.value_bytes()).div_ceil(4)
    }
}

/// Lines of X that are copied before they are rounded.
const WIDE: usize = 8;

/// Some rows of a tile, and the piece of dY that belongs to a block of columns.
pub(super) struct Rows<'a> {
    pub(super) tile: &'a Tile,
    pub(super) rows: Range<usize>,
    pub(super) dy: &'a Plain<'a>,
    /// Row of dY under row 0 of the tile.
    pub(super) first_row: usize,
    pub(super) item: usize,
    pub(super) grid: Grid,
    pub(super) places: Range<usize>,
}

impl Rows<'_> {
    /// Calls `work(dy, columns, sums)` for every row with entries; `sums` has all of them.
    #[inline(always)]
    fn each(&self, line: &mut [f32], sums: &mut [f32], mut work: impl FnMut(&[f32], &[u16], &mut [f32])) {
        let start = &self.tile.start[self.rows.start..=self.rows.end];
        for (row, ends) in self.rows.clone().zip(start.windows(2)) {
            let [from, until, first] = [ends[0], ends[1], start[0]].map(|entry| entry as usize);
            if from < until {
                let dy = self.dy(row, &mut line[..self.places.len().next_multiple_of(VECTOR)]);
                work(dy, &self.tile.column[from..until], &mut sums[from - first..until - first]);
            }
        }
    }

    /// The piece of dY, with zeros in gaps and behind it: as it lies in memory, or copied to `line`.
    #[inline(always)]
    fn dy<'a>(&'a self, row: usize, line: &'a mut [f32]) -> &'a [f32] {
        let dy = self.dy.row(self.item, self.first_row + row);
        if self.grid.has_no_gaps() && self.places.len() == line.len() {
            return &dy[self.places.clone()];
        }
        line.fill(0.0);
        self.grid.runs(self.places.clone(), |place, position, count| {
            line[place..place + count].copy_from_slice(&dy[position..position + count]);
        });
        line
    }
}

/// Lines of X in the cache.
pub(super) struct Lines<'a> {
    dots: Dots,
    /// A line of dY, and behind it those of X that are being rounded.
    wide: &'a mut [f32],
    /// The lines, and one of dY behind them, as f32 or halves.
    values: &'a mut [f32],
    stride: usize,
    /// Where the line under each column of the tile begins.
    offsets: &'a [u32],
    /// The largest of these.
    last: usize,
}

impl<'a> Lines<'a> {
    /// In scratch memory of [`Dots::scratch`].
    pub(super) fn new(dots: Dots, scratch: &'a mut [f32], stride: usize, offsets: &'a [u32]) -> Self {
        let (wide, values) = scratch.split_at_mut(WIDE * stride);
        let last = offsets.iter().max().map_or(0, |&offset| offset as usize);
        Self { dots, wide, values, stride, offsets, last }
    }

    /// Copies lines of X from a place on, as many places as there is room for.
    pub(super) fn copy(&mut self, x: &impl TapLines, item: usize, lines: Range<usize>, from: usize) {
        let Self { values, stride, .. } = self;
        match self.dots {
            Dots::F32(arch) | Dots::Rounded(arch) => simd!(arch, {
                let values = &mut values[..lines.len() * *stride];
                x.fill(item, lines, from, values, *stride);
                if matches!(self.dots, Dots::Rounded(_)) {
                    values.iter_mut().for_each(|value| *value = round(*value));
                }
            }),
            #[cfg(target_arch = "x86_64")]
            Dots::Bf16 => {
                let halves = bytemuck::cast_slice_mut::<f32, u16>(values).chunks_mut(WIDE * *stride);
                for (first, halves) in lines.clone().step_by(WIDE).zip(halves) {
                    let some = first..lines.end.min(first + WIDE);
                    let wide = &mut self.wide[..some.len() * *stride];
                    x.fill(item, some, from, wide, *stride);
                    dots_avx512::round(wide, halves);
                }
            }
        }
    }

    /// Adds the dot products of the rows' entries to `sums`.
    pub(super) fn add(&mut self, rows: &Rows, sums: &mut [f32]) {
        let padded = rows.places.len().next_multiple_of(VECTOR);
        let room = self.values.len() * 4 / self.dots.value_bytes() - self.stride;
        assert!(self.last + padded <= room, "a line of X ends outside of its memory");
        let Self { wide, values, offsets, .. } = self;
        match self.dots {
            #[cfg(target_arch = "x86_64")]
            Dots::F32(Arch::V4(_)) => rows.each(wide, sums, |dy, columns, sums| {
                let values = &**values;
                // SAFETY: asserted above; dY has `padded` values.
                #[allow(unsafe_code)]
                unsafe {
                    dots_avx512::add(Job { dy, values, offsets, columns, sums })
                }
            }),
            Dots::F32(arch) => arch.dispatch(Portable { rows, wide, values, offsets, rounded: false, sums }),
            Dots::Rounded(arch) => arch.dispatch(Portable { rows, wide, values, offsets, rounded: true, sums }),
            #[cfg(target_arch = "x86_64")]
            Dots::Bf16 => {
                let halves = bytemuck::cast_slice_mut::<f32, u16>(values);
                let (values, line) = halves.split_at_mut(halves.len() - self.stride);
                rows.each(wide, sums, |wide, columns, sums| {
                    let dy = &mut line[..wide.len()];
                    dots_avx512::round(wide, dy);
                    // SAFETY: asserted above; dY has `padded` values.
                    #[allow(unsafe_code)]
                    unsafe {
                        dots_avx512::add(Job { dy, values, offsets, columns, sums })
                    }
                });
            }
        }
    }
}

/// f32 on any CPU.
struct Portable<'a> {
    rows: &'a Rows<'a>,
    wide: &'a mut [f32],
    values: &'a [f32],
    offsets: &'a [u32],
    rounded: bool,
    sums: &'a mut [f32],
}

impl WithSimd for Portable<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (line, copy) = self.wide.split_at_mut(self.wide.len() / 2);
        self.rows.each(line, self.sums, |dy, columns, sums| {
            let dy = if self.rounded {
                copy.iter_mut().zip(dy).for_each(|(copy, &value)| *copy = round(value));
                &copy[..dy.len()]
            } else {
                dy
            };
            let (mut dy, _) = S::as_simd_f32s(dy);
            let mut values = self.values;
            while !dy.is_empty() {
                let taken = match dy.len() {
                    8.. => piece::<S, 8>(simd, dy, values, self.offsets, columns, sums),
                    4.. => piece::<S, 4>(simd, dy, values, self.offsets, columns, sums),
                    _ => piece::<S, 1>(simd, dy, values, self.offsets, columns, sums),
                };
                (dy, values) = (&dy[taken..], &values[taken * S::F32_LANES..]);
            }
        });
    }
}

/// Adds the products of the first V vectors of `dy`.
#[inline(always)]
fn piece<S: Simd, const V: usize>(
    simd: S,
    dy: &[S::f32s],
    values: &[f32],
    offsets: &[u32],
    columns: &[u16],
    sums: &mut [f32],
) -> usize {
    let dy: [S::f32s; V] = std::array::from_fn(|v| dy[v]);
    for (&column, sum) in columns.iter().zip(sums) {
        let x = &values[offsets[usize::from(column)] as usize..][..V * S::F32_LANES];
        let (x, _) = S::as_simd_f32s(x);
        let mut totals = [simd.splat_f32s(0.0); 2];
        for v in 0..V {
            totals[v % 2] = simd.mul_add_e_f32s(dy[v], x[v], totals[v % 2]);
        }
        *sum += simd.reduce_sum_f32s(simd.add_f32s(totals[0], totals[1]));
    }
    V
}
