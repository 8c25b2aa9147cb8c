//! Activations: memory that begins at a cache line, and a view of it that several threads may write.

use std::marker::PhantomData;

/// A cache line.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; Buffer::LINE]);

/// Numbers that begin at a cache line; grows, never shrinks.
#[derive(Default)]
pub(crate) struct Buffer {
    lines: Vec<Line>,
}

impl Buffer {
    /// Numbers of a cache line.
    pub(crate) const LINE: usize = 16;

    /// Makes room for `length` numbers, and sets all to zero where there was less.
    pub(crate) fn reserve(&mut self, length: usize) {
        let lines = length.div_ceil(Self::LINE);
        if lines > self.lines.len() {
            self.lines.clear();
            self.lines.resize(lines, Line([0.0; Self::LINE]));
        }
    }

    /// Sets all to zero.
    pub(crate) fn clear(&mut self) {
        self.lines.fill(Line([0.0; Self::LINE]));
    }

    pub(crate) fn get(&self) -> &[f32] {
        // SAFETY: a line is sixteen f32 without padding, so `lines` is this many f32 in a row.
        unsafe { std::slice::from_raw_parts(self.lines.as_ptr().cast(), self.lines.len() * Self::LINE) }
    }

    pub(crate) fn get_mut(&mut self) -> &mut [f32] {
        // SAFETY: as above, and borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.lines.as_mut_ptr().cast(), self.lines.len() * Self::LINE) }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<Line>()
    }
}

/// A slice that several threads write, each its own part of it.
#[derive(Clone, Copy)]
pub(crate) struct Shared<'a> {
    start: *mut f32,
    length: usize,
    slice: PhantomData<&'a mut [f32]>,
}

// SAFETY: access is through `part`, whose caller promises that no two threads hold overlapping parts.
unsafe impl Send for Shared<'_> {}
// SAFETY: as above.
unsafe impl Sync for Shared<'_> {}

impl<'a> Shared<'a> {
    pub(crate) fn new(slice: &'a mut [f32]) -> Self {
        Self { start: slice.as_mut_ptr(), length: slice.len(), slice: PhantomData }
    }

    pub(crate) fn length(self) -> usize {
        self.length
    }

    /// `length` numbers from `from` on.
    ///
    /// # Safety
    /// While the part lives, nobody else may hold one that overlaps it.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub(crate) unsafe fn part(self, from: usize, length: usize) -> &'a mut [f32] {
        assert!(from <= self.length && length <= self.length - from, "{from} + {length} of {}", self.length);
        // SAFETY: inside the slice, and not held by anybody else, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), length) }
    }

    /// `length` numbers from `from` on, to read.
    ///
    /// # Safety
    /// While the part lives, nobody may hold one for writing that overlaps it.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub(crate) unsafe fn read(self, from: usize, length: usize) -> &'a [f32] {
        // SAFETY: as the caller promises.
        unsafe { self.part(from, length) }
    }
}
