//! Any bytes as the state and the optimizer of a checkpoint: an error, or a training that goes on.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bregman_fuzz::resume(data);
});
