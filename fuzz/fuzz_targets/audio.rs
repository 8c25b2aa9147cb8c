//! Any bytes as an audio file: an error or finite samples, never a panic, a hang or unbounded memory.
#![no_main]

use bregman_audio::{Decoder, decode_bytes};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: bregman_fuzz::codecs_may_panic(), |data: &[u8]| {
    if let Ok(audio) = decode_bytes(data, "") {
        assert!(audio.rate > 0 && !audio.samples.is_empty() && audio.samples.iter().all(|sample| sample.is_finite()));
    }
    if let Ok(decoder) = Decoder::from_bytes(data, "") {
        let _ = decoder.range(9_000..9_100);
    }
});
