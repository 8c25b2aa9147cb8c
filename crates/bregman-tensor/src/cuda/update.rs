//! The optimizer step of a whole network in one launch: what the crate `bregman` does on slices, on arrays that stay on
//! the GPU.

use super::duals::Working;
use super::{Buffer, Cuda};
use crate::Result;

/// Values per block; a multiple of four, so that every block begins on a 16-byte boundary.
pub(super) const STRETCH: usize = 1 << 14;

/// The variable that an update moves, and how: see `Motion` in the crate `bregman`, whose numbers these are, in its
/// order.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// Nothing moves; the prox is taken once more.
    Rest = 0,
    /// `[τ, μ, (1 − μ)·τ]`
    LinBreg = 1,
    /// `[β₁, β₂, 1 − β₁, 1 − β₂, ε, 1/√(1 − β₂ᵏ), τ/(1 − β₁ᵏ), 1 − τ·w]`
    Adam = 2,
    /// `[τ, μ, weight decay, share of g, share of m]`
    Sgd = 3,
}

/// What becomes of the variable on its way to the weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shrinkage {
    /// Nothing.
    Identity,
    /// Soft threshold.
    Soft,
    /// Soft threshold onto values ≥ 0.
    NonNegative,
    /// Shrinkage of the norm of every run of this many elements.
    Group(usize),
}

/// One tensor's part of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Update {
    /// How the variable moves.
    pub motion: Motion,
    /// The motion's numbers; those it does not need are 0.
    pub numbers: [f32; 8],
    /// What becomes of it.
    pub shrinkage: Shrinkage,
    /// The threshold.
    pub threshold: f32,
    /// The factor behind it.
    pub scale: f32,
}

/// What one step counted in a tensor.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Count {
    /// Weights that are 0.
    pub zeros: u64,
    /// Σ θ².
    pub sum_squares: f64,
    /// The first gradient that is not finite: place and value.
    pub non_finite: Option<(usize, f32)>,
}

/// What an optimizer remembers of one tensor; an array it does not keep is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TensorArrays {
    /// Dual.
    pub p: Vec<f32>,
    /// Momentum or first moment.
    pub m: Vec<f32>,
    /// Second moment.
    pub v: Vec<f32>,
    /// Weights that may live; all of them where it is empty.
    pub mask: Vec<bool>,
}

/// The arrays of an optimizer on the GPU.
pub struct Arrays {
    pub(super) tensors: Vec<Placed>,
    pub(super) working: Working,
    table: Option<Table>,
}

pub(super) struct Placed {
    /// p, m, v; empty where not kept.
    pub(super) floats: [Buffer; 3],
    mask: Buffer,
    length: usize,
}

/// The step cut into blocks; good as long as weights, gradients and groups stay as they are.
struct Table {
    key: Vec<(u64, u64, usize)>,
    /// Tensor and first element of every block.
    blocks: Vec<(usize, usize)>,
    jobs: Buffer,
    plans: Buffer,
    counts: Buffer,
}

/// `Job` of kernels/multi.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Job {
    theta: u64,
    g: u64,
    floats: [u64; 3],
    mask: u64,
    length: u32,
    tensor: u32,
}

/// `Plan` of kernels/multi.cu.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Plan {
    motion: i32,
    shrinkage: u32,
    group: u32,
    numbers: [f32; 8],
    threshold: f32,
    scale: f32,
}

/// `Count` of kernels/multi.cu.
#[repr(C)]
#[derive(Clone, Copy, Default, bytemuck::Pod, bytemuck::Zeroable)]
struct BlockCount {
    squares: f64,
    zeros: u32,
    bad: u32,
}

const NONE: u32 = u32::MAX;

impl Shrinkage {
    /// Elements that live and die together.
    pub(super) fn group(self) -> usize {
        match self {
            Self::Group(length) => length,
            _ => 1,
        }
    }

    /// `Shrinkage` of kernels/multi.cu.
    pub(super) fn code(self) -> u32 {
        match self {
            Self::Identity => 0,
            Self::Soft => 1,
            Self::NonNegative => 2,
            Self::Group(_) => 3,
        }
    }
}

impl Update {
    fn plan(&self) -> Plan {
        let Self { motion, numbers, shrinkage, threshold, scale } = *self;
        Plan {
            motion: motion as i32,
            shrinkage: shrinkage.code(),
            group: shrinkage.group() as u32,
            numbers,
            threshold,
            scale,
        }
    }
}

