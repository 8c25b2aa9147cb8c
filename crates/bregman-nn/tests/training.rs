//! Whole training steps: networks learn with every optimizer, in both precisions, repeatably, and bad input is named.

use bregman::{AdaBreg, AdamW, Groups, LinBreg, Optimizer, ProxSgd, Rule, Sgd};
use bregman_nn::{
    Architecture, BatchOutcome, CrossEntropy, EcapaConfig, Error, Input, Mlp, ResNetConfig, Rng, TrainableModel,
};
use bregman_tensor::{Cpu, Margin, Precision, WeightPolicy};

const BATCH: usize = 8;
const FEATURES: usize = 16;

fn ecapa() -> Architecture {
    Architecture::new(FEATURES, EcapaConfig { channels: 16, embedding: 12, global_context: true })
}

fn resnet() -> Architecture {
    Architecture::new(FEATURES, ResNetConfig { blocks: [1, 1, 1, 1], channels: 4, embedding: 12 })
}

fn features(frames: usize) -> Vec<f32> {
    let mut rng = Rng::new(11);
    (0..BATCH * frames * FEATURES).map(|_| rng.symmetric(1.7)).collect()
}

const PLAIN: Margin = Margin { scale: 32.0, margin: 0.0, easy: false };

/// A model and an optimizer that trains it on eight utterances of eight classes.
struct Trainer {
    model: TrainableModel<Cpu>,
    optimizer: Optimizer,
    learning_rate: f64,
    values: Vec<f32>,
    frames: usize,
}

impl Trainer {
    fn new(
        backend: Cpu,
        architecture: &Architecture,
        rule: Rule,
        lambda: f64,
        learning_rate: f64,
        frames: usize,
    ) -> Self {
        let mut model = TrainableModel::new(backend, architecture, Some(BATCH), 3).unwrap();
        let groups = Groups::resolve(model.params().described(), vec![]).unwrap();
        let (values, _) = model.params_mut().values_and_gradients();
        let optimizer = Optimizer::new(rule, groups, lambda, &values).unwrap();
        Self { model, optimizer, learning_rate, values: features(frames), frames }
    }

    fn step(&mut self) -> BatchOutcome {
        let input = Input { values: &self.values, batch: BATCH, frames: self.frames };
        let labels: Vec<usize> = (0..BATCH).collect();
        let outcome = self.model.gradients(input, &labels, PLAIN).unwrap();
        let (mut values, gradients) = self.model.params_mut().values_and_gradients();
        self.optimizer.step(&mut values, &gradients, self.learning_rate).unwrap();
        self.model.refresh().unwrap();
        outcome
    }
}

#[test]
fn tiny_networks_overfit_eight_utterances_with_every_optimizer() {
    let rules = [
        (Rule::LinBreg(LinBreg::default()), 1e-3, 0.1),
        (Rule::AdaBreg(AdaBreg::default()), 1e-2, 0.01),
        (Rule::ProxSgd(ProxSgd::default()), 1e-5, 0.1),
        (Rule::Sgd(Sgd::default()), 1e-9, 0.05),
        (Rule::AdamW(AdamW::default()), 1e-9, 0.01),
    ];
    for (network, architecture, frames) in [("ecapa", ecapa(), 12), ("resnet", resnet(), 16)] {
        for (rule, lambda, learning_rate) in rules {
            let mut trainer = Trainer::new(Cpu::new(), &architecture, rule, lambda, learning_rate, frames);
            let first = trainer.step();
            let last = (0..200).map(|_| trainer.step()).find(|outcome| outcome.loss < 0.01);
            let name = rule.name();
            assert!(first.loss > 1.0, "{network}, {name}: starts at {first:?}");
            let last =
                last.unwrap_or_else(|| panic!("{network}, {name}: still at {:?} after 200 steps", trainer.step()));
            assert_eq!(last.correct, BATCH, "{network}, {name}");
        }
    }
}

