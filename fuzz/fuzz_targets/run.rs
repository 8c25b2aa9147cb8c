//! Any bytes as the files of a run that `bregman report` reads: what there is, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bregman_fuzz::report(data);
});
