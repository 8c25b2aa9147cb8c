//! One file per command: its arguments, and what it does with the libraries.

pub(crate) mod bench;
pub(crate) mod demo;
pub(crate) mod embed;
pub(crate) mod enroll;
pub(crate) mod evaluate;
pub(crate) mod export;
pub(crate) mod inspect;
mod inspect_model;
pub(crate) mod plot;
pub(crate) mod prepare;
pub(crate) mod recipes;
pub(crate) mod report;
pub(crate) mod shard;
pub(crate) mod sweep;
pub(crate) mod synth;
pub(crate) mod train;
pub(crate) mod verify;

use crate::failure::Failure;

/// Sets the number of threads that parallel work uses.
fn use_threads(jobs: Option<usize>) -> Result<(), Failure> {
    let Some(jobs) = jobs else { return Ok(()) };
    if jobs == 0 {
        return Err(Failure::mistake("--jobs 0", "pass 1 or more, or leave it out to use every core"));
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(jobs)
        .build_global()
        .map_err(|error| Failure::failed(format!("cannot start threads: {error}")))
}