#[test]
fn a_sparse_network_learns_through_its_compressed_weights_as_through_dense_ones() {
    let losses = |policy| {
        let backend = Cpu::new().with_weights(policy);
        let mut trainer = Trainer::new(backend, &ecapa(), Rule::AdaBreg(AdaBreg::default()), 0.05, 0.01, 12);
        let losses: Vec<f32> = (0..25).map(|_| trainer.step().loss).collect();
        let zeros: u64 = trainer.optimizer.stats().iter().map(|stats| stats.zeros).sum();
        (losses, zeros)
    };
    let ((dense, _), (sparse, zeros)) = (losses(WeightPolicy::Dense), losses(WeightPolicy::Sparse));
    assert!(zeros > 1000, "the weights have {zeros} zeros");
    assert!(dense[24] < 0.5 * dense[0], "{dense:?}");
    for (step, (dense, sparse)) in dense.iter().zip(&sparse).enumerate() {
        assert!((dense - sparse).abs() <= 0.05 * dense.max(0.1), "step {step}: {dense} against {sparse}");
    }
}

#[test]
fn training_in_bf16_follows_the_f32_loss_curve() {
    for (architecture, learning_rate) in [(ecapa(), 3e-5), (resnet(), 3e-4)] {
        let losses = |precision| {
            let mut trainer = Trainer::new(
                Cpu::with_precision(precision),
                &architecture,
                Rule::AdaBreg(AdaBreg::default()),
                1e-2,
                learning_rate,
                16,
            );
            (0..20).map(|_| trainer.step().loss).collect::<Vec<f32>>()
        };
        let (single, half) = (losses(Precision::F32), losses(Precision::Bf16));
        assert!(single[19] < 0.2 * single[0], "{single:?}");
        for (step, (a, b)) in single.iter().zip(&half).enumerate() {
            assert!((a - b).abs() <= 0.01 * single[0], "step {step}: {a} against {b}");
        }
    }
}

#[test]
fn a_step_is_repeatable_to_the_last_bit() {
    for precision in [Precision::F32, Precision::Bf16] {
        for architecture in [ecapa(), resnet()] {
            let run = || {
                let mut trainer = Trainer::new(
                    Cpu::with_precision(precision),
                    &architecture,
                    Rule::AdaBreg(AdaBreg::default()),
                    0.01,
                    0.01,
                    23,
                );
                for _ in 0..3 {
                    trainer.step();
                }
                trainer.model.state().unwrap()
            };
            assert_eq!(run(), run());
        }
    }
}

#[test]
fn a_perceptron_learns_with_plain_cross_entropy() {
    let mut model = TrainableModel::with_network(Cpu::new(), 1, |builder| {
        let network = Mlp::new(builder, &[FEATURES, 32, BATCH])?;
        Ok((Box::new(network), Some(Box::new(CrossEntropy::new(builder, BATCH)?))))
    })
    .unwrap();
    let values = features(1);
    let labels: Vec<usize> = (0..BATCH).collect();
    let input = Input { values: &values, batch: BATCH, frames: 1 };
    for _ in 0..300 {
        model.gradients(input, &labels, PLAIN).unwrap();
        for parameter in model.params_mut().all_mut() {
            parameter
                .value
                .iter_mut()
                .zip(parameter.grad.iter())
                .for_each(|(value, gradient)| *value -= 0.5 * gradient);
        }
        model.refresh().unwrap();
    }
    let outcome = model.gradients(input, &labels, PLAIN).unwrap();
    assert!(outcome.loss < 0.01 && outcome.correct == BATCH, "{outcome:?}");
    let scores = model.embed(input).unwrap();
    let best = |item: usize| {
        (0..BATCH).max_by(|&a, &b| scores[item * BATCH + a].total_cmp(&scores[item * BATCH + b])).unwrap()
    };
    assert!((0..BATCH).all(|item| best(item) == item));
}

#[test]
fn utterances_of_other_lengths_and_batches_reuse_the_model() {
    for architecture in [ecapa(), resnet()] {
        let mut model = TrainableModel::new(Cpu::new(), &architecture, Some(BATCH), 3).unwrap();
        let long = features(40);
        let embed = |model: &mut TrainableModel<Cpu>, batch: usize, frames: usize| {
            model.embed(Input { values: &long[..batch * frames * FEATURES], batch, frames }).unwrap()
        };
        let first = embed(&mut model, 1, 9);
        embed(&mut model, 8, 40);
        embed(&mut model, 2, 1);
        assert_eq!(embed(&mut model, 1, 9), first, "nothing of a longer batch is left behind");
    }
}

