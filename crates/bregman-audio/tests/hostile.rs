//! Untrusted bytes cause no panic, no hang and no unbounded memory.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bregman_audio::{Decoder, decode_bytes};
use proptest::prelude::*;

/// The system's allocator, recording the peak memory in use.
struct Counting;

static IN_USE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on unchanged to the system's allocator; the counters do not touch the memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = IN_USE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps `GlobalAlloc`'s contract, which is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        IN_USE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above; `pointer` came from `alloc` with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Far above what a file of some kilobytes needs, far below what would do harm.
const MOST_BYTES: usize = 256 << 20;
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
    let (start, before) = (Instant::now(), IN_USE.load(Ordering::Relaxed));
    PEAK.store(before, Ordering::Relaxed);
    if let Ok(audio) = decode_bytes(bytes, extension) {
        assert!(audio.rate > 0 && !audio.samples.is_empty() && audio.samples.iter().all(|x| x.is_finite()));
    }
    if let Ok(decoder) = Decoder::from_bytes(bytes, extension) {
        let _ = decoder.range(9_000..9_100);
    }
    let grown = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(grown < MOST_BYTES, "{} MB for {} bytes of {extension}", grown >> 20, bytes.len());
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
