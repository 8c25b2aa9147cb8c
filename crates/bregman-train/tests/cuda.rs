//! Runs on a GPU follow runs on the CPU, and a run may change between them. Without a GPU these tests say so and pass.
#![cfg(feature = "cuda")]

mod common;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use bregman::controller::{Law, Quantile};
use bregman::optimizer::{Arrays, Duals, TensorState};
use bregman::topology::{
    AcDc, DropGrow, Exchange, GraNet, Growth, MaskChange, MaskPolicy, MaskedLayer, Mest, MutationStage, Phases,
    RunClock, Snip,
};
use bregman::{
    AdamW, Budget, Controller, ControllerConfig, Freeze, GroupRule, Groups, LinBreg, Optimizer, Param, Penalty,
    Pruning, Role, Rule, Sgd, Str, TensorStats, Topology, Variant,
};
use bregman_nn::{EcapaConfig, Params, TrainableModel};
use bregman_tensor::cuda::Cuda;
use bregman_tensor::{Cpu, Open, Precision, thread_ranks};
use bregman_train::{Device, Ending, Error, Trained, Trainer};
use common::{StopAfter, assert_same_metrics, corpus, metrics, recipe, train, weights};

/// GPU 0, in f32 where a recipe does not say: these runs are compared with those of a CPU.
fn gpu(precision: Option<Precision>) -> bregman_tensor::Result<Cuda> {
    Cuda::open(0, precision.unwrap_or(Precision::F32))
}

fn present() -> bool {
    Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu).is_some()
}

fn values(run: &Path, key: &str) -> Vec<f64> {
    metrics(run)
        .iter()
        .filter(|line| line.get("gradient_norm").is_some())
        .filter_map(|line| line[key].as_f64())
        .collect()
}

