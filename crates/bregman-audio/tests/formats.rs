//! Every format against the signal it was encoded from (`fixtures/make.sh`), and unusual files against their documented
//! outcome.

use std::path::{Path, PathBuf};

use bregman_audio::{
    Audio, Decoder, Error, MAX_SECONDS, RATE, decode_bytes, decode_file, decode_range, load_16k, probe, wav_bytes,
    write_wav,
};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

/// The signal of all fixtures at time t, for amplitude 1.
fn sound(t: f64) -> f64 {
    let pi = std::f64::consts::PI;
    (2.0 * pi * (200.0 + 600.0 * t) * t).sin() * (pi * t / 0.6).sin()
}

/// Root mean square of the difference between audio from sample `skip` on and the signal.
fn distance(audio: &[f32], rate: u32, skip: usize, amplitude: f64) -> f64 {
    let length = (0.6 * f64::from(rate)) as usize;
    assert!(audio.len() >= skip + length - 2, "{} samples", audio.len());
    let squares = audio[skip..].iter().take(length).enumerate().map(|(i, &x)| {
        let t = i as f64 / f64::from(rate);
        (f64::from(x) - amplitude * sound(t)).powi(2)
    });
    (squares.sum::<f64>() / length as f64).sqrt()
}

/// Fixture, rate, channels, priming samples that are not removed, largest root-mean-square error.
const FORMATS: [(&str, u32, usize, usize, f64); 9] = [
    ("mono_16k.flac", 16_000, 1, 0, 1e-4),
    ("mono_16k.mp3", 16_000, 1, 0, 0.02),
    ("mono_16k.ogg", 16_000, 1, 0, 0.02),
    ("mono_16k.m4a", 16_000, 1, 0, 0.02),
    ("mono_16k.aac", 16_000, 1, 1024, 0.02),
    ("stereo_22k.flac", 22_050, 2, 0, 1e-4),
    ("stereo_44k.mp3", 44_100, 2, 0, 0.02),
    ("stereo_44k.ogg", 44_100, 2, 0, 0.02),
    ("stereo_44k.m4a", 44_100, 2, 0, 0.02),
];

#[test]
fn every_format_decodes_to_the_signal_it_was_encoded_from() {
    for (name, rate, channels, priming, error) in FORMATS {
        let audio = decode_file(fixture(name)).expect(name);
        assert_eq!(audio.rate, rate, "{name}");
        // Stereo fixtures have half the amplitude in the right channel.
        let amplitude = if channels == 2 { 0.375 } else { 0.5 };
        let distance = distance(&audio.samples, rate, priming, amplitude);
        assert!(distance < error, "{name}: {distance}");
    }
}

#[test]
fn probe_reads_rate_channels_and_exact_length_from_every_header() {
    for (name, rate, channels, ..) in FORMATS {
        let header = probe(fixture(name)).expect(name);
        assert_eq!((header.rate, header.channels), (rate, channels), "{name}");
        let decoded = decode_file(fixture(name)).expect(name).samples.len() as u64;
        assert_eq!(header.frames, Some(decoded), "{name}");
        assert!((header.seconds().expect(name) - 0.6).abs() < 0.11, "{name}");
    }
}

#[test]
fn every_format_resamples_to_the_same_signal_at_16_khz() {
    for (name, rate, channels, priming, error) in FORMATS {
        let samples = load_16k(fixture(name)).expect(name);
        let amplitude = if channels == 2 { 0.375 } else { 0.5 };
        // Priming of a whole number of samples at 44.1 kHz falls between samples at 16 kHz, so only its nearest sample
        // can be skipped.
        let skip = (priming as f64 * f64::from(RATE) / f64::from(rate)).round() as usize;
        let distance = distance(&samples, RATE, skip, amplitude);
        assert!(distance < error + if priming > 0 { 0.03 } else { 2e-3 }, "{name}: {distance}");
    }
}

#[test]
fn a_range_equals_the_same_samples_of_the_whole_file() {
    for (name, ..) in FORMATS {
        let whole = decode_file(fixture(name)).expect(name).samples;
        let length = whole.len() as u64;
        for range in [0..length, 0..1, 100..4000, length / 2..length / 2 + 999, length - 10..length + 10] {
            let part = decode_range(fixture(name), range.clone()).expect(name).samples;
            let expected = &whole[range.start as usize..range.end.min(length) as usize];
            assert_eq!(part.len(), expected.len(), "{name} {range:?}");
            // AAC fills noise bands from a random state that a seek does not restore.
            let worst = part.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(
                worst <= if name.ends_with("m4a") || name.ends_with("aac") { 1e-4 } else { 0.0 },
                "{name} {range:?}: {worst}"
            );
        }
        assert!(matches!(unwrapped(decode_range(fixture(name), length + 5..length + 10)), Error::Empty), "{name}");
    }
}

