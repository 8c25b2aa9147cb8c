//! Who spoke when.
//!
//! ```text
//! samples ─▶ speech ─▶ windows ─▶ embeddings ─▶ clusters ─▶ smoothed over time ─▶ turns ─▶ RTTM, error rate
//! ```
//!
//! | file | what it does |
//! | --- | --- |
//! | `windows` | windows over speech, and their labels as turns |
//! | `linkage`, `count` | agglomerative clustering with average linkage, and where it stops |
//! | `smooth` | each window to the nearest speaker, changes of speaker being rare |
//! | `turn`, `rttm` | turns, and the file of them |
//! | `error_rate`, `assignment` | the diarization error rate, with the best mapping of names |
//! | `mixture` | conversations with known truth, to measure with |

mod assignment;
mod count;
mod error_rate;
mod linkage;
mod mixture;
mod rttm;
mod smooth;
mod turn;
mod windows;

use std::sync::Mutex;

use bregman_audio::{RATE, check_speech, speech_regions};

pub use error_rate::DiarizationErrors;
pub use mixture::{Mixture, MixtureConfig};
pub use rttm::Rttm;
pub use turn::{Turn, speakers_of};

use crate::score::{Embedder, Embeddings, with_networks};
use crate::{Error, Progress, Result};
use count::{centres, own_threshold};
use linkage::{Stop, cluster, in_order};
use windows::Window;

/// Settings of [`diarize`].
///
/// | field | default | meaning | range |
/// | --- | --- | --- | --- |
/// | `window` | 1.5 | seconds of speech of one embedding | 0.1 … 60 |
/// | `hop` | 0.75 | seconds from one window to the next | 0.05 … `window` |
/// | `speakers` | found | how many speak | ≥ 1 |
/// | `threshold` | found | cosine from which on two groups of windows are one speaker | −1 … 1 |
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiarizeConfig {
    /// Seconds of one embedding.
    pub window: f64,
    /// Seconds from one window to the next.
    pub hop: f64,
    /// How many speak; `None` to find out.
    pub speakers: Option<usize>,
    /// Cosine from which on two groups of windows are one speaker; `None` to take it from the recording.
    pub threshold: Option<f64>,
}

impl Default for DiarizeConfig {
    fn default() -> Self {
        Self { window: 1.5, hop: 0.75, speakers: None, threshold: None }
    }
}

impl DiarizeConfig {
    /// Refuses settings out of their ranges.
    ///
    /// # Errors
    /// [`Error::Setting`], which names the setting and its range.
    pub fn check(&self) -> Result<()> {
        let setting = |good: bool, field, value: String, expected| {
            if good { Ok(()) } else { Err(Error::Setting { field, value, expected }) }
        };
        let Self { window, hop, speakers, threshold } = *self;
        setting((0.1..=60.0).contains(&window), "window", window.to_string(), "0.1 to 60 seconds")?;
        setting(hop >= 0.05 && hop <= window, "hop", hop.to_string(), "0.05 seconds or more, at most the window")?;
        setting(speakers != Some(0), "speakers", "0".to_owned(), "1 or more")?;
        let cosine = threshold.unwrap_or(0.0);
        setting((-1.0..=1.0).contains(&cosine), "threshold", cosine.to_string(), "a cosine, -1 to 1")
    }
}

/// Who spoke when.
#[derive(Debug, Clone, PartialEq)]
pub struct Diarization {
    /// In the order of time, apart from each other. Speakers are named by their first turns: `speaker1`, `speaker2`, …
    pub turns: Vec<Turn>,
    /// Windows that were embedded.
    pub windows: usize,
    /// The cosine at which clustering stopped; `None` if the number of speakers was given.
    pub threshold: Option<f64>,
}

/// What a speaker is called.
fn name(label: usize) -> String {
    format!("speaker{}", label + 1)
}

/// A group of fewer windows is no speaker: windows across a change of speakers are like nobody.
const LEAST_WINDOWS: usize = 5;

