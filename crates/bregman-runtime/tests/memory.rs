//! A model that is opened takes the memory of its weights, and not that of its file besides.

mod common;

use bregman_runtime::{Model, ValueFormat};
use common::{ecapa, random};

#[global_allocator]
static ALLOCATOR: bregman_memory::Counting = bregman_memory::Counting;

#[test]
fn a_dense_file_is_opened_in_hardly_more_memory_than_it_has_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dense.breg");
    random(ecapa(512, 80, 192, true), 0.0, 1).file.write(&path, ValueFormat::F32).unwrap();
    let size = std::fs::metadata(&path).unwrap().len() as f64;
    let (model, taken) = bregman_memory::of_process(|| Model::open(&path).unwrap());
    assert!(size > 2e7 && model.zeros_in_file() == 0.0, "a large dense model: {size} bytes");
    assert!((taken.peak as f64) < 1.05 * size, "{} bytes for a file of {size}", taken.peak);
}
