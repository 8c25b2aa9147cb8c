//! The right-hand side of a sparse product as lines of values in which a tap is an offset.
//!
//! A convolution without a stride needs one line per channel, whatever its number of taps: the map with zeros around
//! it, its rows end to end, `pitch` apart. The output is walked on a grid of the same pitch, whose last places in each
//! row belong to no output ("gaps"):
//! ```text
//! x̃[(c, τ), f] = line[c][f + offset(τ)]        f = y·pitch + x        offset(τ) = τ_y·dilation·pitch + τ_x·dilation
//!
//! line   0 0 0 0 0   zeros between two rows are the right margin of one and the left margin of the next
//!        0 a b c d
//!        0 e f g h   output x = 0 .. 3, a gap at 4
//!        0 0 0 0 0 0
//! ```
//! Whatever has no such lines is [`Gathered`]: one line per channel and tap, copied from any [`Columns`].

use std::ops::Range;

use super::columns::{Columns, Geometry, Plain, copy_shifted};

/// The places of an item's output: rows of `width` places, `pitch` apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    width: usize,
    pitch: usize,
    /// From the first place to one past the last.
    len: usize,
}

impl Grid {
    /// Without gaps.
    fn flat(len: usize) -> Self {
        Self { width: len, pitch: len.max(1), len }
    }

    fn new([height, width]: [usize; 2], pitch: usize) -> Self {
        if height <= 1 { Self::flat(height * width) } else { Self { width, pitch, len: (height - 1) * pitch + width } }
    }

    /// From the first place to one past the last, gaps included.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Positions in a row of the output.
    pub(super) fn width(&self) -> usize {
        self.width
    }

    /// Places from one row to the next.
    pub(super) fn pitch(&self) -> usize {
        self.pitch
    }

    /// Positions of the output.
    pub(super) fn positions(&self) -> usize {
        self.len.div_ceil(self.pitch) * self.width
    }

    /// Whether every place is a position of the output.
    pub(super) fn has_no_gaps(&self) -> bool {
        self.width == self.len
    }

    /// Calls `work(place − places.start, position, count)` for every run of positions among `places`.
    #[inline(always)]
    pub(super) fn runs(&self, places: Range<usize>, mut work: impl FnMut(usize, usize, usize)) {
        let (mut row, mut column) = (places.start / self.pitch, places.start % self.pitch);
        let mut place = places.start;
        while place < places.end {
            let left = places.end - place;
            if column < self.width {
                work(place - places.start, row * self.width + column, left.min(self.width - column));
            }
            place += left.min(self.pitch - column);
            (row, column) = (row + 1, 0);
        }
    }
}

/// Lines of a batch, to be copied piece by piece. Lines are numbered through all channels.
pub(super) trait TapLines: Sync {
    fn items(&self) -> usize;
    fn channels(&self) -> usize;
    fn taps(&self) -> usize;
    /// The places of an item's output.
    fn grid(&self) -> Grid;
    /// Lines of each channel: 1, or one for each tap.
    fn lines(&self) -> usize;
    /// Which of a channel's lines a tap reads, and by how much it is shifted.
    fn tap(&self, tap: usize) -> (usize, usize);
    /// Writes places `from ..` of some lines of an item to rows `stride` apart, as many as a row holds.
    fn fill(&self, item: usize, lines: Range<usize>, from: usize, out: &mut [f32], stride: usize);

    /// The largest shift of a tap.
    fn reach(&self) -> usize {
        (0..self.taps()).map(|tap| self.tap(tap).1).max().unwrap_or(0)
    }
}

/// Maps with zeros around them, for a convolution without a stride or its input gradient.
#[derive(Clone, Copy, Debug)]
pub(super) struct Padded<'a> {
    source: Plain<'a>,
    map: [usize; 2],
    kernel: [usize; 2],
    dilation: [usize; 2],
    padding: [usize; 2],
    reversed: bool,
    pitch: usize,
    grid: Grid,
}

