//! Memory that each thread keeps between calls, so that kernels allocate nothing in steady state.

use std::cell::RefCell;

use bregman_base::Buffer;

/// Values of a large page: rows of a strip are read in any order, and one page for all of them is found at once.
const LARGE_PAGE: usize = 512 * 1024;

thread_local! {
    static SCRATCH: RefCell<Buffer> = RefCell::default();
}

/// Calls `work` with this thread's buffer of at least `len` values (rounded up to a cache line), contents unspecified.
///
/// `work` must not come back here on the same thread, so it must not wait for other rayon tasks.
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    SCRATCH.with_borrow_mut(|buffer| {
        buffer.grow(len.max(LARGE_PAGE));
        work(&mut buffer[..len.next_multiple_of(Buffer::LINE)])
    })
}
