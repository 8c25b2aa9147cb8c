//! Every optimizer, the λ controller and magnitude pruning against the numbers of the reference implementations.
//! Case names, shapes and settings come from the files; see `golden/README.md`.

use bregman::{
    AdaBreg, AdaptiveOptimizer, Controller, ControllerConfig, Damping, GroupRule, Groups, Law, LinBreg, Multiplicative,
    Optimizer, Param, Penalty, ProxSgd, Pruning, Ramp, RampShape, Role, Rule, Shrinkage, TensorStats, Variant,
};
use bregman_golden::{Tensors, json};
use serde_json::Value;

/// Tolerance of the golden README for parameters and subgradients.
const TOLERANCE: f32 = 3e-5;

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {value}"))
}

fn names(value: &Value) -> Vec<String> {
    value.as_array().expect("a list").iter().map(|name| name.as_str().expect("a name").to_string()).collect()
}

fn shape(json: &Value, tensor: &str) -> Vec<usize> {
    json["shapes"][tensor].as_array().expect("a shape").iter().map(|n| n.as_u64().expect("a size") as usize).collect()
}

/// `linbreg_m09` → LinBreg with momentum 0.9.
fn rule(json: &Value, name: &str, delta: f64) -> Rule {
    let (name, momentum) = match name.split_once("_m0") {
        Some((name, digits)) => (name, format!("0.{digits}").parse().expect("momentum digits")),
        None => (name, 0.0),
    };
    let betas = |i: usize| json["adabreg"]["betas"][i].as_f64().expect("a beta");
    match name {
        "linbreg" => Rule::LinBreg(LinBreg { momentum, delta, variant: Variant::Plain }),
        "adabreg" => Rule::AdaBreg(AdaBreg {
            beta1: betas(0),
            beta2: betas(1),
            eps: number(&json["adabreg"], "eps"),
            delta,
            ..AdaBreg::default()
        }),
        "proxsgd" => Rule::ProxSgd(ProxSgd {}),
        other => panic!("golden optimizer `{other}` is unknown"),
    }
}

fn penalty(regularizer: &str) -> Penalty {
    match regularizer {
        "l1" => Penalty::L1,
        "l1l2conv" => Penalty::GroupKernel,
        "l1l2" => Penalty::GroupRow,
        other => panic!("golden regularizer `{other}` is unknown"),
    }
}

fn groups(json: &Value, tensors: &[String], penalty: Penalty) -> Groups {
    let params = tensors.iter().map(|tensor| Param::new(tensor, shape(json, tensor), Role::LinearWeight)).collect();
    Groups::resolve(params, vec![GroupRule { penalty, ..GroupRule::default() }]).expect("groups")
}

/// The gradient of each tensor at step `step` (from 0).
fn gradients(golden: &Tensors, groups: &Groups, step: usize) -> Vec<Vec<f32>> {
    let of = |param: &Param| {
        golden.f32(&format!("grad.{}", param.name))[step * param.len()..(step + 1) * param.len()].to_vec()
    };
    groups.params().iter().map(of).collect()
}

fn initial(golden: &Tensors, tensors: &[String]) -> Vec<Vec<f32>> {
    tensors.iter().map(|tensor| golden.f32(&format!("init.{tensor}"))).collect()
}

fn assert_close(found: &[f32], expected: &[f32], what: &str) {
    let worst = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= TOLERANCE, "{what}: off by {worst:e}");
}

