//! From a voice and a phone string to samples: Klatt's cascade (1980), reduced.
//!
//! Every millisecond the formant targets are smoothed; between, plain arithmetic: Rosenberg glottal pulses (1971) with
//! jitter and shimmer, a one-pole tilt, aspiration noise, five two-pole resonators in cascade, and a parallel resonator
//! for frication.

use std::f64::consts::{PI, TAU};

use super::RATE;
use super::phones::{FIRST_VOWEL, FORMANTS, Kind, PHONES};
use super::session::RecordingSession;
use super::voice::Voice;
use crate::Rng;

const BLOCK: usize = 16;
const BANDWIDTHS: [f64; FORMANTS] = [70.0, 90.0, 130.0, 200.0, 280.0];

/// A consonant, a vowel, and sometimes another consonant: numbers of [`PHONES`].
pub(super) struct Syllable {
    onset: usize,
    vowel: usize,
    coda: Option<usize>,
}

impl Syllable {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let (onset, vowel) = (rng.below(FIRST_VOWEL), FIRST_VOWEL + rng.below(PHONES.len() - FIRST_VOWEL));
        Self { onset, vowel, coda: (rng.unit() < 0.3).then(|| rng.below(FIRST_VOWEL)) }
    }
}

/// Speaks syllables of the vocabulary (any syllables if it is empty) for `seconds`, without room and channel.
pub(super) fn speak(
    voice: &Voice,
    session: &RecordingSession,
    vocabulary: &[Syllable],
    seconds: f64,
    rng: &mut Rng,
) -> Vec<f32> {
    let length = (seconds * RATE) as usize;
    let mut tract = Tract::new(voice, session, rng);
    let mut samples = Vec::with_capacity(length + RATE as usize);
    let mut phrase = 0;
    while samples.len() < length {
        if phrase == 0 {
            phrase = 5 + rng.below(8);
            let pause = rng.range(0.05, 0.22);
            tract.begin_phrase(rng);
            tract.silence(pause, &mut samples);
        }
        phrase -= 1;
        let any;
        let syllable = if vocabulary.is_empty() {
            any = Syllable::draw(rng);
            &any
        } else {
            &vocabulary[rng.below(vocabulary.len())]
        };
        tract.phone(syllable.onset, 1.0, rng, &mut samples);
        tract.phone(syllable.vowel, rng.range(0.7, 1.5), rng, &mut samples);
        if let Some(coda) = syllable.coda {
            tract.phone(coda, 0.8, rng, &mut samples);
        }
    }
    samples.truncate(length);
    samples
}

/// A two-pole resonator with unit gain at 0 Hz: y = a·x + b·y₁ + c·y₂.
#[derive(Clone, Copy, Default)]
struct Resonator {
    a: f32,
    b: f32,
    c: f32,
    y1: f32,
    y2: f32,
}

impl Resonator {
    fn tune(&mut self, frequency: f64, bandwidth: f64) {
        let radius = (-PI * bandwidth / RATE).exp();
        let b = 2.0 * radius * (TAU * frequency.min(0.48 * RATE) / RATE).cos();
        let c = -radius * radius;
        (self.a, self.b, self.c) = ((1.0 - b - c) as f32, b as f32, c as f32);
    }

    fn next(&mut self, x: f32) -> f32 {
        let y = self.a * x + self.b * self.y1 + self.c * self.y2;
        (self.y2, self.y1) = (self.y1, y);
        y
    }
}

/// The moving parts while speaking.
struct Tract<'a> {
    voice: &'a Voice,
    pitch: f64,
    tilt: f32,
    formants: [f64; FORMANTS],
    cascade: [Resonator; FORMANTS],
    frication: Resonator,
    /// Smoothed gains of voicing and noise.
    voicing: f32,
    hiss: f32,
    /// Position in the glottal cycle, its length and strength.
    phase: f64,
    period: f64,
    strength: f32,
    darkened: f32,
    /// Phrase contour: start and slope of the pitch, a slow wave on it.
    contour: (f64, f64, f64),
    time: f64,
    noise: Rng,
}

impl<'a> Tract<'a> {
    fn new(voice: &'a Voice, session: &RecordingSession, rng: &mut Rng) -> Self {
        let pitch = voice.pitch * session.pitch;
        Self {
            voice,
            pitch,
            tilt: (voice.tilt + session.effort).clamp(0.1, 0.96) as f32,
            formants: PHONES[FIRST_VOWEL].formants,
            cascade: Default::default(),
            frication: Resonator::default(),
            voicing: 0.0,
            hiss: 0.0,
            phase: 0.0,
            period: 1.0 / pitch,
            strength: 1.0,
            darkened: 0.0,
            contour: (0.0, 0.0, 0.0),
            time: 0.0,
            noise: Rng::keyed(&[rng.bits()]),
        }
    }

