//! What must hold whatever the numbers: properties of the optimizers, of the closed loop, and of saving and resuming.

use std::borrow::Cow;

use bregman::optimizer::{
    Arrays, Correction, Counted, DualKey, Duals, Engine, HostArrays, HostDuals, StateSlices, TensorState, TensorStep,
};
use bregman::{
    AdaBreg, AdamW, AdaptiveOptimizer, Budget, Controller, ControllerConfig, Damping, Density, Error, Freeze,
    GroupRule, Groups, Law, LinBreg, Multiplicative, Optimizer, OptimizerState, Param, Penalty, ProxSgd, Quantile,
    Ramp, RampShape, Role, Rule, Sgd, Variant,
};
use bregman_base::Rng;
use proptest::prelude::*;

const PENALTIES: [Penalty; 5] =
    [Penalty::None, Penalty::L1, Penalty::L1NonNegative, Penalty::GroupKernel, Penalty::GroupRow];

fn bregman_rules(delta: f64) -> [Rule; 3] {
    [
        Rule::LinBreg(LinBreg { delta, ..LinBreg::default() }),
        Rule::LinBreg(LinBreg { momentum: 0.9, delta, ..LinBreg::default() }),
        Rule::AdaBreg(AdaBreg { delta, weight_decay: 0.1, ..AdaBreg::default() }),
    ]
}

fn all_rules() -> Vec<Rule> {
    let dense = [Rule::ProxSgd(ProxSgd {}), Rule::Sgd(Sgd::default()), Rule::AdamW(AdamW::default())];
    bregman_rules(1.0).into_iter().chain(dense).collect()
}

/// Three tensors of odd sizes, one of them a bias, under one penalty.
fn groups(penalty: Penalty) -> Groups {
    let params = vec![
        Param::new("conv", [7, 5, 3], Role::ConvWeight),
        Param::new("bias", [7], Role::Bias),
        Param::new("head", [11, 13], Role::Classifier),
    ];
    let head = GroupRule { penalty, lambda_scale: 2.0, lr_scale: 0.5, ..GroupRule::for_names("head") };
    Groups::resolve(params, vec![head, GroupRule { penalty, ..GroupRule::default() }]).unwrap()
}

/// Numbers in (−1, 1) that look random: enough for gradients.
fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::keyed(&[seed]);
    (0..len).map(|_| rng.symmetric(1.0)).collect()
}

fn noises(groups: &Groups, seed: u64) -> Vec<Vec<f32>> {
    groups.params().iter().enumerate().map(|(tensor, param)| noise(param.len(), seed * 100 + tensor as u64)).collect()
}

