//! Any bytes as a safetensors file: an error or tensors, never a panic or unbounded memory.
#![no_main]

use std::path::Path;

use bregman_nn::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(checkpoint) = Checkpoint::from_bytes(data, Path::new("fuzz.safetensors")) {
        let _ = checkpoint.architecture();
    }
});
