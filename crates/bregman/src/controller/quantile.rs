//! λ as an order statistic: exactly the λ at which the prox of the present duals keeps the target count.
//!
//! The key of a weight is the smallest λ that makes it zero; λ becomes the (a* + 1)-th largest key. No loop, no gain,
//! no oscillation. Ties at the threshold become zero together, so the count is never above the target. The weights are
//! thresholded anew at once, so the network has its count right after every update; between updates it drifts as the
//! duals do.

use serde::{Deserialize, Serialize};

use super::law::{ControlLaw, Memory, Reading};
use crate::error::{Error, Result};
use crate::select::try_smallest_threshold;

/// The quantile controller has no settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantile {}

impl ControlLaw for Quantile {
    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn next(&self, _: f64, reading: &Reading<'_>, _: &mut Memory) -> Result<f64> {
        let duals = reading.duals.ok_or(Error::NoDuals)?;
        let lambda =
            try_smallest_threshold(reading.target_live(), |digit, bins| duals.histogram(reading.tensors, digit, bins))?;
        // Fewer duals than a* differ from zero: the smallest positive λ keeps them all.
        Ok(f64::from(lambda.max(f32::MIN_POSITIVE)))
    }
}