/// Weights that a penalty allows, about half of them zero.
fn start(groups: &Groups, seed: u64) -> Vec<Vec<f32>> {
    let mut theta = noises(groups, seed);
    theta.iter_mut().enumerate().for_each(|(tensor, theta)| groups.shrinkage(tensor).prox(theta, 0.5));
    theta
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn the_dual_stays_a_subgradient_at_the_weights(seed in 0u64..1000, lambda in 0.05f64..2.0, delta in 0.3f64..3.0) {
        for (rule, penalty) in
            bregman_rules(delta).into_iter().flat_map(|rule| PENALTIES.map(|penalty| (rule, penalty)))
        {
            let groups = groups(penalty);
            let mut theta = start(&groups, seed);
            let mut optimizer = Optimizer::new(rule, groups.clone(), lambda, &theta).unwrap();
            for step in 0..5 {
                // p ∈ θ/δ + λ∂R(θ) is the same statement as θ = δ·prox_{λR}(p)
                for (tensor, theta) in theta.iter().enumerate() {
                    let mut from_dual = optimizer.state().tensors[tensor].p.clone();
                    groups.shrinkage(tensor).prox(&mut from_dual, lambda * groups.rule(tensor).lambda_scale);
                    let worst =
                        from_dual.iter().zip(theta).map(|(d, x)| (d * delta as f32 - x).abs()).fold(0.0, f32::max);
                    prop_assert!(worst < 2e-5, "{} {penalty:?} step {step}: {worst}", rule.name());
                }
                optimizer.step(&mut theta, &noises(&groups, seed + step), 0.1).unwrap();
            }
        }
    }

    #[test]
    fn the_loss_of_a_quadratic_obeys_the_bound_of_lemma_1(seed in 0u64..1000, tau in 0.01f64..1.5) {
        // L(θ) = ½Σ cᵢ(θᵢ − tᵢ)², cᵢ ≤ 1, so L = 1; λ moves at random from step to step
        let groups = Groups::resolve(vec![Param::new("w", [10, 10], Role::LinearWeight)], vec![]).unwrap();
        let (curvature, goal): (Vec<f32>, Vec<f32>) = (
            noise(100, seed).iter().map(|c| c.abs()).collect(),
            noise(100, seed + 1).iter().map(|t| 3.0 * t).collect(),
        );
        let loss = |theta: &[f32]| -> f64 {
            theta
                .iter()
                .zip(&goal)
                .zip(&curvature)
                .map(|((x, t), c)| 0.5 * f64::from(*c) * f64::from(x - t).powi(2))
                .sum()
        };
        let l1 = |theta: &[f32]| -> f64 { theta.iter().map(|x| f64::from(x.abs())).sum() };
        let mut theta = start(&groups, seed);
        let mut optimizer = Optimizer::new(Rule::LinBreg(LinBreg::default()), groups, 0.5, &theta).unwrap();
        let mut before = 0.5; // λ⁽ᵏ⁻¹⁾, with which the present θ was made
        for step in 0..30 {
            let lambda = 0.1 + f64::from(noise(1, seed + 50 + step)[0].abs());
            optimizer.set_lambda(&[lambda], &theta).unwrap();
            let grads: Vec<f32> = theta[0].iter().zip(&goal).zip(&curvature).map(|((x, t), c)| c * (x - t)).collect();
            let old = theta[0].clone();
            optimizer.step(&mut theta, &[grads], tau).unwrap();
            let moved: f64 = theta[0].iter().zip(&old).map(|(a, b)| f64::from(a - b).powi(2)).sum();
            let bound =
                loss(&theta[0]) + (1.0 / tau - 0.5) * moved + (lambda - before) / tau * (l1(&theta[0]) - l1(&old));
            prop_assert!(
                bound <= loss(&old) + 1e-4 * loss(&old).max(1.0) / tau.min(1.0),
                "step {step}: {bound} > {}",
                loss(&old)
            );
            before = lambda;
        }
    }

    #[test]
    fn a_larger_lambda_never_wakes_a_weight(seed in 0u64..1000, lambda in 0.05f64..1.0, factor in 1.0f64..3.0) {
        for penalty in PENALTIES {
            let groups = groups(penalty);
            let mut theta = start(&groups, seed);
            let mut optimizer =
                Optimizer::new(Rule::LinBreg(LinBreg::default()), groups.clone(), lambda, &theta).unwrap();
            optimizer.step(&mut theta, &noises(&groups, seed + 9), 1.0).unwrap();
            let before: Vec<u64> = optimizer.stats().iter().map(|stats| stats.zeros).collect();
            optimizer.set_lambda(&[lambda * factor; 3], &theta).unwrap();
            optimizer.reproject(&mut theta).unwrap();
            prop_assert!(optimizer.stats().iter().zip(before).all(|(now, before)| now.zeros >= before), "{penalty:?}");
        }
    }
}

