//! Untrusted bytes cause no panic, no hang and no unbounded memory.

use std::path::Path;
use std::time::{Duration, Instant};

use bregman_audio::{Decoder, Error, decode_bytes};
use bregman_memory::of_thread;
use proptest::prelude::*;

#[global_allocator]
static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;

/// Far above what a file of some kilobytes needs, far below what would do harm.
const MOST_BYTES: isize = 256 << 20;
/// Longer than this counts as a hang, even on a slow machine.
const TOO_LONG: Duration = Duration::from_secs(20);

fn fixtures() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let mut files: Vec<_> =
        std::fs::read_dir(folder).expect("the fixtures").map(|entry| entry.expect("an entry").path()).collect();
    files.sort();
    files.retain(|path| path.extension().is_some_and(|extension| extension != "sh"));
    let extension = |path: &Path| path.extension().expect("an extension").to_string_lossy().into_owned();
    files
        .iter()
        .map(|path| (extension(path), std::fs::read(path).expect("readable")))
        .chain([("wav".into(), wav())])
        .collect()
}

fn wav() -> Vec<u8> {
    bregman_audio::wav_bytes(&bregman_audio::Audio {
        samples: (0..800).map(|i| (i as f32 * 0.1).sin()).collect(),
        rate: 16_000,
    })
}

/// Decodes; the result must be valid, and time and memory bounded.
fn survives(bytes: &[u8], extension: &str) {
    let start = Instant::now();
    // of this thread: tests beside this one have their own
    let ((), taken) = of_thread(|| {
        if let Ok(audio) = decode_bytes(bytes, extension) {
            assert!(audio.rate > 0 && !audio.samples.is_empty() && audio.samples.iter().all(|x| x.is_finite()));
        }
        if let Ok(decoder) = Decoder::from_bytes(bytes, extension) {
            let _ = decoder.range(9_000..9_100);
        }
    });
    assert!(taken.peak < MOST_BYTES, "{} MB for {} bytes of {extension}", taken.peak >> 20, bytes.len());
    assert!(start.elapsed() < TOO_LONG, "{:?} for {} bytes of {extension}", start.elapsed(), bytes.len());
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 3000,
        max_shrink_iters: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn arbitrary_bytes_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..3000),
        extension in "(wav|flac|mp3|m4a|ogg|)",
    ) {
        survives(&bytes, &extension);
    }

    #[test]
    fn arbitrary_bytes_after_a_valid_beginning_are_survived(
        file in 0usize..100,
        keep in 4usize..200,
        tail in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        let fixtures = fixtures();
        let (extension, bytes) = &fixtures[file % fixtures.len()];
        survives(&[&bytes[..keep.min(bytes.len())], &tail].concat(), extension);
    }

    #[test]
    fn valid_files_with_changed_bytes_are_survived(
        file in 0usize..100,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        head_only in any::<bool>(),
    ) {
        let fixtures = fixtures();
        let (extension, bytes) = &fixtures[file % fixtures.len()];
        let mut bytes = bytes.clone();
        let range = if head_only { bytes.len().min(300) } else { bytes.len() };
        changes.iter().for_each(|(at, value)| bytes[at.index(range)] = *value);
        survives(&bytes, extension);
    }

    #[test]
    fn valid_files_with_a_piece_cut_out_are_survived(
        file in 0usize..100,
        a in any::<prop::sample::Index>(),
        b in any::<prop::sample::Index>(),
    ) {
        let fixtures = fixtures();
        let (extension, bytes) = &fixtures[file % fixtures.len()];
        let (a, b) = (a.index(bytes.len()), b.index(bytes.len()));
        survives(&[&bytes[..a.min(b)], &bytes[a.max(b)..]].concat(), extension);
    }
}

#[test]
fn every_length_of_a_truncated_file_is_survived() {
    for (extension, bytes) in fixtures() {
        (0..bytes.len().min(600))
            .chain((600..bytes.len()).step_by(97))
            .for_each(|length| survives(&bytes[..length], &extension));
    }
}

/// FLAC at 655 350 Hz: `frames` of 65 535 equal samples, 14 bytes each.
fn constant_flac(frames: u32) -> Vec<u8> {
    let crc = |bytes: &[u8], polynomial: u32, bits: u32| {
        bytes.iter().fold(0, |crc: u32, &byte| {
            let shifted = |crc: u32, _| if crc >> (bits - 1) & 1 == 1 { crc << 1 ^ polynomial } else { crc << 1 };
            (0..8).fold(crc ^ u32::from(byte) << (bits - 8), shifted) & ((1 << bits) - 1)
        })
    };
    let mut flac = b"fLaC\x80\x00\x00\x22".to_vec();
    flac.extend([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]); // sizes of blocks, and of frames: unknown
    let (rate, bits) = (655_350u64, 16);
    flac.extend((rate << 44 | (bits - 1) << 36).to_be_bytes()); // one channel, unknown length
    flac.extend([0; 16]); // no checksum
    for number in 0..frames {
        let mut frame = vec![0xff, 0xf8, 0b0111_0000, 0b0000_1000];
        let letter = char::from_u32(number).expect("below the surrogates");
        frame.extend(letter.encode_utf8(&mut [0; 4]).as_bytes());
        frame.extend([0xff, 0xfe]); // 65 535 samples
        frame.push(crc(&frame, 0x07, 8) as u8);
        frame.extend([0, 1, 2]); // all of them 258
        frame.extend((crc(&frame, 0x8005, 16) as u16).to_be_bytes());
        flac.extend(frame);
    }
    flac
}

#[test]
fn a_small_file_of_hours_is_refused_before_it_takes_gigabytes() {
    let short = decode_bytes(&constant_flac(2), "flac").unwrap();
    assert!(short.rate == 655_350 && short.samples == vec![258.0 / 32768.0; 2 * 65_535]);
    let long = constant_flac(4000);
    let start = Instant::now();
    let (refused, taken) = of_thread(|| decode_bytes(&long, "flac"));
    assert!(matches!(refused, Err(Error::TooLong { limit: 351 })), "{:?}", refused.map(|audio| audio.samples.len()));
    assert!(taken.peak < 2 << 30, "{} MB for {} bytes", taken.peak >> 20, long.len());
    assert!(start.elapsed() < TOO_LONG);
}
