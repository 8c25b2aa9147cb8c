//! STR against its definition: weights, thresholds and their gradients.

use bregman::{
    AdaptiveOptimizer, ControllerConfig, Error, GroupRule, Groups, Optimizer, Param, Penalty, Ramp, RampShape, Role,
    Rule, Sgd, Str,
};
use bregman_base::Rng;

const TAU: f64 = 0.05;

fn groups() -> Groups {
    let params = vec![Param::new("w", [20, 30], Role::LinearWeight), Param::new("bias", [20], Role::Bias)];
    Groups::resolve(params, vec![]).unwrap()
}

fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::keyed(&[seed]);
    (0..len).map(|_| rng.symmetric(1.0)).collect()
}

fn small(len: usize, seed: u64) -> Vec<f32> {
    noise(len, seed).into_iter().map(|x| 0.1 * x).collect()
}

fn start() -> Vec<Vec<f32>> {
    vec![small(600, 1), noise(20, 2)]
}

fn gradients(step: u64) -> Vec<Vec<f32>> {
    vec![noise(600, 10 + step), noise(20, 100 + step)]
}

fn rule() -> Str {
    Str::new(Sgd::default(), 0.5)
}

fn sigmoid(s: f64) -> f64 {
    1.0 / (1.0 + (-s).exp())
}

fn soft(w: f64, threshold: f64) -> f64 {
    w.signum() * (w.abs() - threshold).max(0.0)
}

#[test]
fn weights_and_threshold_follow_the_equations() {
    let mut theta = start();
    let first = 0.02;
    let mut optimizer = Optimizer::new(Rule::Str(rule()), groups(), first, &theta).unwrap();
    let mut w: Vec<f64> = theta[0].iter().map(|&x| f64::from(x) + first * f64::from(x.signum())).collect();
    let (mut m, mut s) = (vec![0.0; w.len()], (first / (1.0 - first)).ln());
    let (mut died, mut thresholds) = (0, vec![first]);
    for step in 0..60 {
        let grads = gradients(step);
        optimizer.step(&mut theta, &grads, TAU).unwrap();
        let threshold = sigmoid(s);
        let g: Vec<f64> = grads[0].iter().map(|&g| f64::from(g)).collect();
        let pull: f64 = w.iter().zip(&g).map(|(w, g)| g * w.signum() * f64::from(w.abs() > threshold)).sum();
        for ((w, m), g) in w.iter_mut().zip(&mut m).zip(&g) {
            let g = if w.abs() > threshold { *g } else { 0.0 } + 1e-4 * *w;
            *m = 0.9 * *m + g;
            *w -= TAU * (g + 0.9 * *m);
        }
        s -= TAU * (0.5 * s - threshold * (1.0 - threshold) * pull);
        let lambda = optimizer.state().lambda[0];
        assert!((lambda - sigmoid(s)).abs() < 1e-4 * sigmoid(s), "step {step}: {lambda}, not {}", sigmoid(s));
        let off = |x: f64, w: f64| (x - soft(w, sigmoid(s))).abs() > 2e-3 * (1.0 + w.abs());
        let wrong = theta[0].iter().zip(&w).filter(|(x, w)| off(f64::from(**x), **w)).count();
        assert!(wrong <= 2, "step {step}: {wrong} weights"); // a few may stand on the threshold
        died = died.max(optimizer.stats()[0].zeros);
        thresholds.push(lambda);
    }
    assert!(died > 30, "{died}");
    assert!(thresholds.windows(2).any(|pair| pair[1] > pair[0]) && thresholds[60] > 5.0 * first, "{thresholds:?}");
    assert_eq!(theta[1].iter().filter(|x| **x == 0.0).count(), 0, "biases have no threshold");
}

/// ∂L/∂s of L(θ) = ½‖θ − t‖² from one step without decay, against a difference of losses.
#[test]
fn the_gradient_of_the_threshold_is_that_of_finite_differences() {
    let theta = start();
    let goal = noise(600, 5);
    let plain = Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let threshold: f64 = 0.03;
    let mut optimizer = Optimizer::new(Rule::Str(Str::new(plain, 0.0)), groups(), threshold, &theta).unwrap();
    let w: Vec<f64> = optimizer.state().tensors[0].p.iter().map(|&w| f64::from(w)).collect();
    let s = (threshold / (1.0 - threshold)).ln();
    let loss = |s: f64| -> f64 {
        w.iter().zip(&goal).map(|(&w, &t)| 0.5 * (soft(w, sigmoid(s)) - f64::from(t)).powi(2)).sum()
    };
    let slope = (loss(s + 1e-6) - loss(s - 1e-6)) / 2e-6;
    let grads = [theta[0].iter().zip(&goal).map(|(x, t)| x - t).collect(), vec![0.0f32; 20]];
    optimizer.step(&mut theta.clone(), &grads, 1e-3).unwrap();
    let lambda = optimizer.state().lambda[0];
    let moved = s - (lambda / (1.0 - lambda)).ln();
    assert!((moved / 1e-3 - slope).abs() < 1e-3 * slope.abs(), "{} against {slope}", moved / 1e-3);
}

