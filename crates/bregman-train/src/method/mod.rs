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

use bregman::controller::LoopState;
use bregman::{Groups, Optimizer, OptimizerState, Param, Role, Scope, Sparsity};
use bregman_nn::{Model, Params};
use bregman_tensor::Cpu;

use crate::Result;
use crate::config::MethodConfig;

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
pub trait Method: Send {
    /// Before the first step of an epoch, counted from 0; tells whether it changed weights.
    ///
    /// # Errors
    /// Whatever the method refuses.
    fn begin_epoch(&mut self, epoch: u64, params: &mut Params<Cpu>) -> Result<bool>;

    /// One step of an epoch, counted from 0, with learning rate `lr`, from the gradients in `params`.
    ///
    /// # Errors
    /// A gradient that is not finite.
    fn step(&mut self, epoch: u64, params: &mut Params<Cpu>, lr: f64) -> Result<MethodStep>;

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

    /// Continues from saved states; the weights are those of `params`.
    ///
    /// # Errors
    /// States of another network or method.
    fn restore(&mut self, optimizer: OptimizerState, loops: Vec<LoopState>, params: &Params<Cpu>) -> Result<()>;

    /// The sparsity of the weights now.
    fn sparsity(&self) -> f64 {
        Sparsity::new(self.optimizer().groups(), self.optimizer().stats()).total(Scope::Weights).sparsity()
    }
}

/// The method of a recipe for a run of `total` steps with learning rate `lr`. Starts the weights sparse where the method wants that.
pub(crate) fn build(config: &MethodConfig, model: &mut Model<Cpu>, total: u64, lr: f64, seed: u64) -> Result<Box<dyn Method>> {
    let method: Box<dyn Method> = match config {
        MethodConfig::Adaptive(config) => Box::new(adaptive::Adaptive::new(config, model.params_mut(), total, lr, seed)?),
        MethodConfig::Fixed(config) => Box::new(plain::Plain::fixed(config, model.params_mut(), seed)?),
        MethodConfig::Dense(config) => Box::new(plain::Plain::dense(config, model.params_mut())?),
        MethodConfig::Gradual(config) => Box::new(pruned::Pruned::gradual(config, model.params_mut())?),
        MethodConfig::OneShot(config) => Box::new(pruned::Pruned::one_shot(config, model.params_mut())?),
    };
    model.refresh()?;
    Ok(method)
}

/// What the method knows of a network's parameters.
pub(crate) fn describe(params: &Params<Cpu>) -> Vec<Param> {
    let role = |role| match role {
        bregman_nn::Role::ConvWeight => Role::ConvWeight,
        bregman_nn::Role::LinearWeight => Role::LinearWeight,
        bregman_nn::Role::Classifier => Role::Classifier,
        bregman_nn::Role::Bias => Role::Bias,
        bregman_nn::Role::Norm => Role::Norm,
    };
    params.all().iter().map(|parameter| Param::new(&parameter.name, parameter.shape.clone(), role(parameter.role))).collect()
}

fn weights(params: &Params<Cpu>) -> Vec<&[f32]> {
    params.all().iter().map(|parameter| &*parameter.value).collect()
}

/// Masks the initial weights of every penalised tensor.
fn start_sparse(groups: &Groups, survivors: bregman::Survivors, params: &mut Params<Cpu>, seed: u64) -> Result<()> {
    Ok(bregman::sparse_init(groups, &mut params.values_and_gradients().0, survivors, seed)?)
}
