//! Settings of the filterbank, for both front ends.

use serde::{Deserialize, Serialize};

use crate::{Error, RATE, Result, level};

/// Settings of a filterbank. They are stored in checkpoints and model files, so that inference computes the same
/// features as training.
///
/// | field | default | meaning | range |
/// | --- | --- | --- | --- |
/// | `rate` | 16000 | samples per second | ≥ 1000 |
/// | `bins` | 80 | mel bins | 1 … FFT bins |
/// | `window_ms`, `hop_ms` | 25, 10 | window length and shift | > 0, window ≤ 1000 |
/// | `low_hz` | 0 (SpeechBrain), 20 (Kaldi) | lower edge of the first bin | ≥ 0 |
/// | `high_hz` | half the rate | upper edge of the last bin | `low_hz` … half the rate |
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FbankConfig {
    /// Samples per second of the input.
    pub rate: u32,
    /// Mel bins per frame.
    pub bins: usize,
    /// Window length in milliseconds.
    pub window_ms: f32,
    /// Shift between frames in milliseconds.
    pub hop_ms: f32,
    /// Lower edge of the first bin in Hz.
    pub low_hz: f32,
    /// Upper edge of the last bin in Hz; half the rate if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_hz: Option<f32>,
    /// Which definition to follow.
    pub front_end: FilterbankKind,
    /// What is done to the samples first.
    #[serde(default, skip_serializing_if = "Waveform::is_leveled")]
    pub waveform: Waveform,
}

/// What is done to the samples before the filterbank. It belongs to a trained network as the filterbank does: near the
/// floor of the logarithm a scale does not cancel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Waveform {
    /// [Leveled](crate::level); Kaldi's filterbank sees them as 16-bit numbers, ±32768.
    #[default]
    Leveled,
    /// Nothing; Kaldi's filterbank sees them as 16-bit numbers, ±32768, as WeSpeaker's networks do.
    Sixteen,
    /// Nothing: in ±1 as they were decoded, as torchaudio gives them to 3D-Speaker's networks.
    Decoded,
}

impl Waveform {
    fn is_leveled(&self) -> bool {
        *self == Self::Leveled
    }
}

/// The two definitions in use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
pub enum FilterbankKind {
    /// SpeechBrain's: centred frames on zero padding, periodic Hamming window, dB, floor `top_db` under the utterance's
    /// maximum.
    SpeechBrain {
        /// FFT length; the window is centred in it.
        n_fft: usize,
        /// Values more than this many dB below the utterance's maximum are raised to that level.
        top_db: f32,
    },
    /// Kaldi's (torchaudio, kaldi-native-fbank, WeSpeaker): whole frames only, mean removal and pre-emphasis per frame,
    /// natural log.
    Kaldi {
        /// Window shape.
        window: Window,
        /// c in the pre-emphasis `y[n] = x[n] − c·x[n − 1]`.
        preemphasis: f32,
        /// Standard deviation of the noise added to each frame, in units of a 16-bit step; 0 for none.
        dither: f32,
    },
}

/// Window shapes of the Kaldi front end, symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Window {
    /// Hann to the power 0.85.
    Povey,
    /// 0.54 − 0.46·cos.
    Hamming,
}

impl FbankConfig {
    /// The paper's front end.
    pub fn speechbrain() -> Self {
        let front_end = FilterbankKind::SpeechBrain { n_fft: 512, top_db: 80.0 };
        Self {
            rate: RATE,
            bins: 80,
            window_ms: 25.0,
            hop_ms: 10.0,
            low_hz: 0.0,
            high_hz: None,
            front_end,
            waveform: Waveform::Leveled,
        }
    }

    /// The front end of networks that SpeechBrain published: `Fbank(n_mels=80)`, whose transform has as many points as
    /// the window, on samples as they are.
    pub fn speechbrain_published() -> Self {
        let front_end = FilterbankKind::SpeechBrain { n_fft: 400, top_db: 80.0 };
        Self { front_end, waveform: Waveform::Decoded, ..Self::speechbrain() }
    }

    /// Kaldi's front end on levelled samples, without dither.
    pub fn kaldi(window: Window) -> Self {
        let front_end = FilterbankKind::Kaldi { window, preemphasis: 0.97, dither: 0.0 };
        Self {
            rate: RATE,
            bins: 80,
            window_ms: 25.0,
            hop_ms: 10.0,
            low_hz: 20.0,
            high_hz: None,
            front_end,
            waveform: Waveform::Leveled,
        }
    }