/// Finds out who speaks when in 16 kHz samples. Each thread creates its own network with `embedder`; one step of
/// `progress` per window.
///
/// # Errors
/// Settings out of range, a recording without speech, or a network that cannot be created or embed a window.
pub fn diarize<E: Embedder>(
    samples: &[f32],
    config: &DiarizeConfig,
    embedder: impl Fn() -> Result<E> + Sync,
    progress: &dyn Progress,
) -> Result<Diarization> {
    config.check()?;
    check_speech(samples, RATE).map_err(|error| Error::NoSpeech(error.to_string()))?;
    let regions = speech_regions(samples, RATE);
    if regions.is_empty() {
        let seconds = samples.len() as f64 / f64::from(RATE);
        return Err(Error::NoSpeech(format!("no speech in it: its {seconds:.1} s are steady noise")));
    }
    let length = |seconds: f64| (seconds * f64::from(RATE)).round() as usize;
    let windows = windows::windows(&regions, length(config.window), length(config.hop));
    let rows = embed(samples, &windows, embedder, progress)?;
    let (labels, threshold) = label(&windows, &rows, config);
    Ok(Diarization { turns: windows::turns(&regions, &windows, &labels, RATE), windows: windows.len(), threshold })
}

/// The speaker of every window, and the cosine at which clustering stopped.
fn label(windows: &[Window], rows: &Embeddings, config: &DiarizeConfig) -> (Vec<usize>, Option<f64>) {
    // a short window says little about a voice: such follow the others
    let longest = windows.iter().map(|window| window.samples.len()).max().unwrap_or(0);
    let long: Vec<usize> = (0..windows.len()).filter(|&at| windows[at].samples.len() == longest).collect();
    let voices = rows.select(&long);
    let (stop, threshold) = match (config.speakers, config.threshold) {
        (Some(count), _) => (Stop::Groups { count, least: LEAST_WINDOWS }, None),
        (None, given) => {
            let apart = (config.window / config.hop).ceil() as usize;
            let threshold = given.unwrap_or_else(|| own_threshold(&voices, apart));
            (Stop::Below(threshold), Some(threshold))
        }
    };
    let speakers = centres(&voices, &cluster(&voices, stop), LEAST_WINDOWS, config.speakers);
    let continues: Vec<bool> = windows.windows(2).map(|pair| pair[0].region == pair[1].region).collect();
    (in_order(smooth::smooth(rows, &speakers, &continues)), threshold)
}

