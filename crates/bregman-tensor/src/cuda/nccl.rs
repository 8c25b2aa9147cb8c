//! Gradients between GPUs: NCCL sums them in place, on the compute stream, right after the backward pass.
//!
//! The ranks find each other, agree and compare by whatever carries [`Ranks`]; only gradients go by NCCL.

use cudarc::nccl::{result, sys};

use super::Cuda;
use super::gpu::Gpu;
use crate::{Collectives, Error, GradientPart, PendingSum, Ranks, Result};

/// This GPU as one of several.
pub(super) struct Nccl {
    communicator: sys::ncclComm_t,
    ranks: Ranks,
}

// SAFETY: NCCL's handle may be used from any thread, by one at a time: a device is used by one.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Joins the GPUs of all ranks, each of which calls this.
    pub(super) fn join(gpu: &Gpu, ranks: &Ranks) -> Result<Self> {
        // SAFETY: loading a library runs its initialisers, which NVIDIA's do without preconditions.
        if !unsafe { sys::is_culib_present() } {
            return Err(Error::MissingLibrary { library: "libnccl.so.2" });
        }
        gpu.bind()?;
        let own = if ranks.leads() {
            result::get_uniqueid().map_err(nccl)?.internal.map(|byte| byte as u8).to_vec()
        } else {
            Vec::new()
        };
        let id = &ranks.gather(&own)?[0];
        let mut internal = [0; 128];
        internal.iter_mut().zip(id).for_each(|(to, &byte)| *to = byte as std::ffi::c_char);
        let mut communicator = std::ptr::null_mut();
        let (size, rank) = (ranks.size() as i32, ranks.rank() as i32);
        // SAFETY: the GPU is current on this thread, and every rank has the same identifier.
        unsafe { result::comm_init_rank(&mut communicator, size, sys::ncclUniqueId { internal }, rank) }
            .map_err(nccl)?;
        Ok(Self { communicator, ranks: ranks.clone() })
    }

    /// Averages these arrays of f32, places and lengths, over all ranks: after all work of the stream so far.
    ///
    /// # Safety
    /// The arrays are on this GPU, and as long.
    unsafe fn average(&self, gpu: &Gpu, arrays: &[(u64, usize)]) -> Result<()> {
        gpu.bind()?;
        result::group_start().map_err(nccl)?;
        for &(place, length) in arrays {
            let (from, to) = (place as *const std::ffi::c_void, place as *mut std::ffi::c_void);
            let (kind, average) = (sys::ncclDataType_t::ncclFloat32, sys::ncclRedOp_t::ncclAvg);
            // SAFETY: the caller's promise; sums in place are allowed.
            unsafe { result::all_reduce(from, to, length, kind, average, self.communicator, gpu.stream().cast()) }
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

impl Cuda {
    /// As one of several ranks, each with a GPU of its own.
    ///
    /// # Errors
    /// NCCL is missing, GPUs that cannot reach each other.
    pub fn with_ranks(mut self, ranks: &Ranks) -> Result<Self> {
        if !ranks.is_alone() {
            self.nccl = Some(Nccl::join(&self.device, ranks)?);
        }
        Ok(self)
    }
}

impl Collectives for Cuda {
    fn ranks(&self) -> &Ranks {
        self.nccl.as_ref().map_or(&Ranks::ALONE, |nccl| &nccl.ranks)
    }

    fn join_norms(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "joint batch norms (train.joint_norms)")
    }

    fn divide_optimizer(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "a divided optimizer (train.divide_optimizer)")
    }

    fn start_sum(&self, share: f32, parts: &mut [GradientPart<'_, Self>]) -> Result<Option<PendingSum>> {
        let Some(nccl) = &self.nccl else { return Ok(None) };
        if (share * nccl.ranks.size() as f32 - 1.0).abs() > 1e-6 {
            return Err(Error::Device("GPUs need parts of a batch that are of one size".to_owned()));
        }
        let place = |part: &GradientPart<'_, Self>| (part.gradient.pointer(), part.gradient.bytes() / 4);
        let arrays: Vec<(u64, usize)> = parts.iter().map(place).filter(|&(_, length)| length > 0).collect();
        // SAFETY: gradients are f32 on this GPU, and borrowed for as long as the calls take; the stream keeps the order.
        unsafe { nccl.average(&self.device, &arrays) }?;
        Ok(None)
    }
}

fn only_on_cpus(ranks: &Ranks, what: &str) -> Result<()> {
    match ranks.is_alone() {
        true => Ok(()),
        false => Err(Error::Device(format!("{what} are for ranks without GPUs so far"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceMemory, Precision, Storage, thread_ranks};

    #[test]
    fn one_gpu_averages_with_itself() {
        let Some(mut cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) else { return };
        cuda.nccl = Some(Nccl::join(&cuda.device, &thread_ranks(1)[0]).unwrap());
        let mut gradients = [cuda.alloc(1000, Storage::Exact).unwrap(), cuda.alloc(3, Storage::Exact).unwrap()];
        cuda.upload(&[0.5; 1000], &mut gradients[0]).unwrap();
        cuda.upload(&[1.0, 2.0, 3.0], &mut gradients[1]).unwrap();
        let mut parts: Vec<GradientPart<'_, Cuda>> =
            gradients.iter_mut().map(|gradient| GradientPart { gradient, support: None }).collect();
        cuda.start_sum(1.0, &mut parts).unwrap();
        assert!(cuda.start_sum(0.5, &mut parts).is_err(), "half a batch of one rank");
        drop(parts);
        let mut values = [0.0; 3];
        cuda.download(&gradients[1], &mut values).unwrap();
        assert_eq!(values, [1.0, 2.0, 3.0]);
    }
}
