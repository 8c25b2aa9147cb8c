//! What a pass does to every tensor: the update at its learning rate, and the prox that makes weights of the result.

use super::{Engine, Optimizer, Prox, Rule, TensorStep, Update, Variant};
use crate::error::{Result, require};
use crate::param::Param;
use crate::penalty::Shrinkage;

impl<A> Optimizer<A> {
    /// What the next step does to every tensor, after all that may be refused was checked. Without a gradient its dual
    /// stays, and with it θ = prox(p); without a dual θ stays.
    pub(super) fn plan_step<W: ?Sized>(
        &mut self,
        theta: &[&mut W],
        grads: &[&W],
        tau: impl Fn(usize) -> f64,
    ) -> Result<Vec<TensorStep>>
    where
        A: Engine<W>,
    {
        for (tensor, param) in self.groups.params().iter().enumerate() {
            let (tau, name) = (tau(tensor), || format!("learning rate of `{}`", param.name));
            if !(tau >= 0.0 && tau.is_finite()) {
                require(false, &name(), tau, "a number ≥ 0")?;
            }
        }
        let asked = |tensor: usize| self.groups.params().get(tensor).map_or(0, Param::len);
        let lens = grads.iter().enumerate().map(|(tensor, g)| match A::len(g) {
            0 => asked(tensor),
            len => len,
        });
        self.check_lens("gradients", "gradient", lens)?;
        self.check_lens("weights", "weight", theta.iter().map(|theta| A::len(theta)))?;
        let (step, frozen) = (self.state.step + 1, !self.next_is_full());
        let scaled: Vec<f64> = (0..theta.len()).map(|tensor| tau(tensor) * self.groups.rule(tensor).lr_scale).collect();
        let before = self.learn_thresholds(theta, grads, &scaled)?;
        let update = |tensor: usize, tau| match &before {
            Some(before) if self.is_sparse(tensor) => self.rule.update(step, tau).above(before[tensor]),
            _ => self.rule.update(step, tau),
        };
        let mut steps = self.plan(|tensor| scaled[tensor], update, frozen);
        for (step, _) in steps.iter_mut().zip(grads).filter(|(_, g)| A::len(g) == 0) {
            step.update = Update::Rest;
            if self.rule.mirror().is_none() {
                step.prox = Prox { shrinkage: Shrinkage::Identity, threshold: 0.0, scale: 1.0 };
            }
        }
        Ok(steps)
    }

    /// What a pass does to every tensor, given its learning rate and the update at that rate.
    pub(super) fn plan(
        &self,
        tau: impl Fn(usize) -> f64,
        update: impl Fn(usize, f64) -> Update,
        frozen: bool,
    ) -> Vec<TensorStep> {
        let step = |tensor| {
            let tau = tau(tensor);
            let frozen = frozen && self.is_sparse(tensor);
            TensorStep { update: update(tensor, tau), prox: self.prox(tensor, tau), frozen }
        };
        (0..self.shrinkage.len()).map(step).collect()
    }

    /// Moves the λ of every tensor that learns its own, and returns the thresholds that the present weights were made
    /// with.
    fn learn_thresholds<W: ?Sized>(&mut self, theta: &[&mut W], grads: &[&W], tau: &[f64]) -> Result<Option<Vec<f32>>>
    where
        A: Engine<W>,
    {
        let Rule::Str(rule) = self.rule else { return Ok(None) };
        let before = (0..theta.len()).map(|tensor| self.dual_key(tensor).threshold(self.state.lambda[tensor]));
        let before = before.collect();
        for tensor in (0..theta.len()).filter(|&tensor| self.shrinkage[tensor] != Shrinkage::Identity) {
            let scale = self.groups.rule(tensor).lambda_scale;
            let pull = scale * self.state.tensors.pull(&*theta[tensor], grads[tensor])?;
            self.state.lambda[tensor] = rule.next_threshold(self.state.lambda[tensor], pull, tau[tensor]);
        }
        Ok(Some(before))
    }

    /// The prox between the variable a tensor's update steps in and its weights: prox_{δλR}(δ·p) = δ·prox_{λR}(p) of
    /// the dual, prox_{τλR} of the weights for ProxSGD, the identity for dense rules.
    fn prox(&self, tensor: usize, tau: f64) -> Prox {
        let (shrinkage, lambda) = (self.shrinkage[tensor], self.state.lambda[tensor]);
        let (lambda, scale) = match self.rule.mirror() {
            Some((delta, Variant::ProxRescaling)) if shrinkage != Shrinkage::Identity => {
                (lambda, delta / (lambda * self.groups.rule(tensor).lambda_scale))
            }
            Some((delta, _)) => (lambda, delta),
            None => (lambda * tau, 1.0),
        };
        Prox { shrinkage, threshold: self.dual_key(tensor).threshold(lambda), scale: scale as f32 }
    }
}