#[test]
fn every_optimizer_follows_the_reference_step_by_step() {
    let (golden, json) = (Tensors::load("optimizers"), json("optimizers"));
    let steps = json["steps"].as_u64().expect("steps") as usize;
    let snapshots: Vec<usize> =
        json["snapshots"].as_array().expect("snapshots").iter().map(|n| n.as_u64().expect("a step") as usize).collect();
    let runs = json["runs"].as_object().expect("runs");
    assert!(!runs.is_empty());
    let mut compared = 0;
    for (run, settings) in runs {
        let tensors = names(&settings["tensors"]);
        let groups = groups(&json, &tensors, penalty(settings["regularizer"].as_str().expect("a regularizer")));
        let delta = settings["delta"].as_f64().unwrap_or(1.0);
        let rule = rule(&json, run.split('.').next().expect("an optimizer name"), delta);
        let (lambda, lr) = (number(settings, "lambda"), number(settings, "lr"));
        let mut theta = initial(&golden, &tensors);

        for (tensor, (name, theta)) in tensors.iter().zip(&theta).enumerate() {
            let (value, expected) =
                (lambda * groups.shrinkage(tensor).value(theta), number(&settings["regularizer_value_at_init"], name));
            assert!(
                (value - expected).abs() <= 1e-5 * expected,
                "{run}: penalty of {name} is {value}, expected {expected}"
            );
        }

        let mut optimizer = Optimizer::new(rule, groups, lambda, &theta).expect("optimizer");
        for step in 1..=steps {
            let grads = gradients(&golden, optimizer.groups(), step - 1);
            optimizer.step(&mut theta, &grads, lr).expect("step");
            if !snapshots.contains(&step) {
                continue;
            }
            for (tensor, name) in tensors.iter().enumerate() {
                let key = format!("{run}.{name}.step{step}");
                let expected = golden.f32(&format!("{key}.param"));
                assert_close(&theta[tensor], &expected, &key);
                assert!(
                    theta[tensor].iter().zip(&expected).all(|(a, b)| (*a == 0.0) == (*b == 0.0)),
                    "{key}: zero pattern differs"
                );
                assert_eq!(
                    optimizer.stats()[tensor].zeros,
                    settings["zeros_after"][step.to_string()][name].as_u64().expect("a count"),
                    "{key}"
                );
                if golden.has(&format!("{key}.subgrad")) {
                    assert_close(
                        &optimizer.state().tensors[tensor].p,
                        &golden.f32(&format!("{key}.subgrad")),
                        &format!("{key} dual"),
                    );
                }
                compared += 1;
            }
        }
    }
    assert!(compared >= runs.len(), "every run was compared");
}

#[test]
fn optimizer_and_controller_together_follow_the_reference() {
    let (golden, json) = (Tensors::load("optimizers"), json("optimizers"));
    let steps = json["steps"].as_u64().expect("steps") as usize;
    for (run, settings) in json["coupled"].as_object().expect("coupled runs") {
        let name = run.split('.').nth(1).expect("an optimizer name");
        let mut tensors: Vec<String> = json["shapes"].as_object().expect("shapes").keys().cloned().collect();
        tensors.retain(|tensor| golden.has(&format!("{run}.{tensor}.step{steps}.param")));
        let groups = groups(&json, &tensors, Penalty::L1);
        let config = ControllerConfig {
            lambda: Some(number(settings, "initial_lambda")),
            period: 1,
            law: Law::Multiplicative(Multiplicative { alpha: number(settings, "alpha"), damping: Damping::Off }),
            ..ControllerConfig::new(number(settings, "target_sparsity"))
        };
        let mut theta = initial(&golden, &tensors);
        let mut optimizer =
            AdaptiveOptimizer::new(rule(&json, name, number(settings, "delta")), groups, config, &theta)
                .expect("adaptive optimizer");
        let column = |what: &str| golden.f64(&format!("{run}.{what}"));
        let (used, sparsity, after) = (column("lambda_used"), column("sparsity"), column("lambda_after"));
        for step in 0..steps {
            let grads = gradients(&golden, optimizer.optimizer().groups(), step);
            let report = optimizer.step(&mut theta, &grads, number(settings, "lr")).expect("step");
            let close = |found: f64, expected: f64| (found - expected).abs() <= 1e-9 * expected.abs();
            assert!(
                close(report.lambda, used[step]),
                "{run}: λ of step {step} is {}, expected {}",
                report.lambda,
                used[step]
            );
            assert!((report.sparsity - sparsity[step]).abs() < 1e-12, "{run}: sparsity of step {step}");
            assert!(close(optimizer.controller().state()[0].lambda, after[step]), "{run}: λ after step {step}");
        }
        for (tensor, name) in tensors.iter().enumerate() {
            let key = format!("{run}.{name}.step{steps}");
            assert_close(&theta[tensor], &golden.f32(&format!("{key}.param")), &key);
            assert_close(
                &optimizer.optimizer().state().tensors[tensor].p,
                &golden.f32(&format!("{key}.subgrad")),
                &key,
            );
        }
    }
}

