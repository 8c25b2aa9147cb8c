//! The published policies against brute force: counts, what is dropped and what is grown, and when.

use proptest::prelude::*;

use super::*;
use crate::groups::{GroupRule, Groups};
use crate::optimizer::{AdamW, Optimizer, Rule, Sgd, TensorState};
use crate::param::{Param, Role};

const TOTAL: u64 = 60;
const EXCHANGE: Exchange = Exchange { period: 7, fraction: 0.3, until: 0.75 };

fn clock(step: u64) -> RunClock {
    RunClock { step, total: TOTAL, epoch: step / 6, batch: step % 6 }
}

fn params() -> Vec<Param> {
    vec![
        Param::new("a", [4, 5, 3], Role::ConvWeight),
        Param::new("b", [8, 10], Role::LinearWeight),
        Param::new("c", [5, 8], Role::Classifier),
        Param::new("bias", [10], Role::Bias),
    ]
}

fn mest(target: f64) -> Mest {
    let stages = vec![MutationStage { until: 0.5, fraction: 0.2 }, MutationStage { until: 0.75, fraction: 0.1 }];
    Mest { target, period: 5, stages, gradient_weight: 0.3 }
}

fn policies(target: f64) -> Vec<Box<dyn MaskPolicy>> {
    vec![
        Box::new(StaticMask { target }),
        Box::new(DropGrow { target, exchange: EXCHANGE, growth: Growth::Random }),
        Box::new(DropGrow { target, exchange: EXCHANGE, growth: Growth::Steepest }),
        Box::new(GraNet { target, from: 0.5 * target, period: 5, fraction: 0.5, until: 0.7 }),
        Box::new(mest(target)),
        Box::new(AcDc { target, phases: Phases::published(10) }),
        Box::new(Snip { target, rounds: 5 }),
    ]
}

fn budgets() -> [Option<Budget>; 3] {
    [None, Some(Budget::default()), Some(Budget::erk())]
}

fn topology(policy: Box<dyn MaskPolicy>, layers: Option<Budget>) -> Topology {
    policy.check().unwrap();
    Topology { policy, pruning: Pruning { layers, ..Pruning::default() }, seed: 11 }
}

/// Weights or gradients of all tensors; many are equal.
fn tensors() -> impl Strategy<Value = Vec<Vec<f32>>> {
    let values = |len: usize| prop::collection::vec(prop_oneof![-1.0f32..1.0, Just(0.0f32), Just(0.25f32)], len);
    params().iter().map(|param| values(param.len())).collect::<Vec<_>>()
}

fn optimizer(rule: Rule, theta: &[Vec<f32>]) -> Optimizer {
    Optimizer::new(rule, Groups::resolve(params(), vec![GroupRule::dense()]).unwrap(), 1.0, theta).unwrap()
}

fn masks(optimizer: &Optimizer) -> Vec<Vec<bool>> {
    let all = |tensor: usize| vec![true; params()[tensor].len()];
    let tensor = |(i, state): (usize, &TensorState)| match state.mask.is_empty() {
        true => all(i),
        false => state.mask.clone(),
    };
    optimizer.state().tensors.iter().enumerate().take(3).map(tensor).collect()
}

/// Weights of so many that are not masked.
fn stay(len: usize, sparsity: f64) -> usize {
    len - (sparsity * len as f64).round_ties_even() as usize
}

fn count(mask: &[bool]) -> usize {
    mask.iter().filter(|kept| **kept).count()
}

/// As many of the candidates as asked for, the best first, of equal ones the first.
fn best(candidates: Vec<(usize, f32)>, most: usize) -> Vec<usize> {
    let mut candidates = candidates;
    candidates.sort_by(|(i, a), (j, b)| b.total_cmp(a).then(i.cmp(j)));
    candidates.into_iter().take(most).map(|(i, _)| i).collect()
}

/// How many weights each layer has after a change: from its budget, or from sorting all live weights together, and all
/// others where those are too few.
fn counts(
    topology: &Topology,
    sparsity: f64,
    present: &[Vec<bool>],
    keep: &[Vec<f32>],
    grow: &[Vec<f32>],
) -> Vec<usize> {
    let params = params();
    let layers: Vec<&Param> = params[..3].iter().collect();
    match &topology.pruning.layers {
        Some(budget) => {
            let targets = budget.targets(&layers, sparsity).unwrap();
            layers.iter().zip(targets).map(|(layer, target)| stay(layer.len(), target)).collect()
        }
        None => {
            let all: Vec<(usize, usize)> =
                (0..3).flat_map(|layer| (0..present[layer].len()).map(move |i| (layer, i))).collect();
            let most = stay(all.len(), sparsity);
            let candidates = |live: bool, scores: &[Vec<f32>]| {
                let of_kind = all.iter().enumerate().filter(|(_, (layer, i))| present[*layer][*i] == live);
                of_kind.map(|(at, &(layer, i))| (at, scores[layer][i])).collect::<Vec<_>>()
            };
            let mut chosen = best(candidates(true, keep), most);
            chosen.extend(best(candidates(false, grow), most - chosen.len()));
            (0..3).map(|layer| chosen.iter().filter(|&&at| all[at].0 == layer).count()).collect()
        }
    }
}

