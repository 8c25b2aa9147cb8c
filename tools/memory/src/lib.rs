//! An allocator that counts, for tests of how much memory something takes:
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;
//!
//! let (list, taken) = bregman_memory::of_process(|| vec![0u8; 1000]);
//! assert!(taken.peak >= 1000 && taken.kept >= 1000 && taken.allocations >= 1);
//! # drop(list);
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering::Relaxed};

/// The system's allocator, with a count for the process and one for each thread.
pub struct Counting;

/// What something took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The most bytes in use at a time, beyond those before.
    pub peak: isize,
    /// Bytes in use afterwards, beyond those before.
    pub kept: isize,
    /// Allocations.
    pub allocations: usize,
}

static BYTES: AtomicIsize = AtomicIsize::new(0);
static PEAK: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // bytes, their peak, allocations; constants at first, so that counting allocates nothing
    static THREAD: Cell<(isize, isize, usize)> = const { Cell::new((0, 0, 0)) };
}

/// What `work` takes in all threads of the process. One measurement at a time.
pub fn of_process<R>(work: impl FnOnce() -> R) -> (R, Taken) {
    let (bytes, allocations) = (BYTES.load(Relaxed), ALLOCATIONS.load(Relaxed));
    PEAK.store(bytes, Relaxed);
    let result = work();
    let taken = Taken {
        peak: PEAK.load(Relaxed) - bytes,
        kept: BYTES.load(Relaxed) - bytes,
        allocations: ALLOCATIONS.load(Relaxed) - allocations,
    };
    (result, taken)
}

/// What `work` takes in this thread, whatever others do meanwhile.
pub fn of_thread<R>(work: impl FnOnce() -> R) -> (R, Taken) {
    let (bytes, _, allocations) = THREAD.get();
    THREAD.set((bytes, bytes, allocations));
    let result = work();
    let (now, peak, then) = THREAD.get();
    (result, Taken { peak: peak - bytes, kept: now - bytes, allocations: then - allocations })
}

fn count(change: isize) {
    let now = BYTES.fetch_add(change, Relaxed) + change;
    PEAK.fetch_max(now, Relaxed);
    let new = usize::from(change > 0);
    ALLOCATIONS.fetch_add(new, Relaxed);
    // a thread that ends frees memory after its own variables are gone
    let _ = THREAD.try_with(|thread| {
        let (bytes, peak, allocations) = thread.get();
        thread.set((bytes + change, peak.max(bytes + change), allocations + new));
    });
}

// SAFETY: every call is passed on unchanged to the system's allocator; counting neither touches the memory nor
// allocates any.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as above; `pointer` came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[global_allocator]
    static ALLOCATOR: Counting = Counting;

    #[test]
    fn memory_is_counted_in_the_thread_that_takes_it_and_in_the_process() {
        let work = || {
            drop(vec![0u8; 3000]);
            vec![0u8; 1000]
        };
        let (list, taken) = of_thread(work);
        assert_eq!((taken.peak, taken.kept, taken.allocations), (3000, 1000, 2));
        drop(list);
        let ((list, here), all) = of_process(|| of_thread(|| std::thread::spawn(work).join().expect("no panic")));
        assert_eq!(list.len(), 1000);
        assert!(all.peak >= 3000 && all.kept >= 1000 && here.peak < 3000, "{all:?}, of which {here:?} in this thread");
    }
}
