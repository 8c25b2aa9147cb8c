//! The filterbanks against the references' numbers (`golden/features.*`).

use std::collections::BTreeSet;
use std::path::PathBuf;

use bregman_audio::{Fbank, FbankConfig, Features, FrontEnd, Window};
use safetensors::SafeTensors;
use serde_json::Value;

/// Tolerances of golden/README.md: maximum and mean absolute difference.
const KALDI: (f32, f32) = (6e-3, 5e-5);
const SPEECHBRAIN: (f32, f32) = (2e-3, 1e-4);
const AT_THE_LOG_FLOOR: f32 = 1e-5;

fn golden(name: &str) -> Vec<u8> {
    let folder =
        std::env::var_os("GOLDEN_DIR").map_or_else(|| PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../golden")), Into::into);
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{}/{name}: {error}", folder.display()))
}

struct Golden {
    tensors: SafeTensors<'static>,
    settings: Value,
}

impl Golden {
    fn load() -> Self {
        let bytes: &'static [u8] = golden("features.safetensors").leak();
        let settings = serde_json::from_slice(&golden("features.json")).expect("features.json is JSON");
        Self { tensors: SafeTensors::deserialize(bytes).expect("features.safetensors is readable"), settings }
    }

    fn number(&self, section: &str, key: &str) -> f32 {
        self.settings[section][key].as_f64().unwrap_or_else(|| panic!("features.json: {section}.{key} is not a number")) as f32
    }

    /// The stored filterbanks `(utterance, tensor name after the dot)`.
    fn cases(&self) -> BTreeSet<(String, String)> {
        let names = self.tensors.names().into_iter().filter_map(|name| name.split_once('.'));
        names.filter(|(_, kind)| *kind != "waveform_i16").map(|(utterance, kind)| (utterance.to_string(), kind.to_string())).collect()
    }

    fn waveform(&self, utterance: &str) -> Vec<f32> {
        let tensor = self.tensors.tensor(&format!("{utterance}.waveform_i16")).expect("every utterance has a waveform");
        tensor.data().chunks_exact(2).map(|b| f32::from(i16::from_le_bytes([b[0], b[1]])) / 32768.0).collect()
    }

    fn rate(&self, utterance: &str) -> u32 {
        let about = &self.settings["utterances"][utterance];
        (about["samples"].as_f64().expect("samples") / about["seconds"].as_f64().expect("seconds")).round() as u32
    }

    fn config(&self, utterance: &str, kind: &str) -> FbankConfig {
        let base = FbankConfig { rate: self.rate(utterance), ..FbankConfig::speechbrain() };
        if kind.starts_with("speechbrain") {
            let number = |key| self.number("speechbrain", key);
            let front_end = FrontEnd::SpeechBrain { n_fft: number("n_fft") as usize, top_db: 80.0 };
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
                assert_eq!(self.settings["kaldi"][key], ours, "features.json: kaldi.{key} is not what this crate computes");
            }
            let number = |key| self.number("kaldi", key);
            assert_eq!(number("input_scale"), 32768.0, "features.json: kaldi.input_scale is not what this crate computes");
            let window = if kind.ends_with("povey") { Window::Povey } else { Window::Hamming };
            assert!(kind.ends_with("povey") || kind.ends_with("hamming"), "unknown window in {kind}");
            let front_end = FrontEnd::Kaldi { window, preemphasis: number("preemphasis"), dither: number("dither") };
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
        let tensor = self.tensors.tensor(&format!("{utterance}.{kind}")).expect("listed above");
        let data = tensor.data().chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        Features { frames: tensor.shape()[0], bins: tensor.shape()[1], data }
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
        let (max, mean) = (difference.iter().copied().fold(0.0, f32::max), difference.iter().sum::<f32>() / difference.len() as f32);
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
