//! One suite for every backend and precision. To test a new one, name it here.
//!
//! `suite` runs each operation on a backend and on `reference` (plain f64 loops) and compares; `differences` holds each
//! gradient against finite differences of its forward pass; `properties` has what must hold besides. Shapes are chosen
//! to fill no vector, no block and no tile. What needs a GPU prints `skipped: …` on a machine without one:
//! `cargo test -p bregman-tensor --features cuda --test conformance -- --nocapture`.

mod differences;
mod harness;
mod properties;
mod reference;
mod suite;

use bregman_tensor::{Cpu, Precision, WeightPolicy};
use reference::Reference;

/// Relative errors: a result's distance from the reference by its length.
const F32: f64 = 2e-5;
/// Operands with 10 bits of mantissa.
#[cfg(feature = "cuda")]
const TF32: f64 = 5e-3;
/// Operands with 8 bits, f32 between operations.
const BF16_PRODUCTS: f64 = 1e-2;
/// Everything with many positions in 8 bits.
const BF16_MAPS: f64 = 8e-2;

#[test]
fn the_reference_has_the_gradients_of_its_finite_differences() {
    differences::all(&Reference::new());
    properties::all(&Reference::new());
}

/// So the tolerances for bf16 are those of its rounding, and what a GPU computes beyond them is wrong.
#[test]
fn the_reference_with_maps_in_bf16() {
    suite::conforms(&Reference::with_bf16_maps(), BF16_MAPS);
    suite::exact(&Reference::with_bf16_maps());
}

/// For CPUs that are emulated (`tools/check/aarch64`): all cases take minutes there.
#[test]
fn a_few_cases_of_every_operation_on_the_cpu() {
    for policy in [WeightPolicy::Cheapest, WeightPolicy::Sparse] {
        suite::conforms_in_brief(&Cpu::new().with_weights(policy), F32);
        suite::conforms_in_brief(&Cpu::with_precision(Precision::Bf16).with_weights(policy), BF16_PRODUCTS);
    }
}

#[test]
fn the_cpu_in_f32() {
    let cpu = Cpu::new();
    suite::conforms(&cpu, F32);
    suite::exact(&cpu);
    differences::all(&cpu);
    properties::all(&cpu);
}

#[test]
fn the_cpu_in_f32_with_dense_or_with_sparse_weights() {
    for policy in [WeightPolicy::Dense, WeightPolicy::Sparse] {
        let cpu = Cpu::new().with_weights(policy);
        suite::conforms(&cpu, F32);
        suite::exact(&cpu);
        differences::convolutions(&cpu);
        properties::all(&cpu);
    }
}

#[test]
fn the_cpu_in_bf16() {
    for policy in [WeightPolicy::Cheapest, WeightPolicy::Sparse] {
        let cpu = Cpu::with_precision(Precision::Bf16).with_weights(policy);
        suite::conforms(&cpu, BF16_PRODUCTS);
        suite::exact(&cpu);
    }
}

#[cfg(feature = "cuda")]
mod on_a_gpu {
    use bregman_tensor::cuda::Cuda;
    use bregman_tensor::{DeviceMemory, Error, Precision, Storage};

    use super::{BF16_MAPS, F32, TF32, differences, properties, suite};

    #[test]
    fn cuda_in_f32() {
        if let Some(cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) {
            suite::conforms(&cuda, F32);
            suite::exact(&cuda);
            differences::all(&cuda);
            differences::convolutions(&cuda);
            properties::all(&cuda);
        }
    }

    #[test]
    fn cuda_in_tf32() {
        if let Some(cuda) = Cuda::open_or_skip(Precision::Tf32, bregman_skip::no_gpu) {
            suite::conforms(&cuda, TF32);
            suite::exact(&cuda);
        }
    }

    #[test]
    fn cuda_in_bf16() {
        if let Some(cuda) = Cuda::open_or_skip(Precision::Bf16, bregman_skip::no_gpu) {
            suite::conforms(&cuda, BF16_MAPS);
            suite::exact(&cuda);
        }
    }

    #[test]
    fn a_buffer_that_no_gpu_has_room_for_is_refused_and_the_gpu_goes_on() {
        if let Some(cuda) = Cuda::open_or_skip(Precision::F32, bregman_skip::no_gpu) {
            let error = cuda.alloc(1 << 40, Storage::Exact).err().expect("no GPU has 4 TiB");
            assert!(matches!(error, Error::OutOfMemory { asked: Some(bytes), free: Some(_) } if bytes == 4 << 40));
            let sentence = error.to_string();
            assert!(sentence.starts_with("out of GPU memory: 4194304.0 MiB asked for, "), "{sentence}");
            assert!(sentence.ends_with(" MiB free"), "{sentence}");
            assert!(error.hint().is_some_and(|hint| hint.contains("train.batch")));
            properties::all(&cuda);
        }
    }
}
