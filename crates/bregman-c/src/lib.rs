//! The runtime for programs in C, and in every language that calls C: open a model file, embed audio, score two
//! embeddings.
//!
//! `include/bregman.h` declares what is here (made by cbindgen, see `cbindgen.toml`); `examples/verify.c` uses it.
//!
//! Rules of the border: every pointer is checked for null and alignment, no panic crosses it, and a function that fails
//! leaves its reason for [`bregman_error_message`] on the same thread.

mod failure;

use std::ffi::{CStr, c_char};
use std::ptr;

use bregman_runtime::{Model, Options, cosine};

pub use failure::{BregmanStatus, bregman_error_message};
use failure::{Failure, guard};

/// An open model.
pub struct BregmanModel(Model);

/// Opens a model file. `threads` work on one utterance; 0 stands for every core. NULL on failure.
///
/// # Safety
/// `path` is NULL or a C string.
#[cfg(not(target_family = "wasm"))]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_open(path: *const c_char, threads: usize) -> *mut BregmanModel {
    opened(|| {
        if path.is_null() {
            return Err(Failure::null("path"));
        }
        // SAFETY: not null, and the caller promises a C string.
        let path = unsafe { CStr::from_ptr(path) };
        let path = path.to_str().map_err(|_| Failure::new(BregmanStatus::Argument, "path is not UTF-8"))?;
        Ok(Model::open_with(path, &Options { threads, ..Options::default() })?)
    })
}

/// Opens a model from the bytes of its file, which may be freed afterwards. `threads` as for `bregman_open`. NULL on
/// failure.
///
/// # Safety
/// `bytes` is NULL or points to `length` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_open_bytes(bytes: *const u8, length: usize, threads: usize) -> *mut BregmanModel {
    opened(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { slice(bytes, length, "bytes") }?;
        Ok(Model::from_bytes_with(bytes, &Options { threads, ..Options::default() })?)
    })
}

/// Frees a model. NULL is fine.
///
/// # Safety
/// `model` is NULL or comes from an open function, nobody uses it any more, and it is closed once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_close(model: *mut BregmanModel) {
    guard(|| {
        if !model.is_null() {
            // SAFETY: it was made by `opened` from a box, and the caller gives it back once.
            drop(unsafe { Box::from_raw(model) });
        }
        Ok(())
    });
}

/// Values of an embedding; 0 if `model` is NULL.
///
/// # Safety
/// `model` is NULL or an open model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_embedding_size(model: *const BregmanModel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { property(model, Model::embedding_size) }
}

/// Samples per second of the audio that the model takes; 0 if `model` is NULL.
///
/// # Safety
/// `model` is NULL or an open model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_sample_rate(model: *const BregmanModel) -> u32 {
    // SAFETY: the caller's promise.
    unsafe { property(model, Model::rate) }
}

/// The fewest samples that have an embedding; 0 if `model` is NULL.
///
/// # Safety
/// `model` is NULL or an open model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_shortest(model: *const BregmanModel) -> usize {
    // SAFETY: the caller's promise.
    unsafe { property(model, Model::shortest) }
}

/// The score above which two recordings are of one speaker; NaN if the model was exported without trials, or is NULL.
///
/// # Safety
/// `model` is NULL or an open model.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_threshold(model: *const BregmanModel) -> f64 {
    let mut threshold = f64::NAN;
    guard(|| {
        // SAFETY: the caller's promise.
        threshold = unsafe { reference(model) }?.threshold().unwrap_or(f64::NAN);
        Ok(())
    });
    threshold
}

/// Computes the embedding of mono samples, nominally from -1 to 1, at the model's rate, into `size` values, which is
/// `bregman_embedding_size`.
///
/// # Safety
/// `model` is NULL or an open model, `samples` NULL or `count` readable values, `embedding` NULL or `size` writable
/// ones.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_embed(
    model: *const BregmanModel,
    samples: *const f32,
    count: usize,
    embedding: *mut f32,
    size: usize,
) -> BregmanStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (model, samples) = unsafe { (reference(model)?, slice(samples, count, "samples")?) };
        if size != model.embedding_size() {
            let problem = format!("size = {size}: an embedding of this model has {} values", model.embedding_size());
            return Err(Failure::new(BregmanStatus::Argument, problem));
        }
        usable(embedding, size, "embedding")?;
        // computed before it is written: `embedding` may overlap `samples`
        let values = model.embed(samples)?;
        // SAFETY: usable, and the caller promises `size` writable values.
        unsafe { ptr::copy_nonoverlapping(values.as_ptr(), embedding, size) };
        Ok(())
    })
}

/// The score of two embeddings of `size` values: their cosine, from -1 to 1.
///
/// # Safety
/// `first` and `second` are NULL or `size` readable values, `score` NULL or a writable one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_score(
    first: *const f32,
    second: *const f32,
    size: usize,
    score: *mut f64,
) -> BregmanStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (first, second) = unsafe { (slice(first, size, "first")?, slice(second, size, "second")?) };
        usable(score, 1, "score")?;
        // SAFETY: usable, and the caller promises that it is writable.
        unsafe { *score = cosine(first, second) };
        Ok(())
    })
}

/// The library's version.
#[unsafe(no_mangle)]
pub extern "C" fn bregman_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

fn opened(open: impl FnOnce() -> Result<Model, Failure>) -> *mut BregmanModel {
    let mut model = ptr::null_mut();
    guard(|| {
        model = Box::into_raw(Box::new(BregmanModel(open()?)));
        Ok(())
    });
    model
}

/// # Safety
/// `model` is NULL or an open model.
unsafe fn property<T: Default>(model: *const BregmanModel, read: impl FnOnce(&Model) -> T) -> T {
    let mut value = T::default();
    guard(|| {
        // SAFETY: the caller's promise.
        value = read(unsafe { reference(model) }?);
        Ok(())
    });
    value
}

/// # Safety
/// `model` is NULL or an open model that lives as long as the reference.
unsafe fn reference<'a>(model: *const BregmanModel) -> Result<&'a Model, Failure> {
    usable(model, 1, "model")?;
    // SAFETY: usable, and the caller's promise.
    Ok(unsafe { &(*model).0 })
}

/// # Safety
/// `values` is NULL or points to `count` values that live and stay as they are as long as the slice.
unsafe fn slice<'a, T>(values: *const T, count: usize, name: &'static str) -> Result<&'a [T], Failure> {
    usable(values, count, name)?;
    // SAFETY: usable, and the caller's promise.
    Ok(unsafe { std::slice::from_raw_parts(values, count) })
}

/// Refuses what no array can be.
fn usable<T>(values: *const T, count: usize, name: &'static str) -> Result<(), Failure> {
    if values.is_null() {
        return Err(Failure::null(name));
    }
    if !values.is_aligned() {
        return Err(Failure::new(BregmanStatus::Argument, format!("{name} is not aligned to its type")));
    }
    if count > isize::MAX as usize / size_of::<T>().max(1) {
        return Err(Failure::new(BregmanStatus::Argument, format!("{name} has an impossible length of {count}")));
    }
    Ok(())
}
