//! Which optimizer, and how its λ is steered.

use std::marker::PhantomData;

use bregman::{AdaBreg, ControllerConfig, GroupRule, LinBreg, Penalty, ProxSgd, Rule};
use burn::module::AutodiffModule;
use burn::tensor::backend::AutodiffBackend;

use crate::Bregman;

/// The settings of a [`Bregman`] optimizer: those of the crate `bregman`.
#[derive(Debug, Clone)]
pub struct BregmanConfig {
    /// The step.
    pub rule: Rule,
    /// How λ is steered to its target.
    pub controller: ControllerConfig,
    /// The structure of the zeros. Burn keeps the weight of a linear layer as `[in, out]`: a row is one input there.
    pub penalty: Penalty,
}

impl BregmanConfig {
    /// AdaBreg, Adam's step on the dual, to this share of zeros. A good learning rate is 0.01.
    pub fn adabreg(target: f64) -> Self {
        Self::new(Rule::AdaBreg(AdaBreg::default()), target)
    }

    /// LinBreg, gradient descent on the dual, to this share of zeros. A good learning rate is 0.1.
    pub fn linbreg(target: f64) -> Self {
        Self::new(Rule::LinBreg(LinBreg::default()), target)
    }

    /// Proximal SGD, the contrast to LinBreg, to this share of zeros. It has no duals, so it needs another law than the
    /// default one.
    pub fn prox_sgd(target: f64) -> Self {
        let controller = ControllerConfig {
            law: bregman::Law::Multiplicative(bregman::Multiplicative::default()),
            ..ControllerConfig::new(target)
        };
        Self { controller, ..Self::new(Rule::ProxSgd(ProxSgd::default()), target) }
    }

    fn new(rule: Rule, target: f64) -> Self {
        Self { rule, controller: ControllerConfig::new(target), penalty: Penalty::L1 }
    }

    /// The optimizer for a module; it begins with the weights of the module that it is given first.
    pub fn init<M: AutodiffModule<B>, B: AutodiffBackend>(self) -> Bregman<M, B> {
        Bregman { config: self, core: None, record: None, report: None, module: PhantomData }
    }

    /// What applies to the weights.
    pub(crate) fn group(&self) -> GroupRule {
        GroupRule { penalty: self.penalty, ..GroupRule::default() }
    }
}