/// Methods and settings under which rounding errors do not grow much within 200 steps, with how far apart mean losses
/// may be: one thread and two on a CPU are 1e-7 apart with AdamW, 8e-3 with AdaBreg and 1e-2 with LinBreg. (Without
/// clipping, or at ten times its learning rate, LinBreg's are 0.3 to 0.8 apart even there.)
const METHODS: [(&str, &str, &[&str], f64); 7] = [
    ("dense AdamW", "kind = \"dense\"\noptimizer = { kind = \"adamw\" }", &["train.lr=0.0003"], 1e-3),
    (
        "AdaBreg",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\noptimizer = { kind = \"adabreg\" }",
        &["train.lr=0.0003"],
        5e-2,
    ),
    (
        "LinBreg",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\noptimizer = { kind = \"linbreg\" }",
        &["train.lr=0.01", "train.clip=1.0"],
        5e-2,
    ),
    (
        "frozen AdaBreg",
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\nfreeze = 5\nfreeze_after = 0.1\n\
         optimizer = { kind = \"adabreg\" }",
        &["train.lr=0.0003"],
        5e-2,
    ),
    (
        "static mask",
        "kind = \"static\"\ntarget = 0.8\noptimizer = { kind = \"adamw\" }",
        &["train.lr=0.003", "train.clip=1.0"],
        5e-2,
    ),
    (
        "RigL",
        "kind = \"rigl\"\ntarget = 0.8\nperiod = 20\noptimizer = { kind = \"adamw\" }",
        &["train.lr=0.003", "train.clip=1.0"],
        0.15, // one weight exchanged for another makes more than rounding: 0.03 on a CPU
    ),
    ("STR", "kind = \"str\"\nthreshold = 0.02", &["train.lr=0.01", "train.clip=1.0"], 5e-2),
];

/// 200 steps of each of these methods on a GPU opened so.
fn follow_the_cpu(methods: &[(&str, &str, &[&str], f64)], open: impl Open<Cuda> + Clone) {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    for (name, method, settings, tolerance) in methods {
        let experiment = recipe(&dir.path().join("voices"), method, &[settings, &["train.epochs=50"][..]].concat());
        let (here, there) = (dir.path().join(format!("{name} cpu")), dir.path().join(format!("{name} gpu")));
        train(experiment.clone(), &here).unwrap();
        Trainer::new_on(open.clone(), experiment, &there, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
        let (ours, theirs) = (values(&here, "loss"), values(&there, "loss"));
        assert!(ours.len() >= 200 && ours.len() == theirs.len(), "{name}: {} and {} steps", ours.len(), theirs.len());
        let apart =
            ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs() / a.abs().max(0.1)).sum::<f64>() / ours.len() as f64;
        let sparsity = [&here, &there].map(|run| *values(run, "sparsity").last().unwrap());
        let [first, last] = [ours[0], ours[ours.len() - 1]];
        println!("{name}: loss from {first} to {last}, {apart:e} apart, sparsity {sparsity:?}");
        assert!(last < 0.8 * first, "{name}: what does not learn cannot differ");
        assert!(apart < *tolerance, "{name}: losses {apart:e} apart");
        assert!((sparsity[0] - sparsity[1]).abs() < 5e-3, "{name}: {sparsity:?}");
    }
}

#[test]
fn two_hundred_steps_follow_the_cpu() {
    if present() {
        follow_the_cpu(&METHODS, gpu);
    }
}

#[test]
fn a_rank_whose_gradients_go_by_nccl_follows_the_cpu_with_a_frozen_support_too() {
    if present() {
        let ranks = thread_ranks(1).remove(0);
        follow_the_cpu(&[METHODS[1], METHODS[3]], move |precision| gpu(precision)?.with_ranks(&ranks));
    }
}

#[test]
fn a_run_continues_on_the_other_device() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let method =
        "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.9\noptimizer = { kind = \"adabreg\" }";
    let experiment = recipe(&dir.path().join("voices"), method, &["train.lr=0.0003"]);
    let [whole, moved] = ["whole", "moved"].map(|name| dir.path().join(name));
    let end = train(experiment.clone(), &whole).unwrap().state;
    let stop = StopAfter::new(7);
    Trainer::new_on(gpu, experiment, &moved, &stop).unwrap().run(&stop.stop).unwrap();
    let stop = StopAfter::new(9);
    Trainer::resume(&moved, &stop).unwrap().run(&stop.stop).unwrap();
    let outcome = Trainer::resume_on(gpu, &moved, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
    assert_eq!((outcome.ending, outcome.state.step), (Ending::Finished, end.step));
    assert!((outcome.state.sparsity - end.sparsity).abs() < 1e-2, "{} and {}", outcome.state.sparsity, end.sparsity);
    for (a, b) in values(&whole, "loss").iter().zip(values(&moved, "loss")) {
        assert!((a - b).abs() < 2e-2 * a.abs().max(0.1), "{a} and {b}");
    }
}

/// A recipe whose layers are wide enough for cuDNN.
fn wide(root: &Path, settings: &[&str]) -> bregman_train::Experiment {
    let method = "kind = \"adaptive\"\ngroups = [{ initial_sparsity = 0.5 }]\ntarget = 0.8\n\
                  optimizer = { kind = \"adabreg\" }";
    recipe(root, method, &[&["model.channels=32", "data.features.bins=32", "train.epochs=2"], settings].concat())
}

#[test]
fn deterministic_runs_on_a_gpu_are_equal_to_the_bit() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    corpus(&voices);
    for precision in ["f32", "tf32", "bf16"] {
        let runs = ["a", "b", "c"].map(|name| {
            let run = dir.path().join(format!("{precision}-{name}"));
            let settings = ["train.deterministic=true", &format!("train.precision=\"{precision}\"")];
            Trainer::new_on(gpu, wide(&voices, &settings), &run, &()).unwrap().run(&AtomicBool::new(false)).unwrap();
            run
        });
        for other in &runs[1..] {
            assert_same_metrics(&runs[0], other, precision);
            assert!(weights(&runs[0], "last") == weights(other, "last"), "{precision}: weights differ");
        }
    }
}

#[test]
fn a_loss_that_is_not_finite_stops_a_gpu_with_the_last_good_checkpoint() {
    if !present() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let voices = dir.path().join("voices");
    corpus(&voices);
    let settings = ["train.lr=1e30", "train.schedule.kind=constant", "train.save_every=1"];
    for (name, settings) in [("saved", &settings[..]), ("unsaved", &settings[..2])] {
        let run = dir.path().join(name);
        let experiment = recipe(&voices, "kind = \"dense\"", settings);
        let error = Trainer::new_on(gpu, experiment, &run, &()).unwrap().run(&AtomicBool::new(false)).unwrap_err();
        let Error::NotFinite { step, epoch, last, .. } = &error else { panic!("{error}") };
        assert!((2..=3).contains(step) && *epoch == 1, "{error}");
        assert_eq!(last.is_some(), name == "saved", "{error}");
    }
}

/// Reproducible numbers of about this size, some of them equal: ties.
fn noise(count: usize, size: f32, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761) | 1;
    let mut next = move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 12) as f32 / (1 << 19) as f32 - 1.0) * size
    };
    (0..count).map(|_| next()).collect()
}