    /// WeSpeaker's front end, which pyannote keeps for its networks: Kaldi's with a Hamming window, on 16-bit samples.
    pub fn wespeaker() -> Self {
        Self { waveform: Waveform::Sixteen, ..Self::kaldi(Window::Hamming) }
    }

    /// 3D-Speaker's front end: Kaldi's with its own window, on samples in ±1.
    pub fn three_d_speaker() -> Self {
        Self { waveform: Waveform::Decoded, ..Self::kaldi(Window::Povey) }
    }

    /// What is done to the samples of an utterance before [`Fbank::compute`](crate::Fbank::compute).
    pub fn prepare(&self, samples: &mut [f32]) {
        match self.waveform {
            Waveform::Leveled => level(samples),
            Waveform::Sixteen | Waveform::Decoded => {}
        }
    }

    /// What Kaldi's filterbank multiplies samples by.
    pub(crate) fn kaldi_scale(&self) -> f32 {
        match self.waveform {
            Waveform::Leveled | Waveform::Sixteen => 32768.0,
            Waveform::Decoded => 1.0,
        }
    }

    /// Window length in samples.
    pub(crate) fn window(&self) -> usize {
        self.samples(self.window_ms)
    }

    /// Frame shift in samples.
    pub(crate) fn hop(&self) -> usize {
        self.samples(self.hop_ms)
    }

    /// Milliseconds to whole samples: SpeechBrain rounds, Kaldi truncates.
    fn samples(&self, milliseconds: f32) -> usize {
        let samples = f64::from(self.rate) * f64::from(milliseconds) / 1000.0;
        match self.front_end {
            FilterbankKind::SpeechBrain { .. } => samples.round() as usize,
            FilterbankKind::Kaldi { .. } => samples as usize,
        }
    }

    /// FFT length.
    pub(crate) fn n_fft(&self) -> usize {
        match self.front_end {
            FilterbankKind::SpeechBrain { n_fft, .. } => n_fft,
            FilterbankKind::Kaldi { .. } => self.window().next_power_of_two(),
        }
    }

    /// The window's value at sample `i`.
    pub(crate) fn window_at(&self, i: usize) -> f64 {
        let cosine = |period: usize| (std::f64::consts::TAU * i as f64 / period as f64).cos();
        match self.front_end {
            FilterbankKind::SpeechBrain { .. } => 0.54 - 0.46 * cosine(self.window()),
            FilterbankKind::Kaldi { window: Window::Hamming, .. } => 0.54 - 0.46 * cosine(self.window() - 1),
            FilterbankKind::Kaldi { window: Window::Povey, .. } => (0.5 - 0.5 * cosine(self.window() - 1)).powf(0.85),
        }
    }