#[test]
fn the_multiplicative_controller_follows_the_reference() {
    let (golden, json) = (Tensors::load("lambda_controller"), json("lambda_controller"));
    let (sparsity, steps) = (golden.f64("sparsity"), golden.i64("step"));
    let groups = Groups::resolve(vec![Param::new("w", [1, 1], Role::LinearWeight)], vec![]).expect("groups");
    for (run, settings) in json["runs"].as_object().expect("runs") {
        let expected = golden.f64(run);
        let warmup = settings["warmup_epochs"]
            .as_u64()
            .map_or(0, |epochs| epochs * settings["steps_per_epoch"].as_u64().expect("steps"));
        let config = ControllerConfig {
            period: settings["update_frequency"].as_u64().expect("a period"),
            law: Law::Multiplicative(Multiplicative { alpha: number(settings, "alpha"), damping: Damping::Off }),
            warmup,
            ..ControllerConfig::new(number(settings, "target"))
        };
        let first = settings["first_step"].as_u64().unwrap_or(steps[0] as u64);
        let mut controller = Controller::new(config, &groups, number(settings, "initial")).expect("controller");
        for (i, (&sparsity, &expected)) in sparsity.iter().zip(&expected).enumerate() {
            // a count fine enough that zeros/len is the reading to the precision of the comparison
            let len = 1u64 << 52;
            let stats = TensorStats { len, zeros: (sparsity * len as f64).round() as u64, sum_squares: 0.0 };
            controller.update(first + i as u64, &[stats], None).expect("update");
            let found = controller.state()[0].lambda;
            assert!(
                (found - expected).abs() <= 1e-12 * expected,
                "{run}: call {i} gave {found:e}, expected {expected:e}"
            );
        }
    }
}

#[test]
fn magnitude_masks_and_schedules_equal_the_reference() {
    let (golden, json) = (Tensors::load("pruning"), json("pruning"));
    let tensors: Vec<String> =
        golden.names().iter().filter_map(|name| name.strip_prefix("weight.").map(String::from)).collect();
    let params: Vec<Param> =
        tensors.iter().map(|t| Param::new(t, golden.shape(&format!("weight.{t}")), Role::LinearWeight)).collect();
    let weights: Vec<Vec<f32>> = tensors.iter().map(|t| golden.f32(&format!("weight.{t}"))).collect();
    let layers: Vec<(&Param, &[f32])> = params.iter().zip(&weights).map(|(p, w)| (p, w.as_slice())).collect();
    for (amount, settings) in json["masks"].as_object().expect("masks") {
        let masks = Pruning::default().masks(&layers, amount.parse().expect("a share")).expect("masks");
        for (tensor, mask) in tensors.iter().zip(&masks) {
            let expected: Vec<bool> =
                golden.i64(&format!("mask{amount}.{tensor}")).into_iter().map(|kept| kept == 1).collect();
            assert_eq!(mask, &expected, "mask {amount} of {tensor}");
        }
        let pruned = masks.concat().iter().filter(|kept| !**kept).count() as u64;
        assert_eq!(pruned, settings["pruned_total"].as_u64().expect("a count"));
    }
    let ramp = Ramp {
        shape: RampShape::Exponential,
        from: 0.0,
        begin: 0,
        end: json["iterations"].as_u64().expect("iterations"),
    };
    for target in json["schedule"].as_object().expect("schedules").keys() {
        for (i, expected) in golden.f64(&format!("schedule.{target}")).into_iter().enumerate() {
            let found = ramp.at(i as u64, target.parse().expect("a share"));
            assert!((found - expected).abs() <= 1e-12, "schedule {target} at {i}: {found}, expected {expected}");
        }
    }
}

#[test]
fn kernel_groups_of_one_are_plain_l1() {
    for shape in [vec![16, 8], vec![16, 8, 1], vec![16, 8, 1, 1]] {
        assert_eq!(Penalty::GroupKernel.on(&Param::new("w", shape, Role::LinearWeight)), Shrinkage::Soft);
    }
}