/// The embeddings of the windows, of length 1.
fn embed<E: Embedder>(
    samples: &[f32],
    windows: &[Window],
    embedder: impl Fn() -> Result<E> + Sync,
    progress: &dyn Progress,
) -> Result<Embeddings> {
    let rows = Mutex::new(vec![Vec::new(); windows.len()]);
    with_networks(windows.len(), embedder, progress, |network, window, at| {
        let range = windows[at].samples.clone();
        let problem = |problem| Error::Window { at: range.start as f64 / f64::from(RATE), problem };
        window.clear();
        window.extend_from_slice(&samples[range.clone()]);
        let row = network.embed(window).map_err(problem)?;
        rows.lock().expect("no thread panics while it holds the rows")[at] = row;
        Ok(())
    })?;
    let rows = rows.into_inner().expect("all threads have ended");
    let dim = rows.first().map_or(1, Vec::len);
    Ok(Embeddings::new(dim, rows.concat())?.normalize())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SynthConfig, SynthCorpus};

    /// The mean of the filterbanks: synthetic voices differ in their spectra.
    struct Spectrum(bregman_audio::Fbank);

    impl Spectrum {
        fn new() -> Result<Self> {
            let fbank = bregman_audio::Fbank::new(bregman_audio::FbankConfig::kaldi(bregman_audio::Window::Hamming));
            fbank.map(Self).map_err(Error::front_end)
        }
    }

    impl Embedder for Spectrum {
        fn embed(&mut self, samples: &mut [f32]) -> std::result::Result<Vec<f32>, String> {
            let features = self.0.compute(samples);
            let mut mean = vec![0.0; features.bins];
            for frame in features.data.chunks(features.bins) {
                mean.iter_mut().zip(frame).for_each(|(mean, x)| *mean += x / features.frames as f32);
            }
            let level = mean.iter().sum::<f32>() / features.bins as f32;
            mean.iter_mut().for_each(|x| *x -= level);
            Ok(mean)
        }
    }

    fn conversation(speakers: usize, seed: u64) -> Mixture {
        let voices = SynthConfig {
            speakers: 8,
            utterances: 2,
            per_session: 2,
            held_out: 0,
            seconds: [5.0, 6.0],
            distortion: 0.3,
            seed: 3,
            ..SynthConfig::default()
        };
        let (voices, _) = SynthCorpus::new(voices).unwrap().in_memory();
        let config = MixtureConfig { speakers, turns: 4 * speakers, seconds: [3.0, 5.0], ..MixtureConfig::default() };
        Mixture::draw(&voices, &config, seed).unwrap()
    }

    #[test]
    fn synthetic_voices_are_told_apart_in_conversations() {
        for (speakers, seed) in [(2, 1), (3, 2)] {
            let mixture = conversation(speakers, seed);
            let config = DiarizeConfig { speakers: Some(speakers), ..DiarizeConfig::default() };
            let found = diarize(&mixture.samples, &config, Spectrum::new, &()).unwrap();
            assert_eq!((speakers_of(&found.turns).len(), found.threshold), (speakers, None));
            assert_eq!(found.turns[0].speaker, "speaker1");
            assert!(found.turns.windows(2).all(|pair| pair[0].end <= pair[1].start));
            let errors = DiarizationErrors::between(&mixture.truth, &found.turns, 0.25);
            assert!(errors.rate() < 0.1, "{errors:?}");
            let one = DiarizeConfig { speakers: Some(1), ..config };
            let one = diarize(&mixture.samples, &one, Spectrum::new, &()).unwrap();
            assert!(DiarizationErrors::between(&mixture.truth, &one.turns, 0.25).confusion > errors.confusion + 5.0);
        }
    }

    #[test]
    fn a_lower_threshold_finds_fewer_speakers() {
        let mixture = conversation(3, 2);
        let found = |threshold| {
            let config = DiarizeConfig { threshold: Some(threshold), ..DiarizeConfig::default() };
            let found = diarize(&mixture.samples, &config, Spectrum::new, &()).unwrap();
            assert_eq!(found.threshold, Some(threshold));
            speakers_of(&found.turns).len()
        };
        assert_eq!(found(-1.0), 1);
        assert!(found(0.9) >= 2);
    }

    #[test]
    fn recordings_without_speech_and_settings_out_of_range_are_refused() {
        let refused = |samples: &[f32], config| diarize(samples, &config, Spectrum::new, &()).unwrap_err().to_string();
        let usual = DiarizeConfig::default();
        assert!(refused(&[0.0; 160], usual).contains("160 samples (0.010 s)"));
        assert!(refused(&[0.0; 32_000], usual).contains("its 2.0 s are silent"));
        let hiss = bregman_audio::pink_noise(64_000, 1);
        assert!(refused(&hiss, usual).contains("its 4.0 s are steady noise"));
        let message = |config: DiarizeConfig| config.check().unwrap_err().to_string();
        assert_eq!(message(DiarizeConfig { window: 0.0, ..usual }), "window = 0: expected 0.1 to 60 seconds");
        assert!(message(DiarizeConfig { hop: 2.0, ..usual }).starts_with("hop = 2: expected 0.05 seconds or more"));
        assert_eq!(message(DiarizeConfig { speakers: Some(0), ..usual }), "speakers = 0: expected 1 or more");
        assert!(message(DiarizeConfig { threshold: Some(f64::NAN), ..usual }).contains("a cosine"));
    }

    #[test]
    fn a_conversation_has_the_turns_it_was_asked_for() {
        let mixture = conversation(3, 5);
        assert_eq!((mixture.truth.len(), speakers_of(&mixture.truth).len()), (12, 3));
        assert!(mixture.truth.windows(2).all(|p| p[0].end <= p[1].start && p[0].speaker != p[1].speaker));
        assert!(mixture.truth.iter().all(|turn| (3.0..=5.01).contains(&turn.seconds())));
        assert_eq!(mixture, conversation(3, 5));
        assert_ne!(mixture.truth, conversation(3, 6).truth);
    }
}
