//! Any bytes as the file of known speakers: an error, or scores of everybody in it, also after it was written again.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bregman_fuzz::identify(data);
});
