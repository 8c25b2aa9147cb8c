//! Filterbanks on one thread against SpeechBrain, torchaudio and kaldi-native-fbank: milliseconds per minute of audio.

use bregman_audio::{Fbank, FbankConfig, Features, RATE, Window};
use bregman_bench::{median_ms, peer, ratio, table};

const MINUTES: usize = 2;
const REPEATS: usize = 9;

fn main() {
    let length = MINUTES * 60 * RATE as usize;
    let samples: Vec<i16> = (0..length).map(sample).collect();
    let file = std::env::temp_dir().join(format!("bregman-bench-features-{}.i16", std::process::id()));
    std::fs::write(&file, samples.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>())
        .expect("the temporary folder is writable");
    let peers = peer("features", &[&file.to_string_lossy(), &REPEATS.to_string()]);
    std::fs::remove_file(&file).ok();

    let samples: Vec<f32> = samples.iter().map(|&x| f32::from(x) / 32768.0).collect();
    let front_ends = [("speechbrain", FbankConfig::speechbrain()), ("kaldi", FbankConfig::kaldi(Window::Povey))]
        .map(|(name, config)| (name, Fbank::new(config).expect("defaults are valid")));
    let mut rows = Vec::new();
    let mut ratios = Vec::new();
    let mut ours = Vec::new();
    for (name, mut fbank) in front_ends {
        let time = |fbank: &mut Fbank, length: usize| {
            let mut features = Features::default();
            let call =
                || samples.chunks_exact(length).for_each(|utterance| fbank.compute_into(utterance, &mut features));
            median_ms(2, 5 * REPEATS, call) / MINUTES as f64
        };
        ours.push((name, time(&mut fbank, 3 * RATE as usize), time(&mut fbank, length)));
    }
    let theirs = |shape: &str, name: &str| peers[shape][name].as_f64().expect("a number per peer and shape");
    let names: Vec<&String> = peers["3s"].as_object().expect("one object per shape").keys().collect();
    let fastest = |shape: &str| names.iter().map(|name| theirs(shape, name)).fold(f64::INFINITY, f64::min);
    for (name, cuts, whole) in ours {
        rows.push(vec![format!("bregman, {name}"), format!("{cuts:.2}"), format!("{whole:.2}")]);
        ratios.push((format!("features/{name}/3s"), cuts, fastest("3s")));
        ratios.push((format!("features/{name}/whole"), whole, fastest("whole")));
    }
    rows.extend(names.iter().map(|name| {
        vec![name.to_string(), format!("{:.2}", theirs("3s", name)), format!("{:.2}", theirs("whole", name))]
    }));
    table(&["ms per minute of audio, one thread", "cuts of 3 s", "one recording"], &rows);
    ratios.iter().for_each(|(name, ours, theirs)| ratio(name, *ours, *theirs));
}

/// A voice-like signal: harmonics of a gliding pitch with a slow envelope, and noise.
fn sample(i: usize) -> i16 {
    let t = i as f64 / f64::from(RATE);
    let pitch = 120.0 + 30.0 * (0.7 * t).sin();
    let voice: f64 = (1..20).map(|h| (std::f64::consts::TAU * f64::from(h) * pitch * t).sin() / f64::from(h)).sum();
    let noise =
        (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 53;
    (4000.0 * voice * (2.0 * t).sin().abs() + noise as f64 / 8.0 - 128.0) as i16
}