fn downloaded<B: Device>(device: &B, params: &Params<B>) -> Vec<Vec<f32>> {
    let mut all: Vec<Vec<f32>> = params.all().iter().map(|p| vec![0.0; p.param.len()]).collect();
    all.iter_mut().zip(params.all()).for_each(|(read, p)| device.download(&p.value, read).unwrap());
    all
}

fn assert_same_bits(what: &str, names: &[Param], ours: &[Vec<f32>], theirs: &[Vec<f32>]) {
    for ((name, ours), theirs) in names.iter().zip(ours).zip(theirs) {
        let differs = |(_, (a, b)): &(usize, (&f32, &f32))| a.to_bits() != b.to_bits();
        let count = ours.iter().zip(theirs).enumerate().filter(differs).count();
        if let Some((at, (a, b))) = ours.iter().zip(theirs).enumerate().find(differs) {
            panic!(
                "{what}: {}[{at}] is {a:e} on slices and {b:e} on the device; {count} of {} differ",
                name.name,
                ours.len()
            );
        }
        assert_eq!(ours.len(), theirs.len(), "{what}: {}", name.name);
    }
}

/// λ by the quantile law, the duals that follow it, and the weights thresholded anew: on a device as on slices, to the
/// last bit.
fn laws_and_variants_are_those_of_slices<B: Device>(backend: B) {
    let config = EcapaConfig { channels: 32, ..EcapaConfig::default() };
    let mut model = TrainableModel::new(backend, &bregman_nn::Architecture::new(80, config), Some(70), 5).unwrap();
    let params: Vec<Param> = model.params().described();
    let penalties = [Penalty::L1, Penalty::L1NonNegative, Penalty::GroupKernel, Penalty::GroupRow];
    for (case, (penalty, variant)) in penalties
        .into_iter()
        .flat_map(|penalty| {
            [Variant::SubgradientCorrection, Variant::Steady, Variant::Plain].map(|variant| (penalty, variant))
        })
        .enumerate()
    {
        let what = format!("{penalty:?}, {variant:?}");
        let weights = [Role::ConvWeight, Role::LinearWeight];
        let rules = vec![
            GroupRule { penalty, ..GroupRule::for_roles(weights) },
            GroupRule { penalty, lambda_scale: 1.7, ..GroupRule::for_roles([Role::Classifier]) },
        ];
        let groups = Groups::resolve(params.clone(), rules).unwrap();
        let random = |size: f32, seed: u32| -> Vec<Vec<f32>> {
            params.iter().zip(0..).map(|(param, at)| noise(param.len(), size, seed + 100 * at)).collect()
        };
        let mut theta: Vec<Vec<f32>> = random(0.05, case as u32);
        let grads = random(0.3, 1000 + case as u32);
        let rule = Rule::LinBreg(LinBreg { variant, delta: 0.8, ..LinBreg::default() });
        let mut host = Optimizer::new(rule, groups.clone(), 0.01, &theta).unwrap();
        host.set_freeze(Freeze { every: 2, ..Freeze::default() }).unwrap();
        host.step(&mut theta, &grads, 0.1).unwrap();
        // the device begins where the slices are
        let mut placed =
            host.clone().place(|arrays| model.backend().place(arrays, &model.params().described())).unwrap();
        let (device, values) = model.parts_mut();
        values.all_mut().iter_mut().zip(&theta).for_each(|(p, theta)| device.upload(theta, &mut p.value).unwrap());
        values.all_mut().iter_mut().zip(&grads).for_each(|(p, grads)| device.upload(grads, &mut p.grad).unwrap());
        assert!(!host.next_is_full());
        host.step(&mut theta, &grads, 0.1).unwrap();
        let (mut there, gradients) = values.values_and_gradients();
        placed.step_on(&mut there, &gradients, 0.1).unwrap();
        assert_same_bits(&format!("{what}, frozen: weight"), &params, &theta, &downloaded(device, values));
        for (round, (target, layers)) in
            [(0.6, None), (0.9, Some(Budget::default())), (0.5, None)].into_iter().enumerate()
        {
            let what = format!("{what}, target {target}{}", if layers.is_some() { " per layer" } else { "" });
            let config = ControllerConfig {
                law: Law::Quantile(Quantile {}),
                period: 1,
                layers,
                ..ControllerConfig::new(target)
            };
            let [mut ours, mut theirs] = [(); 2].map(|()| Controller::new(config.clone(), &groups, 0.01).unwrap());
            let moved = host.control(&mut ours).unwrap();
            assert_eq!(placed.control(&mut theirs).unwrap(), moved, "{what}");
            assert_eq!(ours.lambda(), theirs.lambda(), "{what}: λ");
            host.set_lambda(ours.lambda(), &theta).unwrap();
            let buffers: Vec<_> = values.all().iter().map(|p| &p.value).collect();
            placed.set_lambda_on(theirs.lambda(), &buffers).unwrap();
            let duals = |arrays: &[TensorState]| arrays.iter().map(|state| state.p.clone()).collect::<Vec<_>>();
            let there = duals(&placed.state().tensors.fetch().unwrap());
            assert_same_bits(&format!("{what}, round {round}: dual"), &params, &duals(&host.state().tensors), &there);
            host.reproject(&mut theta).unwrap();
            placed.reproject_on(&mut values.values_and_gradients().0).unwrap();
            let there = downloaded(device, values);
            assert_same_bits(&format!("{what}, round {round}: weight"), &params, &theta, &there);
            let zeros = |stats: &[TensorStats]| stats.iter().map(|stats| stats.zeros).collect::<Vec<_>>();
            assert_eq!(zeros(host.stats()), zeros(placed.stats()), "{what}: zeros");
            let sparsity = ours.controlled(host.stats()).sparsity();
            assert!(variant != Variant::Plain || sparsity >= target - 1e-3, "{what}: sparsity {sparsity}");
        }
    }
}

