//! Steps of an optimizer whose arrays stay on the GPU; the host sees counts.

use std::borrow::Cow;

use bregman::optimizer::{Correction, Counted, Duals, Engine, Motion, Plan, TensorState};
use bregman::select::Digit;
use bregman::{Controller, Optimizer, Shrinkage};
use bregman_nn::Params;
use bregman_tensor::Precision;
use bregman_tensor::cuda::{self, Arrays, Buffer, Count, Cuda, TensorArrays, Update};

use super::{Device, Open};
use crate::Result;

impl Device for Cuda {
    type Arrays = Arrays;

    const PRECISION: Precision = Precision::Bf16;

    fn precision(&self) -> Precision {
        Cuda::precision(self)
    }

    fn description(&self) -> String {
        Cuda::description(self)
    }

    fn place(&self, optimizer: &mut Optimizer) -> Result<Arrays> {
        let lengths: Vec<usize> = optimizer.groups().params().iter().map(|param| param.len()).collect();
        Ok(Cuda::place(self, &to_device(optimizer.take_arrays()), &lengths)?)
    }

    fn fetch<'a>(&self, _: &'a Optimizer, arrays: &'a Arrays) -> Result<Cow<'a, [TensorState]>> {
        Ok(Cow::Owned(from_device(Cuda::fetch(self, arrays)?)))
    }

    fn engine<'a>(&'a self, params: &'a mut Params<Self>, arrays: &'a mut Arrays) -> impl Engine + 'a {
        let (theta, grads) = params.values_and_gradients();
        Gpu { cuda: self, theta, grads, arrays }
    }
}

/// GPU number `ordinal`.
pub(super) fn open(ordinal: usize) -> impl Open<Cuda> {
    move |precision: Option<Precision>| Ok(Cuda::open(ordinal, precision.unwrap_or(Cuda::PRECISION))?)
}

fn to_device(arrays: Vec<TensorState>) -> Vec<TensorArrays> {
    arrays.into_iter().map(|TensorState { p, m, v, mask }| TensorArrays { p, m, v, mask }).collect()
}

fn from_device(arrays: Vec<TensorArrays>) -> Vec<TensorState> {
    arrays.into_iter().map(|TensorArrays { p, m, v, mask }| TensorState { p, m, v, mask }).collect()
}

/// The arrays of one step on the GPU.
struct Gpu<'a> {
    cuda: &'a Cuda,
    theta: Vec<&'a mut Buffer>,
    grads: Vec<&'a Buffer>,
    arrays: &'a mut Arrays,
}

fn failed(error: bregman_tensor::Error) -> bregman::Error {
    bregman::Error::Engine { problem: error.to_string() }
}

impl Gpu<'_> {
    fn pass(&mut self, optimizer: &mut Optimizer, plans: &[Plan], step: bool) -> bregman::Result<()> {
        let updates: Vec<Update> = plans.iter().map(update).collect();
        let counts = self.cuda.update(self.arrays, &mut self.theta, &self.grads, &updates).map_err(failed)?;
        let counted = |Count { zeros, sum_squares, non_finite }| Counted { zeros, sum_squares, non_finite };
        optimizer.record(&counts.into_iter().map(counted).collect::<Vec<_>>(), step)
    }
}

fn update(plan: &Plan) -> Update {
    let mut numbers = [0.0; 8];
    let mut fill = |values: &[f32]| numbers[..values.len()].copy_from_slice(values);
    let motion = match plan.motion {
        Motion::Rest => cuda::Motion::Rest,
        Motion::LinBreg { tau, mu, fresh } => {
            fill(&[tau, mu, fresh]);
            cuda::Motion::LinBreg
        }
        Motion::Adam { beta, fresh, eps, per_root, rate, keep } => {
            fill(&[beta[0], beta[1], fresh[0], fresh[1], eps, per_root, rate, keep]);
            cuda::Motion::Adam
        }
        Motion::Sgd { tau, mu, decay, of_g, of_m } => {
            fill(&[tau, mu, decay, of_g, of_m]);
            cuda::Motion::Sgd
        }
    };
    Update { motion, numbers, shrinkage: shrinkage(plan.shrinkage), threshold: plan.threshold, scale: plan.scale }
}

fn shrinkage(shrinkage: Shrinkage) -> cuda::Shrinkage {
    match shrinkage {
        Shrinkage::Identity => cuda::Shrinkage::Identity,
        Shrinkage::Soft => cuda::Shrinkage::Soft,
        Shrinkage::SoftNonNegative => cuda::Shrinkage::NonNegative,
        Shrinkage::Group(length) => cuda::Shrinkage::Group(length),
    }
}

fn correction(correction: Correction) -> cuda::Correction {
    let Correction { shrinkage: kind, ratio, delta, bound } = correction;
    cuda::Correction { shrinkage: shrinkage(kind), ratio, delta, bound }
}

/// Duals on the GPU, counted there.
struct GpuDuals<'a>(cuda::Duals<'a>);

impl Duals for GpuDuals<'_> {
    fn histogram(&self, tensors: &[usize], digit: Digit, bins: &mut [u64]) -> bregman::Result<()> {
        let Digit { prefix, shift, width } = digit;
        self.0.histogram(tensors, cuda::Digit { prefix, shift, width }, bins).map_err(failed)
    }

    fn live_at(&self, tensors: &[usize], lambda: f64) -> bregman::Result<u64> {
        self.0.live_at(tensors, lambda).map_err(failed)
    }
}

impl Engine for Gpu<'_> {
    fn step(&mut self, optimizer: &mut Optimizer, tau: f64) -> bregman::Result<()> {
        let plans = optimizer.plan(tau)?;
        self.pass(optimizer, &plans, true)
    }

    fn reproject(&mut self, optimizer: &mut Optimizer) -> bregman::Result<()> {
        let plans = optimizer.plan_projection();
        self.pass(optimizer, &plans, false)
    }

    fn set_lambda(&mut self, optimizer: &mut Optimizer, lambda: &[f64]) -> bregman::Result<()> {
        let corrections = optimizer.move_lambda(lambda)?;
        if corrections.iter().all(Option::is_none) {
            return Ok(());
        }
        let corrections: Vec<_> = corrections.into_iter().map(|each| each.map(correction)).collect();
        self.cuda.correct(self.arrays, &self.theta, &corrections).map_err(failed)
    }

    fn control(&mut self, optimizer: &Optimizer, controller: &mut Controller) -> bregman::Result<bool> {
        let (step, stats) = (optimizer.state().step, optimizer.stats());
        if !controller.config().law.needs_duals() || !controller.is_due(step) {
            return controller.update(step, stats, None);
        }
        let keys =
            (0..stats.len()).map(|tensor| optimizer.key_of(tensor)).map(|(kind, weight)| (shrinkage(kind), weight));
        let duals = GpuDuals(self.cuda.duals(self.arrays, &keys.collect::<Vec<_>>()).map_err(failed)?);
        controller.update(step, stats, Some(&duals))
    }
}
