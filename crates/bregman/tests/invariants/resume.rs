//! Saved and continued is as never stopped.

use bregman::{
    AdaBreg, AdamW, AdaptiveOptimizer, Budget, ControllerConfig, Damping, Density, Freeze, Law, LinBreg,
    Multiplicative, Optimizer, Penalty, ProxSgd, Quantile, Ramp, RampShape, Rule, Sgd, Variant,
};

use crate::setup::{PENALTIES, groups, noise, noises, start};

/// Saves through JSON half-way, continues in a fresh optimizer, and compares every bit with the unbroken run.
fn assert_resumes_exactly(rule: Rule, penalty: Penalty, config: ControllerConfig, freeze: u64) {
    let groups = groups(penalty);
    let fresh = || {
        let mut optimizer = AdaptiveOptimizer::new(rule, groups.clone(), config.clone(), &start(&groups, 2)).unwrap();
        optimizer.set_freeze(Freeze { every: freeze, after: 2, ..Freeze::default() }).unwrap();
        optimizer
    };
    let go = |optimizer: &mut AdaptiveOptimizer, theta: &mut Vec<Vec<f32>>, steps: std::ops::Range<u64>| {
        steps.map(|step| optimizer.step(theta, &noises(&groups, step), 0.1).unwrap()).collect::<Vec<_>>()
    };
    let (mut unbroken, mut theta) = (fresh(), start(&groups, 2));
    go(&mut unbroken, &mut theta, 0..11);
    let saved = serde_json::to_string(&(unbroken.optimizer().state(), unbroken.controller().state(), &theta)).unwrap();
    let expected = go(&mut unbroken, &mut theta, 11..24);

    let (optimizer, controller, mut resumed_theta): (_, _, Vec<Vec<f32>>) = serde_json::from_str(&saved).unwrap();
    let mut resumed = fresh();
    resumed.restore(optimizer, controller, &resumed_theta).unwrap();
    let found = go(&mut resumed, &mut resumed_theta, 11..24);
    assert_eq!(found, expected, "{} {penalty:?} {config:?}", rule.name());
    assert_eq!(resumed_theta, theta);
    assert_eq!(resumed.optimizer().state(), unbroken.optimizer().state());
    assert_eq!(resumed.controller().state(), unbroken.controller().state());
}

#[test]
fn every_optimizer_controller_and_variant_resumes_exactly() {
    let multiplicative = |damping| Law::Multiplicative(Multiplicative { alpha: 1.0, damping });
    let laws = [
        Law::Fixed,
        multiplicative(Damping::Off),
        multiplicative(Damping::default()),
        multiplicative(Damping::Crossings { gamma: 0.5 }),
        Law::Density(Density::default()),
        Law::Quantile(Quantile {}),
    ];
    let variants = [Variant::Plain, Variant::SubgradientCorrection, Variant::Steady, Variant::ProxRescaling];
    let rules = variants.into_iter().flat_map(|variant| {
        [
            Rule::LinBreg(LinBreg { momentum: 0.9, variant, ..LinBreg::default() }),
            Rule::AdaBreg(AdaBreg { variant, ..AdaBreg::default() }),
        ]
    });
    for rule in rules {
        for (law, penalty) in
            laws.into_iter().flat_map(|law| PENALTIES.into_iter().skip(1).map(move |penalty| (law, penalty)))
        {
            if law.needs_duals() && rule.mirror().unwrap().1 == Variant::SubgradientCorrection {
                continue; // refused
            }
            let ramp = Ramp { shape: RampShape::Cubic, from: 0.5, begin: 2, end: 20 };
            let config = ControllerConfig { law, period: 3, ramp: Some(ramp), ..ControllerConfig::new(0.8) };
            assert_resumes_exactly(rule, penalty, config.clone(), 1);
            assert_resumes_exactly(rule, penalty, config.clone(), 4);
            assert_resumes_exactly(rule, penalty, ControllerConfig { layers: Some(Budget::default()), ..config }, 1);
        }
    }
    let without_duals = ControllerConfig { law: laws[2], period: 3, ..ControllerConfig::new(0.8) };
    assert_resumes_exactly(Rule::ProxSgd(ProxSgd {}), Penalty::L1, without_duals, 1);
}

#[test]
fn dense_optimizers_under_masks_resume_exactly() {
    for rule in [Rule::Sgd(Sgd::default()), Rule::AdamW(AdamW::default())] {
        let groups = groups(Penalty::None);
        let (mut theta, mask) = (noises(&groups, 4), noise(105, 8).iter().map(|x| *x > 0.0).collect::<Vec<_>>());
        let mut optimizer = Optimizer::new(rule, groups.clone(), 1.0, &theta).unwrap();
        optimizer.set_mask(0, mask.clone()).unwrap();
        (0..5).for_each(|step| optimizer.step(&mut theta, &noises(&groups, step), 0.1).unwrap());
        assert!(
            theta[0].iter().zip(&mask).all(|(x, &lives)| lives != (*x == 0.0)),
            "zero where masked, non-zero elsewhere"
        );

        let mut resumed = Optimizer::new(rule, groups.clone(), 1.0, &theta).unwrap();
        resumed
            .restore(serde_json::from_str(&serde_json::to_string(optimizer.state()).unwrap()).unwrap(), &theta)
            .unwrap();
        let mut again = theta.clone();
        optimizer.step(&mut theta, &noises(&groups, 9), 0.1).unwrap();
        resumed.step(&mut again, &noises(&groups, 9), 0.1).unwrap();
        assert_eq!(again, theta);
    }
}