/// w of a zero weight moves by momentum and decay alone, and thresholds by the gradients of the others.
#[test]
fn gradients_of_zero_weights_are_not_needed() {
    let run = |all: bool| {
        let mut theta = start();
        let mut optimizer = Optimizer::new(Rule::Str(rule()), groups(), 0.05, &theta).unwrap();
        let mut woke = 0;
        for step in 0..40 {
            let mut grads = gradients(step);
            if !all {
                grads[0].iter_mut().zip(&theta[0]).filter(|(_, x)| **x == 0.0).for_each(|(g, _)| *g = 0.0);
            }
            let before = theta[0].clone();
            optimizer.step(&mut theta, &grads, TAU).unwrap();
            woke += theta[0].iter().zip(before).filter(|(now, before)| **now != 0.0 && *before == 0.0).count();
        }
        assert!(woke > 10, "{woke} weights became non-zero again");
        (theta, optimizer.state().clone())
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_controller_reaches_its_target_and_leaves_the_ratios_of_the_thresholds_to_learning() {
    let params = vec![Param::new("a", [20, 30], Role::LinearWeight), Param::new("b", [50, 40], Role::LinearWeight)];
    let groups = Groups::resolve(params, vec![]).unwrap();
    let mut theta = vec![small(600, 1), small(2000, 2)];
    let rule = Rule::Str(Str::new(Sgd { momentum: 0.0, ..Sgd::default() }, 0.0));
    let ramp = Ramp { shape: RampShape::Cubic, from: 0.0, begin: 0, end: 60 };
    let config = ControllerConfig { ramp: Some(ramp), lambda: Some(1e-3), period: 2, ..ControllerConfig::new(0.9) };
    let mut optimizer = AdaptiveOptimizer::new(rule, groups, config, &theta).unwrap();
    let ratio = |optimizer: &AdaptiveOptimizer| {
        let [a, b] = optimizer.optimizer().state().lambda[..] else { panic!("two tensors") };
        a / b
    };
    for step in 1..=100 {
        let before = ratio(&optimizer);
        // only the first tensor's gradient pulls at its threshold, and only in the first half
        let pull = if step <= 50 { -0.002 } else { 0.0 };
        let grads = [theta[0].iter().map(|x| pull * x.signum()).collect(), vec![0.0f32; 2000]];
        let report = optimizer.step(&mut theta, &grads, TAU).unwrap();
        assert!((report.sparsity - report.target).abs() < 1.0 / 2600.0 || step % 2 == 1, "step {step}: {report:?}");
        let learnt = (ratio(&optimizer) / before - 1.0).abs();
        assert!(if pull < 0.0 { learnt < 0.1 } else { learnt < 1e-12 }, "step {step}: {learnt}");
    }
    assert!((ratio(&optimizer) - 1.0).abs() > 1e-3, "nothing was learnt");
    let zeros = theta.iter().flatten().filter(|x| **x == 0.0).count();
    assert_eq!(zeros, 2340);
    assert!(theta.iter().all(|theta| theta.iter().any(|x| *x != 0.0)));
}

#[test]
fn it_resumes_exactly_and_does_not_depend_on_the_number_of_threads() {
    let run = |threads, broken: bool| {
        rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(|| {
            let mut theta = start();
            let mut optimizer = Optimizer::new(Rule::Str(rule()), groups(), 0.02, &theta).unwrap();
            for step in 0..20 {
                if broken && step == 9 {
                    let saved = serde_json::to_string(optimizer.state()).unwrap();
                    optimizer = Optimizer::new(Rule::Str(rule()), groups(), 0.5, &start()).unwrap();
                    optimizer.restore(serde_json::from_str(&saved).unwrap(), &theta).unwrap();
                }
                optimizer.step(&mut theta, &gradients(step), TAU).unwrap();
            }
            (theta, optimizer.state().clone())
        })
    };
    assert_eq!(run(1, false), run(3, true));
}

#[test]
fn what_it_cannot_do_is_refused() {
    let theta = start();
    let rows = vec![GroupRule { penalty: Penalty::GroupRow, ..GroupRule::default() }];
    let grouped = Groups::resolve(groups().params().to_vec(), rows).unwrap();
    let error = Optimizer::new(Rule::Str(rule()), grouped, 0.02, &theta).unwrap_err();
    assert!(matches!(error, Error::Unsupported { optimizer: "STR", .. }), "{error}");
    let error = Optimizer::new(Rule::Str(rule()), groups(), 1.0, &theta).unwrap_err().to_string();
    assert!(error.contains("(0, 1)"), "{error}");
    let bad = Rule::Str(Str { threshold_decay: -1.0, ..rule() });
    assert!(Optimizer::new(bad, groups(), 0.5, &theta).unwrap_err().to_string().contains("str.threshold_decay"));
}