impl Cuda {
    /// Moves an optimizer's arrays to the GPU.
    ///
    /// # Errors
    /// Too little memory.
    pub fn place(&self, arrays: &[TensorArrays], lengths: &[usize]) -> Result<Arrays> {
        let place = |(arrays, &length): (&TensorArrays, &usize)| {
            let float = |values: &Vec<f32>| -> Result<Buffer> {
                let mut buffer = Buffer::zeros(&self.device, values.len() * 4)?;
                buffer.upload(values)?;
                Ok(buffer)
            };
            let bytes: Vec<u8> = arrays.mask.iter().map(|&lives| u8::from(lives)).collect();
            let mut mask = Buffer::zeros(&self.device, bytes.len())?;
            mask.upload(&bytes)?;
            Ok(Placed { floats: [float(&arrays.p)?, float(&arrays.m)?, float(&arrays.v)?], mask, length })
        };
        Ok(Arrays {
            tensors: arrays.iter().zip(lengths).map(place).collect::<Result<_>>()?,
            working: Working::default(),
            table: None,
        })
    }

    /// Copies an optimizer's arrays back.
    ///
    /// # Errors
    /// A lost device.
    pub fn fetch(&self, arrays: &Arrays) -> Result<Vec<TensorArrays>> {
        let fetch = |placed: &Placed| {
            let float = |buffer: &Buffer| -> Result<Vec<f32>> {
                let mut values = vec![0.0; buffer.bytes() / 4];
                buffer.download(&mut values)?;
                Ok(values)
            };
            let [p, m, v] = &placed.floats;
            let mut mask = vec![0u8; placed.mask.bytes()];
            placed.mask.download(&mut mask)?;
            Ok(TensorArrays {
                p: float(p)?,
                m: float(m)?,
                v: float(v)?,
                mask: mask.into_iter().map(|lives| lives != 0).collect(),
            })
        };
        arrays.tensors.iter().map(fetch).collect()
    }

    /// One step over all tensors; waits for what it counted.
    ///
    /// # Errors
    /// A lost device.
    pub fn update(
        &self,
        arrays: &mut Arrays,
        theta: &mut [&mut Buffer],
        grads: &[&Buffer],
        updates: &[Update],
    ) -> Result<Vec<Count>> {
        assert!(
            theta.len() == arrays.tensors.len() && grads.len() == theta.len() && updates.len() == theta.len(),
            "tensors of a step"
        );
        let key: Vec<_> = (theta.iter().zip(grads))
            .zip(updates)
            .map(|((t, g), u)| (t.pointer(), g.pointer(), u.shrinkage.group()))
            .collect();
        if arrays.table.as_ref().is_none_or(|table| table.key != key) {
            arrays.table = Some(self.table(&arrays.tensors, key)?);
        }
        let table = arrays.table.as_mut().expect("was just made");
        let plans: Vec<Plan> = updates.iter().map(Update::plan).collect();
        table.plans.upload(&plans)?;
        let launch = self
            .device
            .kernel("update")
            .arg(table.jobs.pointer())
            .arg(table.plans.pointer())
            .arg(table.counts.pointer());
        // SAFETY: a job per block, each inside of its tensor's arrays; a plan per tensor, a count per block.
        unsafe { launch.run([table.blocks.len() as u32, 1], [256, 1], 0)? };
        let mut counted = vec![BlockCount::default(); table.blocks.len()];
        table.counts.download(&mut counted)?;
        let mut counts = vec![Count::default(); updates.len()];
        for (&(tensor, start), block) in table.blocks.iter().zip(counted) {
            let count = &mut counts[tensor];
            count.zeros += u64::from(block.zeros);
            count.sum_squares += block.squares;
            if block.bad != NONE && count.non_finite.is_none() {
                let index = start + block.bad as usize;
                let mut gradient = vec![0.0; index + 1];
                grads[tensor].download(&mut gradient)?;
                count.non_finite = Some((index, gradient[index]));
            }
        }
        Ok(counts)
    }

    fn table(&self, tensors: &[Placed], key: Vec<(u64, u64, usize)>) -> Result<Table> {
        let (mut blocks, mut jobs) = (Vec::new(), Vec::new());
        for (tensor, (placed, &(theta, g, group))) in tensors.iter().zip(&key).enumerate() {
            // whole groups, and a multiple of four unless it is all there is
            let unit = if group.is_multiple_of(4) { group } else { 4 * group };
            let step = (STRETCH / unit).max(1) * unit;
            for start in (0..placed.length).step_by(step) {
                let at = |buffer: &Buffer, bytes: usize| {
                    if buffer.bytes() == 0 { 0 } else { buffer.pointer() + (start * bytes) as u64 }
                };
                blocks.push((tensor, start));
                jobs.push(Job {
                    theta: theta + start as u64 * 4,
                    g: g + start as u64 * 4,
                    floats: placed.floats.each_ref().map(|buffer| at(buffer, 4)),
                    mask: at(&placed.mask, 1),
                    length: step.min(placed.length - start) as u32,
                    tensor: tensor as u32,
                });
            }
        }
        let mut table = Buffer::zeros(&self.device, jobs.len() * size_of::<Job>())?;
        table.upload(&jobs)?;
        let plans = Buffer::zeros(&self.device, tensors.len() * size_of::<Plan>())?;
        let counts = Buffer::zeros(&self.device, blocks.len() * size_of::<BlockCount>())?;
        Ok(Table { key, blocks, jobs: table, plans, counts })
    }
}