#[test]
fn bad_input_is_named() {
    let mut model = TrainableModel::new(Cpu::new(), &ecapa(), Some(4), 3).unwrap();
    let values = features(10);
    let input = |values, batch, frames| Input { values, batch, frames };
    let message = |result: Result<BatchOutcome, Error>| result.unwrap_err().to_string();
    let text = message(model.gradients(input(&values[1..], BATCH, 10), &[0; BATCH], PLAIN));
    assert!(text.contains("features") && text.contains("1279 values"), "{text}");
    let text = message(model.gradients(input(&values, BATCH, 10), &[0; 3], PLAIN));
    assert!(text.contains("labels") && text.contains("3 labels for 8 items"), "{text}");
    let text = message(model.gradients(input(&values, BATCH, 10), &[9; BATCH], PLAIN));
    assert!(text.contains("class 9"), "{text}");
    assert!(model.embed(input(&[], 0, 10)).unwrap_err().to_string().contains("empty"));
    assert!(model.embed(input(&[], 1, 0)).unwrap_err().to_string().contains("0 frames"));
    for (field, architecture) in [
        ("channels", Architecture::new(80, EcapaConfig { channels: 12, ..EcapaConfig::default() })),
        ("features", Architecture::new(0, EcapaConfig::default())),
    ] {
        let error = TrainableModel::new(Cpu::new(), &architecture, None, 0).err().unwrap().to_string();
        assert!(error.contains(field), "{error}");
    }
}

#[test]
fn with_checking_on_a_nan_is_reported_where_it_first_appears() {
    let mut model = TrainableModel::new(Cpu::new(), &ecapa(), Some(BATCH), 3).unwrap();
    let mut values = features(10);
    model.check_finite(true);
    let labels: Vec<usize> = (0..BATCH).collect();
    assert!(model.gradients(Input { values: &values, batch: BATCH, frames: 10 }, &labels, PLAIN).is_ok());
    let victim =
        model.params_mut().all_mut().iter_mut().find(|p| p.param.name == "layer3.se_res2block.0.conv.weight").unwrap();
    let healthy = std::mem::replace(&mut victim.value[5], f32::NAN);
    model.refresh().unwrap();
    let error = model.gradients(Input { values: &values, batch: BATCH, frames: 10 }, &labels, PLAIN).unwrap_err();
    assert!(matches!(&error, Error::NotFinite { tensor } if tensor.contains("layer3.se_res2block.0.conv")), "{error}");
    model
        .params_mut()
        .all_mut()
        .iter_mut()
        .find(|p| p.param.name == "layer3.se_res2block.0.conv.weight")
        .unwrap()
        .value[5] = healthy;
    model.refresh().unwrap();
    values[7] = f32::INFINITY;
    let error = model.embed(Input { values: &values, batch: BATCH, frames: 10 }).unwrap_err();
    assert!(error.to_string().contains("feature"), "{error}");
}

#[test]
fn a_class_without_live_weights_gets_a_gradient_of_usual_size() {
    let mut model = TrainableModel::new(Cpu::new(), &ecapa(), Some(3), 1).unwrap();
    let classifier = model.params_mut().all_mut().last_mut().unwrap();
    assert_eq!(classifier.param.name, "projection.weight");
    let dim = classifier.param.shape[1];
    classifier.value[..dim].fill(0.0);
    model.refresh().unwrap();
    let (values, frames) = (vec![0.3; 2 * 12 * model.features()], 12);
    model
        .gradients(
            Input { values: &values, batch: 2, frames },
            &[0, 1],
            Margin { scale: 32.0, margin: 0.2, easy: false },
        )
        .unwrap();
    let gradient = &model.params().all().last().unwrap().grad;
    let length = |row: usize| gradient[row * dim..][..dim].iter().map(|g| g * g).sum::<f32>().sqrt();
    assert!(length(0) > 0.0 && length(0) < 100.0 * length(1), "{} against {}", length(0), length(1));
}
