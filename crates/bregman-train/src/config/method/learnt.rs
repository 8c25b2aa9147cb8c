//! STR: a threshold per layer that is learnt.

use bregman::{ControllerConfig, Law, Ramp, RampShape, Rule, Sgd, Str};
use serde::{Deserialize, Serialize};

use super::{Period, RunLength, dense};
use crate::error::require;
use crate::{Error, Result};

/// Two ways to a sparsity. With a `target`, which is ours: all thresholds are multiplied with one factor, such that the
/// share of zeros follows a cubic to the target and then stays there; each layer learns its ratio to the others.
/// Without one, as published: a decay raises the thresholds, and how many zeros that gives is known at the end.
///
/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `optimizer` | `{ kind = "sgd" }` | of the weights behind the threshold |
/// | `threshold` | 0.001 | σ(s) at the start |
/// | `target` | none | the sparsity asked for |
/// | `until` | 0.5 | with a target: when it is reached, as a share of the run |
/// | `period` | "auto": total steps / 150, at most 50 | with a target: steps between updates of the factor |
/// | `rise` | 7 without a target | d·lr·steps: how strongly the decay d of s raises thresholds in a run |
///
/// The demo's network on fewer voices (`bregman demo --quick`) ended with 27, 65, 95 and 97 % zeros at a `rise` of 2,
/// 4, 7 and 8, one run each: the default is from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrConfig {
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// σ(s) at the start.
    #[serde(default = "threshold")]
    pub threshold: f64,
    /// The sparsity asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<f64>,
    /// When the target is reached.
    #[serde(default = "until")]
    pub until: f64,
    /// Steps between updates.
    #[serde(default)]
    pub period: Period,
    /// d·lr·steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rise: Option<f64>,
}

fn threshold() -> f64 {
    1e-3
}

fn until() -> f64 {
    0.5
}

/// d·lr·steps where neither it nor a target is asked for.
const RISE: f64 = 7.0;

impl StrConfig {
    /// STR in a run of this length, however long that is.
    pub(crate) fn rule(&self, length: &RunLength) -> Result<Rule> {
        let rise = if self.target.is_some() { 0.0 } else { self.rise.unwrap_or(RISE) };
        let decay = rise / (length.lr * length.steps as f64).max(f64::MIN_POSITIVE);
        Ok(Rule::Str(Str::new(self.sgd()?, decay)))
    }

    /// What moves all thresholds together, where a sparsity is asked for.
    pub(crate) fn controller(&self, length: &RunLength) -> Option<ControllerConfig> {
        let end = ((self.until * length.steps as f64) as u64).max(1);
        Some(ControllerConfig {
            law: Law::default(),
            lambda: Some(self.threshold),
            period: self.period.steps(length.steps),
            ramp: Some(Ramp { shape: RampShape::Cubic, from: 0.0, begin: 0, end }),
            ..ControllerConfig::new(self.target?)
        })
    }

    fn sgd(&self) -> Result<Sgd> {
        let Rule::Sgd(sgd) = self.optimizer else {
            let (field, value) = ("method.optimizer.kind", self.optimizer.name().to_owned());
            return Err(Error::Setting { field, value, expected: "sgd with this kind of method".to_owned() });
        };
        Ok(sgd)
    }

    pub(super) fn check(&self) -> Result<()> {
        let (threshold, until, rise) = (self.threshold, self.until, self.rise.unwrap_or(RISE));
        require(threshold > 0.0 && threshold < 1.0, "method.threshold", threshold, "a number in (0, 1)")?;
        require(until > 0.0 && until <= 1.0, "method.until", until, "a share of the run in (0, 1], such as 0.5")?;
        require(self.period != Period::Steps(0), "method.period", 0, "\"auto\" or 1 or more steps")?;
        require(rise >= 0.0 && rise.is_finite(), "method.rise", rise, "a number ≥ 0")?;
        let one_way = self.rise.is_none() || self.target.is_none();
        require(one_way, "method.rise", rise, "none beside method.target, which decides how far thresholds rise")?;
        self.sgd().map(drop)
    }
}
