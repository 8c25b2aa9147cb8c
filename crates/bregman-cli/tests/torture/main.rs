//! Killing and starving the program. `cargo test` runs a short form in seconds, `tools/torture` all of it in minutes.

#[path = "../common/mod.rs"]
mod common;
mod continued;
mod faults;
mod kills;
mod run;
mod synced;
mod trace;
