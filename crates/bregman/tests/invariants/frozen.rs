//! Steps on a frozen support.

use bregman::{AdaBreg, AdaptiveOptimizer, ControllerConfig, Freeze, Optimizer, Penalty, ProxSgd, Rule, Sgd};
use proptest::prelude::*;

use crate::setup::{PENALTIES, bregman_rules, groups, noises, start};

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
            optimizer.set_freeze(Freeze { every: 10, ..Freeze::default() }).unwrap();
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
        optimizer.set_freeze(Freeze { every: freeze, ..Freeze::default() }).unwrap();
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
fn an_epoch_ends_at_its_target_though_weights_die_in_frozen_steps() {
    let groups = groups(Penalty::L1);
    let weights: usize = groups.controlled().iter().map(|&tensor| groups.params()[tensor].len()).sum();
    // the largest distance to the target at the end of an epoch of 17 steps, in weights
    let distance = |rule: &Rule, epoch: u64| {
        let mut theta = start(&groups, 3);
        let config = ControllerConfig { period: 25, ..ControllerConfig::new(0.8) };
        let mut optimizer = AdaptiveOptimizer::new(*rule, groups.clone(), config, &theta).unwrap();
        optimizer.set_freeze(Freeze { every: 10, after: 20, epoch }).unwrap();
        let reports = (0..170).map(|step| optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap());
        let ends = reports.enumerate().filter(|(step, _)| *step > 20 && (step + 1) % 17 == 0);
        ends.map(|(_, report)| report.epsilon().abs() * weights as f64).fold(0.0, f64::max)
    };
    for rule in bregman_rules(0.8) {
        let (with, without) = (distance(&rule, 17), distance(&rule, 0));
        assert!(with < 1.5 && without > 3.0, "{}: {with} and {without} of {weights} weights", rule.name());
    }
}

#[test]
fn a_dense_optimizer_cannot_be_frozen() {
    let groups = groups(Penalty::None);
    let mut sgd = Optimizer::new(Rule::Sgd(Sgd::default()), groups.clone(), 1.0, &noises(&groups, 1)).unwrap();
    assert_eq!(sgd.set_freeze(Freeze::default()), Ok(()));
    let message = sgd.set_freeze(Freeze { every: 2, ..Freeze::default() }).unwrap_err().to_string();
    assert!(message.contains("frozen support") && message.contains("SGD"), "{message}");
    assert!(sgd.set_freeze(Freeze { every: 0, ..Freeze::default() }).unwrap_err().to_string().contains("freeze"));
}
