use proptest::prelude::*;

use super::*;
use crate::budget::{Budget, Sharing};
use crate::groups::{GroupRule, Groups};
use crate::optimizer::{AdamW, Optimizer, Rule, Sgd};
use crate::param::{Param, Role};
use crate::schedule::{Ramp, RampShape};

/// Drops the smallest weights, grows as many at random or by the gradient, before every step.
#[derive(Debug)]
struct Always {
    target: f64,
    fraction: f64,
    by_gradient: bool,
}

impl MaskPolicy for Always {
    fn sparsity(&self, _: &RunClock) -> f64 {
        self.target
    }

    fn change(&self, _: &RunClock) -> Option<MaskChange> {
        Some(MaskChange { sparsity: self.target, exchanged: self.fraction })
    }

    fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        Some(if self.by_gradient { layer.gradients() } else { layer.random() })
    }

    fn needs_gradients(&self) -> bool {
        self.by_gradient
    }
}

/// Masks on and off in turns of two steps.
#[derive(Debug)]
struct OnAndOff(f64);

impl MaskPolicy for OnAndOff {
    fn sparsity(&self, clock: &RunClock) -> f64 {
        if clock.step % 4 < 2 { self.0 } else { 0.0 }
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        clock.step.is_multiple_of(2).then(|| MaskChange::to(self.sparsity(clock)))
    }
}

fn clock(step: u64) -> RunClock {
    RunClock { step, total: 100, epoch: step / 10, batch: step % 10 }
}

fn params() -> [Param; 2] {
    [Param::new("a", [4, 5], Role::LinearWeight), Param::new("b", [8, 5], Role::LinearWeight)]
}

fn pruning(structure: Structure, per_layer: bool) -> Pruning {
    Pruning { structure, layers: per_layer.then(Budget::default) }
}

fn masked(mask: &[bool]) -> usize {
    mask.iter().filter(|kept| !**kept).count()
}

fn values() -> impl Strategy<Value = Vec<f32>> {
    prop::collection::vec(prop_oneof![-1.0f32..1.0, Just(0.0f32), Just(0.25f32)], 60)
}

proptest! {
    #[test]
    fn exactly_the_asked_count_is_pruned_and_nothing_kept_is_smaller(theta in values(), sparsity in 0.0f64..0.999) {
        let [a, b] = params();
        let kept = Pruning::default().masks(&[(&a, &theta[..20]), (&b, &theta[20..])], sparsity).unwrap().concat();
        let pruned = theta.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(x, _)| x.abs()).fold(0.0, f32::max);
        prop_assert_eq!(masked(&kept), (sparsity * 60.0).round_ties_even() as usize);
        prop_assert!(theta.iter().zip(&kept).all(|(x, &kept)| !kept || x.abs() >= pruned));
    }

    #[test]
    fn every_policy_masks_exactly_its_share_over_all_layers_and_per_layer(
        theta in values(), gradient in values(), target in 0.05f64..0.95, fraction in 0.0f64..1.0,
        per_layer in any::<bool>(),
    ) {
        let [a, b] = params();
        let ramp = Ramp { shape: RampShape::Cubic, from: 0.0, begin: 0, end: 3 };
        let policies: [Box<dyn MaskPolicy>; 4] = [
            Box::new(GradualPruning { target, ramp }),
            Box::new(OneShotPruning { target, epoch: 1 }),
            Box::new(Always { target, fraction, by_gradient: false }),
            Box::new(Always { target, fraction, by_gradient: true }),
        ];
        for policy in policies {
            let topology = Topology { policy, pruning: pruning(Structure::Weights, per_layer), seed: 3 };
            let mut masks = vec![vec![]; 2];
            for now in (0..40).map(clock) {
                let Some(change) = topology.policy().change(&now) else { continue };
                let layers = [
                    MaskedLayer::new(&a, &theta[..20], &gradient[..20], &masks[0], 3, now.step),
                    MaskedLayer::new(&b, &theta[20..], &gradient[20..], &masks[1], 3, now.step),
                ];
                let next = topology.masks(change, &layers).unwrap();
                let zeros = |n: usize| (change.sparsity * n as f64).round_ties_even() as usize;
                if per_layer {
                    let found = [masked(&next[0]), masked(&next[1])];
                    prop_assert_eq!(found, [zeros(20), zeros(40)], "{:?}", topology);
                } else {
                    prop_assert_eq!(masked(&next.concat()), zeros(60), "{:?}", topology);
                }
                masks = next;
            }
        }
    }

    #[test]
    fn an_exchange_keeps_the_largest_and_grows_by_score(theta in values(), gradient in values()) {
        let layer = Param::new("w", [12, 5], Role::LinearWeight);
        let mask: Vec<bool> = (0..60).map(|i| i % 2 == 0).collect();
        let exchange = Always { target: 0.5, fraction: 0.3, by_gradient: true };
        let topology = Topology::new(exchange, Pruning::default(), 0).unwrap();
        let layers = [MaskedLayer::new(&layer, &theta, &gradient, &mask, 0, 0)];
        let next = topology.masks(topology.policy().change(&clock(0)).unwrap(), &layers).unwrap().remove(0);
        let magnitudes = Scores::new(Structure::Weights, &layer, layers[0].magnitudes(), &|i| mask[i]);
        let by_magnitude = largest(&[magnitudes], 21);
        prop_assert!(by_magnitude[0].iter().zip(&next).all(|(kept, next)| !kept || *next), "21 of 30 stay");
        let grown: Vec<usize> = (0..60).filter(|&i| next[i] && !by_magnitude[0][i]).collect();
        let passed_over = (0..60).filter(|&i| !next[i]).map(|i| gradient[i].abs()).fold(0.0, f32::max);
        prop_assert_eq!(grown.len(), 9);
        prop_assert!(grown.iter().all(|&i| gradient[i].abs() >= passed_over));
    }
}