/// What a change must lead to.
fn expected(
    topology: &Topology,
    change: MaskChange,
    present: &[Vec<bool>],
    keep: &[Vec<f32>],
    grow: &[Vec<f32>],
) -> Vec<Vec<bool>> {
    let counts = counts(topology, change.sparsity, present, keep, grow);
    let layer = |layer: usize| {
        let (most, present) = (counts[layer], &present[layer]);
        let exchanged = (change.exchanged * most as f64).round() as usize;
        let live = (0..present.len()).filter(|&i| present[i]).map(|i| (i, keep[layer][i])).collect();
        let kept = best(live, most - exchanged);
        let others = (0..present.len()).filter(|i| !kept.contains(i)).map(|i| (i, grow[layer][i])).collect();
        let grown = best(others, most - kept.len());
        (0..present.len()).map(|i| kept.contains(&i) || grown.contains(&i)).collect()
    };
    (0..3).map(layer).collect()
}

fn absolute(values: &[Vec<f32>]) -> Vec<Vec<f32>> {
    values.iter().map(|values| values.iter().map(|x| x.abs()).collect()).collect()
}

fn random(step: u64) -> Vec<Vec<f32>> {
    let params = params();
    let draw = |param: &Param| MaskedLayer::new(param, &vec![0.0; param.len()], &[], &[], 11, step).random();
    params.iter().map(draw).collect()
}

/// Keep scores and growth scores of a policy, written down once more.
type Reference = fn(theta: &[Vec<f32>], gradient: &[Vec<f32>], step: u64) -> [Vec<Vec<f32>>; 2];