impl<'a> Padded<'a> {
    /// Operand of the forward convolution of `source`, maps of `geometry.input`; none if there is a stride.
    pub(super) fn forward(source: Plain<'a>, geometry: &Geometry) -> Option<Self> {
        (geometry.stride == [1, 1])
            .then(|| Self::new(source, geometry.input, geometry.output(), geometry, geometry.padding, false))
    }

    /// Operand of the input gradient: `source` is dY, maps of `geometry.output()`; none if there is a stride, or more
    /// zeros than the taps reach.
    pub(super) fn backward(source: Plain<'a>, geometry: &Geometry) -> Option<Self> {
        let padding =
            |axis: usize| (geometry.dilation[axis] * (geometry.kernel[axis] - 1)).checked_sub(geometry.padding[axis]);
        let padding = [padding(0)?, padding(1)?];
        (geometry.stride == [1, 1])
            .then(|| Self::new(source, geometry.output(), geometry.input, geometry, padding, true))
    }

    fn new(
        source: Plain<'a>,
        map: [usize; 2],
        target: [usize; 2],
        geometry: &Geometry,
        padding: [usize; 2],
        reversed: bool,
    ) -> Self {
        assert_eq!(source.len(), map[0] * map[1], "length of a {} × {} map", map[0], map[1]);
        let Geometry { kernel, dilation, .. } = *geometry;
        let pitch = (map[1] + padding[1]).max(target[1]);
        Self { source, map, kernel, dilation, padding, reversed, pitch, grid: Grid::new(target, pitch) }
    }
}

impl TapLines for Padded<'_> {
    fn items(&self) -> usize {
        self.source.items()
    }
    fn channels(&self) -> usize {
        self.source.rows()
    }
    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }
    fn grid(&self) -> Grid {
        self.grid
    }
    fn lines(&self) -> usize {
        1
    }
    fn tap(&self, tap: usize) -> (usize, usize) {
        let tap = if self.reversed { self.taps() - 1 - tap } else { tap };
        let [down, along] = [tap / self.kernel[1] * self.dilation[0], tap % self.kernel[1] * self.dilation[1]];
        (0, down * self.pitch + along)
    }

    #[inline(always)]
    fn fill(&self, item: usize, lines: Range<usize>, from: usize, out: &mut [f32], stride: usize) {
        let (row, column) = (from / self.pitch, from % self.pitch);
        for (channel, mut out) in lines.zip(out.chunks_exact_mut(stride)) {
            let map = self.source.row(item, channel);
            let (mut row, mut column) = (row, column);
            while !out.is_empty() {
                let (run, rest) = out.split_at_mut(out.len().min(self.pitch - column));
                match row.checked_sub(self.padding[0]).filter(|&row| row < self.map[0]) {
                    None => run.fill(0.0),
                    Some(row) => {
                        let row = &map[row * self.map[1]..][..self.map[1]];
                        copy_shifted(row, column as isize - self.padding[1] as isize, run);
                    }
                }
                (row, column, out) = (row + 1, 0, rest);
            }
        }
    }
}

/// Rows of any operand, each a line of its own.
pub(super) struct Gathered<'a, X> {
    pub(super) source: &'a X,
    pub(super) taps: usize,
}

impl<X: Columns> TapLines for Gathered<'_, X> {
    fn items(&self) -> usize {
        self.source.items()
    }
    fn channels(&self) -> usize {
        self.source.rows() / self.taps
    }
    fn taps(&self) -> usize {
        self.taps
    }
    fn grid(&self) -> Grid {
        Grid::flat(self.source.len())
    }
    fn lines(&self) -> usize {
        self.taps
    }
    fn tap(&self, tap: usize) -> (usize, usize) {
        (tap, 0)
    }

    #[inline(always)]
    fn fill(&self, item: usize, lines: Range<usize>, from: usize, out: &mut [f32], stride: usize) {
        let width = stride.min(self.source.len() - from);
        if width < stride {
            out.chunks_exact_mut(stride).take(lines.len()).for_each(|line| line[width..].fill(0.0));
        }
        self.source.fill_rows(item, lines, from, width, out, stride);
    }
}