#[test]
fn channels_are_pruned_whole_and_weakest_first() {
    let layer = Param::new("w", [4, 3], Role::LinearWeight);
    let theta = [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 0.0, 0.9, 0.0, 2.0, 0.0, 0.0];
    let masks = pruning(Structure::Channels, false).masks(&[(&layer, &theta)], 0.5).unwrap();
    let rows: Vec<bool> = masks[0].chunks(3).map(|row| row[0]).collect();
    assert_eq!(rows, [true, false, false, true]);
    assert!(masks[0].chunks(3).all(|row| row.iter().all(|kept| *kept == row[0])));
}

#[test]
fn a_budget_prunes_each_layer_by_its_own_share() {
    let (a, b) = (Param::new("a", [10, 10], Role::LinearWeight), Param::new("b", [10, 10], Role::LinearWeight));
    let small: Vec<f32> = (1..=100).map(|i| i as f32 * 1e-3).collect();
    let large: Vec<f32> = (1..=100).map(|i| i as f32).collect();
    let pruned = |layers| {
        let masks = Pruning { layers, ..Pruning::default() }.masks(&[(&a, &small[..]), (&b, &large[..])], 0.5).unwrap();
        [masked(&masks[0]), masked(&masks[1])]
    };
    assert_eq!(pruned(None), [100, 0]);
    assert_eq!(pruned(Some(Budget { sharing: Sharing::Uniform, limits: vec![] })), [50, 50]);
}

fn optimizer(rule: Rule, theta: &[Vec<f32>]) -> Optimizer {
    let params = vec![Param::new("w", [20, 20], Role::LinearWeight), Param::new("bias", [20], Role::Bias)];
    Optimizer::new(rule, Groups::resolve(params, vec![GroupRule::dense()]).unwrap(), 1.0, theta).unwrap()
}

fn start() -> Vec<Vec<f32>> {
    vec![(0..400).map(|i| ((i * 37 % 400) as f32 * 0.1).sin() + 0.01).collect(), vec![0.5; 20]]
}

fn gradients(step: u64) -> Vec<Vec<f32>> {
    let wave = |n: usize| (0..n).map(|i| ((i as f32 + step as f32) * 1.7).cos()).collect();
    vec![wave(400), wave(20)]
}

#[test]
fn gradual_masks_only_shrink_and_end_at_the_target() {
    let ramp = Ramp { shape: RampShape::Exponential, from: 0.0, begin: 0, end: 10 };
    let topology = Topology::new(GradualPruning { target: 0.95, ramp }, Pruning::default(), 0).unwrap();
    let mut theta = start();
    let mut optimizer = optimizer(Rule::Sgd(Sgd::default()), &theta);
    let mut before = vec![true; 400];
    for step in 0..100 {
        let moved = optimizer.move_masks(&topology, &clock(step), &mut theta, &[]).unwrap();
        assert_eq!(moved, step % 10 == 0, "at the beginning of an epoch");
        let mask = optimizer.state().tensors[0].mask.clone();
        assert!(mask.iter().zip(&before).all(|(now, before)| *before || !now), "nothing grows");
        assert!(theta[0].iter().zip(&mask).all(|(x, kept)| *kept || *x == 0.0), "dropped now, not at the next step");
        optimizer.step(&mut theta, &gradients(step), 0.01).unwrap();
        before = mask;
    }
    assert_eq!(before.iter().filter(|kept| **kept).count(), 20);
    assert!(optimizer.state().tensors[1].mask.is_empty(), "biases are never masked");
}

