//! Memory that begins at a cache line, so that full-width vector loads never straddle two.

use std::fmt;
use std::ops::{Deref, DerefMut};

/// A cache line.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([f32; Buffer::LINE]);

/// f32 values that begin at a cache line; dereferences to their slice.
#[derive(Default)]
pub struct Buffer {
    lines: Vec<Line>,
    len: usize,
}

impl Buffer {
    /// Values of a cache line.
    pub const LINE: usize = 16;

    /// `len` zeros.
    pub fn zeros(len: usize) -> Self {
        Self { lines: vec![Line([0.0; Self::LINE]); len.div_ceil(Self::LINE)], len }
    }

    /// Makes room for `len` values, rounded up to whole cache lines. Where there was less, all values become zero;
    /// otherwise nothing changes.
    pub fn grow(&mut self, len: usize) {
        if len > self.len {
            *self = Self::default(); // frees the old memory before the new is taken
            *self = Self::zeros(len.next_multiple_of(Self::LINE));
        }
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.lines.as_slice())
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "Buffer {{ len: {} }}", self.len)
    }
}

impl Deref for Buffer {
    type Target = [f32];

    #[inline]
    fn deref(&self) -> &[f32] {
        &bytemuck::cast_slice(&self.lines)[..self.len]
    }
}

impl DerefMut for Buffer {
    #[inline]
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[..self.len]
    }
}

impl AsRef<[f32]> for Buffer {
    fn as_ref(&self) -> &[f32] {
        self
    }
}

impl AsMut<[f32]> for Buffer {
    fn as_mut(&mut self) -> &mut [f32] {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_begins_at_a_cache_line_and_has_the_length_asked_for() {
        for len in [0, 1, 15, 16, 17, 100] {
            let mut buffer = Buffer::zeros(len);
            assert_eq!(buffer.len(), len);
            assert!(len == 0 || buffer.as_ptr().addr().is_multiple_of(64));
            assert!(buffer.iter().all(|&value| value == 0.0));
            buffer.fill(1.0);
            assert_eq!(buffer.iter().sum::<f32>(), len as f32);
        }
    }

    #[test]
    fn growing_zeroes_and_never_shrinks() {
        let mut buffer = Buffer::default();
        buffer.grow(20);
        assert_eq!((buffer.len(), buffer.bytes()), (32, 128));
        buffer.fill(1.0);
        buffer.grow(32);
        buffer.grow(3);
        assert!(buffer.len() == 32 && buffer.iter().all(|&value| value == 1.0));
        buffer.grow(33);
        assert!(buffer.len() == 48 && buffer.iter().all(|&value| value == 0.0));
    }
}
