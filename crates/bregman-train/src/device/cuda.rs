//! Steps of an optimizer whose arrays stay on the GPU. What is rare (a λ that moves the duals, a law that selects among them) passes through
//! the host.

use std::borrow::Cow;

use bregman::optimizer::{Counted, Engine, Motion, Plan, TensorState};
use bregman::{Controller, Optimizer, Shrinkage, Variant};
use bregman_nn::Params;
use bregman_tensor::Backend;
use bregman_tensor::cuda::{self, Arrays, Buffer, Count, Cuda, TensorArrays, Update};

use super::Device;
use crate::Result;

impl Device for Cuda {
    type Arrays = Arrays;

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

    /// The optimizer with its arrays on this machine, for what is rare.
    fn on_host(&self, optimizer: &Optimizer) -> bregman::Result<Optimizer> {
        let mut host = optimizer.clone();
        host.give_arrays(from_device(self.cuda.fetch(self.arrays).map_err(failed)?));
        Ok(host)
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
    let shrinkage = match plan.shrinkage {
        Shrinkage::Identity => cuda::Shrinkage::Identity,
        Shrinkage::Soft => cuda::Shrinkage::Soft,
        Shrinkage::SoftNonNegative => cuda::Shrinkage::NonNegative,
        Shrinkage::Group(length) => cuda::Shrinkage::Group(length),
    };
    Update { motion, numbers, shrinkage, threshold: plan.threshold, scale: plan.scale }
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
        if !matches!(optimizer.rule().mirror(), Some((_, Variant::SubgradientCorrection | Variant::Steady))) {
            return optimizer.set_lambda(lambda, &[] as &[&[f32]]);
        }
        // the duals move with λ: once per period, on the host
        let mut host = self.on_host(optimizer)?;
        let theta = self.theta.iter().zip(optimizer.groups().params()).map(|(theta, param)| {
            let mut values = vec![0.0; param.len()];
            self.cuda.download(theta, &mut values).map_err(failed)?;
            Ok(values)
        });
        host.set_lambda(lambda, &theta.collect::<bregman::Result<Vec<Vec<f32>>>>()?)?;
        let lengths: Vec<usize> = host.groups().params().iter().map(|param| param.len()).collect();
        *self.arrays = self.cuda.place(&to_device(host.take_arrays()), &lengths).map_err(failed)?;
        *optimizer = host;
        Ok(())
    }

    fn control(&mut self, optimizer: &Optimizer, controller: &mut Controller) -> bregman::Result<bool> {
        let (step, stats) = (optimizer.state().step, optimizer.stats());
        if controller.config().law.needs_duals() && controller.is_due(step) {
            let host = self.on_host(optimizer)?;
            return controller.update(step, stats, host.duals());
        }
        controller.update(step, stats, None)
    }
}
