//! Any bytes as a model file: an error or a model that embeds, never a panic, an out-of-bounds read or all of the memory.
#![no_main]

use bregman_runtime::{Model, ModelFile};
use libfuzzer_sys::fuzz_target;

/// Weights of networks that are also run: larger ones would only be slow.
const RUN: usize = 1 << 20;

/// Magic, version and checksum as they must be: with wrong ones nothing behind them would ever be read.
fn repaired(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    if bytes.len() >= 16 {
        bytes[..8].copy_from_slice(b"bregman\n");
        bytes[8..12].copy_from_slice(&1u32.to_le_bytes());
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
