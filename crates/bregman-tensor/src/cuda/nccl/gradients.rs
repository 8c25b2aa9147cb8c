//! Gradients between GPUs: NCCL sums them in place, on a stream of its own, while the backward pass goes on. A captured
//! step has the sums in its graph.

use std::sync::Mutex;

use cudarc::nccl::{result, sys};

use super::super::Cuda;
use super::super::gpu::Gpu;
use super::{Array, Nccl, nccl};
use crate::{Collectives, Error, GradientPart, PendingSum, Ranks, Result};

/// This GPU as one of several.
pub(in super::super) struct SharedGradients {
    nccl: Nccl,
    ranks: Ranks,
    /// What adds the gradients of all ranks, each multiplied with this share.
    weighted_sum: Mutex<Option<(f32, sys::ncclRedOp_t)>>,
}

impl SharedGradients {
    /// Joins the GPUs of all ranks, each of which calls this.
    fn join(gpu: &Gpu, ranks: &Ranks) -> Result<Self> {
        let own = if ranks.leads() { Nccl::identifier()?.internal.map(|byte| byte as u8).to_vec() } else { Vec::new() };
        let mut internal = [0; 128];
        internal.iter_mut().zip(&ranks.gather(&own)?[0]).for_each(|(to, &byte)| *to = byte as std::ffi::c_char);
        let nccl = Nccl::join(gpu.context.clone(), sys::ncclUniqueId { internal }, ranks.rank(), ranks.size())?;
        Ok(Self { nccl, ranks: ranks.clone(), weighted_sum: Mutex::default() })
    }

    /// The sum in which this rank's values count `share`: the mean where all count the same, else one that is made
    /// once, as the share stays that of a run.
    fn weighted_sum(&self, share: f32) -> Result<sys::ncclRedOp_t> {
        if share * self.ranks.size() as f32 == 1.0 {
            return Ok(sys::ncclRedOp_t::ncclAvg);
        }
        let mut known = self.weighted_sum.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some((_, operation)) = known.filter(|&(of, _)| of == share) {
            return Ok(operation);
        }
        let (mut operation, mut scalar) = (sys::ncclRedOp_t::ncclSum, share);
        let (kind, here) = (sys::ncclDataType_t::ncclFloat32, sys::ncclScalarResidence_t::ncclScalarHostImmediate);
        let place = std::ptr::from_mut(&mut scalar).cast();
        // SAFETY: the scalar is read before this returns. The operation lives as long as the communicator.
        unsafe { result::reduce_op_create_pre_mul_sum(&mut operation, place, kind, here, self.nccl.communicator) }
            .map_err(nccl)?;
        *known = Some((share, operation));
        Ok(operation)
    }
}

impl Cuda {
    /// As one of several ranks, each with a GPU of its own.
    ///
    /// # Errors
    /// NCCL is missing, GPUs that cannot reach each other.
    pub fn with_ranks(mut self, ranks: &Ranks) -> Result<Self> {
        if !ranks.is_alone() {
            self.gradients = Some(SharedGradients::join(&self.device, ranks)?);
        }
        Ok(self)
    }
}

impl Collectives for Cuda {
    const SUMS_OVERLAP: bool = true;

    fn ranks(&self) -> &Ranks {
        self.gradients.as_ref().map_or(&Ranks::ALONE, |gradients| &gradients.ranks)
    }

    fn join_norms(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "joint batch norms (train.joint_norms)")
    }

    fn divide_optimizer(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "a divided optimizer (train.divide_optimizer)")
    }

    fn start_sum(&self, share: f32, parts: &mut [GradientPart<'_, Self>]) -> Result<Option<PendingSum>> {
        let Some(gradients) = &self.gradients else { return Ok(None) };
        let place = |part: &GradientPart<'_, Self>| (part.gradient.pointer(), part.gradient.bytes() / 4);
        let arrays: Vec<Array> = parts.iter().map(place).filter(|&(_, length)| length > 0).collect();
        let sum = gradients.weighted_sum(share)?;
        self.device.goes_before(&gradients.nccl.stream)?;
        // SAFETY: gradients are f32 on this GPU, and belong to a model that ends its step before it goes.
        unsafe { gradients.nccl.reduce(&arrays, sys::ncclDataType_t::ncclFloat32, sum) }?;
        Ok(None)
    }

    fn finish_sum(&self, _: Option<PendingSum>, _: &mut [GradientPart<'_, Self>]) -> Result<()> {
        self.gradients.as_ref().map_or(Ok(()), |gradients| self.device.wait_for(&gradients.nccl.stream))
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
    fn one_gpu_sums_with_itself() {
        let Some(cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) else { return };
        let cuda = cuda.with_ranks(&thread_ranks(1)[0]).unwrap();
        let mut gradients = [cuda.alloc(1000, Storage::Exact).unwrap(), cuda.alloc(3, Storage::Exact).unwrap()];
        let mut sum = |share: f32| {
            cuda.upload(&[0.5; 1000], &mut gradients[0]).unwrap();
            cuda.upload(&[1.0, 2.0, 3.0], &mut gradients[1]).unwrap();
            let mut parts: Vec<GradientPart<'_, Cuda>> =
                gradients.iter_mut().map(|gradient| GradientPart { gradient, support: None }).collect();
            let pending = cuda.start_sum(share, &mut parts).unwrap();
            cuda.finish_sum(pending, &mut parts).unwrap();
            let mut values = [0.0; 3];
            cuda.download(&gradients[1], &mut values).unwrap();
            values
        };
        assert_eq!(sum(1.0), [1.0, 2.0, 3.0]);
        assert_eq!(sum(0.25), [0.25, 0.5, 0.75]);
    }
}
