//! When a controller oscillates: the gain of its loop.
//!
//! A relative change of λ moves the sparsity by the *sensitivity* σ = ∂s/∂ln λ = λ·f(λ), f the density of the keys |p|
//! at λ. One update of the multiplicative law moves ln λ by about α·ε, so ε ← (1 − G)·ε with the loop gain G = α·σ. For
//! the density law the error ln(a/a*) obeys the same with G = κ·σ/(1 − s). [The chapter on
//! stability](crate::book::stability) has the measurements behind the limits used here.

use super::law::{Law, Reading};
use crate::error::Result;

/// A gain above this overshoots: the sparsity swings around the target before it settles.
pub const OVERSHOOT: f64 = 1.0;
/// A gain above this never settles.
pub const UNSTABLE: f64 = 2.0;

/// The gain of a control loop at its present λ.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LoopGain {
    /// σ = ∂s/∂ln λ, measured on the duals.
    pub sensitivity: f64,
    /// G; compare with [`OVERSHOOT`] and [`UNSTABLE`].
    pub gain: f64,
}

impl LoopGain {
    /// What to tell the user, if the loop is not calm.
    pub fn warning(&self) -> Option<String> {
        let Self { gain, sensitivity } = self;
        let calm = format!("divide the gain (α or κ) by {:.1}, or use the quantile controller", gain / OVERSHOOT);
        if *gain > UNSTABLE {
            Some(format!(
                "the λ controller will oscillate: loop gain {gain:.2} > 2 \
                 (1 % of λ moves the sparsity by {sensitivity:.2} %); {calm}"
            ))
        } else if *gain > OVERSHOOT {
            Some(format!(
                "the λ controller will overshoot: loop gain {gain:.2} > 1 \
                 (1 % of λ moves the sparsity by {sensitivity:.2} %); {calm}"
            ))
        } else {
            None
        }
    }
}

/// λ is moved by this share up and down to measure the sensitivity.
const PROBE: f64 = 0.01;

/// Measures the loop gain of `law` at `lambda` by counting the weights that would be non-zero a little above and below.
///
/// `None` for laws without a loop (fixed, quantile) and optimizers without duals.
pub(super) fn loop_gain(law: &Law, lambda: f64, reading: &Reading<'_>) -> Result<Option<LoopGain>> {
    let Some(duals) = reading.duals else { return Ok(None) };
    let live = |factor: f64| -> Result<f64> { Ok(duals.live_at(reading.tensors, lambda * factor)? as f64) };
    let sensitivity =
        || -> Result<f64> { Ok((live(1.0 - PROBE)? - live(1.0 + PROBE)?) / (2.0 * PROBE * reading.len as f64)) };
    let (sensitivity, gain) = match law {
        Law::Fixed | Law::Quantile(_) => return Ok(None),
        Law::Multiplicative(law) => (sensitivity()?, law.alpha),
        Law::Density(law) => (sensitivity()?, law.kappa * reading.len as f64 / live(1.0)?.max(1.0)),
    };
    Ok(Some(LoopGain { sensitivity, gain: gain * sensitivity }))
}
