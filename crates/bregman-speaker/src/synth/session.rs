//! A recording session: everything between the speaker's mouth and the file.
//!
//! Channel (high-pass, low-pass, three resonances of ±14 dB, tilt), room (Schroeder 1962: combs and an all-pass) and
//! background noise are drawn per session, independent of the speaker. They dominate the long-term mean spectrum, so a
//! feature mean identifies the session rather than the speaker; subtracting that mean removes most of the channel and
//! leaves the voice. `distortion` scales all of it, from the same close microphone every time (0) to the full range
//! (1).

use std::f64::consts::{FRAC_1_SQRT_2, PI, TAU};

use super::RATE;
use crate::Rng;

/// What stays the same between the utterances of one session.
#[derive(Debug, Clone)]
pub(super) struct RecordingSession {
    /// Pitch relative to the speaker's mean.
    pub(super) pitch: f64,
    /// Vocal effort: added to the tilt of the voice.
    pub(super) effort: f64,
    filters: Vec<Biquad>,
    combs: Vec<(usize, f64)>,
    wet: f64,
    noise: f64,
    noise_tilt: f64,
    gain: f64,
}

impl RecordingSession {
    pub(super) fn draw(distortion: f64, rng: &mut Rng) -> Self {
        let mut filters = vec![
            Biquad::high_pass(40.0 + distortion * rng.range(0.0, 260.0)),
            Biquad::low_pass(7600.0 - distortion * rng.range(0.0, 3800.0)),
            Biquad::shelf(distortion * rng.range(-14.0, 14.0)),
        ];
        filters.extend((0..3).map(|band| {
            let center = [300.0, 1000.0, 2800.0][band] * rng.range(-0.5, 0.5).exp();
            Biquad::peak(center, distortion * rng.range(-14.0, 14.0), rng.range(0.6, 1.6))
        }));
        let reverberation = rng.range(0.08, 0.5);
        let combs = [0.0297, 0.0371, 0.0411, 0.0437].map(|delay| {
            let delay = delay * rng.range(0.6, 1.1);
            ((delay * RATE) as usize, 10f64.powf(-3.0 * delay / reverberation))
        });
        Self {
            pitch: (distortion * (0.07 * rng.normal()).clamp(-0.2, 0.2)).exp(),
            effort: distortion * rng.range(-0.12, 0.08),
            filters,
            combs: combs.into(),
            wet: distortion * rng.range(0.03, 0.3),
            noise: 10f64.powf(-(40.0 - distortion * rng.range(0.0, 22.0)) / 20.0),
            noise_tilt: rng.range(0.0, 0.95),
            gain: 10f64.powf(rng.range(-34.0, -18.0) / 20.0),
        }
    }

    /// Room, channel, noise and level, in this order, in place.
    pub(super) fn record(&self, samples: &mut [f32], rng: &mut Rng) {
        self.reverberate(samples);
        let power = samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / samples.len().max(1) as f64;
        let level = self.noise * power.sqrt() * (1.0 - self.noise_tilt.powi(2)).sqrt();
        let mut noise = 0.0;
        for sample in samples.iter_mut() {
            // Uniform noise has variance 1/3; only its spectrum matters here, not its distribution.
            noise = self.noise_tilt * noise + level * rng.range(-1.732, 1.732);
            *sample += noise as f32;
        }
        self.filters.iter().for_each(|filter| filter.run(samples));
        let power = samples.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / samples.len().max(1) as f64;
        let gain = (self.gain / power.sqrt().max(1e-9)) as f32;
        samples.iter_mut().for_each(|sample| *sample = (*sample * gain).clamp(-0.99, 0.99));
    }

    fn reverberate(&self, samples: &mut [f32]) {
        let mut tail = vec![0f32; samples.len()];
        for &(delay, decay) in &self.combs {
            let mut line = vec![0f32; delay.max(1)];
            let mut at = 0;
            for (&dry, out) in samples.iter().zip(&mut tail) {
                *out += line[at];
                line[at] = dry + decay as f32 * line[at];
                at = if at + 1 == line.len() { 0 } else { at + 1 };
            }
        }
        let wet = self.wet as f32;
        samples.iter_mut().zip(&tail).for_each(|(sample, tail)| *sample += wet * tail);
    }
}

