//! The right-hand side of a product as a rule instead of an array: X[rows × len], once per batch item.
//!
//! A convolution is a matrix product W[out × (in·taps)] · X̃ where row `(channel, tap)` of X̃ is a shifted channel of
//! the input. X̃ is never stored: every kernel copies small tiles of X into cache anyway, and asks [`Columns::fill`]
//! for them. So plain, strided, dilated, zero-padded and two-dimensional operands all run on the same kernels, and no
//! im2col buffer exists.
//!
//! ```text
//! pointwise             Plain                  x̃[c, t]        = x[c, t]
//! convolution           TapWindow::forward     x̃[(c, τ), t]   = x[c, t·stride + τ·dilation − padding]
//! its input gradient    TapWindow::backward    ỹ[(o, τ), t]   = dy[o, (t − τ·dilation + padding) / stride], if whole
//! ```

use std::ops::Range;

/// A batch of virtual matrices, all of the same shape, that can produce any piece of any row.
pub trait Columns: Sync {
    /// Batch items.
    fn items(&self) -> usize;
    /// Rows of each item: the inner dimension of the product W · X.
    fn rows(&self) -> usize;
    /// Columns of each item.
    fn len(&self) -> usize;
    /// Writes `X[item][row, from .. from + out.len()]`; the range is inside `0 .. len`.
    fn fill(&self, item: usize, row: usize, from: usize, out: &mut [f32]);
    /// Writes the same piece of several rows, to lines `stride` apart in `out`.
    #[inline(always)]
    fn fill_rows(&self, item: usize, rows: Range<usize>, from: usize, width: usize, out: &mut [f32], stride: usize) {
        for (row, line) in rows.zip(out.chunks_exact_mut(stride)) {
            self.fill(item, row, from, &mut line[..width]);
        }
    }
    /// Whether there is nothing to multiply.
    fn is_empty(&self) -> bool {
        self.items() * self.rows() * self.len() == 0
    }
}

/// `items` matrices of `rows × len` inside one slice: element `(i, r, t)` at `i·item_stride + r·stride + t`.
#[derive(Clone, Copy, Debug)]
pub struct Plain<'a> {
    data: &'a [f32],
    items: usize,
    rows: usize,
    len: usize,
    stride: usize,
    item_stride: usize,
}

impl<'a> Plain<'a> {
    /// Contiguous activations `[items, rows, len]`.
    pub fn new(data: &'a [f32], items: usize, rows: usize, len: usize) -> Self {
        Self::strided(data, [items, rows, len], len, rows * len)
    }

    /// A view with its own leading dimensions, e.g. some channels of a wider tensor.
    ///
    /// # Panics
    /// If the last element is outside `data`.
    pub fn strided(data: &'a [f32], [items, rows, len]: [usize; 3], stride: usize, item_stride: usize) -> Self {
        if items * rows * len > 0 {
            let last = (items - 1) * item_stride + (rows - 1) * stride + len;
            assert!(
                last <= data.len(),
                "a view of [{items}, {rows}, {len}] with strides {item_stride}, {stride} needs {last} elements, the \
                 slice has {}",
                data.len()
            );
        }
        Self { data, items, rows, len, stride, item_stride }
    }

    /// One row of one item.
    #[inline(always)]
    pub fn row(&self, item: usize, row: usize) -> &'a [f32] {
        let start = item * self.item_stride + row * self.stride;
        &self.data[start..start + self.len]
    }
}

impl Columns for Plain<'_> {
    fn items(&self) -> usize {
        self.items
    }
    fn rows(&self) -> usize {
        self.rows
    }
    fn len(&self) -> usize {
        self.len
    }
    #[inline(always)]
    fn fill(&self, item: usize, row: usize, from: usize, out: &mut [f32]) {
        let start = item * self.item_stride + row * self.stride + from;
        out.copy_from_slice(&self.data[start..start + out.len()]);
    }
}

/// `out[i] = source[at + i]`, zero outside.
#[inline(always)]
pub(super) fn copy_shifted(source: &[f32], at: isize, out: &mut [f32]) {
    if at >= 0 && at as usize + out.len() <= source.len() {
        out.copy_from_slice(&source[at as usize..at as usize + out.len()]);
    } else {
        copy_clipped(source, at, out);
    }
}

