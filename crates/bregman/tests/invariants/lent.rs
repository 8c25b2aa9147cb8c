//! Arrays that somebody else owns, and a rate for each tensor.

use std::borrow::Cow;

use bregman::optimizer::{
    Arrays, Correction, Counted, DualKey, Duals, Engine, HostArrays, HostDuals, StateSlices, TensorState, TensorStep,
};
use bregman::{
    AdaBreg, AdaptiveOptimizer, Controller, ControllerConfig, Density, GroupRule, Groups, Law, Optimizer,
    OptimizerState, Penalty, ProxSgd, Rule,
};

use crate::setup::{bregman_rules, groups, noises, start};

/// Arrays that somebody else owns: what bindings to a tensor library do.
struct Lent {
    p: Vec<Vec<f32>>,
    m: Vec<Vec<f32>>,
    v: Vec<Vec<f32>>,
}

impl Arrays for Lent {
    fn fetch(&self) -> bregman::Result<Cow<'_, [TensorState]>> {
        let state = |t: usize| TensorState {
            p: self.p[t].clone(),
            m: self.m[t].clone(),
            v: self.v[t].clone(),
            ..Default::default()
        };
        Ok(Cow::Owned((0..self.p.len()).map(state).collect()))
    }

    fn replace(&mut self, _: HostArrays) -> bregman::Result<()> {
        unreachable!("this test restores nothing")
    }

    fn mask(&self, _: usize) -> bregman::Result<Cow<'_, [bool]>> {
        Ok(Cow::Borrowed(&[]))
    }

    fn duals(&mut self, keys: Vec<DualKey>) -> bregman::Result<impl Duals + '_> {
        Ok(HostDuals::new(self.p.iter().map(|p| &p[..]).collect(), keys))
    }
}

impl Engine<Vec<f32>> for Lent {
    fn pass(
        &mut self,
        theta: &mut [&mut Vec<f32>],
        grads: &[&Vec<f32>],
        steps: &[TensorStep],
    ) -> bregman::Result<Vec<Counted>> {
        let arrays = self.p.iter_mut().zip(&mut self.m).zip(&mut self.v);
        let arrays = arrays.map(|((p, m), v)| StateSlices { p, m, v, mask: &[] }).collect();
        let grads: Vec<&[f32]> = grads.iter().map(|g| &g[..]).collect();
        Ok(StateSlices::pass(arrays, theta.iter_mut().map(|theta| &mut theta[..]).collect(), &grads, steps))
    }

    fn correct(&mut self, theta: &[&Vec<f32>], corrections: &[Option<Correction>]) -> bregman::Result<()> {
        for ((p, theta), correction) in self.p.iter_mut().zip(theta).zip(corrections) {
            correction.iter().for_each(|correction| correction.apply(p, theta));
        }
        Ok(())
    }

    fn set_mask(&mut self, _: usize, _: &[bool], _: &mut Vec<f32>) -> bregman::Result<()> {
        unreachable!("this test sets no mask")
    }

    fn len(values: &Vec<f32>) -> usize {
        values.len()
    }

    fn read(values: &Vec<f32>) -> bregman::Result<Cow<'_, [f32]>> {
        Ok(Cow::Borrowed(values))
    }
}

#[test]
fn arrays_of_others_with_a_rate_per_tensor_take_the_same_steps() {
    for (rule, law) in [
        (bregman_rules(1.0)[1], Law::default()),
        (bregman_rules(1.0)[2], Law::default()),
        (Rule::ProxSgd(ProxSgd {}), Law::Density(Density::default())),
    ] {
        let groups = groups(Penalty::GroupKernel);
        let config = ControllerConfig { law, period: 2, ..ControllerConfig::new(0.8) };
        let mut theta = start(&groups, 3);
        let mut ours = AdaptiveOptimizer::new(rule, groups.clone(), config.clone(), &theta).unwrap();
        let OptimizerState { step, lambda, tensors } = ours.optimizer().state().clone();
        let array = |of: fn(&TensorState) -> &Vec<f32>| tensors.iter().map(|state| of(state).clone()).collect();
        let lent = Lent { p: array(|state| &state.p), m: array(|state| &state.m), v: array(|state| &state.v) };
        let state = OptimizerState { step, lambda, tensors: lent };
        // the same rates, told tensor by tensor where the groups say nothing of them
        let plain: Vec<GroupRule> = (0..3).map(|t| GroupRule { lr_scale: 1.0, ..groups.rule(t).clone() }).collect();
        let plain = Groups::resolve(groups.params().to_vec(), vec![plain[2].clone(), plain[0].clone()]).unwrap();
        let rates = [0.1, 0.1, 0.05];
        let controller = Controller::new(config, &plain, rule.default_lambda().unwrap()).unwrap();
        let optimizer = Optimizer::over(rule, plain, state, ours.optimizer().stats().to_vec()).unwrap();
        let mut theirs = AdaptiveOptimizer::over(optimizer, controller).unwrap();

        let mut lent_theta = theta.clone();
        for step in 0..6 {
            let grads = noises(&groups, 40 + step);
            let expected = ours.step(&mut theta, &grads, 0.1).unwrap();
            let mut weights: Vec<&mut Vec<f32>> = lent_theta.iter_mut().collect();
            let grads: Vec<&Vec<f32>> = grads.iter().collect();
            assert_eq!(theirs.step_at(&mut weights, &grads, |tensor| rates[tensor]).unwrap(), expected);
        }
        assert_eq!(lent_theta, theta, "{}", rule.name());
        assert_eq!(theirs.optimizer().state().tensors.fetch().unwrap(), ours.optimizer().state().tensors);
    }
}

#[test]
fn a_rate_of_zero_moves_nothing_but_moments_and_one_below_is_refused() {
    let groups = groups(Penalty::L1);
    let mut theta = start(&groups, 3);
    let rule = Rule::AdaBreg(AdaBreg::default());
    let mut optimizer = Optimizer::new(rule, groups.clone(), 0.5, &theta).unwrap();
    let (before, grads) = (theta.clone(), noises(&groups, 9));
    let mut step = |tau: f64| {
        let mut theta: Vec<&mut Vec<f32>> = theta.iter_mut().collect();
        optimizer.step_at(&mut theta, &grads.iter().collect::<Vec<_>>(), |tensor| if tensor == 2 { tau } else { 0.1 })
    };
    let error = step(-1.0).unwrap_err().to_string();
    assert!(error.contains("learning rate of `head`"), "{error}");
    step(0.0).unwrap();
    assert_ne!(theta[0], before[0]);
    assert!(theta[2].iter().zip(&before[2]).all(|(a, b)| (a - b).abs() < 1e-6), "θ = prox(p) of the same p");
    assert!(optimizer.state().tensors[2].m.iter().any(|&m| m != 0.0));
}
