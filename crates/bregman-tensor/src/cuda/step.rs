//! The optimizer step of a whole network in one launch: what `bregman` does on slices, on arrays that stay on the GPU.

use std::borrow::Cow;
use std::sync::Arc;

use bregman::optimizer::{
    Arrays, Correction, Counted, Deferred, DualKey, Duals, Engine, HostArrays, TensorState, TensorStep,
};

use super::duals::Working;
use super::gpu::Gpu;
use super::step_table::{StepPlan, StepTensor, Table};
use super::{Cuda, DeviceBuffer, grid};
use crate::{Error, Result};

/// The arrays of an optimizer on the GPU.
pub struct DeviceArrays {
    pub(super) device: Arc<Gpu>,
    pub(super) tensors: Vec<Placed>,
    pub(super) working: Working,
    table: Option<Table>,
}

pub(super) struct Placed {
    pub(super) p: DeviceBuffer,
    pub(super) m: DeviceBuffer,
    pub(super) v: DeviceBuffer,
    /// A byte per weight; empty where nothing is masked.
    pub(super) mask: DeviceBuffer,
}

/// Blocks that share the pull of a tensor's gradient at its threshold.
const PULLING: usize = 128;

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

    /// Tells the GPU what the next pass does: the first of its three parts. Two and three are [`DeviceArrays::run`] and
    /// [`DeviceArrays::count`].
    ///
    /// # Errors
    /// A lost device, too little memory.
    pub fn prepare(
        &mut self,
        theta: &[&mut DeviceBuffer],
        grads: &[&DeviceBuffer],
        steps: &[TensorStep],
    ) -> Result<()> {
        assert!(theta.len() == self.tensors.len() && steps.len() == theta.len(), "tensors of a step");
        let sizes = theta.iter().zip(steps);
        let tensors: Vec<StepTensor> = sizes
            .map(|(theta, step)| StepTensor { length: theta.bytes() / 4, group: step.prox.shrinkage.group_len() })
            .collect();
        if self.table.as_ref().is_none_or(|table| table.tensors != tensors) {
            self.table = Some(Table::new(&self.device, tensors)?);
        }
        let table = self.table.as_mut().expect("was just made");
        let plan = |tensor: usize| {
            let g = grads.get(tensor).map_or(0, |g| g.pointer());
            StepPlan::new(&steps[tensor], &self.tensors[tensor], theta[tensor].pointer(), g)
        };
        table.plans.upload(&self.device, (0..steps.len()).map(plan))
    }

    /// The kernel of a pass alone: a captured graph may hold it, since it reads what to do from memory that stays.
    ///
    /// # Errors
    /// A lost device; nothing was prepared yet.
    pub fn run(&self) -> Result<()> {
        let table = self.table.as_ref().ok_or_else(|| Error::Device("no step was prepared".to_owned()))?;
        let launch = self
            .device
            .kernel("step_tensors")
            .arg(table.jobs.pointer())
            .arg(table.plans.device.pointer())
            .arg(table.counts.device.pointer());
        // SAFETY: a job per block, each inside of its tensor's arrays; a plan per tensor, a count per block. A pass
        // without gradients rests, and then reads none.
        unsafe { launch.run([table.blocks.len() as u32, 1], [256, 1], 0) }
    }

    /// Begins to fetch what a pass counts, for [`DeviceArrays::counted`].
    ///
    /// # Errors
    /// A lost device.
    pub fn count(&self) -> Result<()> {
        self.table.as_ref().map_or(Ok(()), |table| table.counts.begin_download(&self.device))
    }

    /// What the last pass counted, after waiting for it.
    ///
    /// # Errors
    /// Whatever went wrong in that work.
    pub fn counted(&self) -> Result<Vec<Counted>> {
        self.table.as_ref().map_or(Ok(vec![]), Table::counted)
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
        self.launch(theta, grads, steps)?;
        self.settle()
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
            placed.mask = DeviceBuffer::zeros(&self.device, count)?;
            placed.mask.upload(&vec![1u8; count])?; // nothing was masked
        }
        let launch = self.device.kernel("set_mask").arg(fresh.pointer()).arg(placed.mask.pointer());
        let launch = launch.arg(theta.pointer()).arg(placed.m.pointer()).arg(placed.v.pointer()).arg(count as u64);
        // SAFETY: all arrays have `count` elements; moments that are not kept are null.
        unsafe { launch.run(grid(count as u64), [256, 1], 0)? };
        if mask.is_empty() {
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

impl Deferred<DeviceBuffer> for DeviceArrays {
    fn launch(
        &mut self,
        theta: &mut [&mut DeviceBuffer],
        grads: &[&DeviceBuffer],
        steps: &[TensorStep],
    ) -> bregman::Result<()> {
        self.prepare(theta, grads, steps)?;
        self.run()?;
        Ok(self.count()?)
    }

    fn settle(&mut self) -> bregman::Result<Vec<Counted>> {
        Ok(self.counted()?)
    }
}