#[inline(never)]
fn copy_clipped(source: &[f32], at: isize, out: &mut [f32]) {
    let before = (-at).clamp(0, out.len() as isize) as usize;
    let until = (source.len() as isize - at).clamp(before as isize, out.len() as isize) as usize;
    out[..before].fill(0.0);
    out[until..].fill(0.0);
    if before < until {
        let first = (at + before as isize) as usize;
        out[before..until].copy_from_slice(&source[first..first + until - before]);
    }
}

/// `out[i] = source[at + i·step]`, zero outside.
#[inline(always)]
fn gather(source: &[f32], at: isize, step: usize, out: &mut [f32]) {
    let before = if at < 0 { at.unsigned_abs().div_ceil(step).min(out.len()) } else { 0 };
    let source = source.get((at + (before * step) as isize) as usize..).unwrap_or(&[]);
    let (outside, out) = out.split_at_mut(before);
    let (out, after) = out.split_at_mut(out.len().min(source.len().div_ceil(step)));
    outside.fill(0.0);
    after.fill(0.0);
    if step == 2 {
        // every other value of whole vectors, as the compiler knows it
        let (pieces, rest) = out.as_chunks_mut::<16>();
        let (values, _) = source.as_chunks::<32>();
        let whole = pieces.len().min(values.len());
        for (piece, values) in pieces.iter_mut().zip(values) {
            for i in 0..16 {
                piece[i] = values[2 * i];
            }
        }
        let left = pieces[whole..].as_flattened_mut().iter_mut().chain(rest);
        left.zip(source[32 * whole..].iter().step_by(2)).for_each(|(to, &from)| *to = from);
    } else {
        out.iter_mut().zip(source.iter().step_by(step)).for_each(|(to, &from)| *to = from);
    }
}

/// `out[i] = source[(at + i) / over]` where that is a whole number inside the source, zero elsewhere.
fn spread(source: &[f32], at: isize, over: usize, out: &mut [f32]) {
    let before = if at < 0 { at.unsigned_abs() } else { (over - at as usize % over) % over };
    let first = (at + before as isize) as usize / over;
    out.fill(0.0);
    if let (Some(source), Some(out)) = (source.get(first..), out.get_mut(before..)) {
        out.iter_mut().step_by(over).zip(source).for_each(|(to, &from)| *to = from);
    }
}

/// Geometry of a two-dimensional convolution, `[height, width]` each.
#[derive(Clone, Copy, Debug)]
pub struct Geometry {
    /// Size of the input map.
    pub input: [usize; 2],
    /// Taps.
    pub kernel: [usize; 2],
    /// Step between outputs.
    pub stride: [usize; 2],
    /// Zeros on both sides.
    pub padding: [usize; 2],
    /// Distance between taps.
    pub dilation: [usize; 2],
}

impl Geometry {
    /// Over time, stride 1.
    #[cfg(test)]
    pub(super) fn signal(frames: usize, taps: usize, dilation: usize, padding: usize) -> Self {
        Self { input: [1, frames], kernel: [1, taps], stride: [1, 1], padding: [0, padding], dilation: [1, dilation] }
    }

    /// Size of the output map.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|axis| {
            let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            (self.input[axis] + 2 * self.padding[axis]).saturating_sub(reach) / self.stride[axis] + 1
        })
    }
}

/// The input positions `first + i · stride` along one axis: the taps that reach them, and where these come from in the
/// output: tap number m at output `i + start + m · step`.
#[derive(Clone, Debug)]
pub(super) struct Phase {
    pub(super) first: usize,
    pub(super) positions: usize,
    pub(super) taps: Vec<usize>,
    start: isize,
    step: isize,
}

impl Phase {
    /// All phases of one axis.
    pub(super) fn all(geometry: &Geometry, axis: usize) -> impl Iterator<Item = Self> {
        let [size, kernel, stride] = [geometry.input[axis], geometry.kernel[axis], geometry.stride[axis]];
        let [padding, dilation, signed] =
            [geometry.padding[axis], geometry.dilation[axis], stride].map(|size| size as isize);
        (0..stride.min(size)).map(move |first| {
            let source = |tap: usize| first as isize + padding - tap as isize * dilation;
            let taps: Vec<usize> = (0..kernel).filter(|&tap| source(tap) % signed == 0).collect();
            let output = |m: usize| taps.get(m).map(|&tap| source(tap) / signed);
            let start = output(0).unwrap_or(0);
            let step = output(1).map_or(0, |next| next - start);
            Self { first, positions: (size - first).div_ceil(stride), start, step, taps }
        })
    }
}

