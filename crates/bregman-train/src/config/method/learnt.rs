//! STR: a threshold per layer that is learnt. It leads to some sparsity, which is known at the end: there is no target.

use bregman::{Rule, Sgd, Str};
use serde::{Deserialize, Serialize};

use super::{RunLength, dense};
use crate::error::require;
use crate::{Error, Result};

/// | setting | default | purpose |
/// | --- | --- | --- |
/// | `optimizer` | `{ kind = "sgd" }` | of the weights behind the threshold |
/// | `threshold` | 0.001 | σ(s) at the start |
/// | `rise` | 7 | d·lr·steps: how strongly the decay d of s raises the threshold over a run; more gives more zeros |
///
/// The demo's network on fewer voices (`bregman demo --quick`) ended with 27, 65, 95 and 97 % zeros at a `rise` of 2, 4,
/// 7 and 8, one run each: the default is from there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrConfig {
    /// The optimizer.
    #[serde(default = "dense::sgd")]
    pub optimizer: Rule,
    /// σ(s) at the start.
    #[serde(default = "threshold")]
    pub threshold: f64,
    /// d·lr·steps.
    #[serde(default = "rise")]
    pub rise: f64,
}

fn threshold() -> f64 {
    1e-3
}

fn rise() -> f64 {
    7.0
}

impl StrConfig {
    /// STR in a run of this length, however long that is.
    pub(crate) fn rule(&self, length: &RunLength) -> Result<Rule> {
        let decay = self.rise / (length.lr * length.steps as f64).max(f64::MIN_POSITIVE);
        Ok(Rule::Str(Str::new(self.sgd()?, decay)))
    }

    fn sgd(&self) -> Result<Sgd> {
        let Rule::Sgd(sgd) = self.optimizer else {
            let (field, value) = ("method.optimizer.kind", self.optimizer.name().to_owned());
            return Err(Error::Setting { field, value, expected: "sgd with this kind of method".to_owned() });
        };
        Ok(sgd)
    }

    pub(super) fn check(&self) -> Result<()> {
        let (threshold, rise) = (self.threshold, self.rise);
        require(threshold > 0.0 && threshold < 1.0, "method.threshold", threshold, "a number in (0, 1)")?;
        require(rise >= 0.0 && rise.is_finite(), "method.rise", rise, "a number ≥ 0")?;
        self.sgd().map(drop)
    }
}