    fn begin_phrase(&mut self, rng: &mut Rng) {
        self.contour = (rng.range(0.0, 1.5), rng.range(-1.2, -0.2), rng.range(0.0, TAU));
        self.time = 0.0;
    }

    fn silence(&mut self, seconds: f64, out: &mut Vec<f32>) {
        self.run(seconds, self.formants, (0.0, 0.0), out);
    }

    fn phone(&mut self, number: usize, stretch: f64, rng: &mut Rng, out: &mut Vec<f32>) {
        let phone = &PHONES[number];
        let own = &self.voice.formants[number];
        let mut target = [0.0; FORMANTS];
        // Nobody says a phone twice the same way.
        target
            .iter_mut()
            .zip(phone.formants.iter().zip(own))
            .for_each(|(target, (f, own))| *target = f * own * (0.03 * rng.normal()).exp());
        let seconds = phone.seconds * self.voice.pace * stretch * rng.range(0.75, 1.3);
        let burst = |frequency: f64| frequency * own[3];
        match phone.kind {
            Kind::Vowel => self.run(seconds, target, (1.0, 0.0), out),
            Kind::Sonorant => self.run(seconds, target, (0.4, 0.0), out),
            Kind::Fricative(frequency, voiced) => {
                self.frication.tune(burst(frequency), 900.0);
                self.run(seconds, target, (if voiced { 0.25 } else { 0.0 }, 0.5), out);
            }
            Kind::Stop(frequency) => {
                self.frication.tune(burst(frequency), 1200.0);
                self.run(0.6 * seconds, target, (0.0, 0.0), out);
                self.run(0.15 * seconds, target, (0.0, 0.8), out);
                self.run(0.25 * seconds, target, (0.0, 0.15), out);
            }
        }
    }

    /// Moves towards `target` formants and `(voicing, hiss)` gains for `seconds`.
    fn run(&mut self, seconds: f64, target: [f64; FORMANTS], (voicing, hiss): (f32, f32), out: &mut Vec<f32>) {
        for _ in 0..((seconds * RATE) as usize).div_ceil(BLOCK) {
            for ((now, target), (resonator, bandwidth)) in
                self.formants.iter_mut().zip(target).zip(self.cascade.iter_mut().zip(BANDWIDTHS))
            {
                *now += 0.05 * (target - *now); // about 20 ms to reach a target
                resonator.tune(*now, bandwidth * self.voice.damping);
            }
            for _ in 0..BLOCK {
                self.voicing += 0.004 * (voicing - self.voicing);
                self.hiss += 0.01 * (hiss - self.hiss);
                let noise = (2.0 * self.noise.unit() - 1.0) as f32;
                let breath = self.voice.breath as f32 * noise * self.voicing;
                let mut sample = self.voicing * self.glottis() + breath;
                sample = self.cascade.iter_mut().fold(sample, |x, resonator| resonator.next(x));
                out.push(sample + 0.6 * self.frication.next(self.hiss * noise));
            }
        }
    }

    /// Derivative of the glottal flow, darkened by the tilt filter.
    fn glottis(&mut self) -> f32 {
        self.phase += 1.0 / RATE;
        self.time += 1.0 / RATE;
        if self.phase >= self.period {
            self.phase -= self.period;
            let (start, slope, wave) = self.contour;
            let contour = start + slope * self.time + 0.6 * (TAU * 2.3 * self.time + wave).sin();
            let jitter = 1.0 + self.voice.jitter * self.noise.normal();
            self.period =
                (jitter / (self.pitch * (self.voice.pitch_range * contour).exp())).clamp(1.0 / 500.0, 1.0 / 45.0);
            self.strength = (1.0 + self.voice.shimmer * self.noise.normal()) as f32;
        }
        // Rosenberg's polynomial pulse: flow u² (3 − 2u)-like opening, abrupt closing.
        let u = self.phase / (self.period * self.voice.open_quotient);
        let flow = if u < 1.0 { (2.0 * u - 3.0 * u * u) as f32 } else { 0.0 };
        self.darkened = (1.0 - self.tilt) * flow * self.strength + self.tilt * self.darkened;
        self.darkened
    }
}
