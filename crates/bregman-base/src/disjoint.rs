//! One slice that several threads write at the same time, each its own part.
//!
//! `chunks_mut` and `split_at_mut` are the safe way where each thread's part is one contiguous piece. Kernels write
//! columns, strips and tiles of a matrix, which are many short pieces: these take a [`Disjoint`] and promise at each
//! piece that nobody else has it.

use std::marker::PhantomData;

/// A slice that several threads write, each its own part of it. A copy refers to the same memory.
#[derive(Debug)]
pub struct Disjoint<'a, T = f32> {
    start: *mut T,
    len: usize,
    slice: PhantomData<&'a mut [T]>,
}

impl<T> Clone for Disjoint<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Disjoint<'_, T> {}

// SAFETY: the slice is borrowed exclusively for 'a, so nobody outside reaches it. All access is through unsafe
// functions whose callers promise that no two parts in use overlap where one is written; then threads only write (T:
// Send) or share (T: Sync) values, as with slices.
unsafe impl<T: Send + Sync> Send for Disjoint<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// All of a slice.
    #[inline]
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), slice: PhantomData }
    }

    /// Values of the slice.
    #[inline]
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// What begins at `from`.
    ///
    /// # Panics
    /// If `from` lies outside.
    #[inline]
    pub fn tail(self, from: usize) -> Self {
        self.check(from, 0);
        // SAFETY: inside the slice or one past its end, as just checked.
        Self { start: unsafe { self.start.add(from) }, len: self.len - from, slice: PhantomData }
    }

    /// `len` values from `from` on, to write.
    ///
    /// # Safety
    /// While the part is in use, no other part that overlaps it may be in use.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub unsafe fn part(self, from: usize, len: usize) -> &'a mut [T] {
        self.check(from, len);
        // SAFETY: inside the slice, as just checked, and used by nobody else, as the caller promises.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(from), len) }
    }

    /// `len` values from `from` on, to read; other readers may have them too.
    ///
    /// # Safety
    /// While the part is in use, no part to write that overlaps it may be in use.
    ///
    /// # Panics
    /// If it lies outside.
    #[inline]
    pub unsafe fn read(self, from: usize, len: usize) -> &'a [T] {
        self.check(from, len);
        // SAFETY: inside the slice, as just checked, and written by nobody, as the caller promises.
        unsafe { std::slice::from_raw_parts(self.start.add(from), len) }
    }

    /// The first value's address, for libraries that take pointers. What is written through it counts as a part.
    #[inline]
    pub fn as_mut_ptr(self) -> *mut T {
        self.start
    }

    #[inline]
    fn check(self, from: usize, len: usize) {
        assert!(from <= self.len && len <= self.len - from, "{from} + {len} of {} values", self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_write_columns_of_one_matrix_and_share_what_they_read() {
        const ROWS: usize = 5;
        const COLUMNS: usize = 3;
        let mut values = vec![1; ROWS * COLUMNS + 2];
        let all = Disjoint::new(&mut values);
        std::thread::scope(|scope| {
            for column in 0..COLUMNS {
                scope.spawn(move || {
                    // SAFETY: every thread writes its own column and reads the last two values, which nobody writes.
                    let shared = unsafe { all.read(ROWS * COLUMNS, 2) };
                    for row in 0..ROWS {
                        // SAFETY: as above.
                        let own = unsafe { all.tail(row * COLUMNS).part(column, 1) };
                        own[0] = shared[0] + shared[1] + column;
                    }
                });
            }
        });
        assert!((0..ROWS * COLUMNS).all(|at| values[at] == 2 + at % COLUMNS));
    }

    #[test]
    fn two_readers_may_hold_the_same_part() {
        let mut values = [1.0f32, 2.0];
        let all = Disjoint::new(&mut values);
        // SAFETY: nobody writes.
        let (first, second) = unsafe { (all.read(0, 2), all.read(0, 2)) };
        assert_eq!(first[0] + second[1], 3.0);
    }

    #[test]
    #[should_panic(expected = "2 + 2 of 3 values")]
    fn a_part_outside_is_refused() {
        let mut values = [0.0f32; 3];
        // SAFETY: no one else uses the slice.
        unsafe { Disjoint::new(&mut values).part(2, 2) };
    }

    #[test]
    #[should_panic(expected = "of 3 values")]
    fn a_part_whose_end_overflows_is_refused() {
        let mut values = [0.0f32; 3];
        // SAFETY: no one else uses the slice.
        unsafe { Disjoint::new(&mut values).read(1, usize::MAX) };
    }
}
