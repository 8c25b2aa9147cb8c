//! Maps whose channels lie together, sixteen at a time: `[channels / 16][row][frame][16]`, rows and frames with zeros
//! around them. A tile then reads and writes whole vectors wherever it lies.

use pulp::Arch;

use super::transpose::transpose;
use super::{GROUP, OUTPUTS};

/// How a map lies in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    height: usize,
    width: usize,
    /// Tiles over rows, and over frames.
    pub(super) tiles: [usize; 2],
    /// Numbers from one row to the next.
    pub(super) pitch: usize,
    /// Numbers from one group of channels to the next.
    pub(super) size: usize,
}

/// How a map lies in memory that has each channel by itself, in rows of frames.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rows {
    /// Where row 0 of channel 0 begins.
    pub(crate) start: usize,
    /// Numbers from one row to the next.
    pub(crate) pitch: usize,
    /// Numbers from one channel to the next.
    pub(crate) channel: usize,
}

impl Grid {
    pub(crate) fn new(height: usize, width: usize) -> Self {
        let tiles = [height, width].map(|length| length.div_ceil(OUTPUTS));
        // every tile reads one row and frame more on each side
        let [rows, frames] = tiles.map(|tiles| OUTPUTS * tiles + 2);
        let pitch = frames * GROUP;
        Self { height, width, tiles, pitch, size: rows * pitch }
    }

    /// Numbers of a map.
    pub(crate) fn buffer(self, channels: usize) -> usize {
        channels.div_ceil(GROUP) * self.size
    }

    /// Rows of this map from one row of `to` to the next, which has them all or every other one.
    ///
    /// # Panics
    /// If it is neither.
    pub(super) fn stride(self, to: Self) -> usize {
        let stride = if to.height == self.height { 1 } else { 2 };
        assert!(to.height == self.height.div_ceil(stride) && to.width == self.width, "a map of another size");
        stride
    }

    /// Tiles of a map.
    pub(super) fn count(self) -> usize {
        self.tiles[0] * self.tiles[1]
    }

    /// First row and frame of a tile's outputs.
    pub(super) fn corner(self, tile: usize) -> [usize; 2] {
        [tile / self.tiles[1] * OUTPUTS, tile % self.tiles[1] * OUTPUTS]
    }

    /// Rows and frames of a tile's outputs that are part of the map.
    pub(super) fn extent(self, [row, frame]: [usize; 2]) -> [usize; 2] {
        [OUTPUTS.min(self.height - row), OUTPUTS.min(self.width - frame)]
    }

    /// Where a position lies in a group of channels.
    pub(super) fn at(self, row: usize, frame: usize) -> usize {
        (row + 1) * self.pitch + (frame + 1) * GROUP
    }

    /// Takes over a group of channels from a map in rows; `x` begins with its first channel, `y` is the group.
    pub(crate) fn gather(self, arch: Arch, channels: usize, rows: Rows, x: &[f32], y: &mut [f32]) {
        for row in 0..self.height {
            let (x, y) = (&x[rows.start + row * rows.pitch..], &mut y[self.at(row, 0)..][..self.width * GROUP]);
            transpose(arch, [channels, self.width], x, rows.channel, y, GROUP);
        }
    }

    /// The other way.
    pub(crate) fn scatter(self, arch: Arch, channels: usize, rows: Rows, x: &[f32], y: &mut [f32]) {
        for row in 0..self.height {
            let (x, y) = (&x[self.at(row, 0)..][..self.width * GROUP], &mut y[rows.start + row * rows.pitch..]);
            transpose(arch, [self.width, channels], x, GROUP, y, rows.channel);
        }
    }
}
