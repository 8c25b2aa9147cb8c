//! Numbers that a kernel reads, in memory whose other parts may be written meanwhile.

use std::marker::PhantomData;

use bregman_base::Disjoint;

/// Memory to read from. Unlike a slice it does not promise that nothing writes to any of it.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    start: *const f32,
    length: usize,
    memory: PhantomData<&'a [f32]>,
}

// SAFETY: it is read by unsafe functions only, whose callers promise that nothing writes there meanwhile.
unsafe impl Send for Input<'_> {}
// SAFETY: several threads may read the same memory while nothing writes to it, which callers promise.
unsafe impl Sync for Input<'_> {}

impl<'a> Input<'a> {
    pub(super) fn len(self) -> usize {
        self.length
    }

    pub(super) fn as_ptr(self) -> *const f32 {
        self.start
    }

    /// `length` numbers from `from` on.
    ///
    /// # Safety
    /// Nothing may write there as long as they are in use.
    ///
    /// # Panics
    /// If they lie outside.
    #[inline(always)]
    pub(super) unsafe fn part(self, from: usize, length: usize) -> &'a [f32] {
        assert!(from <= self.length && length <= self.length - from, "what is read lies outside of the memory");
        // SAFETY: inside, as just checked, and not written, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.add(from), length) }
    }
}

impl<'a> From<&'a [f32]> for Input<'a> {
    fn from(slice: &'a [f32]) -> Self {
        Self { start: slice.as_ptr(), length: slice.len(), memory: PhantomData }
    }
}

impl<'a> From<Disjoint<'a>> for Input<'a> {
    fn from(memory: Disjoint<'a>) -> Self {
        Self { start: memory.as_mut_ptr(), length: memory.len(), memory: PhantomData }
    }
}