/// An optimizer's arrays of one weight.
fn of_weight(optimizer: &Optimizer, tensor: usize, i: usize) -> Vec<u32> {
    let arrays = optimizer.state().tensors[tensor].arrays();
    arrays.iter().filter_map(|(_, array)| array.get(i).map(|x| x.to_bits())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_frozen_step_moves_what_is_not_zero_as_a_full_step_would_and_nothing_else(
        seed in 0u64..1000, lambda in 0.05f64..0.6, before in 1u64..4,
    ) {
        let rules = bregman_rules(0.8).into_iter().chain([Rule::ProxSgd(ProxSgd {})]);
        for (rule, penalty) in rules.flat_map(|rule| PENALTIES.map(|penalty| (rule, penalty))) {
            let groups = groups(penalty);
            let mut theta = start(&groups, seed);
            let mut optimizer = Optimizer::new(rule, groups.clone(), lambda, &theta).unwrap();
            (0..before).for_each(|step| optimizer.step(&mut theta, &noises(&groups, seed + step), 0.1).unwrap());
            let (old, mut full, mut of_full) = (optimizer.clone(), optimizer.clone(), theta.clone());
            optimizer.set_freeze(Freeze { every: 10, after: 0 }).unwrap();
            prop_assert!(!optimizer.next_is_full());
            let (from, mut grads) = (theta.clone(), noises(&groups, seed + 50));
            full.step(&mut of_full, &grads, 0.1).unwrap();
            // whoever freezes computes no gradients of zero weights: whatever stands there must not matter
            for tensor in (0..3).filter(|&tensor| optimizer.is_sparse(tensor)) {
                let unseen = grads[tensor].iter_mut().zip(&from[tensor]).filter(|(_, x)| **x == 0.0);
                unseen.for_each(|(g, _)| *g = f32::NAN);
            }
            optimizer.step(&mut theta, &grads, 0.1).unwrap();
            for (tensor, old_theta) in from.iter().enumerate() {
                for i in 0..old_theta.len() {
                    let what = format!("{} {penalty:?}, weight {i} of tensor {tensor}", rule.name());
                    let moves = old_theta[i] != 0.0 || !optimizer.is_sparse(tensor);
                    let (expected, state) = if moves { (of_full[tensor][i], &full) } else { (0.0, &old) };
                    prop_assert_eq!(theta[tensor][i], expected, "{}", what);
                    prop_assert_eq!(of_weight(&optimizer, tensor, i), of_weight(state, tensor, i), "{}", what);
                }
                let zeros = theta[tensor].iter().filter(|x| **x == 0.0).count() as u64;
                prop_assert_eq!(optimizer.stats()[tensor].zeros, zeros);
            }
        }
    }
}

#[test]
fn lambda_moves_after_full_steps_and_then_meets_its_target() {
    let groups = groups(Penalty::L1);
    for freeze in [1, 3, 10] {
        let mut theta = start(&groups, 3);
        let rule = Rule::AdaBreg(AdaBreg::default());
        let config = ControllerConfig { period: 2, ..ControllerConfig::new(0.8) };
        let mut optimizer = AdaptiveOptimizer::new(rule, groups.clone(), config, &theta).unwrap();
        optimizer.set_freeze(Freeze { every: freeze, after: 0 }).unwrap();
        let mut updates = 0;
        for step in 0..60 {
            let (full, before) = (optimizer.optimizer().next_is_full(), optimizer.controller().lambda()[0]);
            assert_eq!(full, step % freeze == 0);
            let report = optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap();
            let moved = optimizer.controller().lambda()[0] != before;
            assert!(full || !moved, "step {step} of every {freeze}: λ moved in a frozen step");
            assert!(!moved || report.epsilon().abs() < 0.01, "step {step} of every {freeze}: {report:?}");
            updates += u64::from(moved);
        }
        assert!(updates >= 60 / freeze.max(2) - 1, "{updates} updates of λ with every {freeze}-th step full");
    }
}

#[test]
fn a_dense_optimizer_cannot_be_frozen() {
    let groups = groups(Penalty::None);
    let mut sgd = Optimizer::new(Rule::Sgd(Sgd::default()), groups.clone(), 1.0, &noises(&groups, 1)).unwrap();
    assert_eq!(sgd.set_freeze(Freeze::default()), Ok(()));
    let message = sgd.set_freeze(Freeze { every: 2, after: 0 }).unwrap_err().to_string();
    assert!(message.contains("frozen support") && message.contains("SGD"), "{message}");
    assert!(sgd.set_freeze(Freeze { every: 0, after: 0 }).unwrap_err().to_string().contains("freeze"));
}

#[test]
fn the_step_counts_what_is_there() {
    for (rule, penalty) in all_rules().into_iter().flat_map(|rule| PENALTIES.map(|penalty| (rule, penalty))) {
        let groups = groups(penalty);
        let mut theta = start(&groups, 3);
        let mut optimizer = Optimizer::new(rule, groups.clone(), 0.3, &theta).unwrap();
        for step in 0..4 {
            for (stats, theta) in optimizer.stats().iter().zip(&theta) {
                assert_eq!(stats.zeros, theta.iter().filter(|x| **x == 0.0).count() as u64);
                let squares: f64 = theta.iter().map(|&x| f64::from(x).powi(2)).sum();
                assert!((stats.sum_squares - squares).abs() <= 1e-5 * squares);
            }
            optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap();
        }
    }
}

#[test]
fn without_a_penalty_linbreg_is_sgd_and_adabreg_is_adamw() {
    let plain_sgd = Rule::Sgd(Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 });
    let pairs = [
        (Rule::LinBreg(LinBreg::default()), plain_sgd),
        (
            Rule::AdaBreg(AdaBreg { weight_decay: 0.01, ..AdaBreg::default() }),
            Rule::AdamW(AdamW { weight_decay: 0.01, ..AdamW::default() }),
        ),
    ];
    for (bregman, dense) in pairs {
        let run = |rule| {
            let groups = groups(Penalty::None);
            let mut theta = noises(&groups, 5);
            let mut optimizer = Optimizer::new(rule, groups.clone(), 1.0, &theta).unwrap();
            (0..10).for_each(|step| optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap());
            theta
        };
        assert_eq!(run(bregman), run(dense), "{}", bregman.name());
    }
}