    /// Upper edge of the last bin.
    pub(crate) fn high(&self) -> f32 {
        self.high_hz.unwrap_or(self.rate as f32 / 2.0)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let nyquist = self.rate as f32 / 2.0;
        if !(1_000..=768_000).contains(&self.rate) {
            return Err(Error::config("rate", self.rate, "between 1000 and 768000 Hz"));
        }
        if !(self.window_ms > 0.0 && self.window_ms <= 1000.0 && self.window() >= 2) {
            return Err(Error::config("window_ms", self.window_ms, "at least two samples, at most 1000 ms"));
        }
        if !(self.hop_ms > 0.0 && self.hop_ms <= 1000.0 && self.hop() >= 1) {
            return Err(Error::config("hop_ms", self.hop_ms, "at least one sample, at most 1000 ms"));
        }
        if !(1..=self.n_fft() / 2).contains(&self.bins) {
            return Err(Error::config("bins", self.bins, "at least 1, at most half the FFT length"));
        }
        if !(self.low_hz >= 0.0 && self.low_hz < self.high() && self.high() <= nyquist) {
            let range = format!("{} … {}", self.low_hz, self.high());
            return Err(Error::config("low_hz … high_hz", range, "rising, between 0 and half the rate"));
        }
        match self.front_end {
            FilterbankKind::SpeechBrain { n_fft, .. } if n_fft < self.window() || n_fft > 1 << 20 || n_fft % 2 == 1 => {
                Err(Error::config("n_fft", n_fft, "even, at least the window's length in samples, at most 1048576"))
            }
            FilterbankKind::SpeechBrain { top_db, .. } if top_db.is_nan() || top_db <= 0.0 => {
                Err(Error::config("top_db", top_db, "above 0"))
            }
            FilterbankKind::Kaldi { preemphasis, .. } if !(0.0..=1.0).contains(&preemphasis) => {
                Err(Error::config("preemphasis", preemphasis, "between 0 and 1"))
            }
            FilterbankKind::Kaldi { dither, .. } if !(dither >= 0.0 && dither.is_finite()) => {
                Err(Error::config("dither", dither, "0 or a positive number"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Fbank;

    #[test]
    fn defaults_are_valid_and_survive_serialisation() {
        for config in [FbankConfig::speechbrain(), FbankConfig::kaldi(Window::Hamming), FbankConfig::three_d_speaker()]
        {
            config.check().unwrap();
            let text = serde_json::to_string(&config).unwrap();
            assert_eq!(serde_json::from_str::<FbankConfig>(&text).unwrap(), config, "{text}");
            // files from before the setting existed have it not, and are leveled
            assert_eq!(text.contains("waveform"), config.waveform == Waveform::Decoded, "{text}");
        }
    }

    /// So quiet that the floor of the logarithm shows where samples are in ±1.
    #[test]
    fn decoded_samples_are_neither_leveled_nor_scaled() {
        let quiet: Vec<f32> = (0..4000).map(|i| 2e-4 * (i as f32 * 0.3).sin()).collect();
        let mut prepared = quiet.clone();
        let decoded = FbankConfig::three_d_speaker();
        decoded.prepare(&mut prepared);
        assert_eq!(prepared, quiet);
        let leveled = FbankConfig::kaldi(Window::Povey);
        leveled.prepare(&mut prepared);
        assert_ne!(prepared, quiet);
        // powers of two scale without rounding
        let small: Vec<f32> = quiet.iter().map(|x| x / 32768.0).collect();
        let features = |config: FbankConfig, samples: &[f32]| Fbank::new(config).unwrap().compute(samples).data;
        let ours = features(decoded.clone(), &quiet);
        assert_eq!(ours, features(leveled, &small));
        let floor = f32::EPSILON.ln();
        assert!(ours.iter().any(|&x| (x - floor).abs() < 1e-5) && ours.iter().any(|&x| x > floor + 1.0));
        let tables = decoded.products().unwrap();
        let largest = tables.spectrum.iter().fold(0f32, |largest, x| largest.max(x.abs()));
        assert!(largest <= 2.0, "the device's tables have no scale either: {largest}");
    }

    #[test]
    fn errors_name_the_setting_out_of_range() {
        let speechbrain = FbankConfig::speechbrain;
        let kaldi = |preemphasis, dither| FilterbankKind::Kaldi { window: Window::Povey, preemphasis, dither };
        for (field, config) in [
            ("rate", FbankConfig { rate: 0, ..speechbrain() }),
            ("bins", FbankConfig { bins: 0, ..speechbrain() }),
            ("bins", FbankConfig { bins: 300, ..speechbrain() }),
            ("window_ms", FbankConfig { window_ms: f32::NAN, ..speechbrain() }),
            ("window_ms", FbankConfig { window_ms: 0.01, ..speechbrain() }),
            ("hop_ms", FbankConfig { hop_ms: -1.0, ..speechbrain() }),
            ("low_hz … high_hz", FbankConfig { low_hz: 9000.0, ..speechbrain() }),
            ("low_hz … high_hz", FbankConfig { high_hz: Some(8001.0), ..speechbrain() }),
            (
                "n_fft",
                FbankConfig { front_end: FilterbankKind::SpeechBrain { n_fft: 256, top_db: 80.0 }, ..speechbrain() },
            ),
            (
                "n_fft",
                FbankConfig { front_end: FilterbankKind::SpeechBrain { n_fft: 513, top_db: 80.0 }, ..speechbrain() },
            ),
            (
                "top_db",
                FbankConfig { front_end: FilterbankKind::SpeechBrain { n_fft: 512, top_db: 0.0 }, ..speechbrain() },
            ),
            ("preemphasis", FbankConfig { front_end: kaldi(1.5, 0.0), ..speechbrain() }),
            ("dither", FbankConfig { front_end: kaldi(0.97, f32::INFINITY), ..speechbrain() }),
        ] {
            match config.check() {
                Err(Error::Config { field: named, .. }) => assert_eq!(named, field),
                other => panic!("{field}: {other:?}"),
            }
        }
    }
}
