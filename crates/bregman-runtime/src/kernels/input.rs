//! Numbers that a kernel reads, out of memory of which others may write other parts meanwhile.

use std::marker::PhantomData;

use bregman_base::Disjoint;

/// Memory to read from. Unlike a slice it does not say that nobody writes to any of it.
#[derive(Clone, Copy)]
pub(crate) struct Input<'a> {
    start: *const f32,
    length: usize,
    memory: PhantomData<&'a [f32]>,
}

// SAFETY: it is read by unsafe functions only, whose callers promise that nobody writes there meanwhile.
unsafe impl Send for Input<'_> {}
// SAFETY: as above.
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
    /// Nobody may write there as long as they are in use.
    ///
    /// # Panics
    /// If they lie outside.
    #[inline(always)]
    pub(super) unsafe fn part(self, from: usize, length: usize) -> &'a [f32] {
        assert!(from <= self.length && length <= self.length - from, "what is read lies outside of the memory");
        // SAFETY: inside, as just checked, and written by nobody, as the caller promises.
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