#[test]
fn sgd_with_nesterov_follows_its_definition() {
    let groups = Groups::resolve(vec![Param::new("w", [1, 1], Role::LinearWeight)], vec![GroupRule::dense()]).unwrap();
    let rule = Rule::Sgd(Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.01 });
    let (mut theta, mut x, mut m) = (vec![vec![1.0f32]], 1.0f64, 0.0f64);
    let mut optimizer = Optimizer::new(rule, groups, 1.0, &theta).unwrap();
    for step in 0..20 {
        let g = f64::from(noise(1, step)[0]);
        optimizer.step(&mut theta, &[vec![g as f32]], 0.1).unwrap();
        let decayed = g + 0.01 * x;
        m = 0.9 * m + decayed;
        x -= 0.1 * (decayed + 0.9 * m);
        assert!((f64::from(theta[0][0]) - x).abs() < 1e-5);
    }
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let params = vec![Param::new("a", [301, 700], Role::LinearWeight), Param::new("b", [64, 32, 9], Role::ConvWeight)];
    for (rule, penalty) in all_rules()
        .into_iter()
        .flat_map(|rule| [Penalty::L1, Penalty::GroupKernel, Penalty::GroupRow].map(|p| (rule, p)))
    {
        let run = |threads| {
            rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
                let groups =
                    Groups::resolve(params.clone(), vec![GroupRule { penalty, ..GroupRule::default() }]).unwrap();
                let mut theta = start(&groups, 1);
                let mut optimizer = Optimizer::new(rule, groups.clone(), 0.3, &theta).unwrap();
                (0..3).for_each(|step| optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap());
                let bits: Vec<u32> = theta.concat().iter().map(|x| x.to_bits()).collect();
                (bits, optimizer.stats().to_vec())
            })
        };
        let one = run(1);
        assert!([2, 3, 5].into_iter().all(|threads| run(threads) == one), "{} {penalty:?}", rule.name());
    }
}