#[test]
fn laws_and_variants_on_the_gpu_are_those_of_the_cpu_to_the_last_bit() {
    laws_and_variants_are_those_of_slices(Cpu::new()); // the test itself is sound
    if present() {
        laws_and_variants_are_those_of_slices(Cuda::open(0, Precision::F32).unwrap());
    }
}

/// Exchanges a third of the weights at every step but each third, when it lifts all masks.
#[derive(Debug)]
struct Moving;

impl MaskPolicy for Moving {
    fn sparsity(&self, clock: &RunClock) -> f64 {
        if clock.step % 3 == 2 { 0.0 } else { 0.7 }
    }

    fn change(&self, clock: &RunClock) -> Option<MaskChange> {
        Some(MaskChange { sparsity: self.sparsity(clock), exchanged: 0.3 })
    }

    fn grow(&self, layer: &MaskedLayer<'_>) -> Option<Vec<f32>> {
        Some(layer.gradients())
    }

    fn needs_gradients(&self) -> bool {
        true
    }
}

/// Masks, what they drop and where moments begin again: on a device as on slices, to the last bit.
fn masks_are_those_of_slices<B: Device>(backend: B) {
    let config = EcapaConfig { channels: 32, ..EcapaConfig::default() };
    let mut model = TrainableModel::new(backend, &bregman_nn::Architecture::new(80, config), Some(70), 5).unwrap();
    let params: Vec<Param> = model.params().described();
    let random = |size: f32, seed: u32| -> Vec<Vec<f32>> {
        params.iter().zip(0..).map(|(param, at)| noise(param.len(), size, seed + 100 * at)).collect()
    };
    let (mut theta, grads) = (random(0.05, 1), random(0.3, 2));
    let groups = Groups::resolve(params.clone(), vec![GroupRule::dense()]).unwrap();
    let mut host = Optimizer::new(Rule::AdamW(AdamW::default()), groups, 1.0, &theta).unwrap();
    host.step(&mut theta, &grads, 0.1).unwrap();
    let mut placed = host.clone().place(|arrays| model.backend().place(arrays, &model.params().described())).unwrap();
    let (device, values) = model.parts_mut();
    for ((parameter, theta), g) in values.all_mut().iter_mut().zip(&theta).zip(&grads) {
        device.upload(theta, &mut parameter.value).unwrap();
        device.upload(g, &mut parameter.grad).unwrap();
    }
    let slices: Vec<&[f32]> = grads.iter().map(|g| &**g).collect();
    for (name, topology) in moving_masks() {
        for round in 0..2 {
            host.start_masks(&topology, round, &mut theta, &slices).unwrap();
            let (mut there, gradients) = values.values_and_gradients();
            placed.start_masks_on(&topology, round, &mut there, &gradients).unwrap();
        }
        for step in 0..7 {
            let clock = RunClock { step, total: 7, epoch: step, batch: 0 };
            host.move_masks(&topology, &clock, &mut theta, &slices).unwrap();
            let (mut there, gradients) = values.values_and_gradients();
            placed.move_masks_on(&topology, &clock, &mut there, &gradients).unwrap();
            let what = format!("{name}, step {step}");
            let arrays = placed.state().tensors.fetch().unwrap();
            assert_eq!(&*arrays, &*host.state().tensors, "{what}: moments and masks");
            assert_same_bits(&format!("{what}: weight"), &params, &theta, &downloaded(device, values));
        }
    }
}

