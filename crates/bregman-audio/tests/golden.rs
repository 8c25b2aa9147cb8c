//! The filterbanks against the reference numbers (`golden/features.*`).

use std::collections::BTreeSet;

use bregman_audio::{Fbank, FbankConfig, Features, FilterbankKind, Window};
use bregman_golden::Tensors;
use serde_json::Value;

/// Tolerances of golden/README.md: maximum and mean absolute difference.
const KALDI: (f32, f32) = (6e-3, 5e-5);
const SPEECHBRAIN: (f32, f32) = (2e-3, 1e-4);
const AT_THE_LOG_FLOOR: f32 = 1e-5;

struct Golden {
    tensors: Tensors,
    settings: Value,
}

impl Golden {
    fn load() -> Self {
        Self { tensors: Tensors::load("features"), settings: bregman_golden::json("features") }
    }

    fn number(&self, section: &str, key: &str) -> f32 {
        self.settings[section][key].as_f64().unwrap_or_else(|| panic!("features.json: {section}.{key} is not a number"))
            as f32
    }

    /// The stored filterbanks `(utterance, tensor name after the dot)`.
    fn cases(&self) -> BTreeSet<(String, String)> {
        let split =
            |name: &String| name.split_once('.').map(|(utterance, kind)| (utterance.to_string(), kind.to_string()));
        self.tensors.names().iter().filter_map(split).filter(|(_, kind)| kind != "waveform_i16").collect()
    }

    fn waveform(&self, utterance: &str) -> Vec<f32> {
        self.tensors.f32(&format!("{utterance}.waveform_i16")).into_iter().map(|sample| sample / 32768.0).collect()
    }

    fn rate(&self, utterance: &str) -> u32 {
        let about = &self.settings["utterances"][utterance];
        (about["samples"].as_f64().expect("samples") / about["seconds"].as_f64().expect("seconds")).round() as u32
    }

    fn config(&self, utterance: &str, kind: &str) -> FbankConfig {
        let base = FbankConfig { rate: self.rate(utterance), ..FbankConfig::speechbrain() };
        if kind.starts_with("speechbrain") {
            let number = |key| self.number("speechbrain", key);
            let front_end = FilterbankKind::SpeechBrain { n_fft: number("n_fft") as usize, top_db: 80.0 };
            let (window_ms, hop_ms) = (number("win_ms"), number("hop_ms"));
            FbankConfig {
                bins: number("mels") as usize,
                window_ms,
                hop_ms,
                low_hz: number("f_min"),
                high_hz: self.settings["speechbrain"]["f_max"].as_f64().map(|hz| hz as f32),
                front_end,
                ..base
            }
        } else {
            for (key, ours) in [
                ("remove_dc_offset", true),
                ("snip_edges", true),
                ("round_to_power_of_two", true),
                ("use_power", true),
                ("use_energy", false),
            ] {
                assert_eq!(
                    self.settings["kaldi"][key], ours,
                    "features.json: kaldi.{key} is not what this crate computes"
                );
            }
            let number = |key| self.number("kaldi", key);
            assert_eq!(
                number("input_scale"),
                32768.0,
                "features.json: kaldi.input_scale is not what this crate computes"
            );
            let window = if kind.ends_with("povey") { Window::Povey } else { Window::Hamming };
            assert!(kind.ends_with("povey") || kind.ends_with("hamming"), "unknown window in {kind}");
            let front_end =
                FilterbankKind::Kaldi { window, preemphasis: number("preemphasis"), dither: number("dither") };
            let (window_ms, hop_ms) = (number("frame_length_ms"), number("frame_shift_ms"));
            FbankConfig {
                bins: number("mels") as usize,
                window_ms,
                hop_ms,
                low_hz: number("low_freq"),
                high_hz: self.settings["kaldi"]["high_freq"].as_f64().map(|hz| hz as f32),
                front_end,
                ..base
            }
        }
    }

    fn expected(&self, utterance: &str, kind: &str) -> Features {
        let name = format!("{utterance}.{kind}");
        let shape = self.tensors.shape(&name);
        Features { frames: shape[0], bins: shape[1], data: self.tensors.f32(&name) }
    }
}

#[test]
fn filterbanks_match_the_references() {
    let golden = Golden::load();
    let cases = golden.cases();
    assert!(!cases.is_empty());
    for (utterance, kind) in cases {
        let mut fbank = Fbank::new(golden.config(&utterance, &kind)).expect("the references' settings are valid");
        let mut ours = fbank.compute(&golden.waveform(&utterance));
        if kind.ends_with("_norm") {
            ours.subtract_mean();
        }
        let expected = golden.expected(&utterance, &kind);
        assert_eq!((ours.frames, ours.bins), (expected.frames, expected.bins), "{utterance}.{kind}");
        let difference: Vec<f32> = ours.data.iter().zip(&expected.data).map(|(a, b)| (a - b).abs()).collect();
        let (max, mean) =
            (difference.iter().copied().fold(0.0, f32::max), difference.iter().sum::<f32>() / difference.len() as f32);
        println!("{utterance}.{kind}: max {max:.1e}, mean {mean:.1e}");
        let (max_allowed, mean_allowed) = if kind.starts_with("speechbrain") { SPEECHBRAIN } else { KALDI };
        assert!(max <= max_allowed && mean <= mean_allowed, "{utterance}.{kind}: max {max}, mean {mean}");
        if !kind.starts_with("speechbrain") {
            let floor = f32::EPSILON.ln();
            for (d, e) in difference.iter().zip(&expected.data).filter(|(_, e)| (**e - floor).abs() < 1e-4) {
                assert!(*d <= AT_THE_LOG_FLOOR, "{utterance}.{kind}: {d} off at the floor ({e})");
            }
        }
    }
}