fn references(target: f64) -> Vec<(Box<dyn MaskPolicy>, Reference)> {
    vec![
        (Box::new(DropGrow { target, exchange: EXCHANGE, growth: Growth::Random }), |theta, _, step| {
            [absolute(theta), random(step)]
        }),
        (Box::new(DropGrow { target, exchange: EXCHANGE, growth: Growth::Steepest }), |theta, gradient, _| {
            [absolute(theta), absolute(gradient)]
        }),
        (
            Box::new(GraNet { target, from: 0.5 * target, period: 5, fraction: 0.5, until: 0.7 }),
            |theta, gradient, _| [absolute(theta), absolute(gradient)],
        ),
        (Box::new(Mest { gradient_weight: 0.0, ..mest(target) }), |theta, _, step| [absolute(theta), random(step)]),
        (Box::new(mest(target)), |theta, gradient, step| {
            let importance = |(x, g): (&f32, &f32)| x.abs() + 0.3 * g.abs();
            let layer = |(x, g): (&Vec<f32>, &Vec<f32>)| x.iter().zip(g).map(importance).collect();
            [theta.iter().zip(gradient).map(layer).collect(), random(step)]
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn what_is_dropped_and_grown_is_what_brute_force_finds(
        start in tensors(),
        gradients in prop::collection::vec(tensors(), 4),
        target in 0.1f64..0.95,
        which in 0usize..3,
    ) {
        for (policy, reference) in references(target) {
            let topology = topology(policy, budgets()[which].clone());
            let mut theta = start.clone();
            let mut optimizer = optimizer(Rule::Sgd(Sgd::default()), &theta);
            optimizer.start_masks(&topology, 0, &mut theta, &[]).unwrap();
            for step in 0..TOTAL {
                let gradient = &gradients[step as usize % 4];
                let slices: Vec<&[f32]> = gradient.iter().map(|g| &g[..]).collect();
                let before = masks(&optimizer);
                let wanted = topology.policy().change(&clock(step)).map(|change| {
                    let [keep, grow] = reference(&theta, gradient, step);
                    expected(&topology, change, &before, &keep, &grow)
                });
                let moved = optimizer.move_masks(&topology, &clock(step), &mut theta, &slices).unwrap();
                prop_assert_eq!(moved, wanted.is_some());
                prop_assert_eq!(masks(&optimizer), wanted.unwrap_or(before), "{:?}, step {}", &topology, step);
                optimizer.step(&mut theta, gradient, 0.05).unwrap();
            }
        }
    }

    #[test]
    fn iterative_snip_prunes_by_the_gradient_of_every_round(start in tensors(), target in 0.3f64..0.95) {
        let topology = topology(Box::new(Snip { target, rounds: 4 }), None);
        // a gradient that depends on the weights that are left
        let gradient = |theta: &[Vec<f32>]| -> Vec<Vec<f32>> {
            let sum: f32 = theta.iter().flatten().sum();
            theta.iter().map(|x| x.iter().map(|x| (3.0 * x + sum).sin()).collect()).collect()
        };
        let mut theta = start.clone();
        let mut optimizer = optimizer(Rule::Sgd(Sgd::default()), &theta);
        for round in 0..4 {
            let before = masks(&optimizer);
            let gradient = gradient(&theta);
            let slices: Vec<&[f32]> = gradient.iter().map(|g| &g[..]).collect();
            let sensitivity: Vec<Vec<f32>> = (theta.iter().zip(&gradient))
                .map(|(x, g)| x.iter().zip(g).map(|(x, g)| (x * g).abs()).collect())
                .collect();
            let sparsity = 1.0 - (1.0 - target).powf((round + 1) as f64 / 4.0);
            let wanted = expected(&topology, MaskChange::to(sparsity), &before, &sensitivity, &sensitivity);
            prop_assert!(optimizer.start_masks(&topology, round, &mut theta, &slices).unwrap());
            prop_assert_eq!(masks(&optimizer), wanted, "round {}", round);
            let left = theta.iter().zip(&start).zip(masks(&optimizer)).all(|((theta, start), mask)| {
                mask.iter().enumerate().all(|(i, kept)| theta[i] == if *kept { start[i] } else { 0.0 })
            });
            prop_assert!(left, "weights that stay have not moved");
        }
        prop_assert!(!optimizer.start_masks(&topology, 4, &mut theta, &[]).unwrap(), "the rounds are over");
    }

    #[test]
    fn counts_are_exact_after_every_update_with_every_policy_budget_and_optimizer(
        start in tensors(), gradients in prop::collection::vec(tensors(), 4), target in 0.1f64..0.95,
    ) {
        for rule in [Rule::Sgd(Sgd::default()), Rule::AdamW(AdamW::default())] {
            for layers in budgets() {
                for policy in policies(target) {
                    assert_exact_counts(rule, &topology(policy, layers.clone()), start.clone(), &gradients, target);
                }
            }
        }
    }
}

/// A whole run under masks that hold as many weights as they should before every step, and nothing outside of them.
fn assert_exact_counts(
    rule: Rule,
    topology: &Topology,
    mut theta: Vec<Vec<f32>>,
    gradients: &[Vec<Vec<f32>>],
    target: f64,
) {
    let (policy, mut optimizer) = (topology.policy(), optimizer(rule, &theta));
    let slices = |step: u64| -> Vec<&[f32]> { gradients[step as usize % 4].iter().map(|g| &g[..]).collect() };
    for round in 0..5 {
        optimizer.start_masks(topology, round, &mut theta, &slices(0)).unwrap();
    }
    let mut changed = !matches!(policy.start(), Start::Random(_));
    let params = params();
    let layers: Vec<&Param> = params[..3].iter().collect();
    for step in 0..TOTAL {
        let before = masks(&optimizer);
        let moved = optimizer.move_masks(topology, &clock(step), &mut theta, &slices(step)).unwrap();
        let now = masks(&optimizer);
        assert!(moved || before == now, "{topology:?}, step {step}");
        changed |= moved;
        let sparsity = policy.sparsity(&clock(step));
        let found: Vec<usize> = now.iter().map(|mask| count(mask)).collect();
        let (all, wanted) = (found.iter().sum::<usize>(), stay(180, sparsity));
        match &topology.pruning.layers {
            Some(budget) => {
                let targets = budget.targets(&layers, sparsity).unwrap();
                let wanted: Vec<usize> = layers.iter().zip(targets).map(|(layer, s)| stay(layer.len(), s)).collect();
                assert_eq!(found, wanted, "{topology:?}, step {step}");
            }
            None if changed => assert_eq!(all, wanted, "{topology:?}, step {step}"),
            // a random start is shared out by ERK and rounded layer by layer
            None => assert!(all.abs_diff(wanted) <= 2, "{topology:?}: {all}, not {wanted}"),
        }
        optimizer.step(&mut theta, &gradients[step as usize % 4], 0.05).unwrap();
        for (theta, mask) in theta.iter().zip(&now) {
            assert!(theta.iter().zip(mask).all(|(x, kept)| *kept || *x == 0.0), "{topology:?}, step {step}");
        }
    }
    assert_eq!(policy.sparsity(&clock(TOTAL - 1)), target, "every run ends at its target");
}

/// Steps before which masks change, and what is exchanged then.
fn changes(policy: &dyn MaskPolicy, total: u64) -> Vec<(u64, f64, f64)> {
    let clock = |step| RunClock { step, total, epoch: step / 10, batch: step % 10 };
    let change = |step| policy.change(&clock(step)).map(|change| (step, change.sparsity, change.exchanged));
    (0..total).filter_map(change).collect()
}

#[test]
fn set_and_rigl_exchange_by_a_cosine_until_three_quarters_of_the_run() {
    let exchange = Exchange { period: 100, fraction: 0.3, until: 0.75 };
    for growth in [Growth::Random, Growth::Steepest] {
        let changes = changes(&DropGrow { target: 0.9, exchange, growth }, 1000);
        assert_eq!(changes.iter().map(|change| change.0).collect::<Vec<_>>(), [100, 200, 300, 400, 500, 600, 700]);
        for (step, sparsity, exchanged) in changes {
            let cosine = 0.15 * (1.0 + (std::f64::consts::PI * step as f64 / 750.0).cos());
            assert!((exchanged - cosine).abs() < 1e-12 && sparsity == 0.9, "{step}: {exchanged}");
        }
    }
}

#[test]
fn granet_prunes_by_a_cubic_and_regrows_to_the_end() {
    let granet = GraNet { target: 0.95, from: 0.5, period: 100, fraction: 0.5, until: 0.7 };
    assert_eq!(granet.start(), Start::Random(0.5));
    let changes = changes(&granet, 1000);
    assert_eq!(changes.len(), 9);
    for (step, sparsity, exchanged) in changes {
        let rest = (1.0 - step as f64 / 700.0).max(0.0);
        assert!((sparsity - (0.5 + 0.45 * (1.0 - rest.powi(3)))).abs() < 1e-12, "{step}: {sparsity}");
        let cosine = 0.25 * (1.0 + (std::f64::consts::PI * step as f64 / 1000.0).cos());
        assert!((exchanged - cosine).abs() < 1e-12, "{step}: {exchanged}");
    }
    let to_the_end = GraNet { until: 1.0, period: 300, ..granet };
    assert_eq!(to_the_end.sparsity(&RunClock { step: 950, total: 1000, epoch: 0, batch: 0 }), 0.95);
    assert_eq!(GraNet { from: 0.0, ..granet }.start(), Start::Dense);
}

#[test]
fn mest_mutates_in_stages() {
    let stages = vec![MutationStage { until: 0.5625, fraction: 0.2 }, MutationStage { until: 0.75, fraction: 0.1 }];
    let mest = Mest { target: 0.9, period: 50, stages, gradient_weight: 0.01 };
    let exchanged: Vec<(u64, f64)> = changes(&mest, 1600).into_iter().map(|(step, _, share)| (step, share)).collect();
    assert_eq!(exchanged.len(), 23);
    assert!(exchanged.iter().all(|&(step, share)| share == if step < 900 { 0.2 } else { 0.1 }), "{exchanged:?}");
    assert_eq!((exchanged[0].0, exchanged[22].0), (50, 1150));
}

#[test]
fn the_phases_of_acdc_are_those_of_its_authors() {
    let phases = Phases::published(100);
    let sparse: Vec<u64> = (0..100).filter(|&epoch| phases.are_sparse(epoch)).collect();
    let published = [10..15, 20..25, 30..35, 40..45, 50..55, 60..65, 70..75, 85..100];
    assert_eq!(sparse, published.into_iter().flatten().collect::<Vec<u64>>());
    let turns = changes(&AcDc { target: 0.9, phases: Phases { epochs: 10, ..Phases::published(10) } }, 100);
    let turns: Vec<(u64, f64)> = turns.into_iter().map(|(step, sparsity, _)| (step, sparsity)).collect();
    assert_eq!(turns, [(10, 0.9), (20, 0.0), (30, 0.9), (40, 0.0), (50, 0.9), (60, 0.0), (80, 0.9)]);
    assert!((1..40).all(|epochs| Phases::published(epochs).are_sparse(epochs - 1)), "every run ends sparse");
}

#[test]
fn snip_takes_the_same_share_of_what_is_left_in_every_round() {
    let Start::Scored(rounds) = (Snip { target: 0.95, rounds: 100 }).start() else { panic!("by scores") };
    assert_eq!((rounds.len(), rounds[99]), (100, 0.95));
    let densities: Vec<f64> = rounds.iter().map(|sparsity| 1.0 - sparsity).collect();
    assert!(densities.windows(2).all(|pair| (pair[1] / pair[0] - 0.05f64.powf(0.01)).abs() < 1e-9));
}