/// Second-order section (R. Bristow-Johnson's audio EQ formulas), a₀ = 1.
#[derive(Debug, Clone)]
struct Biquad {
    b: [f32; 3],
    a: [f32; 2],
}

impl Biquad {
    fn new(b: [f64; 3], a: [f64; 3]) -> Self {
        Self { b: b.map(|x| (x / a[0]) as f32), a: [(a[1] / a[0]) as f32, (a[2] / a[0]) as f32] }
    }

    fn low_pass(cutoff: f64) -> Self {
        let (cos, alpha) = angle(cutoff, FRAC_1_SQRT_2);
        Self::new([(1.0 - cos) / 2.0, 1.0 - cos, (1.0 - cos) / 2.0], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
    }

    fn high_pass(cutoff: f64) -> Self {
        let (cos, alpha) = angle(cutoff, FRAC_1_SQRT_2);
        Self::new([(1.0 + cos) / 2.0, -1.0 - cos, (1.0 + cos) / 2.0], [1.0 + alpha, -2.0 * cos, 1.0 - alpha])
    }

    fn peak(center: f64, decibels: f64, q: f64) -> Self {
        let ((cos, alpha), gain) = (angle(center, q), 10f64.powf(decibels / 40.0));
        Self::new(
            [1.0 + alpha * gain, -2.0 * cos, 1.0 - alpha * gain],
            [1.0 + alpha / gain, -2.0 * cos, 1.0 - alpha / gain],
        )
    }

    /// High shelf at 1.5 kHz: tilts the spectrum by `decibels`.
    fn shelf(decibels: f64) -> Self {
        let ((cos, alpha), gain) = (angle(1500.0, 0.5), 10f64.powf(decibels / 40.0));
        let (plus, minus, root) = (gain + 1.0, gain - 1.0, 2.0 * gain.sqrt() * alpha);
        Self::new(
            [
                gain * (plus + minus * cos + root),
                -2.0 * gain * (minus + plus * cos),
                gain * (plus + minus * cos - root),
            ],
            [plus - minus * cos + root, 2.0 * (minus - plus * cos), plus - minus * cos - root],
        )
    }

    fn run(&self, samples: &mut [f32]) {
        let [mut s1, mut s2] = [0f32; 2];
        for sample in samples {
            let x = *sample;
            let y = self.b[0] * x + s1;
            s1 = self.b[1] * x - self.a[0] * y + s2;
            s2 = self.b[2] * x - self.a[1] * y;
            *sample = y;
        }
    }
}

/// cos ω and α = sin ω / 2q.
fn angle(frequency: f64, q: f64) -> (f64, f64) {
    let omega = (TAU * frequency / RATE).min(0.97 * PI);
    (omega.cos(), omega.sin() / (2.0 * q))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lowest correlation of the same voice recorded in five sessions.
    fn likeness(distortion: f64) -> f64 {
        let pulse = |i: usize| if i.is_multiple_of(130) { 1.0 } else { 0.0 };
        let recordings: Vec<Vec<f32>> = (0..5)
            .map(|session| {
                let mut samples: Vec<f32> = (0..16_000).map(pulse).collect();
                RecordingSession::draw(distortion, &mut Rng::keyed(&[session]))
                    .record(&mut samples, &mut Rng::keyed(&[session, 1]));
                samples
            })
            .collect();
        let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(a * b)).sum::<f64>();
        let pairs = (0..5).flat_map(|a| (0..a).map(move |b| (a, b)));
        let correlation = |(a, b): (usize, usize)| {
            let (a, b) = (&recordings[a], &recordings[b]);
            product(a, b) / (product(a, a) * product(b, b)).sqrt()
        };
        pairs.map(correlation).fold(1.0, f64::min)
    }

    #[test]
    fn sessions_are_alike_without_distortion_and_differ_with_it() {
        let (studio, gentle, hard) = (likeness(0.0), likeness(0.2), likeness(1.0));
        assert!(studio > 0.99 && studio > gentle && gentle > hard && hard < 0.6, "{studio} {gentle} {hard}");
    }
}
