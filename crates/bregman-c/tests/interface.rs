//! The functions called as from C: results, invalid arguments, threads.

mod common;

use std::ffi::{CStr, CString};
use std::ptr::{null, null_mut};

use bregman_c::{
    BregmanModel, BregmanStatus, bregman_close, bregman_embed, bregman_embedding_size, bregman_error_message,
    bregman_open, bregman_open_bytes, bregman_sample_rate, bregman_score, bregman_shortest, bregman_sliding_close,
    bregman_sliding_embed, bregman_sliding_open, bregman_sliding_push, bregman_threshold, bregman_version,
};

fn message() -> String {
    // SAFETY: the message is a C string until the next failure on this thread.
    unsafe { CStr::from_ptr(bregman_error_message()) }.to_str().unwrap().to_owned()
}

/// A model that is closed on drop, shared between threads as the header allows.
struct Open(*mut BregmanModel);

// SAFETY: the interface promises that a model may be used from several threads at a time.
unsafe impl Sync for Open {}

impl Open {
    fn new(bytes: &[u8]) -> Self {
        // SAFETY: the bytes are a slice.
        let model = unsafe { bregman_open_bytes(bytes.as_ptr(), bytes.len(), 1) };
        assert!(!model.is_null(), "{}", message());
        Self(model)
    }

