//! The runtime as a wasm module: the functions of the C interface, and memory for the data passed from JavaScript.
//!
//! `web/bregman.js` wraps them; `web/index.html` is a page that learns voices and names them, and sends nothing
//! anywhere; `speed/run.mjs` measures.
//! `build` makes the module:
//!
//! ```text
//! rustup target add wasm32-unknown-unknown
//! crates/bregman-wasm/build                      # web/bregman.wasm
//! python3 -m http.server -b 127.0.0.1 -d crates/bregman-wasm/web
//! ```
//!
//! No wasm-bindgen: a dozen functions of plain numbers do not need it, and its command-line tool would have to be
//! installed in the matching version.
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

use std::alloc::{Layout, alloc, dealloc};

pub use bregman_c::*;

/// Alignment of all allocations: that of the widest number.
const ALIGNMENT: usize = 8;

/// Allocates `bytes` bytes, aligned for any number; NULL if `bytes` is 0 or there is not enough memory.
#[unsafe(no_mangle)]
pub extern "C" fn bregman_alloc(bytes: usize) -> *mut u8 {
    match Layout::from_size_align(bytes, ALIGNMENT) {
        // SAFETY: the size is not zero.
        Ok(layout) if bytes > 0 => unsafe { alloc(layout) },
        _ => std::ptr::null_mut(),
    }
}

/// Frees memory. NULL is allowed.
///
/// # Safety
/// `memory` is NULL or comes from [`bregman_alloc`] with the same `bytes`, and is freed only once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_free(memory: *mut u8, bytes: usize) {
    if let Ok(layout) = Layout::from_size_align(bytes, ALIGNMENT)
        && !memory.is_null()
    {
        // SAFETY: the caller's promise.
        unsafe { dealloc(memory, layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_impossible_sizes_are_null() {
        for bytes in [1, 7, 4096] {
            let memory = bregman_alloc(bytes);
            assert!(!memory.is_null() && memory.addr().is_multiple_of(ALIGNMENT));
            // SAFETY: as it was allocated.
            unsafe { bregman_free(memory, bytes) };
        }
        assert!(bregman_alloc(0).is_null() && bregman_alloc(usize::MAX).is_null());
        // SAFETY: NULL.
        unsafe { bregman_free(std::ptr::null_mut(), 5) };
    }
}
