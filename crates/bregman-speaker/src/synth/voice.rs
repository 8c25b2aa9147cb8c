//! A synthetic speaker: the numbers that make a voice.
//!
//! Source-filter theory (Fant 1960): a glottal pulse train with its own pitch, jitter, open quotient and tilt excites a
//! tube whose length scales every formant. On top of it, how this person says each phone. All of it is drawn once per
//! speaker; each session then varies pitch and effort a little, so no single number identifies a speaker.

use super::phones::{FORMANTS, PHONES};
use crate::Rng;

/// What stays the same between the sessions of one speaker.
#[derive(Debug, Clone)]
pub(super) struct Voice {
    /// Mean pitch, Hz.
    pub(super) pitch: f64,
    /// Spread of the pitch contour, as a fraction of the pitch.
    pub(super) pitch_range: f64,
    /// Cycle-to-cycle variation of the period, as a fraction.
    pub(super) jitter: f64,
    /// Cycle-to-cycle variation of the amplitude, as a fraction.
    pub(super) shimmer: f64,
    /// Fraction of the period during which the glottis is open.
    pub(super) open_quotient: f64,
    /// One-pole coefficient of the glottal low-pass: larger is darker.
    pub(super) tilt: f64,
    /// Aspiration noise relative to the pulse.
    pub(super) breath: f64,
    /// Bandwidth of the formants relative to the average speaker.
    pub(super) damping: f64,
    /// Phone durations relative to the average speaker.
    pub(super) pace: f64,
    /// Formants of this speaker relative to the average: tract length, cavity proportions and habits, per phone.
    pub(super) formants: Vec<[f64; FORMANTS]>,
}

impl Voice {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let tract = rng.range(0.84, 1.22);
        // Long tracts tend to go with low voices, with plenty of exceptions.
        let pitch = 150.0 * ((tract - 1.03) * 2.0 + rng.range(-0.32, 0.32)).exp();
        let mut proportions = [0.0; FORMANTS];
        proportions.iter_mut().for_each(|part| *part = tract * (0.05 * rng.normal()).clamp(-0.12, 0.12).exp());
        let habit = |rng: &mut Rng| proportions.map(|part| part * (0.05 * rng.normal()).clamp(-0.12, 0.12).exp());
        Self {
            pitch,
            pitch_range: rng.range(0.06, 0.22),
            jitter: rng.range(0.003, 0.02),
            shimmer: rng.range(0.02, 0.12),
            open_quotient: rng.range(0.4, 0.75),
            tilt: rng.range(0.3, 0.9),
            breath: 0.25 * rng.unit().powi(2) + 0.01,
            damping: rng.range(0.75, 1.4),
            pace: rng.range(0.8, 1.3),
            formants: (0..PHONES.len()).map(|_| habit(rng)).collect(),
        }
    }
}
