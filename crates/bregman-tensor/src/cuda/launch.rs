//! A kernel launch.

use std::ffi::c_void;

use cudarc::driver::{result, sys};

use super::Rows;
use super::driver::driver;
use super::gpu::{Gpu, KernelVariant};
use crate::Result;

/// Most parameters a kernel of ours takes, and the bytes they may fill, in eights.
const PARAMETERS: usize = 20;
const WORDS: usize = 40;

/// A kernel launch being put together.
pub(super) struct Launch<'a> {
    device: &'a Gpu,
    stream: sys::CUstream,
    name: &'static str,
    variant: Option<KernelVariant>,
    words: [u64; WORDS],
    used: usize,
    offsets: [usize; PARAMETERS],
    count: usize,
}

impl<'a> Launch<'a> {
    pub(super) fn new(device: &'a Gpu, name: &'static str, variant: Option<KernelVariant>) -> Self {
        Self {
            device,
            stream: device.stream(),
            name,
            variant,
            words: [0; WORDS],
            used: 0,
            offsets: [0; PARAMETERS],
            count: 0,
        }
    }

    /// On another stream than the usual one.
    pub(super) fn on(self, stream: sys::CUstream) -> Self {
        Self { stream, ..self }
    }

    /// The next parameter.
    pub(super) fn arg<T: bytemuck::NoUninit>(mut self, value: T) -> Self {
        let bytes = bytemuck::bytes_of(&value);
        let words = bytes.len().div_ceil(8);
        bytemuck::cast_slice_mut::<u64, u8>(&mut self.words[self.used..self.used + words])[..bytes.len()]
            .copy_from_slice(bytes);
        self.offsets[self.count] = self.used;
        self.used += words;
        self.count += 1;
        self
    }

    /// The next two parameters: where an activation lies, and how far its rows are apart.
    pub(super) fn view(self, rows: Rows) -> Self {
        self.arg(rows.pointer).arg(rows.stride)
    }

    /// As [`Launch::view`], zeros where there is none.
    pub(super) fn optional_view(self, rows: Option<Rows>) -> Self {
        self.arg(rows.map_or(0, |rows| rows.pointer)).arg(rows.map_or(0, |rows| rows.stride))
    }

    /// Starts it; it runs after everything before it.
    ///
    /// # Safety
    /// The parameters must be the kernel's own, in number and type, and its accesses must stay inside of the buffers
    /// they point to.
    pub(super) unsafe fn run(mut self, grid: [u32; 2], block: [u32; 2], shared: u32) -> Result<()> {
        if grid.contains(&0) {
            return Ok(());
        }
        self.device.bind()?;
        let function = self.device.function(self.name, self.variant, shared)?;
        let base = self.words.as_mut_ptr();
        let mut pointers = [std::ptr::null_mut::<c_void>(); PARAMETERS];
        for (pointer, &offset) in pointers.iter_mut().zip(&self.offsets[..self.count]) {
            *pointer = base.wrapping_add(offset).cast();
        }
        let (grid, block) = ((grid[0], grid[1], 1), (block[0], block[1], 1));
        // SAFETY: the function belongs to a loaded module; the rest is the caller's promise.
        unsafe { result::launch_kernel(function, grid, block, shared, self.stream, &mut pointers[..self.count]) }
            .map_err(driver)
    }
}
