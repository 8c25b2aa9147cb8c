//! What cannot be computed is refused by name.

use bregman::{
    AdaBreg, AdamW, AdaptiveOptimizer, ControllerConfig, Error, Groups, Law, LinBreg, Multiplicative, Optimizer, Param,
    Penalty, ProxSgd, Quantile, Role, Rule, Variant,
};

use crate::setup::{all_rules, groups, noises, start};

#[test]
fn the_quantile_law_refuses_duals_without_an_order_and_optimizers_without_duals() {
    let rule = |variant| Rule::LinBreg(LinBreg { variant, ..LinBreg::default() });
    let new = |rule| {
        let groups = groups(Penalty::L1);
        let theta = noises(&groups, 4);
        AdaptiveOptimizer::new(rule, groups, ControllerConfig::new(0.9), &theta).map(|_| ())
    };
    let message = new(rule(Variant::SubgradientCorrection)).unwrap_err().to_string();
    assert!(message.contains("subgradient_correction") && message.contains("quantile"), "{message}");
    assert!(new(Rule::ProxSgd(ProxSgd {})).unwrap_err().to_string().contains("multiplicative"));
    assert_eq!(new(rule(Variant::Steady)), Ok(()));
}

#[test]
fn a_gradient_that_is_not_finite_names_its_parameter_and_poisons_nothing() {
    for (rule, bad) in
        all_rules().into_iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::NAN, f32::INFINITY])
    {
        let groups = groups(Penalty::L1);
        let mut theta = start(&groups, 1);
        let mut optimizer = Optimizer::new(rule, groups.clone(), 0.3, &theta).unwrap();
        let mut grads = noises(&groups, 2);
        grads[2][17] = bad;
        let error = optimizer.step(&mut theta, &grads, 0.1).unwrap_err();
        assert!(matches!(&error, Error::NonFinite { parameter, index: 17, .. } if parameter == "head"), "{error}");
        assert_eq!(optimizer.state().step, 0);
        let state = optimizer.state().tensors.iter().flat_map(|state| state.arrays().map(|(_, array)| array).concat());
        assert!(theta.concat().into_iter().chain(state).all(f32::is_finite));
        optimizer.step(&mut theta, &noises(&groups, 2), 0.1).unwrap();
    }
}

#[test]
fn bad_input_gets_an_error_that_names_it() {
    let groups = groups(Penalty::L1);
    let theta = start(&groups, 1);
    let linbreg = Rule::LinBreg(LinBreg::default());
    let adaptive = |config| AdaptiveOptimizer::new(linbreg, groups.clone(), config, &theta).unwrap_err().to_string();
    for target in [0.0, 1.0, -0.5, 95.0, f64::NAN] {
        assert!(adaptive(ControllerConfig::new(target)).contains("`target` is"), "{target}");
    }
    assert!(adaptive(ControllerConfig { period: 0, ..ControllerConfig::new(0.9) }).contains("`period` is 0"));
    assert!(adaptive(ControllerConfig { lambda: Some(-1.0), ..ControllerConfig::new(0.9) }).contains("`lambda` is -1"));
    let alpha = Law::Multiplicative(Multiplicative { alpha: 0.0, ..Multiplicative::default() });
    assert!(adaptive(ControllerConfig { law: alpha, ..ControllerConfig::new(0.9) }).contains("multiplicative.alpha"));

    let new = |rule, lambda, theta: &[Vec<f32>]| {
        Optimizer::new(rule, groups.clone(), lambda, theta).map(|_| ()).unwrap_err().to_string()
    };
    for lambda in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(new(linbreg, lambda, &theta).contains("`λ` is"), "{lambda}");
    }
    assert!(new(Rule::LinBreg(LinBreg { delta: 0.0, ..LinBreg::default() }), 1.0, &theta).contains("linbreg.delta"));
    assert!(new(Rule::AdaBreg(AdaBreg { beta2: 1.0, ..AdaBreg::default() }), 1.0, &theta).contains("adabreg.beta2"));
    assert!(new(linbreg, 1.0, &theta[..2]).contains("2 entries for 3 parameters"));
    let mut short = theta.clone();
    short[2].pop();
    assert!(new(linbreg, 1.0, &short).contains("parameter `head`: the weight has 142 values, its shape asks for 143"));
    let mut broken = theta.clone();
    broken[0][3] = f32::NAN;
    assert!(new(linbreg, 1.0, &broken).contains("parameter `conv`: weight[3] is NaN"));

    let mut optimizer = Optimizer::new(linbreg, groups.clone(), 1.0, &theta).unwrap();
    assert!(optimizer.step(&mut theta.clone(), &short, 0.1).unwrap_err().to_string().contains("the gradient has 142"));
    assert!(optimizer.step(&mut short, &theta, 0.1).unwrap_err().to_string().contains("the weight has 142"));
    assert!(optimizer.step(&mut theta.clone(), &theta, 0.0).unwrap_err().to_string().contains("learning rate"));
    assert!(
        optimizer
            .set_mask(0, vec![true; 105])
            .unwrap_err()
            .to_string()
            .contains("needs SGD or AdamW, the optimizer is LinBreg")
    );
    assert!(optimizer.set_lambda(&[1.0, 0.0, 1.0], &theta).unwrap_err().to_string().contains("`λ` is 0"));

    let of_another_rule = Optimizer::new(Rule::AdaBreg(AdaBreg::default()), groups.clone(), 1.0, &theta).unwrap();
    let error = optimizer.restore(of_another_rule.state().clone(), &theta).unwrap_err().to_string();
    assert!(error.contains("parameter `conv`: the saved first moment has 105 values"), "{error}");

    let dense =
        AdaptiveOptimizer::new(Rule::AdamW(AdamW::default()), groups.clone(), ControllerConfig::new(0.9), &theta)
            .unwrap_err();
    assert!(dense.to_string().contains("the optimizer is AdamW"));
    let quantile = ControllerConfig { law: Law::Quantile(Quantile {}), period: 1, ..ControllerConfig::new(0.9) };
    let proxsgd = AdaptiveOptimizer::new(Rule::ProxSgd(ProxSgd {}), groups.clone(), quantile, &theta).unwrap_err();
    assert_eq!(proxsgd, Error::NoDuals);
    let nothing = Groups::resolve(vec![Param::new("bias", [3], Role::Bias)], vec![]).unwrap();
    let error = AdaptiveOptimizer::new(linbreg, nothing, ControllerConfig::new(0.9), &[vec![0.0; 3]]).unwrap_err();
    assert_eq!(error, Error::NothingControlled);
}