#[test]
fn a_range_far_into_a_file_equals_the_whole_file_too() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("long.wav");
    let samples: Vec<f32> =
        (0..60_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 17) as f32 / 32768.0 - 0.5).collect();
    write_wav(&path, &Audio { samples, rate: RATE }).expect("writable");
    let whole = decode_file(&path).expect("just written").samples;
    let part = decode_range(&path, 41_234..52_345).expect("inside the file").samples;
    assert_eq!(part, &whole[41_234..52_345]);
}

#[test]
fn blocks_add_up_to_the_whole_file() {
    for (name, ..) in FORMATS {
        let mut decoder = Decoder::open(fixture(name)).expect(name);
        let mut samples = Vec::new();
        while let Some(block) = decoder.next_block().expect(name) {
            samples.extend_from_slice(block);
        }
        assert!(decoder.next_block().expect(name).is_none(), "{name}: no block after the end");
        assert_eq!(samples, decode_file(fixture(name)).expect(name).samples, "{name}");
    }
}

#[test]
fn wav_of_16_bit_comes_back_to_half_a_step() {
    let samples: Vec<f32> = (0..1000).map(|i| (i as f32 / 500.0 - 1.0) * 0.999).collect();
    let audio =
        decode_bytes(&wav_bytes(&Audio { samples: samples.clone(), rate: 22_050 }), "wav").expect("our own file");
    assert_eq!(audio.rate, 22_050);
    let worst = audio.samples.iter().zip(&samples).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst <= 0.5 / 32768.0 + 1e-7, "{worst}");
}

fn unwrapped<T: std::fmt::Debug>(outcome: Result<T, Error>) -> Error {
    match outcome.expect_err("an error") {
        Error::File { source, .. } => *source,
        other => other,
    }
}

/// A WAV file with any header fields.
fn wav(format: u16, channels: u16, rate: u32, bits: u16, data: &[u8]) -> Vec<u8> {
    let align = channels.wrapping_mul(bits / 8);
    let mut bytes = b"RIFF".to_vec();
    bytes.extend((36 + data.len() as u32).to_le_bytes());
    bytes.extend(b"WAVEfmt \x10\0\0\0");
    bytes.extend(format.to_le_bytes());
    bytes.extend(channels.to_le_bytes());
    bytes.extend(rate.to_le_bytes());
    bytes.extend(rate.wrapping_mul(u32::from(align)).to_le_bytes());
    bytes.extend(align.to_le_bytes());
    bytes.extend(bits.to_le_bytes());
    bytes.extend(b"data");
    bytes.extend((data.len() as u32).to_le_bytes());
    bytes.extend(data);
    bytes
}

#[test]
fn an_error_names_its_file() {
    let error = decode_file("no/such/file.wav").expect_err("there is none");
    assert!(error.to_string().starts_with("no/such/file.wav: "), "{error}");
    let error = decode_file(fixture("make.sh")).expect_err("a shell script");
    assert!(error.to_string().contains("make.sh: cannot decode"), "{error}");
}

#[test]
fn a_zero_length_file_and_a_file_without_samples_are_empty() {
    assert!(matches!(decode_bytes(&[], "wav"), Err(Error::Empty)));
    assert!(matches!(decode_bytes(&wav(1, 1, 16_000, 16, &[]), "wav"), Err(Error::Empty)));
}

#[test]
fn a_truncated_file_yields_its_remaining_samples() {
    for (name, ..) in FORMATS {
        let bytes = std::fs::read(fixture(name)).expect(name);
        let whole = decode_bytes(&bytes, "").expect(name).samples;
        let extension = name.rsplit('.').next().expect("an extension");
        match decode_bytes(&bytes[..bytes.len() * 9 / 10], extension) {
            Ok(part) => {
                assert!(
                    part.samples.len() < whole.len() && part.samples.len() >= whole.len() / 8,
                    "{name}: {}",
                    part.samples.len()
                );
                // A lossy codec overlaps its blocks, so the last one of a truncated file may differ.
                let same = part.samples.len().saturating_sub(4096);
                assert_eq!(part.samples[..same], whole[..same], "{name}");
            }
            // The index of an M4A file is at its end.
            Err(error) => assert!(extension == "m4a" && matches!(error, Error::Decode { .. }), "{name}: {error}"),
        }
    }
}

