//! Any bytes as a PyTorch checkpoint, and as the pickle inside one: an error or tensors, never a panic, a stack
//! overflow or unbounded memory.
#![no_main]

use std::path::Path;

use bregman_fuzz::archive;
use bregman_nn::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for bytes in [data, &archive(&[("fuzz/data.pkl", data), ("fuzz/data/0", &[63; 256])])] {
        if let Ok(checkpoint) = Checkpoint::from_bytes(bytes, Path::new("fuzz.pt")) {
            let _ = checkpoint.architecture();
        }
    }
});
