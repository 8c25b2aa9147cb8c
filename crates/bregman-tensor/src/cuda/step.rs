//! The optimizer step of a whole network in one launch: what `bregman` does on slices, on arrays that stay on the GPU.

use std::borrow::Cow;
use std::sync::Arc;

use bregman::optimizer::{
    Arrays, Correction, Counted, DualKey, Duals, Engine, HostArrays, Prox, TensorState, TensorStep, Update,
};

use super::duals::Working;
use super::gpu::Gpu;
use super::layout::kernel_struct;
use super::multi::STRETCH;
use super::{Cuda, DeviceBuffer, grid};
use crate::Result;

/// The arrays of an optimizer on the GPU.
pub struct DeviceArrays {
    pub(super) device: Arc<Gpu>,
    pub(super) tensors: Vec<Placed>,
    pub(super) working: Working,
    table: Option<Table>,
}

pub(super) struct Placed {
    pub(super) p: DeviceBuffer,
    m: DeviceBuffer,
    v: DeviceBuffer,
    /// A byte per weight; empty where nothing is masked.
    mask: DeviceBuffer,
}

/// The step cut into blocks; good as long as weights, gradients and groups stay as they are.
struct Table {
    tensors: Vec<StepTensor>,
    /// Tensor and first element of every block.
    blocks: Vec<(usize, usize)>,
    jobs: DeviceBuffer,
    plans: DeviceBuffer,
    counts: DeviceBuffer,
}

/// Where a tensor's weights and gradient are, and how it may be cut.
#[derive(Clone, Copy, PartialEq)]
struct StepTensor {
    theta: u64,
    /// 0 in passes without one.
    g: u64,
    length: usize,
    group: usize,
}

kernel_struct! {
    /// A block's part of a tensor; arrays that are not kept are null.
    StepJob {
        theta: u64 = "float *",
        g: u64 = "const float *",
        p: u64 = "float *",
        m: u64 = "float *",
        v: u64 = "float *",
        mask: u64 = "const unsigned char *",
        length: u32 = "u32",
        tensor: u32 = "u32",
    }
}