/// Learnt thresholds and what they do, on a device as on slices; sums are of another order there.
fn thresholds_are_those_of_slices<B: Device>(backend: B) {
    let config = EcapaConfig { channels: 32, ..EcapaConfig::default() };
    let mut model = TrainableModel::new(backend, &bregman_nn::Architecture::new(80, config), Some(70), 5).unwrap();
    let params: Vec<Param> = model.params().described();
    let random = |size: f32, seed: u32| -> Vec<Vec<f32>> {
        params.iter().zip(0..).map(|(param, at)| noise(param.len(), size, seed + 100 * at)).collect()
    };
    let mut theta = random(0.05, 1);
    let groups = Groups::resolve(params.clone(), vec![]).unwrap();
    let mut host = Optimizer::new(Rule::Str(Str::new(Sgd::default(), 0.5)), groups, 0.01, &theta).unwrap();
    let mut placed = host.clone().place(|arrays| model.backend().place(arrays, &model.params().described())).unwrap();
    let (device, values) = model.parts_mut();
    values.all_mut().iter_mut().zip(&theta).for_each(|(p, theta)| device.upload(theta, &mut p.value).unwrap());
    for step in 0..10 {
        let grads = random(0.3, 1000 + step);
        values.all_mut().iter_mut().zip(&grads).for_each(|(p, g)| device.upload(g, &mut p.grad).unwrap());
        host.step(&mut theta, &grads, 0.05).unwrap();
        let (mut there, gradients) = values.values_and_gradients();
        placed.step_on(&mut there, &gradients, 0.05).unwrap();
        for (ours, theirs) in host.state().lambda.iter().zip(&placed.state().lambda) {
            assert!((ours - theirs).abs() < 1e-6 * ours, "step {step}: {ours} and {theirs}");
        }
        let there = downloaded(device, values);
        let apart = theta.iter().flatten().zip(there.iter().flatten()).filter(|(a, b)| (*a - *b).abs() > 1e-4).count();
        assert!(apart <= 10, "step {step}: {apart} weights"); // a few stand on their threshold, to the last bit
    }
    let zeros: u64 = host.stats().iter().map(|stats| stats.zeros).sum();
    assert!(zeros > 1000, "{zeros}: nothing was behind its threshold");
}

#[test]
fn learnt_thresholds_on_the_gpu_are_those_of_the_cpu() {
    thresholds_are_those_of_slices(Cpu::new()); // the test itself is sound
    if present() {
        thresholds_are_those_of_slices(Cuda::open(0, Precision::F32).unwrap());
    }
}

