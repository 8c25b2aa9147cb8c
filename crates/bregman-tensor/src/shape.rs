//! The shapes of activations and weights, and what a convolution does to them.

/// An activation: `channels` maps of `height × width` positions for each of `batch` items.
///
/// A signal over time has height 1; a plain vector has one position. Which of these axes lies where in memory is the
/// backend's own matter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Feature maps.
    pub channels: usize,
    /// Items processed together.
    pub batch: usize,
    /// Frequency axis of a 2-D map; 1 otherwise.
    pub height: usize,
    /// Time axis; 1 for a vector.
    pub width: usize,
}

impl Shape {
    /// `channels` signals over `width` frames.
    pub fn signal(channels: usize, batch: usize, width: usize) -> Self {
        Self { channels, batch, height: 1, width }
    }

    /// One value per channel and item.
    pub fn vector(channels: usize, batch: usize) -> Self {
        Self { channels, batch, height: 1, width: 1 }
    }

    /// Positions of one map.
    pub fn positions(&self) -> usize {
        self.height * self.width
    }

    /// Values of one channel over the batch.
    pub fn plane(&self) -> usize {
        self.batch * self.positions()
    }

    /// All values.
    pub fn len(&self) -> usize {
        self.channels * self.plane()
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Frames that a signal of shape `wide` shows mirrored on each side of a signal of this shape.
    ///
    /// # Panics
    /// Shapes that differ in more than that, or a signal with no more frames than are mirrored.
    pub(crate) fn mirrored_in(&self, wide: Self) -> usize {
        let edge = wide.width.saturating_sub(self.width) / 2;
        assert_eq!(Self { width: self.width + 2 * edge, ..*self }, wide, "a mirrored signal");
        assert!(self.height == 1 && edge < self.width, "{edge} frames of {self:?} cannot be mirrored");
        edge
    }

    /// The same positions with another number of channels.
    pub fn with_channels(self, channels: usize) -> Self {
        Self { channels, ..self }
    }
}

/// The geometry of a convolution, `[height, width]` each: cross-correlation with zero padding, as PyTorch's `Conv1d` /
/// `Conv2d`.
///
/// A linear layer is the pointwise convolution of a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv {
    /// Taps.
    pub kernel: [usize; 2],
    /// Step between outputs.
    pub stride: [usize; 2],
    /// Zeros added on both sides.
    pub padding: [usize; 2],
    /// Distance between taps.
    pub dilation: [usize; 2],
}

impl Conv {
    /// 1×1, stride 1: a matrix product at every position.
    pub const POINTWISE: Self = Self { kernel: [1, 1], stride: [1, 1], padding: [0, 0], dilation: [1, 1] };

    /// Over time, odd `kernel`, padded so that the length stays.
    pub fn same_1d(kernel: usize, dilation: usize) -> Self {
        Self { kernel: [1, kernel], padding: [0, dilation * (kernel / 2)], dilation: [1, dilation], ..Self::POINTWISE }
    }

    /// Over both axes, odd `kernel`, padded by half of it.
    pub fn square(kernel: usize, stride: usize) -> Self {
        Self { kernel: [kernel; 2], stride: [stride; 2], padding: [kernel / 2; 2], dilation: [1, 1] }
    }

    /// Whether it is a plain matrix product.
    pub fn is_pointwise(&self) -> bool {
        *self == Self::POINTWISE
    }

    /// The convolution of the output's gradient, with the taps reversed, that makes the input's gradient; none if there
    /// is a stride.
    pub fn adjoint(&self) -> Option<Self> {
        let padding = |axis: usize| (self.dilation[axis] * (self.kernel[axis] - 1)).checked_sub(self.padding[axis]);
        (self.stride == [1, 1]).then_some(Self { padding: [padding(0)?, padding(1)?], ..*self })
    }

    /// Taps of one kernel.
    pub fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// The shape it makes of `input`, with `channels` outputs.
    pub fn output(&self, input: Shape, channels: usize) -> Shape {
        let along = |axis: usize, size: usize| {
            let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            (size + 2 * self.padding[axis]).saturating_sub(reach) / self.stride[axis] + 1
        };
        Shape { channels, batch: input.batch, height: along(0, input.height), width: along(1, input.width) }
    }
}

/// Columns `first .. first + columns` of a row-major `rows × stride` weight matrix.
///
/// Usually the whole matrix; attentive pooling multiplies the frames and their context with different columns of one
/// weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Outputs.
    pub rows: usize,
    /// Columns of the whole matrix.
    pub stride: usize,
    /// First column of the block.
    pub first: usize,
    /// Columns of the block: input channels × taps.
    pub columns: usize,
    /// Taps of the convolution, which lie side by side.
    pub taps: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_padding_keeps_the_length_and_stride_two_halves_it_upwards() {
        let input = Shape::signal(4, 2, 301);
        assert_eq!(Conv::same_1d(3, 4).output(input, 7), Shape::signal(7, 2, 301));
        let map = Shape { channels: 1, batch: 2, height: 80, width: 301 };
        assert_eq!(Conv::square(3, 2).output(map, 8), Shape { channels: 8, batch: 2, height: 40, width: 151 });
        assert_eq!(Conv { padding: [0, 0], ..Conv::square(1, 2) }.output(map, 8).width, 151);
    }
}
