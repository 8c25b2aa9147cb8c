//! Convolution as a matrix product: the input values under each tap, laid out as rows (`gather`, im2col), and its
//! adjoint (`scatter`).

use std::ops::Range;

use crate::{Conv, Shape};

/// One run of output positions in one output row, and where its inputs lie for one tap.
struct PatchRun {
    /// Offset in the patch row.
    at: usize,
    /// Output positions in the run.
    len: usize,
    /// Input row; `None` in the padding.
    row: Option<usize>,
    /// Input column of the first output, which may lie in the padding on the left.
    column: isize,
}

/// The part of a convolution's input that one task needs: some channels of one batch item, for some output positions.
pub(super) struct Patches<'a> {
    pub(super) conv: &'a Conv,
    pub(super) input: Shape,
    pub(super) output: Shape,
    pub(super) item: usize,
    pub(super) channels: Range<usize>,
    pub(super) positions: Range<usize>,
}

impl Patches<'_> {
    /// `patches[(c, tap), p] = x[c, item, position p under the tap]`, zero in the padding.
    pub(super) fn gather(&self, x: &[f32], patches: &mut [f32]) {
        let stride = self.conv.stride[1];
        self.each_row(|row, map, tap| {
            let target = &mut patches[row * self.positions.len()..][..self.positions.len()];
            self.each_run(tap, |run| {
                let target = &mut target[run.at..][..run.len];
                let Some(row) = run.row else { return target.fill(0.0) };
                let source = &x[map + row * self.input.width..][..self.input.width];
                let (first, last) = run.inside(stride, source.len());
                target[..first].fill(0.0);
                target[last..].fill(0.0);
                if first == last {
                    return;
                }
                let start = (run.column + (first * stride) as isize) as usize;
                if stride == 1 {
                    target[first..last].copy_from_slice(&source[start..start + last - first]);
                } else {
                    target[first..last]
                        .iter_mut()
                        .zip(source[start..].iter().step_by(stride))
                        .for_each(|(to, from)| *to = *from);
                }
            });
        });
    }

    /// Adds every patch value to the input value it came from. `x` is seen through `map`: the input map that starts at
    /// an offset.
    pub(super) fn scatter<'x>(&self, patches: &[f32], mut map_of: impl FnMut(usize) -> &'x mut [f32]) {
        let stride = self.conv.stride[1];
        self.each_row(|row, map, tap| {
            let source = &patches[row * self.positions.len()..][..self.positions.len()];
            let x = map_of(map);
            self.each_run(tap, |run| {
                let source = &source[run.at..][..run.len];
                let Some(row) = run.row else { return };
                let target = &mut x[row * self.input.width..][..self.input.width];
                let (first, last) = run.inside(stride, target.len());
                if first == last {
                    return;
                }
                let start = (run.column + (first * stride) as isize) as usize;
                if stride == 1 {
                    target[start..start + last - first]
                        .iter_mut()
                        .zip(&source[first..last])
                        .for_each(|(to, from)| *to += *from);
                } else {
                    target[start..]
                        .iter_mut()
                        .step_by(stride)
                        .zip(&source[first..last])
                        .for_each(|(to, from)| *to += *from);
                }
            });
        });
    }

    /// Visits (row of the patch matrix, offset of the input map, tap).
    #[inline(always)]
    fn each_row(&self, mut visit: impl FnMut(usize, usize, [usize; 2])) {
        let [high, wide] = self.conv.kernel;
        let mut row = 0;
        for channel in self.channels.clone() {
            let map = (channel * self.input.batch + self.item) * self.input.positions();
            for i in 0..high {
                for j in 0..wide {
                    visit(row, map, [i, j]);
                    row += 1;
                }
            }
        }
    }

    /// Visits the runs of output positions that share an output row.
    #[inline(always)]
    fn each_run(&self, tap: [usize; 2], mut visit: impl FnMut(PatchRun)) {
        let Conv { stride, padding, dilation, .. } = *self.conv;
        let mut position = self.positions.start;
        while position < self.positions.end {
            let (row, column) = (position / self.output.width, position % self.output.width);
            let len = (self.output.width - column).min(self.positions.end - position);
            let input_row =
                (row * stride[0] + tap[0] * dilation[0]).checked_sub(padding[0]).filter(|&row| row < self.input.height);
            let input_column = (column * stride[1] + tap[1] * dilation[1]) as isize - padding[1] as isize;
            visit(PatchRun { at: position - self.positions.start, len, row: input_row, column: input_column });
            position += len;
        }
    }
}

impl PatchRun {
    /// The outputs `first..last` of the run whose input lies inside a row of `width`.
    #[inline(always)]
    fn inside(&self, stride: usize, width: usize) -> (usize, usize) {
        let first = if self.column < 0 { self.column.unsigned_abs().div_ceil(stride) } else { 0 };
        let last = if self.column >= width as isize { 0 } else { (width as isize - self.column) as usize };
        let last = last.div_ceil(stride).min(self.len);
        (first.min(last), last)
    }
}