/// Every policy that moves masks, in a run of seven steps and epochs.
fn moving_masks() -> Vec<(&'static str, Topology)> {
    let target = 0.7;
    let exchange = Exchange { period: 2, fraction: 0.3, until: 1.0 };
    let stages = vec![MutationStage { until: 0.5, fraction: 0.2 }, MutationStage { until: 1.0, fraction: 0.1 }];
    let (all, each) = (Pruning::default(), Pruning { layers: Some(Budget::erk()), ..Pruning::default() });
    let granet = GraNet { target, from: 0.5, period: 1, fraction: 0.5, until: 0.7 };
    let mest = Mest { target, period: 1, stages, gradient_weight: 0.1 };
    let exchanged = |growth| DropGrow { target, exchange, growth };
    vec![
        ("on and off", Topology::new(Moving, all.clone(), 1).unwrap()),
        ("SNIP", Topology::new(Snip { target: 0.5, rounds: 2 }, all.clone(), 1).unwrap()),
        ("GraNet", Topology::new(granet, all.clone(), 1).unwrap()),
        ("AC/DC", Topology::new(AcDc { target, phases: Phases::published(7) }, all, 1).unwrap()),
        ("SET", Topology::new(exchanged(Growth::Random), each.clone(), 1).unwrap()),
        ("RigL", Topology::new(exchanged(Growth::Steepest), each.clone(), 1).unwrap()),
        ("MEST", Topology::new(mest, each, 1).unwrap()),
    ]
}

#[test]
fn masks_on_the_gpu_are_those_of_the_cpu_to_the_last_bit() {
    masks_are_those_of_slices(Cpu::new()); // the test itself is sound
    if present() {
        masks_are_those_of_slices(Cuda::open(0, Precision::F32).unwrap());
    }
}

#[test]
fn non_zeros_at_a_lambda_are_counted_on_the_gpu_as_on_the_cpu() {
    if !present() {
        return;
    }
    let cuda = Cuda::open(0, Precision::F32).unwrap();
    let params = vec![Param::new("a", [70, 1000], Role::LinearWeight), Param::new("b", [33, 8, 5], Role::ConvWeight)];
    let rules = vec![GroupRule { lambda_scale: 0.3, penalty: Penalty::GroupKernel, ..GroupRule::default() }];
    let groups = Groups::resolve(params.clone(), rules).unwrap();
    let theta: Vec<Vec<f32>> = params.iter().map(|param| noise(param.len(), 0.1, 3)).collect();
    let host = Optimizer::new(Rule::LinBreg(LinBreg::default()), groups, 0.01, &theta).unwrap();
    let mut arrays = cuda.place_arrays(&host.state().tensors).unwrap();
    let duals = arrays.duals(host.dual_keys()).unwrap();
    for (tensors, lambda) in [(&[0usize, 1][..], 0.1), (&[1], 0.2), (&[0], 0.05), (&[], 1.0)] {
        let expected = host.duals().unwrap().live_at(tensors, lambda).unwrap();
        assert_eq!(duals.live_at(tensors, lambda).unwrap(), expected, "tensors {tensors:?}, λ {lambda}");
    }
}

#[test]
fn embeddings_on_the_gpu_are_those_of_the_cpu() {
    let dir = tempfile::tempdir().unwrap();
    corpus(&dir.path().join("voices"));
    let networks = [
        ("resnet", vec![]),
        ("resnet in bf16", vec!["train.precision=bf16"]),
        ("ecapa", vec!["model={ kind = \"ecapa\", channels = 32, embedding = 24 }"]),
    ];
    for (name, settings) in networks {
        let method = "kind = \"adaptive\"\ntarget = 0.5\ngroups = [{ initial_sparsity = 0.5 }]\n\
            optimizer = { kind = \"adabreg\" }";
        let experiment = recipe(&dir.path().join("voices"), method, &[&settings[..], &["train.epochs=1"]].concat());
        let run = dir.path().join(name);
        train(experiment, &run).unwrap();
        let mut here = Trained::load(&run).unwrap();
        if !present() {
            continue;
        }
        let mut there = Trained::load_on(&gpu, &run).unwrap();
        for samples in [48_000usize, 7_777, 16_000, 4_000, 7_777] {
            let utterance = noise(samples, 0.1, samples as u32);
            let (ours, theirs) = (here.embed(&utterance).unwrap(), there.embed(&utterance).unwrap());
            let length =
                |values: &mut dyn Iterator<Item = f32>| values.map(|x| f64::from(x).powi(2)).sum::<f64>().sqrt();
            let apart = length(&mut ours.iter().zip(&theirs).map(|(a, b)| a - b)) / length(&mut ours.iter().copied());
            println!("{name}, {samples} samples: {apart:e} apart");
            assert!(apart < 1e-4, "{name}, {samples} samples: {apart:e} apart");
        }
        assert_eq!(here.embed(&[0.0; 100]).is_err(), there.embed(&[0.0; 100]).is_err(), "{name}: shorter than a frame");
    }
}