/// Saves through JSON half-way, continues in a fresh optimizer, and compares every bit with the unbroken run.
fn assert_resumes_exactly(rule: Rule, penalty: Penalty, config: ControllerConfig, freeze: u64) {
    let groups = groups(penalty);
    let fresh = || {
        let mut optimizer = AdaptiveOptimizer::new(rule, groups.clone(), config.clone(), &start(&groups, 2)).unwrap();
        optimizer.set_freeze(Freeze { every: freeze, after: 2 }).unwrap();
        optimizer
    };
    let go = |optimizer: &mut AdaptiveOptimizer, theta: &mut Vec<Vec<f32>>, steps: std::ops::Range<u64>| {
        steps.map(|step| optimizer.step(theta, &noises(&groups, step), 0.1).unwrap()).collect::<Vec<_>>()
    };
    let (mut unbroken, mut theta) = (fresh(), start(&groups, 2));
    go(&mut unbroken, &mut theta, 0..11);
    let saved = serde_json::to_string(&(unbroken.optimizer().state(), unbroken.controller().state(), &theta)).unwrap();
    let expected = go(&mut unbroken, &mut theta, 11..24);

    let (optimizer, controller, mut resumed_theta): (_, _, Vec<Vec<f32>>) = serde_json::from_str(&saved).unwrap();
    let mut resumed = fresh();
    resumed.restore(optimizer, controller, &resumed_theta).unwrap();
    let found = go(&mut resumed, &mut resumed_theta, 11..24);
    assert_eq!(found, expected, "{} {penalty:?} {config:?}", rule.name());
    assert_eq!(resumed_theta, theta);
    assert_eq!(resumed.optimizer().state(), unbroken.optimizer().state());
    assert_eq!(resumed.controller().state(), unbroken.controller().state());
}

#[test]
fn every_optimizer_controller_and_variant_resumes_exactly() {
    let multiplicative = |damping| Law::Multiplicative(Multiplicative { alpha: 1.0, damping });
    let laws = [
        Law::Fixed,
        multiplicative(Damping::Off),
        multiplicative(Damping::default()),
        multiplicative(Damping::Crossings { gamma: 0.5 }),
        Law::Density(Density::default()),
        Law::Quantile(Quantile {}),
    ];
    let variants = [Variant::Plain, Variant::SubgradientCorrection, Variant::Steady, Variant::ProxRescaling];
    let rules = variants.into_iter().flat_map(|variant| {
        [
            Rule::LinBreg(LinBreg { momentum: 0.9, variant, ..LinBreg::default() }),
            Rule::AdaBreg(AdaBreg { variant, ..AdaBreg::default() }),
        ]
    });
    for rule in rules {
        for (law, penalty) in
            laws.into_iter().flat_map(|law| PENALTIES.into_iter().skip(1).map(move |penalty| (law, penalty)))
        {
            if law.needs_duals() && rule.mirror().unwrap().1 == Variant::SubgradientCorrection {
                continue; // refused
            }
            let ramp = Ramp { shape: RampShape::Cubic, from: 0.5, begin: 2, end: 20 };
            let config = ControllerConfig { law, period: 3, ramp: Some(ramp), ..ControllerConfig::new(0.8) };
            assert_resumes_exactly(rule, penalty, config.clone(), 1);
            assert_resumes_exactly(rule, penalty, config.clone(), 4);
            assert_resumes_exactly(rule, penalty, ControllerConfig { layers: Some(Budget::default()), ..config }, 1);
        }
    }
    let without_duals = ControllerConfig { law: laws[2], period: 3, ..ControllerConfig::new(0.8) };
    assert_resumes_exactly(Rule::ProxSgd(ProxSgd {}), Penalty::L1, without_duals, 1);
}

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

#[test]
fn the_quantile_law_refuses_duals_without_an_order_and_optimizers_without_duals() {
    let rule = |variant| Rule::LinBreg(LinBreg { variant, ..LinBreg::default() });
    let new = |rule| {
        let groups = groups(Penalty::L1);
        let theta = noises(&groups, 4);
        AdaptiveOptimizer::new(rule, groups, ControllerConfig::new(0.9), &theta).map(|_| ())
    };
    let message = new(rule(Variant::SubgradientCorrection)).unwrap_err().to_string();
    assert!(message.contains("subgradient_correction") && message.contains("quantile"), "{message}");
    assert!(new(Rule::ProxSgd(ProxSgd {})).unwrap_err().to_string().contains("multiplicative"));
    assert_eq!(new(rule(Variant::Steady)), Ok(()));
}

