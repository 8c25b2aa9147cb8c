//! Cache-line aligned memory that each thread keeps between calls, so that kernels allocate nothing in steady state.

use std::cell::RefCell;

/// One cache line of f32.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([f32; 16]);

thread_local! {
    static LINES: RefCell<Vec<Line>> = const { RefCell::new(Vec::new()) };
}

/// Calls `work` with this thread's buffer of at least `len` values (rounded up to a cache line), contents unspecified.
///
/// `work` must not come back here on the same thread, so it must not wait for other rayon tasks.
#[allow(unsafe_code)]
pub(super) fn with_scratch<R>(len: usize, work: impl FnOnce(&mut [f32]) -> R) -> R {
    LINES.with_borrow_mut(|lines| {
        let count = len.div_ceil(16);
        if lines.len() < count {
            lines.resize(count, Line([0.0; 16]));
        }
        // SAFETY: `Line` is exactly 16 f32 without padding, so `count` lines are `16·count` initialised f32.
        let values = unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast::<f32>(), 16 * count) };
        work(values)
    })
}
