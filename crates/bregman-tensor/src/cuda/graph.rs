//! A step as one CUDA graph: its hundreds of launches are captured once, then replayed by a single call.
//!
//! The first runs are warm-up: scratch memory grows to its size and cuDNN chooses its algorithms. The next run is
//! captured, and all later ones are replays. A graph holds addresses, so it is valid as long as nothing is allocated or
//! freed.

use std::sync::Arc;

use cudarc::driver::{result, sys};

use super::Cuda;
use super::driver::driver;
use super::gpu::Gpu;
use crate::{Capture, Result};

/// What is known of a piece of work that is run again and again.
#[derive(Default)]
pub struct CapturedStep(CaptureState);

#[derive(Default)]
enum CaptureState {
    #[default]
    New,
    /// Warm-up runs under this key so far.
    WarmUp {
        key: Vec<u64>,
        runs: u32,
        generation: u64,
    },
    /// The stream is capturing.
    Capturing {
        key: Vec<u64>,
        generation: u64,
    },
    Captured {
        key: Vec<u64>,
        generation: u64,
        graph: LaunchGraph,
    },
    /// The capture failed: this work is launched every time.
    NotCapturable {
        key: Vec<u64>,
    },
}

/// Runs before the capture.
const WARM_UP_RUNS: u32 = 2;

struct LaunchGraph {
    executable: sys::CUgraphExec,
    device: Arc<Gpu>,
}

// SAFETY: an executable graph may be launched from any thread, one at a time.
unsafe impl Send for LaunchGraph {}
// SAFETY: as above; a shared reference launches nothing.
unsafe impl Sync for LaunchGraph {}

impl Drop for LaunchGraph {
    fn drop(&mut self) {
        if self.device.bind().is_ok() {
            // SAFETY: made in `end`, destroyed once; the driver waits for a launch that still runs.
            let _ = unsafe { result::graph::exec_destroy(self.executable) };
        }
    }
}

impl LaunchGraph {
    /// # Safety
    /// No buffer that was in use at the capture may have been freed since.
    unsafe fn launch(&mut self) -> Result<()> {
        self.device.bind()?;
        // SAFETY: the graph is alive; the rest is the caller's promise.
        unsafe { result::graph::launch(self.executable, self.device.stream()) }.map_err(driver)
    }
}

impl Capture for Cuda {
    type Graph = CapturedStep;

    fn replay(&self, step: &mut CapturedStep, key: &[u64]) -> Result<bool> {
        let generation = self.device.generation();
        match &mut step.0 {
            CaptureState::Captured { key: known, generation: then, graph } if known == key && *then == generation => {
                // SAFETY: nothing was allocated or freed since the capture.
                unsafe { graph.launch()? };
                return Ok(true);
            }
            CaptureState::NotCapturable { key: known } if known == key => {}
            CaptureState::WarmUp { key: known, runs, generation: then } if known == key => {
                if *runs >= WARM_UP_RUNS && *then == generation {
                    begin(&self.device)?;
                    step.0 = CaptureState::Capturing { key: key.to_vec(), generation };
                }
            }
            _ => step.0 = CaptureState::WarmUp { key: key.to_vec(), runs: 0, generation },
        }
        Ok(false)
    }

    fn end_run(&self, step: &mut CapturedStep, succeeded: bool) -> Result<bool> {
        let generation = self.device.generation();
        match std::mem::take(&mut step.0) {
            CaptureState::Capturing { key, generation: then } => {
                let graph = end(&self.device);
                let (true, true, Ok(mut graph)) = (succeeded, then == generation, graph) else {
                    step.0 = CaptureState::NotCapturable { key };
                    return Ok(false);
                };
                // SAFETY: as above.
                unsafe { graph.launch()? };
                step.0 = CaptureState::Captured { key, generation, graph };
            }
            CaptureState::WarmUp { key, runs, generation: then } => {
                let runs = if then == generation { runs + 1 } else { 1 };
                step.0 = CaptureState::WarmUp { key, runs, generation };
            }
            other => step.0 = other,
        }
        Ok(true)
    }
}

fn begin(device: &Gpu) -> Result<()> {
    device.bind()?;
    // SAFETY: the stream is alive. Relaxed: an allocation meanwhile invalidates the graph (the generation tells), and
    // nothing else.
    unsafe { result::stream::begin_capture(device.stream(), sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED) }
        .map_err(driver)
}

fn end(device: &Arc<Gpu>) -> Result<LaunchGraph> {
    device.bind()?;
    // SAFETY: the stream is capturing; a graph is destroyed once its executable form is made.
    unsafe {
        let graph = result::stream::end_capture(device.stream()).map_err(driver)?;
        let executable = result::graph::instantiate(graph, sys::CUgraphInstantiate_flags(0));
        let made = executable.map(|executable| LaunchGraph { executable, device: device.clone() });
        result::graph::destroy(graph).and(made).map_err(driver)
    }
}
