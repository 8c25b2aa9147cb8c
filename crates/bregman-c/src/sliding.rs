//! Windows that slide over sound which is still arriving.

use std::ptr;

use bregman_runtime::{Sliding, SlidingOptions};

use crate::failure::{BregmanStatus, CallError, guard};
use crate::{BregmanModel, reference, slice, usable, write_embedding};

/// Sound that is still arriving, with what the network has computed of it. One thread uses it at a time.
pub struct BregmanSliding(Sliding<'static>);

/// Begins a recording whose last `window` seconds can be embedded at any time; each embedding costs what is new since
/// the one before. Features lose their mean over `mean` seconds before each frame. NULL on failure.
///
/// # Safety
/// `model` is NULL or an open model that is closed after the result.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_sliding_open(
    model: *const BregmanModel,
    window: f64,
    mean: f64,
) -> *mut BregmanSliding {
    let mut sliding = ptr::null_mut();
    guard(|| {
        // SAFETY: the caller's promise, for as long as the result is open.
        let model = unsafe { reference(model) }?;
        sliding = Box::into_raw(Box::new(BregmanSliding(model.sliding(SlidingOptions { window, mean })?)));
        Ok(())
    });
    sliding
}

/// Takes any number of mono samples, as `bregman_embed` does. After a failure none of them is taken.
///
/// # Safety
/// `sliding` is NULL or open and used by nobody else, `samples` NULL or `count` readable values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_sliding_push(
    sliding: *mut BregmanSliding,
    samples: *const f32,
    count: usize,
) -> BregmanStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let (sliding, samples) = unsafe { (own(sliding)?, slice(samples, count, "samples")?) };
        Ok(sliding.push(samples)?)
    })
}

/// Computes the embedding of the last window, or of everything where less was heard. `embedding` as in
/// `bregman_embed`.
///
/// # Safety
/// `sliding` is NULL or open and used by nobody else, `embedding` NULL or `size` writable values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_sliding_embed(
    sliding: *mut BregmanSliding,
    embedding: *mut f32,
    size: usize,
) -> BregmanStatus {
    guard(|| {
        // SAFETY: the caller's promise.
        let sliding = unsafe { own(sliding) }?;
        let expected = sliding.model().embedding_size();
        // SAFETY: as above.
        unsafe { write_embedding(embedding, size, expected, || Ok(sliding.embed()?)) }
    })
}

/// Ends a recording. NULL is allowed.
///
/// # Safety
/// `sliding` is NULL or comes from `bregman_sliding_open`, is not in use, and is closed only once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bregman_sliding_close(sliding: *mut BregmanSliding) {
    guard(|| {
        if !sliding.is_null() {
            // SAFETY: made from a box, and the caller closes it only once.
            drop(unsafe { Box::from_raw(sliding) });
        }
        Ok(())
    });
}

/// # Safety
/// `sliding` is NULL or open, and nobody else uses it.
unsafe fn own<'a>(sliding: *mut BregmanSliding) -> Result<&'a mut Sliding<'static>, CallError> {
    usable(sliding, 1, "sliding")?;
    // SAFETY: usable, and the caller's promise.
    Ok(unsafe { &mut (*sliding).0 })
}
