//! NCCL between GPUs that train one network.
//!
//! | module | what goes by it |
//! | --- | --- |
//! | `gradients` | gradients, in place, on a stream beside the backward pass |
//! | `ranks` | all else that ranks tell each other, where no MPI carries it |

mod gradients;
mod ranks;

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream};
use cudarc::nccl::{result, sys};

use super::driver::driver;
use crate::{Error, Result};

pub(super) use gradients::SharedGradients;
pub use ranks::NcclRanks;

/// One GPU among several, and the stream on which it talks to them.
struct Nccl {
    communicator: sys::ncclComm_t,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
}

// SAFETY: NCCL's handle may be used from any thread, by one at a time: who owns this uses it so.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

/// An array on the GPU: its place, and how many values it has.
type Array = (u64, usize);

impl Nccl {
    /// What the GPUs that are to find each other must all know.
    fn identifier() -> Result<sys::ncclUniqueId> {
        // SAFETY: loading a library runs its initialisers, which NVIDIA's do without preconditions.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::MissingLibrary { library: "libnccl.so.2" });
        }
        result::get_uniqueid().map_err(nccl)
    }

    /// Joins the GPUs of all ranks, each of which calls this with the same identifier.
    fn join(context: Arc<CudaContext>, identifier: sys::ncclUniqueId, rank: usize, size: usize) -> Result<Self> {
        context.bind_to_thread().map_err(driver)?;
        let stream = context.new_stream().map_err(driver)?;
        let mut communicator = std::ptr::null_mut();
        // SAFETY: the GPU is current on this thread.
        unsafe { result::comm_init_rank(&mut communicator, size as i32, identifier, rank as i32) }.map_err(nccl)?;
        Ok(Self { communicator, context, stream })
    }

    /// All-reduces the arrays in place with `operation`, in the order of this GPU's stream.
    ///
    /// # Safety
    /// The arrays are on this GPU, have equal lengths on all ranks and values of this kind, and outlive the operation.
    unsafe fn reduce(&self, arrays: &[Array], kind: sys::ncclDataType_t, operation: sys::ncclRedOp_t) -> Result<()> {
        self.context.bind_to_thread().map_err(driver)?;
        result::group_start().map_err(nccl)?;
        for &(place, length) in arrays {
            let (from, to) = (place as *const c_void, place as *mut c_void);
            let stream = self.stream.cu_stream().cast();
            // SAFETY: the caller's promise; sums in place are allowed.
            unsafe { result::all_reduce(from, to, length, kind, operation, self.communicator, stream) }
                .map_err(nccl)?;
        }
        result::group_end().map_err(nccl)?;
        Ok(())
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        // SAFETY: made in `join`, given up once. A failure on the way out has nobody to go to.
        let _ = unsafe { result::comm_destroy(self.communicator) };
    }
}

fn nccl(error: result::NcclError) -> Error {
    Error::Device(format!("NCCL: {:?}", error.0))
}