/// Rows `(channel, tap)` of a two-dimensional convolution or of its input gradient; `source` holds maps as rows.
#[derive(Clone, Copy, Debug)]
pub struct TapWindow<'a> {
    source: Plain<'a>,
    kernel: [usize; 2],
    source_width: usize,
    target_width: usize,
    target_len: usize,
    axes: [Axis; 2],
}

/// How one axis maps a target position and a tap to a source position: `(position · times + start + tap · step) /
/// over`.
#[derive(Clone, Copy, Debug)]
struct Axis {
    size: usize,
    times: isize,
    over: isize,
    start: isize,
    step: isize,
}

impl Axis {
    #[inline(always)]
    fn source(&self, position: usize, tap: usize) -> Option<usize> {
        let scaled = position as isize * self.times + self.start + tap as isize * self.step;
        let (source, rest) = if self.over == 1 { (scaled, 0) } else { (scaled / self.over, scaled % self.over) };
        (scaled >= 0 && rest == 0 && (source as usize) < self.size).then_some(source as usize)
    }
}

impl<'a> TapWindow<'a> {
    /// Operand of the forward convolution of `source`, maps of `geometry.input`.
    pub fn forward(source: Plain<'a>, geometry: &Geometry) -> Self {
        let axes = [0, 1].map(|axis| Axis {
            size: geometry.input[axis],
            times: geometry.stride[axis] as isize,
            over: 1,
            start: -(geometry.padding[axis] as isize),
            step: geometry.dilation[axis] as isize,
        });
        Self::new(source, geometry.kernel, geometry.input, geometry.output(), axes)
    }

    /// Operand of the input gradient: `source` is dY, maps of `geometry.output()`; the result has maps of
    /// `geometry.input`.
    pub fn backward(source: Plain<'a>, geometry: &Geometry) -> Self {
        let output = geometry.output();
        let axes = [0, 1].map(|axis| Axis {
            size: output[axis],
            times: 1,
            over: geometry.stride[axis] as isize,
            start: geometry.padding[axis] as isize,
            step: -(geometry.dilation[axis] as isize),
        });
        Self::new(source, geometry.kernel, output, geometry.input, axes)
    }

    /// Operand of the input gradient at the input positions `phase + i · stride` only, and with it the taps that reach
    /// these.
    pub(super) fn phase(source: Plain<'a>, geometry: &Geometry, phases: [&Phase; 2]) -> Self {
        let output = geometry.output();
        let axes = [0, 1].map(|axis| Axis {
            size: output[axis],
            times: 1,
            over: 1,
            start: phases[axis].start,
            step: phases[axis].step,
        });
        Self::new(source, phases.map(|phase| phase.taps.len()), output, phases.map(|phase| phase.positions), axes)
    }

    fn new(source: Plain<'a>, kernel: [usize; 2], from: [usize; 2], to: [usize; 2], axes: [Axis; 2]) -> Self {
        assert_eq!(source.len, from[0] * from[1], "length of a {} × {} map", from[0], from[1]);
        Self { source, kernel, source_width: from[1], target_width: to[1], target_len: to[0] * to[1], axes }
    }
}

impl Columns for TapWindow<'_> {
    fn items(&self) -> usize {
        self.source.items
    }
    fn rows(&self) -> usize {
        self.source.rows * self.kernel[0] * self.kernel[1]
    }
    fn len(&self) -> usize {
        self.target_len
    }
    #[inline(always)]
    fn fill(&self, item: usize, row: usize, from: usize, out: &mut [f32]) {
        self.fill_rows(item, row..row + 1, from, out.len(), out, out.len().max(1));
    }

    /// Divides once for all rows: they are short, and divisions would take longer than the copies.
    #[inline(always)]
    fn fill_rows(&self, item: usize, rows: Range<usize>, from: usize, width: usize, out: &mut [f32], stride: usize) {
        let taps = self.kernel[0] * self.kernel[1];
        let (mut channel, tap) = (rows.start / taps, rows.start % taps);
        let [mut down, mut along] = [tap / self.kernel[1], tap % self.kernel[1]];
        let position = [from / self.target_width, from % self.target_width];
        for line in out.chunks_exact_mut(stride).take(rows.len()) {
            self.fill_line(self.source.row(item, channel), [down, along], position, &mut line[..width]);
            along += 1;
            if along == self.kernel[1] {
                (along, down) = (0, down + 1);
            }
            if down == self.kernel[0] {
                (down, channel) = (0, channel + 1);
            }
        }
    }
}

