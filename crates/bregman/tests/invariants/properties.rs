//! What a step does, whatever the numbers.

use bregman::{AdaBreg, AdamW, GroupRule, Groups, LinBreg, Optimizer, Param, Penalty, Role, Rule, Sgd, Variant};
use proptest::prelude::*;

use crate::setup::{PENALTIES, all_rules, bregman_rules, groups, noise, noises, start};

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
        // the lemma is of duals that do not follow λ
        let rule = LinBreg { variant: Variant::Plain, ..LinBreg::default() };
        let mut optimizer = Optimizer::new(Rule::LinBreg(rule), groups, 0.5, &theta).unwrap();
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
fn a_tensor_without_a_gradient_rests_and_the_others_step_as_ever() {
    for (rule, penalty) in all_rules().into_iter().flat_map(|rule| PENALTIES.map(|penalty| (rule, penalty))) {
        let groups = groups(penalty);
        let mut theta = start(&groups, 1);
        let mut optimizer = Optimizer::new(rule, groups.clone(), 0.3, &theta).unwrap();
        optimizer.step(&mut theta, &noises(&groups, 2), 0.1).unwrap();
        let (mut twin, mut of_twin) = (optimizer.clone(), theta.clone());
        let (before, of_before) = (optimizer.state().tensors.clone(), theta.clone());
        for step in 3..6 {
            let all = noises(&groups, step);
            twin.step(&mut of_twin, &all, 0.1).unwrap();
            optimizer.step(&mut theta, &[&all[0][..], &[], &[]], 0.1).unwrap();
        }
        let (after, of_all) = (&optimizer.state().tensors, &twin.state().tensors);
        assert!(after[0] == of_all[0] && theta[0] == of_twin[0], "{} {penalty:?}", rule.name());
        assert!(after[1..] == before[1..] && theta[1..] == of_before[1..], "{} {penalty:?}", rule.name());
        assert!(after[1] != of_all[1] && after[2] != of_all[2] || rule.mirror().is_none());
        assert_eq!(optimizer.state().step, 4);
    }
}
