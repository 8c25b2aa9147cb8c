//! What moves over a run: the learning rate and the margin.

use std::f64::consts::PI;

use serde::{Deserialize, Serialize};

use crate::config::{LossConfig, LrSchedule};

/// The margin at `progress` ∈ [0, 1] of the run: 0 while it is held, then m·(1 − exp(t·ln 10⁻³)) with t from 0 to 1,
/// then m.
pub fn margin_at(loss: &LossConfig, progress: f64) -> f32 {
    if progress < loss.hold {
        return 0.0;
    }
    let t = if loss.rise > 0.0 { ((progress - loss.hold) / loss.rise).min(1.0) } else { 1.0 };
    if t == 1.0 { loss.margin } else { loss.margin * (1.0 - (t * 1e-3f64.ln()).exp()) as f32 }
}

/// An epoch is better by this share of the metric at least, PyTorch's `threshold`.
const IMPROVEMENT: f64 = 1e-4;

/// The learning rate, with what it remembers: everything here is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LearningRate {
    schedule: LrSchedule,
    base: f64,
    /// What plateaus have left of the base.
    scale: f64,
    /// Best metric so far, lower is better.
    best: Option<f64>,
    /// Epochs since then.
    pub(crate) waited: u64,
}

impl LearningRate {
    /// Starts at `base`.
    pub fn new(schedule: LrSchedule, base: f64) -> Self {
        Self { schedule, base, scale: 1.0, best: None, waited: 0 }
    }

    /// τ for step `step` (from 0) of `total`, with `per_epoch` steps in an epoch.
    pub fn at(&self, step: u64, total: u64, per_epoch: u64) -> f64 {
        let (steps, total) = (step as f64, total.max(1) as f64);
        let warmup_steps = |epochs: f64| (epochs * per_epoch as f64).max(1.0);
        let started = |warmup: f64| ((steps + 1.0) / warmup_steps(warmup)).min(1.0);
        match self.schedule {
            LrSchedule::Constant {} => self.base,
            LrSchedule::Plateau { floor, .. } => (self.base * self.scale).max(floor),
            LrSchedule::Exponential { warmup, last } => self.base * started(warmup) * last.powf(steps / total),
            LrSchedule::Cosine { warmup, last } => {
                let risen = warmup_steps(warmup) - 1.0; // the step that first has the whole rate
                let progress = ((steps - risen) / (total - risen).max(1.0)).clamp(0.0, 1.0);
                let left = 0.5 * (1.0 + (PI * progress).cos());
                self.base * started(warmup) * (last + (1.0 - last) * left)
            }
        }
    }

    /// After an epoch that counts: its metric, lower is better. Counts as PyTorch's `ReduceLROnPlateau` does, which the
    /// published code uses: the rate falls at the first epoch *after* `patience` bad ones.
    pub fn observe(&mut self, metric: f64) {
        let LrSchedule::Plateau { factor, patience, .. } = self.schedule else { return };
        if self.best.is_none_or(|best| metric < best - IMPROVEMENT * best.abs()) {
            self.best = Some(metric);
            self.waited = 0;
            return;
        }
        self.waited += 1;
        if self.waited > patience {
            self.scale *= factor;
            self.waited = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_held_rises_and_arrives() {
        let loss = LossConfig::default();
        assert_eq!((margin_at(&loss, 0.0), margin_at(&loss, 0.0999)), (0.0, 0.0));
        assert!((margin_at(&loss, 0.15) - 0.2 * (1.0 - 1e-3f32.sqrt())).abs() < 1e-6);
        assert_eq!((margin_at(&loss, 0.2), margin_at(&loss, 1.0)), (0.2, 0.2));
    }

    /// The rates of `torch.optim.lr_scheduler.ReduceLROnPlateau(factor=0.25, patience=2, min_lr=1e-6)` after these
    /// metrics, from 0.1.
    #[test]
    fn a_plateau_is_counted_as_pytorch_does() {
        let mut lr = LearningRate::new(LrSchedule::plateau(), 0.1);
        let epochs = [
            (1.0, 0.1),
            (0.5, 0.1),
            (0.6, 0.1),       // bad
            (0.5, 0.1),       // bad: equal is not better
            (0.49999, 0.025), // bad: not better by 1e-4; the third
            (0.4, 0.025),     // better
            (0.4, 0.025),     // bad
            (0.39, 0.025),    // better
            (0.41, 0.025),    // bad
            (0.41, 0.025),    // bad
            (0.41, 0.00625),  // the third
        ];
        for (metric, expected) in epochs {
            lr.observe(metric);
            assert!((lr.at(0, 10, 1) - expected).abs() < 1e-12, "{metric} {expected}");
        }
        (0..100).for_each(|_| lr.observe(9.0));
        assert_eq!(lr.at(0, 10, 1), 1e-6);
    }

    #[test]
    fn a_better_accuracy_is_a_lower_metric() {
        let mut lr = LearningRate::new(LrSchedule::plateau(), 0.1);
        [-0.5, -0.50001, -0.6, -0.6, -0.6].iter().for_each(|&metric| lr.observe(metric));
        assert_eq!(lr.at(0, 10, 1), 0.1, "0.6 was an improvement, two epochs ago");
    }

    #[test]
    fn the_exponential_schedule_warms_up_and_ends_at_its_last_share() {
        let lr = LearningRate::new(LrSchedule::exponential(), 0.1);
        let at = |step| lr.at(step, 1000, 100);
        assert!(at(0) < 0.0011 && (0..98).all(|step| at(step) < at(step + 1)), "rises over the first epoch");
        assert!((100..999).all(|step| at(step) > at(step + 1)));
        assert!((at(1000) - 5e-5).abs() < 1e-12);
    }

    #[test]
    fn the_cosine_schedule_warms_up_and_falls_by_half_a_cosine_to_its_last_share() {
        let lr = LearningRate::new(LrSchedule::Cosine { warmup: 1.0, last: 0.01 }, 0.1);
        let at = |step| lr.at(step, 1099, 100);
        assert!((at(0) - 0.001).abs() < 1e-12 && (at(49) - 0.05).abs() < 1e-12, "a hundredth more in every step");
        assert!((at(99) - 0.1).abs() < 1e-12);
        assert!((99..1098).all(|step| at(step) > at(step + 1)));
        // cos(π/3) is one half: a third of the way leaves three quarters of what is lost in the end
        assert!((at(99) - at(432) - 0.25 * 0.099).abs() < 2e-4 && (at(599) - 0.1 * 0.505).abs() < 1e-12);
        assert!((at(1099) - 0.001).abs() < 1e-12);
    }

    #[test]
    fn a_cosine_without_a_last_share_never_stands_still_and_one_that_only_warms_up_never_falls() {
        let published = LearningRate::new(LrSchedule::Cosine { warmup: 0.0, last: 0.0 }, 0.1);
        assert_eq!((published.at(0, 100, 10), published.at(100, 100, 10)), (0.1, 0.0));
        assert!((0..100).all(|step| published.at(step, 100, 10) > 0.0));
        let rising = LearningRate::new(LrSchedule::Cosine { warmup: 4.0, last: 0.0 }, 0.1);
        assert!((rising.at(9, 20, 10) - 0.025).abs() < 1e-12 && (rising.at(19, 20, 10) - 0.05).abs() < 1e-12);
    }
}