    fn embed(&self, samples: &[f32]) -> (BregmanStatus, Vec<f32>) {
        // SAFETY: the model is open; lengths are those of the slices.
        unsafe {
            let mut embedding = vec![0.0; bregman_embedding_size(self.0)];
            (bregman_embed(self.0, samples.as_ptr(), samples.len(), embedding.as_mut_ptr(), embedding.len()), embedding)
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: open, and closed here only.
        unsafe { bregman_close(self.0) }
    }
}

fn sound(seed: usize, count: usize) -> Vec<f32> {
    (0..count).map(|i| 0.3 * ((i * (seed + 3)) as f32 * 0.013).sin() + 0.1 * ((i * i % 977) as f32).cos()).collect()
}

#[test]
fn more_threads_than_any_machine_has_are_refused() {
    let bytes = common::model();
    // SAFETY: the bytes are a slice.
    let model = unsafe { bregman_open_bytes(bytes.as_ptr(), bytes.len(), 5000) };
    assert!(model.is_null() && message().contains("5000 were asked for, at most 1024"), "{}", message());
}

#[test]
fn embeddings_scores_and_properties_are_the_runtimes() {
    let bytes = common::model();
    let runtime = bregman_runtime::Model::from_bytes(&bytes).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.breg");
    std::fs::write(&path, &bytes).unwrap();
    let path = CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: a C string.
    let from_file = Open(unsafe { bregman_open(path.as_ptr(), 2) });
    assert!(!from_file.0.is_null(), "{}", message());
    let from_bytes = Open::new(&bytes);
    let (first, second) = (sound(1, 20_000), sound(2, 30_000));
    let expected = [runtime.embed(&first).unwrap(), runtime.embed(&second).unwrap()];
    for model in [&from_file, &from_bytes] {
        for (samples, expected) in [&first, &second].into_iter().zip(&expected) {
            assert_eq!(model.embed(samples), (BregmanStatus::Ok, expected.clone()));
        }
        // SAFETY: the model is open.
        let (rate, shortest, threshold) =
            unsafe { (bregman_sample_rate(model.0), bregman_shortest(model.0), bregman_threshold(model.0)) };
        assert_eq!((rate, shortest, threshold), (runtime.rate(), runtime.shortest(), 0.25));
    }
    let mut score = f64::NAN;
    // SAFETY: lengths are those of the vectors.
    let status = unsafe { bregman_score(expected[0].as_ptr(), expected[1].as_ptr(), expected[0].len(), &mut score) };
    assert_eq!((status, score), (BregmanStatus::Ok, bregman_runtime::cosine(&expected[0], &expected[1])));
    // SAFETY: a constant C string.
    assert_eq!(unsafe { CStr::from_ptr(bregman_version()) }.to_str().unwrap(), env!("CARGO_PKG_VERSION"));
}

#[test]
fn invalid_arguments_are_errors_with_a_reason() {
    let bytes = common::model();
    let model = Open::new(&bytes);
    let samples = sound(1, 8_000);
    let mut embedding = model.embed(&samples).1;
    let size = embedding.len();
    let mut score = 0.0;
    // SAFETY: every pointer is NULL or valid for the length passed with it; misaligned and impossible ones are refused
    // before they are read.
    unsafe {
        bregman_close(null_mut());
        assert!(bregman_open(null(), 1).is_null() && message() == "path is NULL");
        assert!(bregman_open(c"/absent/model.breg".as_ptr(), 1).is_null() && message().contains("/absent/model.breg"));
        assert!(bregman_open(c"\xff".as_ptr(), 1).is_null() && message().contains("UTF-8"));
        assert!(bregman_open_bytes(null(), 9, 1).is_null() && message() == "bytes is NULL");
        assert!(bregman_open_bytes(bytes.as_ptr(), usize::MAX, 1).is_null() && message().contains("impossible"));
        assert_eq!((bregman_embedding_size(null()), bregman_sample_rate(null()), bregman_shortest(null())), (0, 0, 0));
        assert!(bregman_threshold(null()).is_nan() && message() == "model is NULL");

        let embed = |model, samples, count, embedding, size, expected, reason: &str| {
            assert_eq!(bregman_embed(model, samples, count, embedding, size), expected, "{reason}");
            assert!(message().contains(reason), "{reason}: {}", message());
        };
        use BregmanStatus::{Argument, Audio};
        let (good, out) = (samples.as_ptr(), embedding.as_mut_ptr());
        embed(null(), good, 8_000, out, size, Argument, "model is NULL");
        embed(model.0, null(), 8_000, out, size, Argument, "samples is NULL");
        embed(model.0, good, 8_000, null_mut(), size, Argument, "embedding is NULL");
        embed(model.0, good, 8_000, out, size + 1, Argument, "size");
        embed(model.0, good.byte_add(1), 100, out, size, Argument, "samples is not aligned");
        embed(model.0, good, 10, out, size, Audio, "are too few");
        embed(model.0, [f32::NAN; 8_000].as_ptr(), 8_000, out, size, Audio, "not finite");
        assert_eq!(bregman_score(null(), good, 1, &mut score), Argument);
        assert_eq!(bregman_score(good, good, 1, null_mut()), Argument);
    }
    let mut altered = bytes.clone();
    altered[bytes.len() / 2] ^= 1;
    for broken in [&altered[..], &bytes[..bytes.len() - 1], b"RIFF", b""] {
        // SAFETY: a slice.
        assert!(unsafe { bregman_open_bytes(broken.as_ptr(), broken.len(), 1) }.is_null());
        assert!(message().contains("model"), "{}", message());
    }
}

#[test]
fn windows_that_slide_are_the_runtimes() {
    let bytes = common::model();
    let (model, runtime) = (Open::new(&bytes), bregman_runtime::Model::from_bytes(&bytes).unwrap());
    let options = bregman_runtime::SlidingOptions { window: 1.0, mean: 1.0 };
    let mut expected = runtime.sliding(options).unwrap();
    let samples = sound(3, 40_000);
    let mut embedding = vec![0.0; runtime.embedding_size()];
    let (out, size) = (embedding.as_mut_ptr(), embedding.len());
    // SAFETY: every pointer is NULL or valid for the length passed with it; the model is closed last.
    unsafe {
        use BregmanStatus::{Argument, Audio, Ok};
        assert!(bregman_sliding_open(null(), 1.0, 1.0).is_null() && message() == "model is NULL");
        assert!(bregman_sliding_open(model.0, 0.0, 1.0).is_null() && message().contains("window"));
        let sliding = bregman_sliding_open(model.0, 1.0, 1.0);
        assert_eq!(bregman_sliding_embed(sliding, out, size), Audio, "nothing heard yet");
        for piece in samples.chunks(7_000) {
            expected.push(piece).unwrap();
            assert_eq!(bregman_sliding_push(sliding, piece.as_ptr(), piece.len()), Ok);
            assert_eq!(bregman_sliding_embed(sliding, out, size), Ok);
            assert_eq!(std::slice::from_raw_parts(out, size), expected.embed().unwrap());
        }
        assert_eq!(bregman_sliding_push(sliding, [f32::NAN].as_ptr(), 1), Audio);
        assert_eq!(bregman_sliding_push(sliding, null(), 1), Argument);
        assert_eq!(bregman_sliding_embed(sliding, out, size + 1), Argument);
        assert_eq!(bregman_sliding_embed(null_mut(), out, size), Argument);
        bregman_sliding_close(sliding);
        bregman_sliding_close(null_mut());
    }
}

#[test]
fn one_model_serves_many_threads() {
    let model = Open::new(&common::model());
    let model = &model;
    let expected: Vec<_> = (0..4).map(|i| model.embed(&sound(i, 6_000 + 500 * i))).collect();
    std::thread::scope(|scope| {
        for (i, expected) in expected.iter().enumerate() {
            scope.spawn(move || (0..5).for_each(|_| assert_eq!(&model.embed(&sound(i, 6_000 + 500 * i)), expected)));
        }
    });
}
