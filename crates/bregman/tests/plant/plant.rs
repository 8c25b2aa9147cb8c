//! A plant for controllers: the real optimizer, fed with gradients that make the duals behave as in training. Used by
//! the tests beside it and by `examples/stability.rs`.
//!
//! Every weight has a signal xᵢ with heavy tails. Its gradient is −r(t)·xᵢ + c·θᵢ + noise: the loss pulls a zero
//! weight's dual steadily towards its threshold, a live one settles as it gets where it should be (c), and training
//! slows down (r falls with time). At a fixed λ such a network only ever wakes up, as the paper's Appendix A says of
//! real ones.

use bregman::controller::{LoopGain, LoopState};
use bregman::{
    AdaptiveOptimizer, ControllerConfig, Groups, Law, LinBreg, Multiplicative, Param, Role, Rule, StepReport, Variant,
};

pub(crate) const STEPS: usize = 3000;
const TAU: f64 = 0.1;

pub(crate) fn params() -> Vec<Param> {
    vec![
        Param::new("first", [40, 50], Role::LinearWeight),
        Param::new("middle", [150, 100], Role::LinearWeight),
        Param::new("head", [80, 100], Role::Classifier),
    ]
}

pub(crate) fn weights() -> usize {
    params().iter().map(Param::len).sum()
}

/// Uniform in (−1, 1).
pub(crate) fn noise(len: usize, seed: u64) -> Vec<f32> {
    let mix = |z: u64| {
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    let base = mix(seed.wrapping_add(1));
    (0..len as u64)
        .map(|i| (mix(base.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15))) >> 40) as f32 / (1 << 23) as f32 - 1.0)
        .collect()
}

/// Two-sided exponential: the heavy tail that duals have.
fn laplace(len: usize, seed: u64) -> Vec<f32> {
    noise(len, seed).into_iter().map(|u| -u.signum() * (1.0 - u.abs()).max(1e-7).ln()).collect()
}

/// Nearly standard normal: the sum of twelve uniforms.
fn normal(len: usize, seed: u64) -> Vec<f32> {
    let mut sum = vec![0.0; len];
    for i in 0..12 {
        sum.iter_mut().zip(noise(len, 100 * seed + i)).for_each(|(sum, u)| *sum += 0.5 * u);
    }
    sum
}

/// The speed of training: falls as 1/√t.
fn slowing_down(step: u64) -> f32 {
    0.01 / (1.0 + step as f32 / 50.0).sqrt()
}

/// About the λ that belongs to a target after 200 steps.
pub(crate) fn right_lambda(target: f64) -> f64 {
    let reach: f32 = (0..200).map(slowing_down).sum();
    TAU * f64::from(reach) * (1.0 / (1.0 - target)).ln()
}

pub(crate) struct Plant {
    optimizer: AdaptiveOptimizer,
    theta: Vec<Vec<f32>>,
    signal: Vec<Vec<f32>>,
    speed: fn(u64) -> f32,
    step: u64,
}

impl Plant {
    pub(crate) fn new(config: ControllerConfig) -> Self {
        Self::with_speed(config, slowing_down)
    }

    /// What is tested are the laws: duals that do not follow λ, as in the paper.
    pub(crate) fn with_speed(config: ControllerConfig, speed: fn(u64) -> f32) -> Self {
        let rule = Rule::LinBreg(LinBreg { variant: Variant::Plain, ..LinBreg::default() });
        Self { speed, ..Self::with_rule(rule, config) }
    }

    pub(crate) fn with_rule(rule: Rule, config: ControllerConfig) -> Self {
        let signal: Vec<Vec<f32>> =
            params().iter().enumerate().map(|(tensor, param)| laplace(param.len(), tensor as u64)).collect();
        let theta: Vec<Vec<f32>> = signal.iter().map(|signal| vec![0.0; signal.len()]).collect();
        let groups = Groups::resolve(params(), vec![]).unwrap();
        let optimizer = AdaptiveOptimizer::new(rule, groups, config, &theta).unwrap();
        Self { optimizer, theta, signal, speed: slowing_down, step: 0 }
    }

    /// Duals that stand still, the logarithms of their magnitudes normal with standard deviation `width`, and λ a tenth
    /// of that away from the quantile of the target: only the control loop itself moves anything.
    pub(crate) fn at_rest(target: f64, width: f32) -> Self {
        let law = Law::Multiplicative(Multiplicative::default());
        let config = ControllerConfig { law, period: 1, lambda: Some(1.0), ..ControllerConfig::new(target) };
        let mut plant = Self::with_speed(config, |_| 0.0);
        let mut state = plant.optimizer.optimizer().state().clone();
        for (tensor, state) in state.tensors.iter_mut().enumerate() {
            state.p = normal(state.p.len(), tensor as u64).into_iter().map(|z| (width * z).exp()).collect();
        }
        let mut duals: Vec<f32> = state.tensors.iter().flat_map(|state| state.p.iter().copied()).collect();
        duals.sort_by(f32::total_cmp);
        let quantile = f64::from(duals[(target * duals.len() as f64) as usize]);
        let lambda = quantile * (1.0 + 0.1 * f64::from(width));
        state.lambda.fill(lambda);
        let loops = vec![LoopState { lambda, ..plant.optimizer.controller().state()[0] }];
        plant.optimizer.restore(state, loops, &plant.theta).unwrap();
        plant
    }

    /// The same plant under another law.
    pub(crate) fn set_law(&mut self, law: Law) {
        let config = ControllerConfig { law, ..self.optimizer.controller().config().clone() };
        let groups = self.optimizer.optimizer().groups().clone();
        let mut other =
            AdaptiveOptimizer::new(*self.optimizer.optimizer().rule(), groups, config, &self.theta).unwrap();
        other
            .restore(
                self.optimizer.optimizer().state().clone(),
                self.optimizer.controller().state().to_vec(),
                &self.theta,
            )
            .unwrap();
        self.optimizer = other;
    }

    pub(crate) fn step(&mut self) -> StepReport {
        self.step += 1;
        let (speed, step) = ((self.speed)(self.step), self.step);
        let gradient = |(tensor, (theta, signal)): (usize, (&Vec<f32>, &Vec<f32>))| -> Vec<f32> {
            let noise = noise(theta.len(), 1000 + 10 * step + tensor as u64);
            theta.iter().zip(signal).zip(noise).map(|((x, s), n)| speed * (-s + 0.02 * x + 0.3 * n)).collect()
        };
        let grads: Vec<Vec<f32>> = self.theta.iter().zip(&self.signal).enumerate().map(gradient).collect();
        self.optimizer.step(&mut self.theta, &grads, TAU).unwrap()
    }

    pub(crate) fn live(&self) -> u64 {
        self.theta.iter().flatten().filter(|x| **x != 0.0).count() as u64
    }

    /// Duals that are λ to the last bit.
    pub(crate) fn duals_at_lambda(&self) -> u64 {
        let lambda = self.optimizer.controller().state()[0].lambda as f32;
        let tensors = &self.optimizer.optimizer().state().tensors;
        tensors.iter().flat_map(|state| &state.p).filter(|p| p.abs() == lambda).count() as u64
    }

    pub(crate) fn sparsities(&self) -> Vec<f64> {
        self.optimizer.optimizer().stats().iter().map(|stats| stats.sparsity()).collect()
    }

    pub(crate) fn loop_gain(&mut self) -> LoopGain {
        self.optimizer.loop_gains().unwrap()[0]
    }
}