#[test]
fn dense_optimizers_under_masks_resume_exactly() {
    for rule in [Rule::Sgd(Sgd::default()), Rule::AdamW(AdamW::default())] {
        let groups = groups(Penalty::None);
        let (mut theta, mask) = (noises(&groups, 4), noise(105, 8).iter().map(|x| *x > 0.0).collect::<Vec<_>>());
        let mut optimizer = Optimizer::new(rule, groups.clone(), 1.0, &theta).unwrap();
        optimizer.set_mask(0, mask.clone()).unwrap();
        (0..5).for_each(|step| optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap());
        assert!(
            theta[0].iter().zip(&mask).all(|(x, &lives)| lives != (*x == 0.0)),
            "zero where masked, non-zero elsewhere"
        );

        let mut resumed = Optimizer::new(rule, groups.clone(), 1.0, &theta).unwrap();
        resumed
            .restore(serde_json::from_str(&serde_json::to_string(optimizer.state()).unwrap()).unwrap(), &theta)
            .unwrap();
        let mut again = theta.clone();
        optimizer.step(&mut theta, &noises(&groups, 9), 0.1).unwrap();
        resumed.step(&mut again, &noises(&groups, 9), 0.1).unwrap();
        assert_eq!(again, theta);
    }
}

#[test]
fn prox_rescaling_divides_by_lambda_and_starts_at_the_given_weights() {
    let groups = groups(Penalty::L1);
    let rule = Rule::LinBreg(LinBreg { variant: Variant::ProxRescaling, ..LinBreg::default() });
    let mut theta = start(&groups, 6);
    let given = theta.clone();
    let mut optimizer = Optimizer::new(rule, groups.clone(), 0.25, &theta).unwrap();
    optimizer.reproject(&mut theta).unwrap();
    let worst = theta.concat().iter().zip(given.concat()).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 1e-6, "p⁰ is the dual of θ⁰: {worst}");

    optimizer.set_lambda(&[0.5; 3], &theta).unwrap();
    optimizer.reproject(&mut theta).unwrap();
    for (p, x) in optimizer.state().tensors[0].p.iter().zip(&theta[0]) {
        assert!((x - p.signum() * (p.abs() - 0.5).max(0.0) / 0.5).abs() < 1e-6);
    }
}

#[test]
fn a_gradient_that_is_not_finite_names_its_parameter_and_poisons_nothing() {
    for (rule, bad) in
        all_rules().into_iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::NAN, f32::INFINITY])
    {
        let groups = groups(Penalty::L1);
        let mut theta = start(&groups, 1);
        let mut optimizer = Optimizer::new(rule, groups.clone(), 0.3, &theta).unwrap();
        let mut grads = noises(&groups, 2);
        grads[2][17] = bad;
        let error = optimizer.step(&mut theta, &grads, 0.1).unwrap_err();
        assert!(matches!(&error, Error::NonFinite { parameter, index: 17, .. } if parameter == "head"), "{error}");
        assert_eq!(optimizer.state().step, 0);
        let state = optimizer.state().tensors.iter().flat_map(|state| state.arrays().map(|(_, array)| array).concat());
        assert!(theta.concat().into_iter().chain(state).all(f32::is_finite));
        optimizer.step(&mut theta, &noises(&groups, 2), 0.1).unwrap();
    }
}

