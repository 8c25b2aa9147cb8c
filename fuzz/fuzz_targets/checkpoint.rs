//! Any bytes as a PyTorch checkpoint or safetensors file: an error or tensors, never a panic or unbounded memory.
#![no_main]

use bregman_nn::Checkpoint;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = std::env::temp_dir().join(format!("bregman-fuzz-{}", std::process::id()));
    std::fs::write(&path, data).expect("the temporary folder is writable");
    if let Ok(checkpoint) = Checkpoint::read(&path) {
        let _ = checkpoint.architecture();
    }
});
