//! Steps on the support: gradients of the weights that are not zero, or of those under a mask, are those of a full
//! pass; others are not there.

use bregman::{AdaBreg, Freeze, Groups, Optimizer, Rule};
use bregman_nn::{Architecture, EcapaConfig, Extent, Input, ResNetConfig, Rng, TrainableModel};
use bregman_tensor::{Cpu, Margin, Precision, WeightPolicy};

const BATCH: usize = 4;
const FRAMES: usize = 21;
const FEATURES: usize = 16;
const MARGIN: Margin = Margin { scale: 32.0, margin: 0.2, easy: false };

fn architectures() -> [Architecture; 2] {
    [
        Architecture::new(FEATURES, EcapaConfig { channels: 32, embedding: 12, global_context: true }),
        Architecture::new(FEATURES, ResNetConfig { blocks: [1, 2, 1, 1], channels: 8, embedding: 12 }),
    ]
}

fn values() -> Vec<f32> {
    let mut rng = Rng::new(11);
    (0..BATCH * FRAMES * FEATURES).map(|_| rng.symmetric(1.7)).collect()
}

/// A model, four fifths of whose weights are zero.
fn sparse_model(backend: Cpu, architecture: &Architecture) -> TrainableModel<Cpu> {
    let mut model = TrainableModel::new(backend, architecture, Some(BATCH), 3).unwrap();
    let mut rng = Rng::new(5);
    for parameter in model.params_mut().all_mut().iter_mut().filter(|parameter| parameter.param.role.is_weight()) {
        parameter.value.iter_mut().filter(|_| rng.symmetric(1.0) < 0.6).for_each(|weight| *weight = 0.0);
        parameter.sparse = true;
    }
    model.refresh().unwrap();
    model
}

/// Lets every eleventh weight grow that is zero, beside those that are not.
fn mask(model: &mut TrainableModel<Cpu>) {
    let (backend, params) = model.parts_mut();
    for parameter in params.all_mut().iter_mut().filter(|parameter| parameter.sparse) {
        let mask: Vec<bool> = parameter.value.iter().enumerate().map(|(i, x)| *x != 0.0 || i % 11 == 0).collect();
        parameter.set_mask(backend, &mask).unwrap();
    }
    model.refresh().unwrap();
}

fn gradients(model: &mut TrainableModel<Cpu>, extent: Extent) -> Vec<Vec<f32>> {
    let labels: Vec<usize> = (0..BATCH).collect();
    model.set_extent(extent);
    model.gradients(Input { values: &values(), batch: BATCH, frames: FRAMES }, &labels, MARGIN).unwrap();
    model.params().all().iter().map(|parameter| parameter.grad.to_vec()).collect()
}

#[test]
fn gradients_on_the_support_are_those_of_a_full_pass() {
    for architecture in architectures() {
        for (precision, tolerance) in [(Precision::F32, 1e-4), (Precision::Bf16, 2e-2)] {
            for policy in [WeightPolicy::Dense, WeightPolicy::Sparse] {
                let mut model = sparse_model(Cpu::with_precision(precision).with_weights(policy), &architecture);
                let full = gradients(&mut model, Extent::All);
                for masked in [false, true] {
                    if masked {
                        mask(&mut model);
                    }
                    let on_support = gradients(&mut model, Extent::Support);
                    for ((parameter, full), found) in model.params().all().iter().zip(&full).zip(&on_support) {
                        let name = &parameter.param.name;
                        let largest = full.iter().fold(0f32, |most, g| most.max(g.abs()));
                        for (i, (g, found)) in full.iter().zip(found).enumerate() {
                            let grows = parameter.value[i] != 0.0 || masked && i % 11 == 0;
                            let expected = if parameter.sparse && !grows { 0.0 } else { *g };
                            let off = (found - expected).abs();
                            assert!(
                                off <= tolerance * largest && (expected != 0.0 || off == 0.0),
                                "{name}[{i}], {precision:?}, {policy:?}, masked {masked}: {found}, not {expected}"
                            );
                        }
                    }
                }
            }
        }
    }
}

/// The compressed copies keep their structure in frozen steps: the outcome must be that of copies made anew.
#[test]
fn frozen_steps_with_kept_structure_are_those_with_fresh_copies() {
    for architecture in architectures() {
        for precision in [Precision::F32, Precision::Bf16] {
            for policy in [WeightPolicy::Sparse, WeightPolicy::Cheapest] {
                let run = |fresh: bool| {
                    let backend = Cpu::with_precision(precision).with_weights(policy);
                    let mut model = sparse_model(backend, &architecture);
                    let groups = Groups::resolve(model.params().described(), vec![]).unwrap();
                    let (theta, _) = model.params_mut().values_and_gradients();
                    let mut optimizer =
                        Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups, 0.05, &theta).unwrap();
                    optimizer.set_freeze(Freeze { every: 4, ..Freeze::default() }).unwrap();
                    for _ in 0..10 {
                        let extent = if optimizer.next_is_full() { Extent::All } else { Extent::Support };
                        gradients(&mut model, extent);
                        let (mut theta, grads) = model.params_mut().values_and_gradients();
                        optimizer.step(&mut theta, &grads, 0.01).unwrap();
                        if fresh { model.refresh() } else { model.refresh_after(extent) }.unwrap();
                    }
                    let zeros = optimizer.stats().iter().map(|stats| stats.zeros).sum::<u64>();
                    let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    (zeros, model.params().all().iter().map(|parameter| bits(&parameter.value)).collect::<Vec<_>>())
                };
                let (kept, fresh) = (run(false), run(true));
                assert!(kept == fresh, "{precision:?}, {policy:?}: {} zeros, {} with fresh copies", kept.0, fresh.0);
            }
        }
    }
}
