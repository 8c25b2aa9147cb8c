//! Methods through one interface: how weights move, and how zeros come to be.
//!
//! | file | methods |
//! | --- | --- |
//! | `adaptive` | LinBreg, AdaBreg, ProxSGD with λ steered to a target |
//! | `plain` | the same with a fixed λ; dense SGD and AdamW |
//! | `pruned` | SGD and AdamW under masks: gradual, one-shot, structured |

mod adaptive;
mod plain;
mod pruned;

use std::borrow::Cow;

use bregman::controller::LoopState;
use bregman::optimizer::{Engine, TensorState};
use bregman::{Groups, Optimizer, OptimizerState, Scope, Sparsity};
use bregman_nn::Model;
use bregman_tensor::Backend;

use crate::config::MethodConfig;
use crate::{Device, Result};

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MethodStep {
    /// λ, where there is one.
    pub lambda: Option<f64>,
    /// s(θ).
    pub sparsity: f64,
    /// s* at this step, where there is one.
    pub target: Option<f64>,
}

/// A way to train: takes gradients, moves weights, keeps count of the zeros.
pub trait Method<B: Device>: Send {
    /// Before the first step of an epoch, counted from 0; tells whether it changed weights.
    ///
    /// # Errors
    /// Whatever the method refuses.
    fn begin_epoch(&mut self, epoch: u64, model: &mut Model<B>) -> Result<bool>;

    /// One step of an epoch, counted from 0, with learning rate `lr`, from the gradients in `model`.
    ///
    /// # Errors
    /// A gradient that is not finite.
    fn step(&mut self, epoch: u64, model: &mut Model<B>, lr: f64) -> Result<MethodStep>;

    /// The optimizer with its state and statistics.
    fn optimizer(&self) -> &Optimizer;

    /// Says so if λ swings around the target instead of coming to rest.
    fn unrest(&self) -> Option<String> {
        None
    }

    /// The control loops, where there are some.
    fn loops(&self) -> &[LoopState] {
        &[]
    }

    /// The optimizer's arrays, wherever the device keeps them, to be saved.
    ///
    /// # Errors
    /// A lost device.
    fn arrays(&self, device: &B) -> Result<Cow<'_, [TensorState]>>;

    /// Continues from saved states; the weights are those of `model`.
    ///
    /// # Errors
    /// States of another network or method.
    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, model: &Model<B>) -> Result<()>;

    /// The sparsity of the weights now.
    fn sparsity(&self) -> f64 {
        Sparsity::new(self.optimizer().groups(), self.optimizer().stats()).total(Scope::Weights).sparsity()
    }
}

/// The method of a recipe for a run of `total` steps with learning rate `lr`. Starts the weights sparse where the
/// method wants that.
pub(crate) fn build<B: Device>(
    config: &MethodConfig,
    model: &mut Model<B>,
    total: u64,
    lr: f64,
    seed: u64,
) -> Result<Box<dyn Method<B>>> {
    let method: Box<dyn Method<B>> = match config {
        MethodConfig::Adaptive(config) => Box::new(adaptive::Adaptive::new(config, model, total, lr, seed)?),
        MethodConfig::Fixed(config) => Box::new(plain::Plain::fixed(config, model, seed)?),
        MethodConfig::Dense(config) => Box::new(plain::Plain::dense(config, model)?),
        MethodConfig::Gradual(config) => Box::new(pruned::Pruned::gradual(config, model)?),
        MethodConfig::OneShot(config) => Box::new(pruned::Pruned::one_shot(config, model)?),
    };
    model.refresh()?;
    Ok(method)
}

/// An optimizer with its arrays on a device: what methods share that nothing steers.
struct Placed<B: Device> {
    optimizer: Optimizer,
    arrays: B::Arrays,
}

impl<B: Device> Placed<B> {
    fn new(mut optimizer: Optimizer, device: &B) -> Result<Self> {
        let arrays = device.place(&mut optimizer)?;
        Ok(Self { optimizer, arrays })
    }

    fn step(&mut self, model: &mut Model<B>, lr: f64) -> Result<()> {
        let (device, params) = model.parts_mut();
        Ok(device.engine(params, &mut self.arrays).step(&mut self.optimizer, lr)?)
    }

    fn arrays(&self, device: &B) -> Result<Cow<'_, [TensorState]>> {
        device.fetch(&self.optimizer, &self.arrays)
    }

    /// Lets `change` work on the optimizer while it holds its arrays itself.
    fn on_host(&mut self, device: &B, change: impl FnOnce(&mut Optimizer) -> Result<()>) -> Result<()> {
        take_back(device, &mut self.optimizer, &self.arrays)?;
        change(&mut self.optimizer)?;
        self.arrays = device.place(&mut self.optimizer)?;
        Ok(())
    }

    fn restore(&mut self, state: OptimizerState, model: &Model<B>) -> Result<()> {
        let weights = weights(model)?;
        self.on_host(model.backend(), |optimizer| Ok(optimizer.restore(state, &weights)?))
    }
}

/// Gives an optimizer back the arrays that its device keeps.
fn take_back<B: Device>(device: &B, optimizer: &mut Optimizer, arrays: &B::Arrays) -> Result<()> {
    if let Cow::Owned(arrays) = device.fetch(optimizer, arrays)? {
        optimizer.give_arrays(arrays);
    }
    Ok(())
}

/// Copies of all weights.
fn weights<B: Backend>(model: &Model<B>) -> Result<Vec<Vec<f32>>> {
    let read = |parameter: &bregman_nn::Parameter<B>| {
        let mut values = vec![0.0; parameter.param.len()];
        model.backend().download(&parameter.value, &mut values)?;
        Ok(values)
    };
    model.params().all().iter().map(read).collect()
}

/// Replaces the weights; the caller refreshes the model.
fn set_weights<B: Backend>(model: &mut Model<B>, weights: &[Vec<f32>]) -> Result<()> {
    let (device, params) = model.parts_mut();
    params
        .all_mut()
        .iter_mut()
        .zip(weights)
        .try_for_each(|(parameter, values)| Ok(device.upload(values, &mut parameter.value)?))
}

/// Masks the initial weights of every penalised tensor, and returns all of them.
fn start_sparse<B: Backend>(
    groups: &Groups,
    survivors: bregman::Survivors,
    model: &mut Model<B>,
    seed: u64,
) -> Result<Vec<Vec<f32>>> {
    let mut weights = weights(model)?;
    bregman::sparse_init(groups, &mut weights, survivors, seed)?;
    set_weights(model, &weights)?;
    Ok(weights)
}
