//! A mark in a stream: when the work before it is done, and how long after another one.

use cudarc::driver::{result, sys};

use super::driver::driver;
use crate::Result;

/// One of the driver's events, destroyed when dropped.
pub(super) struct Event(sys::CUevent);

// SAFETY: events may be used from any thread.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Event {
    /// In the context that is current.
    pub(super) fn new(flags: sys::CUevent_flags) -> Result<Self> {
        result::event::create(flags).map(Self).map_err(driver)
    }

    /// Marks the end of the stream's work so far.
    pub(super) fn record(&self, stream: sys::CUstream) -> Result<()> {
        // SAFETY: the event is alive; a stream of another context is an error of the driver.
        unsafe { result::event::record(self.0, stream) }.map_err(driver)
    }

    /// Waits until the work before it is done; not at all if it was never recorded.
    pub(super) fn wait(&self) -> Result<()> {
        // SAFETY: the event is alive.
        unsafe { result::event::synchronize(self.0) }.map_err(driver)
    }

    /// Milliseconds from an earlier event to this one; both must be over.
    pub(super) fn since(&self, earlier: &Self) -> Result<f32> {
        // SAFETY: both are alive.
        unsafe { result::event::elapsed(earlier.0, self.0) }.map_err(driver)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created in `new`, destroyed once. An error on the way out has nobody to go to.
        let _ = unsafe { result::event::destroy(self.0) };
    }
}
