//! Sparse logistic regression, asked for 95 % zeros: the whole method in one screen.
//!
//! 2 000 samples of 1 000 features, of which 40 carry the label. `cargo run --release -p bregman --example logistic`

use std::time::Instant;

use bregman::{AdaptiveOptimizer, ControllerConfig, Density, Groups, Law, LinBreg, Param, Role, Rule};
use bregman_base::Rng;

const SAMPLES: usize = 2000;
const FEATURES: usize = 1000;
const INFORMATIVE: usize = 40;

fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Gradient of the mean logistic loss, and the accuracy on the way.
fn gradient(x: &[Vec<f32>], y: &[f32], w: &[f32]) -> (Vec<f32>, f32) {
    let (mut g, mut right) = (vec![0.0; w.len()], 0);
    for (x, &y) in x.iter().zip(y) {
        let score = dot(x, w);
        let residual = (1.0 / (1.0 + (-score).exp()) - y) / SAMPLES as f32;
        g.iter_mut().zip(x).for_each(|(g, x)| *g += residual * x);
        right += usize::from((score > 0.0) == (y > 0.5));
    }
    (g, right as f32 / x.len() as f32)
}

fn main() -> bregman::Result<()> {
    let mut rng = Rng::new(1);
    let mut sample = || (0..FEATURES).map(|_| rng.symmetric(1.0)).collect::<Vec<f32>>();
    let x: Vec<Vec<f32>> = (0..SAMPLES).map(|_| sample()).collect();
    let y: Vec<f32> = x.iter().map(|x| f32::from(x[..INFORMATIVE].iter().sum::<f32>() > 0.0)).collect();

    let started = Instant::now();
    let groups = Groups::resolve(vec![Param::new("w", [1, FEATURES], Role::LinearWeight)], vec![])?;
    let mut weights = vec![vec![0.0; FEATURES]];
    let config = ControllerConfig { law: Law::Density(Density::default()), period: 1, ..ControllerConfig::new(0.95) };
    let mut optimizer = AdaptiveOptimizer::new(Rule::LinBreg(LinBreg::default()), groups, config, &weights)?;
    println!("step  accuracy       λ  zeros");
    for step in 1..=200 {
        let (g, accuracy) = gradient(&x, &y, &weights[0]);
        let report = optimizer.step(&mut weights, &[g], 2.0)?;
        if step % 25 == 0 {
            println!(
                "{step:>4}  {:>6.1} %  {:>6.3}  {:>4.1} %",
                100.0 * accuracy,
                report.lambda,
                100.0 * report.sparsity
            );
        }
    }
    let found = weights[0][..INFORMATIVE].iter().filter(|w| **w != 0.0).count();
    println!("{found} of the {INFORMATIVE} informative features are live; {:.2} s", started.elapsed().as_secs_f32());
    Ok(())
}