kernel_struct! {
    /// What happens to a tensor: a `TensorStep`.
    StepPlan {
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
    /// What a block counted; `bad` is its first gradient that is not finite.
    BlockCount {
        squares: f64 = "double",
        zeros: u32 = "u32",
        bad: u32 = "u32",
    }
}

/// Blocks that share the pull of a tensor's gradient at its threshold.
const PULLING: usize = 128;

/// `NONE` of kernels/step.cu.
const NONE: u32 = u32::MAX;

impl From<&TensorStep> for StepPlan {
    fn from(step: &TensorStep) -> Self {
        let TensorStep { update, prox: Prox { shrinkage, threshold, scale }, frozen } = step;
        let mut coefficients = [0.0; Update::MOST_BYTES / 4];
        bytemuck::cast_slice_mut(&mut coefficients)[..update.bytes().len()].copy_from_slice(update.bytes());
        Self {
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

impl Cuda {
    /// Moves an optimizer's arrays to the GPU.
    ///
    /// # Errors
    /// Too little memory.
    pub fn place_arrays(&self, arrays: &[TensorState]) -> Result<DeviceArrays> {
        let tensors = arrays.iter().map(|arrays| Placed::new(&self.device, arrays)).collect::<Result<_>>()?;
        Ok(DeviceArrays { device: self.device.clone(), tensors, working: Working::default(), table: None })
    }
}

impl DeviceArrays {
    /// Arrays that are on the GPU already: dual and moments of every tensor.
    pub(super) fn over(device: &Arc<Gpu>, tensors: Vec<[DeviceBuffer; 3]>) -> Self {
        let place = |[p, m, v]: [DeviceBuffer; 3]| Placed { p, m, v, mask: DeviceBuffer::lent(device, 0, 0) };
        let tensors = tensors.into_iter().map(place).collect();
        Self { device: device.clone(), tensors, working: Working::default(), table: None }
    }
}

impl Placed {
    fn new(device: &Arc<Gpu>, arrays: &TensorState) -> Result<Self> {
        let float = |values: &[f32]| -> Result<DeviceBuffer> {
            let mut buffer = DeviceBuffer::zeros(device, size_of_val(values))?;
            buffer.upload(values)?;
            Ok(buffer)
        };
        let bytes: Vec<u8> = arrays.mask.iter().map(|&kept| u8::from(kept)).collect();
        let mut mask = DeviceBuffer::zeros(device, bytes.len())?;
        mask.upload(&bytes)?;
        Ok(Self { p: float(&arrays.p)?, m: float(&arrays.m)?, v: float(&arrays.v)?, mask })
    }

    fn fetch(&self) -> Result<TensorState> {
        let [p, m, v] = [&self.p, &self.m, &self.v].map(floats);
        Ok(TensorState { p: p?, m: m?, v: v?, mask: self.fetch_mask()? })
    }

    fn fetch_mask(&self) -> Result<Vec<bool>> {
        let mut mask = vec![0u8; self.mask.bytes()];
        self.mask.download(&mut mask)?;
        Ok(mask.into_iter().map(|kept| kept != 0).collect())
    }
}

/// A copy of the buffer's contents.
fn floats(buffer: &DeviceBuffer) -> Result<Vec<f32>> {
    let mut values = vec![0.0; buffer.bytes() / 4];
    buffer.download(&mut values)?;
    Ok(values)
}

impl Arrays for DeviceArrays {
    fn fetch(&self) -> bregman::Result<Cow<'_, [TensorState]>> {
        Ok(Cow::Owned(self.tensors.iter().map(Placed::fetch).collect::<Result<_>>()?))
    }

    fn replace(&mut self, arrays: HostArrays) -> bregman::Result<()> {
        self.table = None;
        self.tensors = arrays.iter().map(|arrays| Placed::new(&self.device, arrays)).collect::<Result<_>>()?;
        Ok(())
    }

    fn mask(&self, tensor: usize) -> bregman::Result<Cow<'_, [bool]>> {
        Ok(Cow::Owned(self.tensors[tensor].fetch_mask()?))
    }

    fn duals(&mut self, keys: Vec<DualKey>) -> bregman::Result<impl Duals + '_> {
        Ok(self.count_duals(&keys)?)
    }
}

impl Engine<DeviceBuffer> for DeviceArrays {
    fn pass(
        &mut self,
        theta: &mut [&mut DeviceBuffer],
        grads: &[&DeviceBuffer],
        steps: &[TensorStep],
    ) -> bregman::Result<Vec<Counted>> {
        assert!(theta.len() == self.tensors.len() && steps.len() == theta.len(), "tensors of a step");
        let tensors: Vec<StepTensor> = (theta.iter().zip(steps).enumerate())
            .map(|(tensor, (theta, step))| StepTensor {
                theta: theta.pointer(),
                g: grads.get(tensor).map_or(0, |g| g.pointer()),
                length: theta.bytes() / 4,
                group: step.prox.shrinkage.group_len(),
            })
            .collect();
        if !self.table.as_ref().is_some_and(|table| table.fits(&tensors)) {
            self.table = Some(Table::new(&self.device, &self.tensors, tensors)?);
        }
        let table = self.table.as_mut().expect("was just made");
        table.plans.upload(&steps.iter().map(StepPlan::from).collect::<Vec<_>>())?;
        let launch = self
            .device
            .kernel("step_tensors")
            .arg(table.jobs.pointer())
            .arg(table.plans.pointer())
            .arg(table.counts.pointer());
        // SAFETY: a job per block, each inside of its tensor's arrays; a plan per tensor, a count per block. A pass
        // without gradients rests, and then reads none.
        unsafe { launch.run([table.blocks.len() as u32, 1], [256, 1], 0)? };
        Ok(table.counted(grads)?)
    }

    fn correct(&mut self, theta: &[&DeviceBuffer], corrections: &[Option<Correction>]) -> bregman::Result<()> {
        Ok(self.correct_duals(theta, corrections)?)
    }

    fn set_mask(&mut self, tensor: usize, mask: &[bool], theta: &mut DeviceBuffer) -> bregman::Result<()> {
        let (placed, count) = (&mut self.tensors[tensor], theta.bytes() / 4);
        if mask.is_empty() && placed.mask.bytes() == 0 {
            return Ok(());
        }
        let bytes: Vec<u8> = (0..count).map(|i| u8::from(mask.get(i).copied().unwrap_or(true))).collect();
        let fresh = self.working.mask.at_least(&self.device, count)?;
        fresh.upload(&bytes)?;
        if placed.mask.bytes() == 0 {
            self.table = None; // it holds the addresses of the masks
            placed.mask = DeviceBuffer::zeros(&self.device, count)?;
            placed.mask.upload(&vec![1u8; count])?; // nothing was masked
        }
        let launch = self.device.kernel("set_mask").arg(fresh.pointer()).arg(placed.mask.pointer());
        let launch = launch.arg(theta.pointer()).arg(placed.m.pointer()).arg(placed.v.pointer()).arg(count as u64);
        // SAFETY: all arrays have `count` elements; moments that are not kept are null.
        unsafe { launch.run(grid(count as u64), [256, 1], 0)? };
        if mask.is_empty() {
            self.table = None;
            self.tensors[tensor].mask = DeviceBuffer::zeros(&self.device, 0)?;
        }
        Ok(())
    }

    fn pull(&mut self, theta: &DeviceBuffer, gradient: &DeviceBuffer) -> bregman::Result<f64> {
        let parts = self.working.pulls.at_least(&self.device, PULLING * 8)?;
        let launch = self.device.kernel("pull_threshold").arg(theta.pointer()).arg(gradient.pointer());
        let launch = launch.arg((theta.bytes() / 4) as u64).arg(parts.pointer());
        // SAFETY: as many weights as gradients; a part per block.
        unsafe { launch.run([PULLING as u32, 1], [256, 1], 0)? };
        let mut sums = vec![0f64; parts.bytes() / 8];
        parts.download(&mut sums)?;
        Ok(sums[..PULLING].iter().sum())
    }

    fn len(values: &DeviceBuffer) -> usize {
        values.bytes() / 4
    }

    fn read(values: &DeviceBuffer) -> bregman::Result<Cow<'_, [f32]>> {
        Ok(Cow::Owned(floats(values)?))
    }
}