#[cfg(test)]
mod tests {
    use super::super::columns::TapWindow;
    use super::super::reference::Random;
    use super::*;

    /// Every place of every tap's shifted line is what the window shows there.
    fn assert_shows(lines: &impl TapLines, window: &impl Columns) {
        let (grid, taps) = (lines.grid(), lines.taps());
        assert_eq!((lines.items(), lines.channels() * taps), (window.items(), window.rows()));
        assert_eq!(grid.positions(), window.len());
        let mut expected = vec![f32::NAN; window.len()];
        for item in 0..lines.items() {
            for row in 0..window.rows() {
                window.fill(item, row, 0, &mut expected);
                let (line, shift) = lines.tap(row % taps);
                let line = row / taps * lines.lines() + line;
                // in uneven pieces, so that pieces that start anywhere are tried
                for (from, until) in [(0, grid.len() / 3), (grid.len() / 3, grid.len())] {
                    let mut values = vec![f32::NAN; until - from + lines.reach() + 3];
                    let stride = values.len();
                    lines.fill(item, line..line + 1, from, &mut values, stride);
                    grid.runs(from..until, |place, position, count| {
                        let shown = &values[place + shift..][..count];
                        assert_eq!(shown, &expected[position..position + count], "row {row} of item {item}");
                    });
                    assert!(values.iter().all(|value| value.is_finite()), "something was not written");
                }
            }
        }
    }

    #[test]
    fn padded_and_gathered_lines_show_what_a_window_does_in_both_directions() {
        let mut random = Random::new(3);
        for (input, kernel, padding, dilation) in [
            ([1, 40], [1, 3], [0, 2], [1, 2]),
            ([1, 9], [1, 5], [0, 1], [1, 3]),
            ([5, 7], [3, 3], [1, 1], [1, 1]),
            ([6, 4], [3, 2], [0, 2], [2, 3]),
            ([4, 1], [3, 3], [1, 1], [1, 1]),
            ([3, 3], [1, 1], [0, 0], [1, 1]),
            ([2, 3], [3, 3], [2, 2], [1, 1]),
        ] {
            let geometry = Geometry { input, kernel, stride: [1, 1], padding, dilation };
            let output = geometry.output();
            let (len, taps) = (input[0] * input[1], kernel[0] * kernel[1]);
            let x = random.values(2 * 3 * len, 0.0);
            let x = Plain::new(&x, 2, 3, len);
            let window = TapWindow::forward(x, &geometry);
            assert_shows(&Padded::forward(x, &geometry).expect("no stride"), &window);
            assert_shows(&Gathered { source: &window, taps }, &window);
            let dy = random.values(2 * 3 * output[0] * output[1], 0.0);
            let dy = Plain::new(&dy, 2, 3, output[0] * output[1]);
            let window = TapWindow::backward(dy, &geometry);
            assert_shows(&Padded::backward(dy, &geometry).expect("no stride"), &window);
            assert_shows(&Gathered { source: &window, taps }, &window);
        }
    }

    #[test]
    fn strides_have_no_padded_lines_and_neither_have_margins_beyond_the_taps() {
        let x = [0.0; 25];
        let x = Plain::new(&x, 1, 1, 25);
        let strided = Geometry { input: [5, 5], kernel: [3, 3], stride: [2, 2], padding: [1, 1], dilation: [1, 1] };
        assert!(Padded::forward(x, &strided).is_none());
        let wide = Geometry { kernel: [1, 1], stride: [1, 1], ..strided };
        assert!(Padded::forward(x, &wide).is_some() && wide.output() == [7, 7]);
        let dy = [0.0; 49];
        assert!(Padded::backward(Plain::new(&dy, 1, 1, 49), &wide).is_none());
    }
}
