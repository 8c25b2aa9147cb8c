//! What the kernel of a step reads and writes: the tensors cut into blocks, what happens to each, what was counted.

use std::sync::Arc;

use bregman::optimizer::{Counted, Prox, TensorStep, Update};

use super::DeviceBuffer;
use super::gpu::Gpu;
use super::layout::kernel_struct;
use super::multi::STRETCH;
use super::pinned::Mirrored;
use super::step::Placed;
use crate::Result;

/// The step cut into blocks; good as long as sizes and groups stay as they are.
pub(super) struct Table {
    pub(super) tensors: Vec<StepTensor>,
    /// Tensor and first element of every block.
    pub(super) blocks: Vec<(usize, usize)>,
    pub(super) jobs: DeviceBuffer,
    pub(super) plans: Mirrored<StepPlan>,
    pub(super) counts: Mirrored<BlockCount>,
}

/// How a tensor may be cut.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct StepTensor {
    pub(super) length: usize,
    pub(super) group: usize,
}

kernel_struct! {
    /// A block's part of a tensor.
    StepJob {
        start: u64 = "u64",
        length: u32 = "u32",
        tensor: u32 = "u32",
    }
}

kernel_struct! {
    /// What happens to a tensor, a `TensorStep`, and where it is; arrays that are not kept are null.
    StepPlan {
        theta: u64 = "float *",
        g: u64 = "const float *",
        p: u64 = "float *",
        m: u64 = "float *",
        v: u64 = "float *",
        mask: u64 = "const unsigned char *",
        update: u32 = "Update",
        shrinkage: u32 = "Shrinkage",
        group: u32 = "u32",
        threshold: f32 = "float",
        scale: f32 = "float",
        frozen: u32 = "u32",
        coefficients: [f32; Update::MOST_BYTES / 4] = "Coefficients",
    }
}

kernel_struct! {
    /// What a block counted; `bad` is the place of its first gradient that is not finite, in its part of the tensor.
    BlockCount {
        squares: f64 = "double",
        zeros: u32 = "u32",
        bad: u32 = "u32",
        value: f32 = "float",
        padding: u32 = "u32",
    }
}

/// `NONE` of kernels/step.cu.
const NONE: u32 = u32::MAX;

impl StepPlan {
    pub(super) fn new(step: &TensorStep, placed: &Placed, theta: u64, g: u64) -> Self {
        let TensorStep { update, prox: Prox { shrinkage, threshold, scale }, frozen } = step;
        let mut coefficients = [0.0; Update::MOST_BYTES / 4];
        bytemuck::cast_slice_mut(&mut coefficients)[..update.bytes().len()].copy_from_slice(update.bytes());
        Self {
            theta,
            g,
            p: placed.p.pointer(),
            m: placed.m.pointer(),
            v: placed.v.pointer(),
            mask: placed.mask.pointer(),
            update: update.code(),
            shrinkage: shrinkage.code(),
            group: shrinkage.group_len() as u32,
            threshold: *threshold,
            scale: *scale,
            frozen: u32::from(*frozen),
            coefficients,
        }
    }
}

impl Table {
    pub(super) fn new(device: &Arc<Gpu>, tensors: Vec<StepTensor>) -> Result<Self> {
        let (mut blocks, mut jobs) = (Vec::new(), Vec::new());
        for (tensor, &StepTensor { length, group }) in tensors.iter().enumerate() {
            // whole groups, and a multiple of four unless it is all there is
            let unit = if group.is_multiple_of(4) { group } else { 4 * group };
            let step = (STRETCH / unit).max(1) * unit;
            for start in (0..length).step_by(step) {
                blocks.push((tensor, start));
                let length = step.min(length - start) as u32;
                jobs.push(StepJob { start: start as u64, length, tensor: tensor as u32 });
            }
        }
        let mut table = DeviceBuffer::zeros(device, jobs.len() * size_of::<StepJob>())?;
        table.upload(&jobs)?;
        let (plans, counts) = (Mirrored::new(device, tensors.len())?, Mirrored::new(device, blocks.len())?);
        Ok(Self { tensors, blocks, jobs: table, plans, counts })
    }

    /// Waits for the counts of the blocks and adds them up.
    pub(super) fn counted(&self) -> Result<Vec<Counted>> {
        let mut counted = vec![Counted::default(); self.tensors.len()];
        for (&(tensor, start), block) in self.blocks.iter().zip(self.counts.downloaded()?) {
            let counted = &mut counted[tensor];
            counted.zeros += u64::from(block.zeros);
            counted.sum_squares += block.squares;
            if block.bad != NONE && counted.non_finite.is_none() {
                counted.non_finite = Some((start + block.bad as usize, block.value));
            }
        }
        Ok(counted)
    }
}
