//! Gradients between GPUs: NCCL sums them in place, on a stream of its own, while the backward pass goes on. A captured
//! step has the sums in its graph.

use std::sync::Mutex;

use cudarc::nccl::{result, sys};

use super::super::gpu::Gpu;
use super::super::{Cuda, DeviceBuffer, DeviceSupport};
use super::{Array, Nccl, nccl};
use crate::{Collectives, Error, PendingSum, Ranks, Result, SupportPart};

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

    /// The reduction that weights this rank's values by `share`: NCCL's mean where all shares are equal, otherwise a
    /// custom one, created once because a run's share does not change. A single rank uses the plain sum: for a mean
    /// NCCL would launch a kernel per array just to divide by 1.
    fn weighted_sum(&self, share: f32) -> Result<sys::ncclRedOp_t> {
        if share == 1.0 && self.ranks.size() == 1 {
            return Ok(sys::ncclRedOp_t::ncclSum);
        }
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

    /// Begins to sum the arrays over all ranks, behind what the GPU has to do so far.
    ///
    /// # Safety
    /// As [`Nccl::reduce`]; the arrays are f32.
    unsafe fn start(&self, share: f32, arrays: &[Array]) -> Result<()> {
        let Some(gradients) = &self.gradients else { return Ok(()) };
        let sum = gradients.weighted_sum(share)?;
        self.device.goes_before(&gradients.nccl.stream)?;
        // SAFETY: the caller's promise.
        unsafe { gradients.nccl.reduce(arrays, sys::ncclDataType_t::ncclFloat32, sum) }
    }
}

impl Collectives for Cuda {
    const SUMS_OVERLAP: bool = true;

    type Support = DeviceSupport;

    fn ranks(&self) -> &Ranks {
        self.gradients.as_ref().map_or(&Ranks::ALONE, |gradients| &gradients.ranks)
    }

    fn join_norms(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "joint batch norms (train.joint_norms)")
    }

    fn divide_optimizer(&mut self) -> Result<()> {
        only_on_cpus(self.ranks(), "a divided optimizer (train.divide_optimizer)")
    }

    fn start_sum(&self, share: f32, gradients: &mut [&mut DeviceBuffer]) -> Result<Option<PendingSum>> {
        let place = |gradient: &&mut DeviceBuffer| (gradient.pointer(), gradient.bytes() / 4);
        let arrays: Vec<Array> = gradients.iter().map(place).filter(|&(_, length)| length > 0).collect();
        // SAFETY: gradients are f32 on this GPU, and belong to a model that ends its step before it goes.
        unsafe { self.start(share, &arrays) }?;
        Ok(None)
    }

    fn finish_sum(&self, _: Option<PendingSum>, _: &mut [&mut DeviceBuffer]) -> Result<()> {
        self.gradients.as_ref().map_or(Ok(()), |gradients| self.device.wait_for(&gradients.nccl.stream))
    }

    fn find_support(&self, parts: &[SupportPart<'_, Self>], support: &mut DeviceSupport) -> Result<()> {
        if self.gradients.is_none() {
            return Ok(());
        }
        self.look_for_support(parts, support)
    }

    fn sum_support(&self, share: f32, _: &mut [SupportPart<'_, Self>], support: &DeviceSupport) -> Result<()> {
        self.pack_support(support)?;
        // SAFETY: the message is f32 on this GPU, and belongs to a model that ends its step before it goes.
        unsafe { self.start(share, &[support.message()]) }?;
        self.finish_sum(None, &mut [])?;
        self.unpack_support(support)
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
            let mut both: Vec<&mut DeviceBuffer> = gradients.iter_mut().collect();
            let pending = cuda.start_sum(share, &mut both).unwrap();
            cuda.finish_sum(pending, &mut both).unwrap();
            let mut values = [0.0; 3];
            cuda.download(&gradients[1], &mut values).unwrap();
            values
        };
        assert_eq!(sum(1.0), [1.0, 2.0, 3.0]);
        assert_eq!(sum(0.25), [0.25, 0.5, 0.75]);
    }

    /// Numbers that look random, the same for the same seed.
    fn random(seed: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(seed), |x| Some(x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223))).skip(1)
    }

    #[test]
    fn gradients_of_the_support_are_packed_summed_and_put_back_and_little_travels() {
        let Some(cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) else { return };
        let cuda = cuda.with_ranks(&thread_ranks(1)[0]).unwrap();
        let lengths = [1_000_003, 300_000, 77]; // the last one travels whole
        let empty = || lengths.map(|length| cuda.alloc(length, Storage::Exact).unwrap());
        let (mut theta, mut gradients, mut support) = (empty(), empty(), DeviceSupport::default());
        for zeros in [95, 95, 20, 99] {
            let below = |percent: u32| move |x: u32| (x >> 8) % 100 < percent;
            let weights = lengths.map(|length| {
                let values: Vec<f32> =
                    random(zeros).take(length).map(|x| if below(zeros)(x) { 0.0 } else { 1.0 }).collect();
                values
            });
            let values = lengths.map(|length| {
                let values: Vec<f32> = random(1).take(length).map(|x| x as f32 - 2e9).collect();
                values
            });
            for (buffers, values) in [(&mut theta, &weights), (&mut gradients, &values)] {
                buffers.iter_mut().zip(values).for_each(|(buffer, values)| cuda.upload(values, buffer).unwrap());
            }
            let sparse = [Some(&theta[0]), Some(&theta[1]), None];
            let mut parts: Vec<SupportPart<'_, Cuda>> =
                gradients.iter_mut().zip(sparse).map(|(gradient, support)| SupportPart { gradient, support }).collect();
            cuda.find_support(&parts, &mut support).unwrap();
            // a quarter of the sum: what was not packed keeps its value
            cuda.sum_support(0.25, &mut parts, &support).unwrap();
            let all: usize = lengths.iter().sum();
            let sent = support.message().1;
            match zeros {
                95 => assert!(sent * 15 <= all && sent * 20 >= all, "{sent} of {all}"),
                20 => assert!(sent >= all * 79 / 100),
                _ => assert!(sent * 80 < all, "the message shrinks, too: {sent}"),
            }
            for ((gradient, values), weights) in gradients.iter().zip(&values).zip([&weights[0], &weights[1], &vec![]])
            {
                let mut after = vec![0.0; values.len()];
                cuda.download(gradient, &mut after).unwrap();
                for (at, (&before, &after)) in values.iter().zip(&after).enumerate() {
                    let travelled = weights.get(at).is_none_or(|&weight| weight != 0.0);
                    assert_eq!(after, if travelled { 0.25 * before } else { before }, "place {at}");
                }
            }
        }
    }
}
