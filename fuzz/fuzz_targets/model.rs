//! Any bytes as a model file: an error or a model that embeds, never a panic, an out-of-bounds read or unbounded
//! memory.
#![no_main]

use bregman_runtime::{Model, ModelFile};
use libfuzzer_sys::fuzz_target;

/// Only networks with at most this many weights are run, to keep the fuzzer fast.
const RUN: usize = 1 << 20;

/// Sets magic, version and checksum: with wrong ones nothing after them would be read.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() >= 16 {
        bytes[..8].copy_from_slice(b"bregman\n");
        let has_ranges = data.windows(11).any(|word| word == b"input_range");
        bytes[8..12].copy_from_slice(&(1 + u32::from(has_ranges)).to_le_bytes());
        let sum = crc32fast::hash(&bytes[16..]);
        bytes[12..16].copy_from_slice(&sum.to_le_bytes());
    }
    bytes
}

fuzz_target!(|data: &[u8]| {
    let _ = Model::from_bytes(data);
    let bytes = repaired(data);
    let whole = ModelFile::from_bytes(&bytes);
    if let Ok(model) = Model::from_bytes(&bytes) {
        assert!(whole.is_ok(), "one reader takes what the other refuses");
        let weights: usize = model.layers().iter().map(|layer| layer.shape.iter().product::<usize>()).sum();
        if weights <= RUN {
            let features = vec![0.5; 3 * model.architecture().features];
            let embedding = model.embed_features(&features).expect("three finite frames have an embedding");
            assert_eq!(embedding.len(), model.embedding_size());
        }
    }
});