#[test]
fn a_truncated_wav_yields_all_but_its_last_block() {
    let samples: Vec<f32> = (0..16_000).map(|i| (0.5 * sound(f64::from(i) / 16_000.0)) as f32).collect();
    let bytes = wav_bytes(&Audio { samples, rate: RATE });
    let whole = decode_bytes(&bytes, "wav").expect("our own file").samples;
    let part = decode_bytes(&bytes[..44 + 20_001], "wav").expect("ten thousand samples are there").samples;
    assert!((8_000..=10_000).contains(&part.len()), "{}", part.len());
    assert_eq!(part, whole[..part.len()]);
}

#[test]
fn eight_kilohertz_becomes_sixteen_with_the_same_signal() {
    let samples = (0..4800).map(|i| (0.5 * sound(f64::from(i) / 8000.0)) as f32).collect();
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("telephone.wav");
    write_wav(&path, &Audio { samples, rate: 8_000 }).expect("writable");
    let loaded = load_16k(&path).expect("8 kHz is fine");
    assert_eq!(loaded.len(), 9600);
    let distance = distance(&loaded, 16_000, 0, 0.5);
    assert!(distance < 1e-3, "{distance}");
}

#[test]
fn eight_channels_are_averaged() {
    // 7.1: channel c holds c · 1000.
    let frame: Vec<u8> = (0..8i16).flat_map(|c| (c * 1000).to_le_bytes()).collect();
    let audio = decode_bytes(&wav(1, 8, 48_000, 16, &frame.repeat(100)), "wav").expect("eight channels");
    assert_eq!((audio.samples.len(), audio.rate), (100, 48_000));
    assert!(audio.samples.iter().all(|&x| (x - 3500.0 / 32768.0).abs() < 1e-6));
}

#[test]
fn a_float_file_with_nan_or_infinity_names_the_sample() {
    for broken in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut samples = vec![0.25f32; 5000];
        samples[4321] = broken;
        let data: Vec<u8> = samples.iter().flat_map(|x| x.to_le_bytes()).collect();
        let outcome = decode_bytes(&wav(3, 1, 16_000, 32, &data), "wav");
        assert!(matches!(outcome, Err(Error::NotFinite { index: 4321 })), "{outcome:?}");
    }
}

#[test]
fn a_ten_hour_file_is_refused_whole_and_read_in_parts() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("ten_hours.wav");
    let length = 10 * 3600 * 16_000 * 2u32;
    // Only the header is written; the rest is a sparse file.
    let mut header = wav(1, 1, 16_000, 16, &[]);
    header[4..8].copy_from_slice(&(36 + length).to_le_bytes());
    header[40..44].copy_from_slice(&length.to_le_bytes());
    std::fs::write(&path, &header).expect("writable");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .expect("just written")
        .set_len(44 + u64::from(length))
        .expect("a sparse file");

    assert_eq!(probe(&path).expect("a header").seconds(), Some(36_000.0));
    assert!(matches!(unwrapped(decode_file(&path)), Error::TooLong { limit: MAX_SECONDS }));
    let last_second = 16_000 * 35_999;
    assert_eq!(decode_range(&path, last_second..last_second + 20_000).expect("the end").samples.len(), 16_000);
    let mut decoder = Decoder::open(&path).expect("a header");
    assert!(decoder.next_block().expect("a first block").expect("not the end").len() < 100_000, "a block is small");
}

#[test]
fn a_header_that_claims_the_impossible_is_an_error() {
    // Too many channels (65535 make the parser itself overflow); a rate of zero; a rate too high for any resampler.
    for channels in [4000, 65535] {
        assert!(matches!(decode_bytes(&wav(1, channels, 16_000, 16, &[0; 16_000]), "wav"), Err(Error::Decode { .. })));
    }
    assert!(decode_bytes(&wav(1, 1, 0, 16, &[0; 400]), "wav").is_err());
    let odd = decode_bytes(&wav(1, 1, 7, 16, &[0; 400]), "wav").expect("a low rate is still readable");
    assert!(matches!(bregman_audio::resample(&odd, RATE), Err(Error::Config { .. })));
}
