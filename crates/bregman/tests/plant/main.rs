//! Every controller on a simulated plant: duals that spread as training spreads them.

mod plant;

use bregman::{
    Budget, ControllerConfig, Damping, Density, Law, LayerLimit, Multiplicative, Quantile, Ramp, RampShape, Sharing,
};
use plant::{Plant, STEPS, weights};

const TARGETS: [f64; 4] = [0.75, 0.9, 0.95, 0.99];

/// λ₀ wrong by 100× in either direction, and right.
const WRONG: [f64; 3] = [0.01, 1.0, 100.0];

fn config(target: f64, law: Law, wrong: f64) -> ControllerConfig {
    ControllerConfig {
        law,
        lambda: Some(wrong * plant::right_lambda(target)),
        period: 2,
        ..ControllerConfig::new(target)
    }
}

/// s(θ) over the last third of a run.
fn settled(config: ControllerConfig) -> Vec<f64> {
    let mut plant = Plant::new(config);
    (0..STEPS).map(|_| plant.step().sparsity).collect::<Vec<_>>().split_off(STEPS * 2 / 3)
}

#[test]
fn the_multiplicative_controller_arrives_from_a_lambda_wrong_by_100_and_stays() {
    for damping in [Damping::Off, Damping::default(), Damping::Crossings { gamma: 0.95 }] {
        let law = Law::Multiplicative(Multiplicative { alpha: 1.0, damping });
        for (target, wrong) in TARGETS.into_iter().flat_map(|target| WRONG.map(|wrong| (target, wrong))) {
            let worst = settled(config(target, law, wrong)).iter().map(|s| (s - target).abs()).fold(0.0, f64::max);
            assert!(worst <= 0.01, "{damping:?}: target {target}, λ₀ × {wrong}: off by {:.2} points", 100.0 * worst);
        }
    }
}

#[test]
fn the_density_controller_holds_the_count_of_live_weights_within_5_percent_at_every_target() {
    for (target, wrong) in TARGETS.into_iter().flat_map(|target| WRONG.map(|wrong| (target, wrong))) {
        let error = |s: &f64| ((1.0 - s) / (1.0 - target) - 1.0).abs();
        let worst =
            settled(config(target, Law::Density(Density::default()), wrong)).iter().map(error).fold(0.0, f64::max);
        assert!(worst <= 0.05, "target {target}, λ₀ × {wrong}: count of live weights off by {:.1} %", 100.0 * worst);
    }
}

#[test]
fn the_quantile_controller_hits_the_count_at_every_update_but_for_equal_duals() {
    for (target, wrong) in TARGETS.into_iter().flat_map(|target| WRONG.map(|wrong| (target, wrong))) {
        let mut plant = Plant::new(config(target, Law::Quantile(Quantile {}), wrong));
        let expected = ((1.0 - target) * weights() as f64).round() as u64;
        for step in 1..=300 {
            plant.step();
            if step % 2 == 0 {
                // λ is one of the duals; those that equal it become zero with it, so only they can be missing
                let (live, at_lambda) = (plant.live(), plant.duals_at_lambda());
                let exact = live <= expected && expected < live + at_lambda;
                assert!(
                    exact,
                    "target {target}, λ₀ × {wrong}, step {step}: {live} and {at_lambda} at λ, not {expected}"
                );
            }
        }
    }
}

#[test]
fn the_default_keeps_the_count_from_any_lambda() {
    use bregman::{LinBreg, Rule};
    for (target, wrong) in TARGETS.into_iter().flat_map(|target| WRONG.map(|wrong| (target, wrong))) {
        let mut plant = Plant::with_rule(Rule::LinBreg(LinBreg::default()), config(target, Law::default(), wrong));
        let expected = ((1.0 - target) * weights() as f64).round() as u64;
        for step in 1..=300 {
            plant.step();
            // moving duals with λ can round a weight that is almost 0 to 0
            let short = expected as i64 - plant.live() as i64;
            assert!(step % 2 == 1 || (0..=3).contains(&short), "target {target}, λ₀ × {wrong}, step {step}: {short}");
        }
    }
}

