//! Which gains oscillate, and what error remains: the measurements behind the chapter on stability.
//!
//! `cargo run --release -p bregman --example stability`

#[expect(dead_code, reason = "the tests use the rest of it")]
#[path = "../tests/plant/plant.rs"]
mod plant;

use bregman::{ControllerConfig, Damping, Density, Law, Multiplicative};
use plant::Plant;

fn law(alpha: f64, damping: Damping) -> Law {
    Law::Multiplicative(Multiplicative { alpha, damping })
}

/// The largest |ε| of the last 50 of 400 updates, duals at rest.
fn amplitude(target: f64, width: f32, alpha: f64) -> f64 {
    let mut plant = Plant::at_rest(target, width);
    plant.set_law(law(alpha, Damping::Off));
    (0..400).map(|_| plant.step().epsilon().abs()).skip(350).fold(0.0, f64::max)
}

/// The α at which the loop begins to swing, by bisection on a logarithmic scale.
fn boundary(target: f64, width: f32) -> f64 {
    let (mut calm, mut swinging) = (1e-3f64, 1e3f64);
    while swinging / calm > 1.02 {
        let middle = (calm * swinging).sqrt();
        *(if amplitude(target, width, middle) > 2e-3 { &mut swinging } else { &mut calm }) = middle;
    }
    (calm * swinging).sqrt()
}

/// Mean |ε| between steps 2500 and 3000 of duals that grow linearly.
fn remaining_error(alpha: f64, period: u64, damping: Damping) -> f64 {
    let config =
        ControllerConfig { law: law(alpha, damping), period, lambda: Some(0.05), ..ControllerConfig::new(0.95) };
    let mut plant = Plant::with_speed(config, |_| 0.01);
    (0..3000).map(|_| plant.step().epsilon().abs()).skip(2500).sum::<f64>() / 500.0
}

/// Updates until the count of live weights stays within `tolerance` of its target, λ₀ wrong by `wrong`; duals spread
/// as √t.
fn arrival(law: Law, target: f64, wrong: f64, tolerance: f64) -> Option<usize> {
    let config = ControllerConfig {
        law,
        period: 2,
        lambda: Some(wrong * plant::right_lambda(target)),
        ..ControllerConfig::new(target)
    };
    let mut plant = Plant::new(config);
    let off: Vec<bool> =
        (0..plant::STEPS).map(|_| (plant.step().epsilon() / (1.0 - target)).abs() > tolerance).collect();
    let last = off.iter().rposition(|&off| off)? + 1;
    (last < plant::STEPS * 9 / 10).then_some(last / 2)
}

fn main() {
    println!("where the loop begins to swing (duals at rest, ln|p| normal with this width, no damping)");
    println!("target  width  σ = λ·f(λ)  largest calm α     α·σ");
    for (target, width) in
        [0.75, 0.95, 0.99].into_iter().flat_map(|target| [1.0f32, 0.3, 0.1, 0.03].map(|width| (target, width)))
    {
        let sigma = Plant::at_rest(target, width).loop_gain().sensitivity;
        let alpha = boundary(target, width);
        println!("{target:>6}  {width:>5}  {sigma:>10.3}  {alpha:>14.3}  {:>6.2}", alpha * sigma);
    }
    println!("\nwhat remains when the duals grow linearly (target 95 %, step 2500 to 3000; f/(α·t) at t = 2750)");
    println!("     α    f  updates   f/(α·t)  |ε| off  |ε| band");
    for (alpha, period) in [0.25, 1.0, 4.0].into_iter().flat_map(|alpha| [5u64, 20, 50].map(|period| (alpha, period))) {
        let [off, band] = [Damping::Off, Damping::default()].map(|damping| remaining_error(alpha, period, damping));
        let predicted = period as f64 / (alpha * 2750.0);
        println!(
            "{alpha:>6} {period:>4}  {:>7}  {:>7.2} %  {:>5.2} %  {:>6.2} %",
            2750 / period,
            100.0 * predicted,
            100.0 * off,
            100.0 * band
        );
    }
    println!(
        "\nupdates until the live weights stay within 20 % and 5 % of their target count, λ₀ wrong by 100× down, \
         right, 100× up"
    );
    println!("target  law                   within 20 %            within 5 %");
    let laws = [
        ("multiplicative, off", law(1.0, Damping::Off)),
        ("multiplicative, band", law(1.0, Damping::default())),
        ("density", Law::Density(Density::default())),
    ];
    for (target, (name, law)) in [0.75, 0.95, 0.99].into_iter().flat_map(|target| laws.map(|law| (target, law))) {
        let updates = |tolerance| {
            [0.01, 1.0, 100.0]
                .map(|wrong| arrival(law, target, wrong, tolerance).map_or("never".into(), |n| n.to_string()))
        };
        let [coarse, fine] = [updates(0.2), updates(0.05)];
        println!(
            "{target:>6}  {name:<20}  {:>5} {:>5} {:>5}      {:>5} {:>5} {:>5}",
            coarse[0], coarse[1], coarse[2], fine[0], fine[1], fine[2]
        );
    }
}
