//! Small networks to step through: rules, penalties, weights and gradients.

use bregman::{AdaBreg, AdamW, GroupRule, Groups, LinBreg, Param, Penalty, ProxSgd, Role, Rule, Sgd};
use bregman_base::Rng;

pub(crate) const PENALTIES: [Penalty; 5] =
    [Penalty::None, Penalty::L1, Penalty::L1NonNegative, Penalty::GroupKernel, Penalty::GroupRow];

pub(crate) fn bregman_rules(delta: f64) -> [Rule; 3] {
    [
        Rule::LinBreg(LinBreg { delta, ..LinBreg::default() }),
        Rule::LinBreg(LinBreg { momentum: 0.9, delta, ..LinBreg::default() }),
        Rule::AdaBreg(AdaBreg { delta, weight_decay: 0.1, ..AdaBreg::default() }),
    ]
}

pub(crate) fn all_rules() -> Vec<Rule> {
    let dense = [Rule::ProxSgd(ProxSgd {}), Rule::Sgd(Sgd::default()), Rule::AdamW(AdamW::default())];
    bregman_rules(1.0).into_iter().chain(dense).collect()
}

/// Three tensors of odd sizes, one of them a bias, under one penalty.
pub(crate) fn groups(penalty: Penalty) -> Groups {
    let params = vec![
        Param::new("conv", [7, 5, 3], Role::ConvWeight),
        Param::new("bias", [7], Role::Bias),
        Param::new("head", [11, 13], Role::Classifier),
    ];
    let head = GroupRule { penalty, lambda_scale: 2.0, lr_scale: 0.5, ..GroupRule::for_names("head") };
    Groups::resolve(params, vec![head, GroupRule { penalty, ..GroupRule::default() }]).unwrap()
}

/// Numbers in (−1, 1) that look random: enough for gradients.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::keyed(&[seed]);
    (0..len).map(|_| rng.symmetric(1.0)).collect()
}

pub(crate) fn noises(groups: &Groups, seed: u64) -> Vec<Vec<f32>> {
    groups.params().iter().enumerate().map(|(tensor, param)| noise(param.len(), seed * 100 + tensor as u64)).collect()
}

/// Weights that a penalty allows, about half of them zero.
pub(crate) fn start(groups: &Groups, seed: u64) -> Vec<Vec<f32>> {
    let mut theta = noises(groups, seed);
    theta.iter_mut().enumerate().for_each(|(tensor, theta)| groups.shrinkage(tensor).prox(theta, 0.5));
    theta
}