impl TapWindow<'_> {
    /// The values under one tap from a target position on.
    #[inline(always)]
    fn fill_line(&self, map: &[f32], [down, along]: [usize; 2], [mut y, mut x]: [usize; 2], mut out: &mut [f32]) {
        let [vertical, horizontal] = self.axes;
        let offset = horizontal.start + along as isize * horizontal.step;
        while !out.is_empty() {
            let (run, rest) = out.split_at_mut(out.len().min(self.target_width - x));
            match vertical.source(y, down) {
                None => run.fill(0.0),
                Some(y) => {
                    let line = &map[y * self.source_width..][..self.source_width];
                    let at = x as isize * horizontal.times + offset;
                    match (horizontal.times, horizontal.over) {
                        (1, 1) => copy_shifted(line, at, run),
                        (step, 1) => gather(line, at, step as usize, run),
                        (_, over) => spread(line, at, over as usize, run),
                    }
                }
            }
            (y, x, out) = (y + 1, 0, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::reference::Random;
    use super::*;

    /// Every entry of a batch of virtual matrices.
    fn all(x: &impl Columns) -> Vec<f32> {
        let mut values = vec![f32::NAN; x.items() * x.rows() * x.len()];
        for (at, row) in values.chunks_exact_mut(x.len()).enumerate() {
            // in uneven pieces, so that pieces that start anywhere are tried
            let (first, second) = row.split_at_mut(row.len() / 3);
            x.fill(at / x.rows(), at % x.rows(), 0, first);
            x.fill(at / x.rows(), at % x.rows(), first.len(), second);
        }
        values
    }

    #[test]
    fn a_window_shows_the_input_under_each_tap() {
        let geometry = Geometry { input: [5, 7], kernel: [3, 2], stride: [2, 1], padding: [1, 2], dilation: [1, 3] };
        let x = Random::new(1).values(2 * 3 * 35, 0.0);
        let [high, wide] = geometry.output();
        let values = all(&TapWindow::forward(Plain::new(&x, 2, 3, 35), &geometry));
        assert_eq!(values.len(), 2 * 3 * 6 * high * wide);
        for (at, value) in values.into_iter().enumerate() {
            let (map, tap, position) = (at / (high * wide) / 6, at / (high * wide) % 6, at % (high * wide));
            let source = |axis: usize, position: usize, tap: usize| {
                let at = position * geometry.stride[axis] + tap * geometry.dilation[axis];
                at.checked_sub(geometry.padding[axis]).filter(|&at| at < geometry.input[axis])
            };
            let (y, x_at) = (source(0, position / wide, tap / 2), source(1, position % wide, tap % 2));
            let expected = y.zip(x_at).map_or(0.0, |(y, x_at)| x[map * 35 + y * 7 + x_at]);
            assert_eq!(value, expected, "entry {at}");
        }
    }

    #[test]
    fn the_backward_window_is_the_adjoint_of_the_forward_one() {
        // <w · forward(x), y> = <x, wᵀ · backward(y)> for one channel in and out and each single tap w.
        let mut random = Random::new(2);
        for (stride, padding, dilation) in
            [([1, 1], [1, 1], [1, 1]), ([2, 2], [1, 1], [1, 1]), ([2, 3], [2, 0], [1, 2])]
        {
            let geometry = Geometry { input: [9, 11], kernel: [3, 3], stride, padding, dilation };
            let out: usize = geometry.output().iter().product();
            let (x, y) = (random.values(99, 0.0), random.values(out, 0.0));
            let forward = all(&TapWindow::forward(Plain::new(&x, 1, 1, 99), &geometry));
            let backward = all(&TapWindow::backward(Plain::new(&y, 1, 1, out), &geometry));
            for tap in 0..9 {
                let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
                let [left, right] = [dot(&forward[tap * out..][..out], &y), dot(&x, &backward[tap * 99..][..99])];
                assert!((left - right).abs() < 1e-5, "tap {tap} of stride {stride:?}: {left} against {right}");
            }
        }
    }
}