#[test]
fn grown_weights_start_at_zero_with_moments_of_zero() {
    let topology = Topology::new(OnAndOff(0.5), Pruning::default(), 0).unwrap();
    let mut theta = start();
    let mut optimizer = optimizer(Rule::AdamW(AdamW::default()), &theta);
    for step in 0..8 {
        let before = optimizer.state().tensors[0].mask.clone();
        optimizer.move_masks(&topology, &clock(step), &mut theta, &[]).unwrap();
        let state = &optimizer.state().tensors[0];
        assert_eq!(state.mask.is_empty(), step % 4 >= 2, "on and off in turns");
        for i in (0..400).filter(|&i| !before.is_empty() && !before[i] && state.mask.get(i).is_none_or(|kept| *kept)) {
            assert_eq!([theta[0][i], state.m[i], state.v[i]], [0.0; 3]);
        }
        optimizer.step(&mut theta, &gradients(step), 0.01).unwrap();
    }
}

#[test]
fn random_masks_differ_by_seed_and_step_and_are_the_same_again() {
    let layer = Param::new("w", [10, 40], Role::LinearWeight);
    let theta = vec![1.0; 400];
    let draw = |seed, step| {
        let topology = Topology::new(StaticMask { target: 0.9 }, pruning(Structure::Weights, true), seed).unwrap();
        let layers = [MaskedLayer::new(&layer, &theta, &[], &[], seed, step)];
        topology.start_masks(0.9, &layers).unwrap().remove(0)
    };
    assert_eq!(masked(&draw(1, 0)), 360);
    assert_eq!(draw(1, 0), draw(1, 0));
    assert_ne!(draw(1, 0), draw(2, 0));
    assert_ne!(draw(1, 0), draw(1, 1));
}

#[test]
fn bad_input_is_named() {
    let layer = Param::new("w", [2, 2], Role::LinearWeight);
    let error = |theta: &[f32], s| Pruning::default().masks(&[(&layer, theta)], s).unwrap_err().to_string();
    assert!(error(&[1.0; 4], 1.0).contains("[0, 1)"));
    assert!(error(&[1.0; 3], 0.5).contains("parameter `w`: the weight has 3 values, its shape asks for 4"));
    assert!(error(&[1.0, f32::NAN, 0.0, 0.0], 0.5).contains("weight[1] is NaN"));
    let ramp = Ramp { shape: RampShape::Linear, from: 0.0, begin: 4, end: 4 };
    let exchange = Exchange { period: 10, fraction: 0.3, until: 0.75 };
    let phases = Phases { epochs: 10, dense_epochs: 0, phase_epochs: 1, last_epochs: 0 };
    let granet = GraNet { target: 0.9, from: 0.95, period: 1, fraction: 0.5, until: 0.7 };
    let stages = vec![MutationStage { until: 0.5, fraction: 0.2 }, MutationStage { until: 0.4, fraction: 0.1 }];
    let exchanged = |exchange| DropGrow { target: 0.9, exchange, growth: Growth::Random };
    let policies: [&dyn MaskPolicy; 10] = [
        &StaticMask { target: 1.0 },
        &OneShotPruning { target: 0.0, epoch: 0 },
        &GradualPruning { target: 0.9, ramp },
        &exchanged(Exchange { period: 0, ..exchange }),
        &exchanged(Exchange { fraction: 1.5, ..exchange }),
        &granet,
        &Mest { target: 0.9, period: 1, stages, gradient_weight: 0.0 },
        &AcDc { target: 0.9, phases },
        &Snip { target: 0.9, rounds: 0 },
        &Snip { target: 0.9, rounds: 100_000_000_000 },
    ];
    let named = [
        "`target` is 1",
        "`target` is 0",
        "ramp.end",
        "`period` is 0",
        "`fraction` is 1.5",
        "`from` is 0.95",
        "`stages.until` is out of order",
        "`last_epochs` is 0",
        "`rounds` is 0",
        "`rounds` is 100000000000",
    ];
    for (policy, name) in policies.into_iter().zip(named) {
        assert!(policy.check().unwrap_err().to_string().contains(name), "{policy:?}");
    }
}
