//! Masks whose weights are exchanged for others during training: SET, RigL, GraNet, MEST.

use bregman::topology::{DropGrow, Exchange, GraNet, Growth, Mest, MutationStage};
use bregman::{Budget, Pruning, Rule, Topology};
use serde::{Deserialize, Serialize};

use super::super::{Period, dense};
use super::{Masked, MaskedRun};

/// Exchanges in a run: a short one needs as many as a long one.
const EXCHANGES: u64 = 50;
/// But a grown weight must have so many steps to grow before it is compared with others ...
const SHORTEST_PERIOD: u64 = 10;
/// ... unless that leaves fewer exchanges than these.
const FEWEST_EXCHANGES: u64 = 5;
/// ΔT of SET and RigL in long runs.
const LONGEST_PERIOD: u64 = 100;
/// ΔT of GraNet in long runs.
const LONGEST_GRANET_PERIOD: u64 = 1000;
/// MEST mutates every 5 of 160 epochs.
const MUTATIONS: u64 = 32;

/// ΔT of a run in which there should be so many exchanges.
fn automatic_period(run: MaskedRun, exchanges: u64, longest: u64) -> u64 {
    let shortest = (run.steps / FEWEST_EXCHANGES).clamp(1, SHORTEST_PERIOD);
    (run.steps / exchanges).clamp(shortest, longest)
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `period` | "auto": total steps / 50, from 10 to 100 | ΔT, steps between exchanges |
/// | `fraction` | 0.3 | α, the share of the live weights that is exchanged at the start; it fades to 0 |
/// | `until` | 0.75 | when the last are exchanged, as a share of the run |
/// | `layers` | `{ sharing = "erk" }` | shares of the layers, or `uniform` |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// ΔT.
    #[serde(default)]
    pub period: Period,
    /// α.
    #[serde(default = "fraction")]
    pub fraction: f64,
    /// T_end.
    #[serde(default = "until")]
    pub until: f64,
    /// Shares of the layers.
    #[serde(default = "Budget::erk")]
    pub layers: Budget,
}

/// Settings as in [`SetConfig`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RigLConfig(pub SetConfig);

fn fraction() -> f64 {
    0.3
}

fn until() -> f64 {
    0.75
}

impl SetConfig {
    fn exchanged(&self, growth: Growth, run: MaskedRun) -> bregman::Result<Topology> {
        let &Self { target, fraction, until, .. } = self;
        let period = self.period.or(automatic_period(run, EXCHANGES, LONGEST_PERIOD));
        let pruning = Pruning { layers: Some(self.layers.clone()), ..Pruning::default() };
        Topology::new(DropGrow { target, exchange: Exchange { period, fraction, until }, growth }, pruning, run.seed)
    }
}

impl Masked for SetConfig {
    fn title(&self) -> &'static str {
        "SET,"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        self.exchanged(Growth::Random, run)
    }
}

impl Masked for RigLConfig {
    fn title(&self) -> &'static str {
        "RigL,"
    }

    fn target(&self) -> f64 {
        self.0.target
    }

    fn rule(&self) -> Rule {
        self.0.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        self.0.exchanged(Growth::Steepest, run)
    }
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | s_f, the sparsity at the end |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `from` | 0.5 | s_i, the sparsity of the start; 0 begins dense |
/// | `period` | "auto": total steps / 50, from 10 to 1000 | ΔT, steps between updates |
/// | `fraction` | 0.5 | the share of the live weights that is exchanged at the start; it fades to 0 |
/// | `until` | 0.6875 | when the target is reached, as a share of the run: 110 of 160 epochs in the authors' code |
/// | `layers` | none | `None` prunes all layers together, from an ERK start; a budget gives each its own share |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GraNetConfig {
    /// s_f.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// s_i.
    #[serde(default = "half")]
    pub from: f64,
    /// ΔT.
    #[serde(default)]
    pub period: Period,
    /// The share that is exchanged.
    #[serde(default = "half")]
    pub fraction: f64,
    /// T.
    #[serde(default = "granet_until")]
    pub until: f64,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Option<Budget>,
}

fn half() -> f64 {
    0.5
}

fn granet_until() -> f64 {
    110.0 / 160.0
}

impl Masked for GraNetConfig {
    fn title(&self) -> &'static str {
        "GraNet →"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let &Self { target, from, fraction, until, .. } = self;
        let period = self.period.or(automatic_period(run, EXCHANGES, LONGEST_GRANET_PERIOD));
        let pruning = Pruning { layers: self.layers.clone(), ..Pruning::default() };
        Topology::new(GraNet { target, from, period, fraction, until }, pruning, run.seed)
    }
}

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `target` | – | sparsity |
/// | `optimizer` | `{ kind = "sgd" }` | or `adamw` |
/// | `period` | "auto": total steps / 32, as published | ΔT, steps between mutations |
/// | `stages` | 20 % until 9/16 of the run, 10 % until 3/4 | share of the live weights that mutates, stage by stage |
/// | `gradient_weight` | 0, as in the authors' scripts | λ in a weight's importance \|θ\| + λ·\|g\| |
/// | `layers` | `{ sharing = "uniform" }` | shares of the layers, or `erk` |
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MestConfig {
    /// Sparsity.
    pub target: f64,
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// ΔT.
    #[serde(default)]
    pub period: Period,
    /// What mutates until when.
    #[serde(default = "stages")]
    pub stages: Vec<MutationStage>,
    /// λ.
    #[serde(default)]
    pub gradient_weight: f64,
    /// Shares of the layers.
    #[serde(default)]
    pub layers: Budget,
}

fn stages() -> Vec<MutationStage> {
    vec![MutationStage { until: 90.0 / 160.0, fraction: 0.2 }, MutationStage { until: 120.0 / 160.0, fraction: 0.1 }]
}

impl Masked for MestConfig {
    fn title(&self) -> &'static str {
        "MEST,"
    }

    fn target(&self) -> f64 {
        self.target
    }

    fn rule(&self) -> Rule {
        self.optimizer
    }

    fn topology(&self, run: MaskedRun) -> bregman::Result<Topology> {
        let policy = Mest {
            target: self.target,
            period: self.period.or(automatic_period(run, MUTATIONS, u64::MAX)),
            stages: self.stages.clone(),
            gradient_weight: self.gradient_weight,
        };
        Topology::new(policy, Pruning { layers: Some(self.layers.clone()), ..Pruning::default() }, run.seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_exchanged_as_published_in_long_runs_and_often_enough_in_short_ones() {
        let period = |steps| automatic_period(MaskedRun { seed: 0, steps, epochs: 1 }, EXCHANGES, LONGEST_PERIOD);
        assert_eq!([100_000, 5000, 1250, 108, 32, 3].map(period), [100, 100, 25, 10, 6, 1]);
    }
}
