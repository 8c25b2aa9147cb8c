//! A whole training step captured once and replayed, where a device can do that.

use super::DeviceMemory;
use crate::Result;

/// Capture and replay of a sequence of launches, as CUDA graphs do it.
///
/// Everything that the work depends on is part of the key or lies in buffers, which are the same every time; it reads
/// nothing back. The caller loops:
/// ```text
/// loop {
///     if backend.replay(&mut graph, &key)? { return Ok(()) }
///     let result = work();
///     if backend.end_run(&mut graph, result.is_ok())? { return result }
/// }
/// ```
pub trait Capture: DeviceMemory {
    /// What was captured, and the warm-up runs that came before.
    type Graph: Default + Send + Sync;

    /// Does work that calls one kernel after another, on a thread from which these start soonest. It waits for nothing
    /// but kernels.
    fn run_kernels<R: Send>(work: impl FnOnce() -> R + Send) -> R {
        work()
    }

    /// Replays the work that was captured under this key; `false` if there is none: then the caller does the work.
    fn replay(&self, _graph: &mut Self::Graph, _key: &[u64]) -> Result<bool> {
        Ok(false)
    }

    /// Ends a run of the work; `succeeded` says how it went. `false` where the run was only captured and the capture
    /// failed: nothing was computed, and the work must run again.
    fn end_run(&self, _graph: &mut Self::Graph, _succeeded: bool) -> Result<bool> {
        Ok(true)
    }
}