impl Table {
    /// Whether it was made for these tensors; a pass without gradients may use one with.
    fn fits(&self, tensors: &[StepTensor]) -> bool {
        let fits = |(own, asked): (&StepTensor, &StepTensor)| {
            *own == StepTensor { g: if asked.g == 0 { own.g } else { asked.g }, ..*asked }
        };
        self.tensors.len() == tensors.len() && self.tensors.iter().zip(tensors).all(fits)
    }

    fn new(device: &Arc<Gpu>, placed: &[Placed], tensors: Vec<StepTensor>) -> Result<Self> {
        let (mut blocks, mut jobs) = (Vec::new(), Vec::new());
        for (tensor, (placed, &StepTensor { theta, g, length, group })) in placed.iter().zip(&tensors).enumerate() {
            // whole groups, and a multiple of four unless it is all there is
            let unit = if group.is_multiple_of(4) { group } else { 4 * group };
            let step = (STRETCH / unit).max(1) * unit;
            for start in (0..length).step_by(step) {
                let at = |pointer: u64, bytes: usize| if pointer == 0 { 0 } else { pointer + (start * bytes) as u64 };
                blocks.push((tensor, start));
                jobs.push(StepJob {
                    theta: at(theta, 4),
                    g: at(g, 4),
                    p: at(placed.p.pointer(), 4),
                    m: at(placed.m.pointer(), 4),
                    v: at(placed.v.pointer(), 4),
                    mask: at(placed.mask.pointer(), 1),
                    length: step.min(length - start) as u32,
                    tensor: tensor as u32,
                });
            }
        }
        let mut table = DeviceBuffer::zeros(device, jobs.len() * size_of::<StepJob>())?;
        table.upload(&jobs)?;
        let plans = DeviceBuffer::zeros(device, tensors.len() * size_of::<StepPlan>())?;
        let counts = DeviceBuffer::zeros(device, blocks.len() * size_of::<BlockCount>())?;
        Ok(Self { tensors, blocks, jobs: table, plans, counts })
    }

    /// Waits for the counts of the blocks and adds them up.
    fn counted(&self, grads: &[&DeviceBuffer]) -> Result<Vec<Counted>> {
        let mut of_blocks = vec![<BlockCount as bytemuck::Zeroable>::zeroed(); self.blocks.len()];
        self.counts.download(&mut of_blocks)?;
        let mut counted = vec![Counted::default(); self.tensors.len()];
        for (&(tensor, start), block) in self.blocks.iter().zip(of_blocks) {
            let counted = &mut counted[tensor];
            counted.zeros += u64::from(block.zeros);
            counted.sum_squares += block.squares;
            if block.bad != NONE && counted.non_finite.is_none() {
                let index = start + block.bad as usize;
                let mut gradient = vec![0.0; index + 1];
                grads[tensor].download(&mut gradient)?;
                counted.non_finite = Some((index, gradient[index]));
            }
        }
        Ok(counted)
    }
}
