//! Large pages for large allocations.
//!
//! A training step reads a piece of every row of matrices whose rows each lie on a page of their own, and the weights
//! that are not zero wherever they are: with pages of 4 KiB the processor spends part of its time looking up where they
//! lie. Linux gives pages of 2 MiB where a program asks for them.

use std::alloc::{GlobalAlloc, Layout, System};

/// Of x86-64, and of AArch64 with small pages of 4 KiB.
const LARGE_PAGE: usize = 2 << 20;

/// The system's allocator, which asks for large pages where an allocation has room for one, and begins it at a cache
/// line: an optimizer that moves few weights reads one line of each of its arrays for them, not two. For
/// `#[global_allocator]` of a program; where there are no large pages it is the system's allocator.
#[derive(Debug, Clone, Copy)]
pub struct LargePages;

// SAFETY: the system's allocator does all of it, with a layout that depends on the caller's alone; the advice changes
// neither addresses nor values.
unsafe impl GlobalAlloc for LargePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        advised(unsafe { System.alloc(on_lines(layout)) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        advised(unsafe { System.alloc_zeroed(on_lines(layout)) }, layout.size())
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if size.max(layout.size()) < LARGE_PAGE {
            // SAFETY: as above; `memory` came from the system's allocator with this layout.
            return unsafe { System.realloc(memory, layout, size) };
        }
        // SAFETY: the caller promises that the new size makes a layout, and it is not 0.
        let new = unsafe { self.alloc(Layout::from_size_align_unchecked(size, layout.align())) };
        if !new.is_null() {
            // SAFETY: both have that many bytes and do not overlap; the old memory came from here with this layout.
            unsafe {
                std::ptr::copy_nonoverlapping(memory, new, size.min(layout.size()));
                self.dealloc(memory, layout);
            }
        }
        new
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: `memory` came from the system's allocator with this layout.
        unsafe { System.dealloc(memory, on_lines(layout)) }
    }
}

/// The layout with which an allocation is made: a large one begins at a cache line.
#[inline]
fn on_lines(layout: Layout) -> Layout {
    const LINE: usize = 64;
    let aligned = if layout.size() >= LARGE_PAGE { layout.align_to(LINE) } else { Ok(layout) };
    aligned.unwrap_or(layout)
}

/// The same memory, for which large pages have been asked. From the beginning of the first small page, where the
/// allocator keeps its own few bytes: otherwise the first large page would not be whole.
#[inline]
fn advised(memory: *mut u8, size: usize) -> *mut u8 {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= LARGE_PAGE && !memory.is_null() {
        use std::ffi::{c_int, c_void};
        const SMALL_PAGE: usize = 4 << 10;
        const MADV_HUGEPAGE: c_int = 14;
        unsafe extern "C" {
            fn madvise(address: *mut c_void, length: usize, advice: c_int) -> c_int;
        }
        let before = memory.addr() % SMALL_PAGE;
        let length = (before + size) / SMALL_PAGE * SMALL_PAGE;
        // SAFETY: this allocation lies on each of these pages, so they are mapped, and advice changes no value. A
        // system that has no large pages refuses, which is as good.
        let _ = unsafe { madvise(memory.wrapping_sub(before).cast(), length, MADV_HUGEPAGE) };
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = (size, LARGE_PAGE);
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of large pages that this process has, where the system says.
    #[cfg(all(target_os = "linux", not(miri)))]
    fn on_large_pages() -> Option<usize> {
        let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
        Some(line.trim().trim_end_matches(" kB").parse::<usize>().ok()? << 10)
    }

    #[test]
    fn what_is_allocated_is_whole_and_keeps_its_values() {
        let sizes = [1, 4096, LARGE_PAGE - 1, LARGE_PAGE, 5 * LARGE_PAGE + 3];
        for (size, align) in sizes.into_iter().flat_map(|size| [(size, 4), (size, 64), (size, 256)]) {
            let layout = Layout::from_size_align(size, align).unwrap();
            let aligned = |memory: *mut u8, size: usize| {
                memory.addr().is_multiple_of(if size < LARGE_PAGE { align } else { align.max(64) })
            };
            // SAFETY: the layout is not empty; each allocation is used within its size and freed once.
            unsafe {
                let zeros = LargePages.alloc_zeroed(layout);
                assert!(aligned(zeros, size) && (0..size).step_by(977).all(|at| *zeros.add(at) == 0));
                (0..size).step_by(977).for_each(|at| *zeros.add(at) = at as u8);
                let grown = LargePages.realloc(zeros, layout, 2 * size);
                assert!(aligned(grown, 2 * size) && (0..size).step_by(977).all(|at| *grown.add(at) == at as u8));
                let kept = size.div_ceil(3);
                let shrunk = LargePages.realloc(grown, Layout::from_size_align(2 * size, align).unwrap(), kept);
                assert!(aligned(shrunk, kept) && (0..kept).step_by(977).all(|at| *shrunk.add(at) == at as u8));
                LargePages.dealloc(shrunk, Layout::from_size_align(kept, align).unwrap());
                let other = LargePages.alloc(layout);
                other.add(size - 1).write(1);
                LargePages.dealloc(other, layout);
            }
        }
    }

    #[test]
    #[cfg(all(target_os = "linux", not(miri)))]
    fn a_large_allocation_lies_on_large_pages_where_the_system_has_them() {
        let path = "/sys/kernel/mm/transparent_hugepage/enabled";
        let on = std::fs::read_to_string(path).is_ok_and(|text| !text.contains("[never]"));
        let (Some(before), true) = (on_large_pages(), on) else { return };
        let layout = Layout::from_size_align(32 * LARGE_PAGE, 64).unwrap();
        // SAFETY: as above.
        unsafe {
            let memory = LargePages.alloc(layout);
            memory.write_bytes(1, layout.size());
            let gained = on_large_pages().unwrap_or(0).saturating_sub(before);
            LargePages.dealloc(memory, layout);
            // memory may be in pieces: some of it is enough
            assert!(gained >= layout.size() / 4, "{gained} bytes of {} on large pages", layout.size());
        }
    }
}
