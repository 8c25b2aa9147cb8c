//! Any bytes as the files of a run that `bregman plot` draws: never a panic, a hang or a picture without end.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| bregman_fuzz::figures(data));