#[test]
fn the_quantile_controller_is_exact_with_lambda_scales_and_never_above_with_groups() {
    use bregman::{AdaptiveOptimizer, GroupRule, Groups, LinBreg, Param, Penalty, Role, Rule};
    for (penalty, exact) in [(Penalty::L1, true), (Penalty::GroupKernel, false), (Penalty::GroupRow, false)] {
        let params =
            vec![Param::new("conv", [40, 30, 3], Role::ConvWeight), Param::new("head", [50, 40], Role::Classifier)];
        let head = GroupRule { penalty, lambda_scale: 1.7, ..GroupRule::for_names("head") };
        let groups = Groups::resolve(params, vec![head, GroupRule { penalty, ..GroupRule::default() }]).unwrap();
        let mut theta = vec![vec![0.0; 3600], vec![0.0; 2000]];
        let config = ControllerConfig { law: Law::Quantile(Quantile {}), period: 1, ..ControllerConfig::new(0.93) };
        let mut optimizer = AdaptiveOptimizer::new(Rule::LinBreg(LinBreg::default()), groups, config, &theta).unwrap();
        let (may_live, largest_group) = (392, 40); // 0.07 · 5600, a row of the head
        for step in 0..30 {
            let grads: Vec<Vec<f32>> =
                theta.iter().enumerate().map(|(t, x)| plant::noise(x.len(), 7 * step + t as u64)).collect();
            optimizer.step(&mut theta, &grads, 0.1).unwrap();
            let live = theta.iter().flatten().filter(|x| **x != 0.0).count();
            assert!(
                live <= may_live && live + if exact { 0 } else { largest_group } >= may_live,
                "{penalty:?} step {step}: {live}"
            );
        }
    }
}

#[test]
fn layerwise_control_gives_every_layer_its_own_target_and_respects_its_ceiling() {
    let ceiling = LayerLimit { pattern: "first".into(), floor: 0.0, ceiling: 0.9 };
    for sharing in [Sharing::Uniform, Sharing::Erk] {
        let budget = Budget { sharing, limits: vec![ceiling.clone()] };
        let targets = budget.targets(&plant::params().iter().collect::<Vec<_>>(), 0.97).unwrap();
        for law in [
            Law::Multiplicative(Multiplicative::default()),
            Law::Density(Density::default()),
            Law::Quantile(Quantile {}),
        ] {
            let mut plant = Plant::new(ControllerConfig { layers: Some(budget.clone()), ..config(0.97, law, 1.0) });
            (0..STEPS).for_each(|_| {
                plant.step();
            });
            for (sparsity, target) in plant.sparsities().into_iter().zip(&targets) {
                assert!((sparsity - target).abs() < 0.01, "{law:?} {sharing:?}: {sparsity} for {target}");
            }
        }
    }
}

#[test]
fn the_network_follows_a_moving_target() {
    let ramp = Ramp { shape: RampShape::Linear, from: 0.99, begin: 100, end: STEPS as u64 / 2 };
    for law in [Law::Density(Density::default()), Law::Quantile(Quantile {})] {
        let mut plant = Plant::new(ControllerConfig { ramp: Some(ramp), ..config(0.8, law, 1.0) });
        for step in 1..=STEPS as u64 {
            let report = plant.step();
            assert_eq!(report.target, ramp.at(step, 0.8));
            assert!(step < 200 || report.epsilon().abs() < 0.01, "{law:?} step {step}: {report:?}");
        }
    }
}

#[test]
fn a_fixed_lambda_does_not_hold_the_target() {
    let sparsity = settled(config(0.95, Law::Fixed, 1.0));
    assert!(sparsity[0] - sparsity[sparsity.len() - 1] > 0.02, "the network wakes up all the while: {sparsity:?}");
}

#[test]
fn a_loop_gain_below_one_settles_and_above_two_swings() {
    // no drift: only the loop itself moves
    for target in [0.75, 0.95] {
        for (gain, swings) in [(0.5, false), (0.9, false), (2.5, true), (4.0, true)] {
            let mut plant = Plant::at_rest(target, 0.1);
            let sensitivity = plant.loop_gain().sensitivity;
            let law = Law::Multiplicative(Multiplicative { alpha: gain / sensitivity, damping: Damping::Off });
            plant.set_law(law);
            assert!((plant.loop_gain().gain - gain).abs() < 1e-9);
            assert_eq!(plant.loop_gain().warning().is_some(), gain > 1.0);
            let last: Vec<f64> = (0..400).map(|_| plant.step().epsilon().abs()).collect::<Vec<_>>().split_off(350);
            let amplitude = last.into_iter().fold(0.0, f64::max);
            assert_eq!(amplitude > 2e-3, swings, "target {target}, gain {gain}: amplitude {amplitude:.4}");
        }
    }
}