#[test]
fn bad_input_gets_an_error_that_names_it() {
    let groups = groups(Penalty::L1);
    let theta = start(&groups, 1);
    let linbreg = Rule::LinBreg(LinBreg::default());
    let adaptive = |config| AdaptiveOptimizer::new(linbreg, groups.clone(), config, &theta).unwrap_err().to_string();
    for target in [0.0, 1.0, -0.5, 95.0, f64::NAN] {
        assert!(adaptive(ControllerConfig::new(target)).contains("`target` is"), "{target}");
    }
    assert!(adaptive(ControllerConfig { period: 0, ..ControllerConfig::new(0.9) }).contains("`period` is 0"));
    assert!(adaptive(ControllerConfig { lambda: Some(-1.0), ..ControllerConfig::new(0.9) }).contains("`lambda` is -1"));
    let alpha = Law::Multiplicative(Multiplicative { alpha: 0.0, ..Multiplicative::default() });
    assert!(adaptive(ControllerConfig { law: alpha, ..ControllerConfig::new(0.9) }).contains("multiplicative.alpha"));

    let new = |rule, lambda, theta: &[Vec<f32>]| {
        Optimizer::new(rule, groups.clone(), lambda, theta).map(|_| ()).unwrap_err().to_string()
    };
    for lambda in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(new(linbreg, lambda, &theta).contains("`λ` is"), "{lambda}");
    }
    assert!(new(Rule::LinBreg(LinBreg { delta: 0.0, ..LinBreg::default() }), 1.0, &theta).contains("linbreg.delta"));
    assert!(new(Rule::AdaBreg(AdaBreg { beta2: 1.0, ..AdaBreg::default() }), 1.0, &theta).contains("adabreg.beta2"));
    assert!(new(linbreg, 1.0, &theta[..2]).contains("2 entries for 3 parameters"));
    let mut short = theta.clone();
    short[2].pop();
    assert!(new(linbreg, 1.0, &short).contains("parameter `head`: the weight has 142 values, its shape asks for 143"));
    let mut broken = theta.clone();
    broken[0][3] = f32::NAN;
    assert!(new(linbreg, 1.0, &broken).contains("parameter `conv`: weight[3] is NaN"));

    let mut optimizer = Optimizer::new(linbreg, groups.clone(), 1.0, &theta).unwrap();
    assert!(optimizer.step(&mut theta.clone(), &short, 0.1).unwrap_err().to_string().contains("the gradient has 142"));
    assert!(optimizer.step(&mut short, &theta, 0.1).unwrap_err().to_string().contains("the weight has 142"));
    assert!(optimizer.step(&mut theta.clone(), &theta, 0.0).unwrap_err().to_string().contains("learning rate"));
    assert!(
        optimizer
            .set_mask(0, vec![true; 105])
            .unwrap_err()
            .to_string()
            .contains("needs SGD or AdamW, the optimizer is LinBreg")
    );
    assert!(optimizer.set_lambda(&[1.0, 0.0, 1.0], &theta).unwrap_err().to_string().contains("`λ` is 0"));

    let of_another_rule = Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups.clone(), 1.0, &theta).unwrap();
    let error = optimizer.restore(of_another_rule.state().clone(), &theta).unwrap_err().to_string();
    assert!(error.contains("parameter `conv`: the saved first moment has 105 values"), "{error}");

    let dense =
        AdaptiveOptimizer::new(Rule::AdamW(AdamW::default()), groups.clone(), ControllerConfig::new(0.9), &theta)
            .unwrap_err();
    assert!(dense.to_string().contains("the optimizer is AdamW"));
    let quantile = ControllerConfig { law: Law::Quantile(Quantile {}), period: 1, ..ControllerConfig::new(0.9) };
    let proxsgd = AdaptiveOptimizer::new(Rule::ProxSgd(ProxSgd {}), groups.clone(), quantile, &theta).unwrap_err();
    assert_eq!(proxsgd, Error::NoDuals);
    let nothing = Groups::resolve(vec![Param::new("bias", [3], Role::Bias)], vec![]).unwrap();
    let error = AdaptiveOptimizer::new(linbreg, nothing, ControllerConfig::new(0.9), &[vec![0.0; 3]]).unwrap_err();
    assert_eq!(error, Error::NothingControlled);
}
