//! The optimizer: Burn's side of a step. All arithmetic and the control of λ are in the crate `bregman`.

use std::marker::PhantomData;

use bregman::controller::LoopState;
use bregman::{AdaptiveOptimizer, OptimizerState, StepReport};
use burn::module::AutodiffModule;
use burn::optim::{GradientsParams, LearningRate, MultiGradientsParams, Optimizer};
use burn::record::{PrecisionSettings, Record};
use burn::tensor::backend::{AutodiffBackend, Backend};
use serde::{Deserialize, Serialize};

use crate::BregmanConfig;
use crate::module::{Gradients, Taken, groups, put, take};

/// LinBreg, AdaBreg or ProxSGD over a module, with one λ for all its weights. Made by [`BregmanConfig::init`].
#[derive(Clone)]
pub struct Bregman<M, B> {
    pub(crate) config: BregmanConfig,
    /// Made at the first step, from the weights of the module.
    pub(crate) core: Option<AdaptiveOptimizer>,
    /// What was loaded, until the next step.
    pub(crate) record: Option<BregmanRecord>,
    pub(crate) report: Option<StepReport>,
    pub(crate) module: PhantomData<fn() -> (M, B)>,
}

/// Everything that is remembered between steps. With it and the module a training continues to the same bits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BregmanRecord {
    /// Steps, λ, duals and moments; absent before the first step.
    state: Option<OptimizerState>,
    /// The control loops.
    loops: Vec<LoopState>,
}

/// It is kept in single precision whatever the recorder's settings are: duals that were rounded are other duals.
impl<B: Backend> Record<B> for BregmanRecord {
    type Item<S: PrecisionSettings> = Self;

    fn into_item<S: PrecisionSettings>(self) -> Self {
        self
    }

    fn from_item<S: PrecisionSettings>(item: Self, _: &B::Device) -> Self {
        item
    }
}

impl<M: AutodiffModule<B>, B: AutodiffBackend> Bregman<M, B> {
    /// What the last step did: λ, the sparsity and its target. Nothing before the first.
    pub fn report(&self) -> Option<StepReport> {
        self.report
    }

    /// As [`Optimizer::step`], with an error instead of a panic.
    ///
    /// # Errors
    /// A gradient that is not finite, with the parameter's name: the step is not counted. Settings out of range, a
    /// learning rate that is not positive, a module or record of another network.
    pub fn try_step(&mut self, lr: LearningRate, module: M, gradients: GradientsParams) -> bregman::Result<M> {
        self.step_with(lr, module, Gradients::Single(gradients))
    }

    fn step_with(&mut self, lr: LearningRate, module: M, gradients: Gradients) -> bregman::Result<M> {
        let mut taken = take(&module, gradients);
        if self.core.is_none() {
            self.core = Some(self.begin(&taken)?);
        }
        let core = self.core.as_mut().expect("was just made");
        let (mut theta, grads): (Vec<&mut [f32]>, Vec<&[f32]>) =
            taken.iter_mut().map(|Taken { values, gradient, .. }| (values.as_mut_slice(), gradient.as_slice())).unzip();
        self.report = Some(core.step(&mut theta, &grads, lr)?);
        Ok(put(module, taken.into_iter().map(|taken| (taken.id, taken.values))))
    }

    /// An optimizer at rest at these weights, or where the record was.
    fn begin(&mut self, taken: &[Taken]) -> bregman::Result<AdaptiveOptimizer> {
        let BregmanConfig { rule, controller, .. } = self.config.clone();
        let groups = groups(taken, &self.config.group())?;
        let theta: Vec<&[f32]> = taken.iter().map(|taken| taken.values.as_slice()).collect();
        let mut core = AdaptiveOptimizer::new(rule, groups, controller, &theta)?;
        if let Some(BregmanRecord { state: Some(state), loops }) = self.record.take() {
            core.restore(state, loops, &theta)?;
        }
        Ok(core)
    }
}

impl<M: AutodiffModule<B>, B: AutodiffBackend> Optimizer<M, B> for Bregman<M, B> {
    type Record = BregmanRecord;

    /// # Panics
    /// Where [`Bregman::try_step`] has an error: Burn's trait has none.
    fn step(&mut self, lr: LearningRate, module: M, gradients: GradientsParams) -> M {
        self.try_step(lr, module, gradients).unwrap_or_else(|error| panic!("{error}"))
    }

    /// # Panics
    /// As [`Optimizer::step`].
    fn step_multi(&mut self, lr: LearningRate, module: M, gradients: MultiGradientsParams) -> M {
        self.step_with(lr, module, Gradients::Multi(gradients)).unwrap_or_else(|error| panic!("{error}"))
    }

    fn to_record(&self) -> BregmanRecord {
        match (&self.core, &self.record) {
            (Some(core), _) => BregmanRecord {
                state: Some(core.optimizer().state().clone()),
                loops: core.controller().state().to_vec(),
            },
            (None, record) => record.clone().unwrap_or_default(),
        }
    }

    fn load_record(mut self, record: BregmanRecord) -> Self {
        (self.core, self.record, self.report) = (None, Some(record), None);
        self
    }
}
