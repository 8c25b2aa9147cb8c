//! Several processes that work together, as `mpirun`, `srun`, `torchrun` or `--gpus` started them.

mod gpus;
mod launcher;

use std::process::Command;
use std::sync::OnceLock;

use bregman_train::Ranks;
use launcher::Meeting;

use crate::exit::Exit;
use crate::failure::Failure;

pub(crate) use gpus::{GpuCount, start_one_per_gpu};

/// The ranks that this process has joined.
static JOINED: OnceLock<Ranks> = OnceLock::new();

fn environment(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Joins the others where a launcher started several processes; alone otherwise. The first thing that a command does.
pub(crate) fn join() -> Result<Ranks, Failure> {
    let ranks = match Meeting::read(&environment, cfg!(feature = "mpi"))? {
        Meeting::Alone => return Ok(Ranks::ALONE),
        Meeting::Mpi { launcher, size } => {
            let Some(ranks) = join_mpi()? else {
                return Err(launcher::without_mpi(launcher, cfg!(feature = "cuda")));
            };
            if ranks.size() != size {
                return Err(Failure::mistake(
                    format!("{launcher} says that {size} processes were started, but MPI sees {}", ranks.size()),
                    "start them with the mpirun of the MPI that this program was built with, or with srun --mpi=pmix",
                ));
            }
            ranks
        }
        Meeting::Address { rank, size, address } => match join_gpus(rank, size, &address) {
            Err(_) if size == 1 => return Ok(Ranks::ALONE), // without a GPU or NCCL it has nobody to miss
            joined => joined?,
        },
    };
    Ok(JOINED.get_or_init(|| ranks).clone())
}

#[cfg(feature = "cuda")]
fn join_gpus(rank: usize, size: usize, address: &str) -> Result<Ranks, Failure> {
    let joined = bregman_train::NcclRanks::join(launcher::local_rank(&environment), rank, size, address);
    joined.map(Ranks::new).map_err(|error| {
        Failure::mistake(
            format!("rank {rank} of {size} cannot join the others at {address}: {error}"),
            "each needs a GPU of its own and libnccl.so.2; processes without GPUs are started with mpirun",
        )
    })
}

#[cfg(not(feature = "cuda"))]
fn join_gpus(_: usize, size: usize, _: &str) -> Result<Ranks, Failure> {
    Err(Failure::mistake(
        format!("WORLD_SIZE = {size}: ranks without GPUs find each other by MPI, not by torchrun's variables"),
        format!("start them with `mpirun -n {size} bregman …`, or build with --features cuda"),
    ))
}

/// The processes of this job of MPI; `None` in a program without it.
#[cfg(feature = "mpi")]
fn join_mpi() -> Result<Option<Ranks>, Failure> {
    let mpi = bregman_train::Mpi::join().map_err(|error| Failure::failed(error.to_string()))?;
    Ok(Some(Ranks::new(mpi)))
}

#[cfg(not(feature = "mpi"))]
fn join_mpi() -> Result<Option<Ranks>, Failure> {
    Ok(None)
}

/// The number of this process among those of its machine; 0 where it has not joined others.
pub(crate) fn local_rank() -> usize {
    JOINED.get().map_or(0, |_| launcher::local_rank(&environment))
}

/// Whether this process talks for all that were started with it, if there are others.
pub(crate) fn leads() -> bool {
    JOINED.get().is_none_or(Ranks::leads)
}

/// Removes the launcher's variables from a child process, so that it runs alone and not as a rank.
pub(crate) fn start_alone(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| launcher::is_launchers(&name.to_string_lossy())) {
        command.env_remove(name);
    }
}

/// The rank whose words these are, where there are several: `rank 2: `.
pub(crate) fn prefix() -> String {
    match JOINED.get() {
        Some(ranks) if ranks.size() > 1 => format!("rank {}: ", ranks.rank()),
        _ => String::new(),
    }
}

/// Before this process ends: says goodbye to the other ranks, or ends them too where this one has failed.
pub(crate) fn leave(exit: Exit) {
    let Some(ranks) = JOINED.get() else { return };
    if matches!(exit, Exit::Failed | Exit::Mistake) {
        ranks.abort(i32::from(exit as u8));
    }
    ranks.leave();
}
